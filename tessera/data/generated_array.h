// Arrays that no file holds: a generator makes what is read of them.
//
//   "universes(width=16,samples=4096,seed=1):volumes"
//
// Such a name stands wherever that of a dataset may (array_file.h). Generators and their arguments
// are a table in generated_array.cc, described in docs/guides/data.md.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/data/array_file.h"

namespace tessera {

// Is it the call of a generator, "name(...)", and no path of a file?
bool is_generator(std::string_view path);
// Errors: no such generator or dataset, a wrong argument.
Result<std::unique_ptr<ArrayFile>> open_generated(const ArrayName& name);

}  // namespace tessera
