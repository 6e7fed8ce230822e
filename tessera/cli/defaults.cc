#include "tessera/cli/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "tessera/base/data_file.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"

namespace tessera::cli {
namespace {

constexpr std::array<const char*, 3> kKeys = {"cluster", "style", "precision"};

// Returns the files in the order in which they count.
std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> out = {"tessera.toml"};
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (config != nullptr && *config != '\0') {
    out.emplace_back(std::filesystem::path(config) / "tessera" / "defaults.toml");
  } else if (home != nullptr && *home != '\0') {
    out.emplace_back(std::filesystem::path(home) / ".config" / "tessera" / "defaults.toml");
  }
  return out;
}

Status read_file_of_defaults(const std::string& file, std::vector<Default>& out) {
  TESSERA_TRY(const std::string text, read_file(file));
  TESSERA_TRY(const DataTable table, parse_data(text, file));
  for (const char* key : kKeys) {
    std::string value;
    TESSERA_TRY_VOID(table.text(key, value));
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const Default& one) { return one.key == key; });
    if (!value.empty() && !known) out.push_back({key, value, file});
  }
  TESSERA_TRY(const auto unknown, table.settings());
  if (unknown.empty()) return {};
  const std::vector<std::string> keys(kKeys.begin(), kKeys.end());
  return table.error(fmt::format("unknown key '{}'{} (a file of defaults has {})",
                                 unknown.front().first, did_you_mean(unknown.front().first, keys),
                                 join(keys, ", ")));
}

}  // namespace

Result<std::vector<Default>> read_defaults() {
  std::vector<Default> out;
  for (const std::filesystem::path& file : files()) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) continue;
    TESSERA_TRY_VOID(read_file_of_defaults(file.string(), out));
  }
  return out;
}

}  // namespace tessera::cli
