// The texts of tessera/cluster/presets/*.toml, put into the program by CMake.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// Returns a pair (file name without .toml, text) for each preset, in the order of the names.
const std::vector<std::pair<std::string_view, std::string_view>>& preset_files();

}  // namespace tessera
