// Reads the data file of architecture.h, tessera/models/data/architectures.toml, which says what
// each key means. Names in the table are in lower case; hyphens in them are only for people.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/data_file.h"
#include "tessera/base/result.h"
#include "tessera/models/architecture.h"

namespace tessera {

struct ArchitectureTable {
  std::vector<Architecture> models;  // includes models without a builder
  std::vector<std::pair<std::string, Form>> series;
  // By model: how the published one differs from the form that has its sizes.
  std::map<std::string, std::string, std::less<>> approximations;
  // `before`: words that may precede a known name ("Meta-Llama-3-8B").
  std::vector<std::string> before;
  // `glued`: words that may follow a known name without a blank. `other`: words that, if they
  // follow a known name, make it the name of another model.
  std::vector<std::string> glued, other;
};

// Reads the table. Returns an error with file:line for an unknown key, column or form, a row with
// more or fewer cells than columns, a name that occurs twice, or a table without kind and source.
Result<ArchitectureTable> parse_architectures(std::string_view toml, std::string_view file);
// Returns the data files of this module, which CMake puts into the program.
const TextFiles& model_data();
const ArchitectureTable& architecture_table();  // the table of the program's data file

}  // namespace tessera
