// The file tessera/cost/data/styles.toml: presets of styles, and the origin of each of their
// values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/data_file.h"
#include "tessera/cost/style.h"

namespace tessera {

const TextFiles& cost_data();  // the files in tessera/cost/data, made by CMake

// Values of a preset that have an origin in common, as "key=value".
struct StyleValues {
  Origin origin;
  std::vector<std::string> options;
};

struct StylePreset {
  std::string name, summary;
  std::vector<StyleValues> values;
  Style style;
};

// Reads the presets. Errors: file:line of an unknown key or option, a value without kind and
// source, a name twice.
Result<std::vector<StylePreset>> parse_styles(std::string_view toml, std::string_view file);
const std::vector<StylePreset>& style_presets();  // of the program, in the order of the file

}  // namespace tessera
