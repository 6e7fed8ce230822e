#include "tessera/import/import.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/pt2.h"

namespace tessera {

const std::vector<Importer>& importers() {
  static const std::vector<Importer> table{
      {"huggingface",
       "a Hugging Face folder with config.json and *.safetensors",
       is_huggingface_folder,
       import_huggingface,
       {{"mtp", "depths of multi-token prediction whose arrays are imported too"}}},
      pt2_importer()};
  return table;
}

Status check_settings(const Importer& importer, const std::map<std::string, std::string>& settings,
                      std::string_view where) {
  std::vector<std::string> keys;
  for (const auto& [key, help] : importer.keys) keys.push_back(key);
  for (const auto& [key, value] : settings) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return invalid_input(fmt::format(
        "{}: expected {}, found '{}'", where,
        keys.empty() ? "no key for " + importer.name : "one of " + join(keys, ", "), key));
  }
  return {};
}

Result<const Importer*> importer_of(const std::string& path) {
  std::vector<std::string> known;
  for (const Importer& importer : importers()) {
    if (importer.accepts(path)) return &importer;
    known.push_back(fmt::format("{} ({})", importer.name, importer.summary));
  }
  return invalid_input(fmt::format("import: {}: expected one of: {}", path, join(known, ", ")));
}

}  // namespace tessera
