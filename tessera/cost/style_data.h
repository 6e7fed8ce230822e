// Reads the file tessera/cost/data/styles.toml, which has the presets of styles and the origin of
// each of their values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/data_file.h"
#include "tessera/cost/style.h"

namespace tessera {

const TextFiles& cost_data();  // the files in tessera/cost/data, made by CMake

// `StyleValues` are options of a preset, written "key=value", that come from the same origin.
struct StyleValues {
  Origin origin;
  std::vector<std::string> options;
};

struct StylePreset {
  std::string name, summary;
  std::string years;              // the releases that the style describes, as "2019 to 2022"
  std::vector<std::string> also;  // other names that parse_style() takes for it
  std::vector<StyleValues> values;
  Style style;
};

// Reads the presets. Errors, with file:line: an unknown key or option; a value without kind and
// source; a name that two presets have.
Result<std::vector<StylePreset>> parse_styles(std::string_view toml, std::string_view file);
const std::vector<StylePreset>& style_presets();  // those of the built-in file, in its order

}  // namespace tessera
