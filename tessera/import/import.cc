#include "tessera/import/import.h"

#include <fmt/format.h>

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
       {}},
      pt2_importer()};
  return table;
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
