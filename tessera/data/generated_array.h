// Arrays that no file holds: a generator makes the elements when they are read.
//
//   "universes(width=16,samples=4096,seed=1):volumes"
//
// Such a name may replace that of a dataset anywhere (array_file.h). Generators and their arguments
// are a table in generated_array.cc, described in docs/guides/data.md.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/data/array_file.h"

namespace tessera {

// Returns whether the text is the call of a generator, "name(...)", and no path of a file.
bool is_generator(std::string_view path);
// Opens the generator's array. Errors: no such generator or dataset, a wrong argument.
Result<std::unique_ptr<ArrayFile>> open_generated(const ArrayName& name);

}  // namespace tessera
