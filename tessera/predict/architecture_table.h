// The data behind architecture.h: tessera/predict/data/architectures.toml, which says what each key
// means. Names are in lower case without blanks, hyphens and underscores.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/predict/architecture.h"

namespace tessera {

struct ArchitectureTable {
  std::vector<Architecture> models;  // also those without a builder
  std::vector<std::pair<std::string, Form>> series;
  // Words that may follow a name without a blank, and words that make it another model's name.
  std::vector<std::string> glued, other;
};

// Reads the table. Errors: file:line of an unknown key, column or form, a row of another length
// than its columns, a name twice, a table without kind and source.
Result<ArchitectureTable> parse_architectures(std::string_view toml, std::string_view file);
const ArchitectureTable& architecture_table();  // of the program

}  // namespace tessera
