// Arrays that no file holds: a generator makes the elements when they are read.
//
//   "universes(width=16,samples=4096,seed=1):volumes"
//
// Such a name may be used wherever the name of a dataset may (array_file.h). A table in
// generated_array.cc lists the generators and their arguments; docs/guides/data.md describes them.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/data/array_file.h"

namespace tessera {

// Returns whether the text has the form of a generator's call, "name(...)", rather than of a path.
bool is_generator(std::string_view path);
// Opens an array of a generator. Errors: there is no such generator or dataset; an argument is
// wrong.
Result<std::unique_ptr<ArrayFile>> open_generated(const ArrayName& name);

}  // namespace tessera
