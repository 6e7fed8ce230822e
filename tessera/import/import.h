// Imports a model that another tool has written into a folder that every command takes:
//
//   OUT/model.graph           the forward graph in the text form (or OUT/config.json, where one of
//                             our families computes the same function)
//   OUT/*.safetensors         the parameters, under the names of our graph; module.safetensors of a
//                             PyTorch module holds the rest of its state_dict (pt2/state.h)
//
// Each kind of input is one row of importers(), which has a function that says which paths the
// importer takes and a function that imports them. An import that fails leaves no files.
//
//   TESSERA_TRY(const Importer* importer, importer_of("model.pt2"));
//   TESSERA_TRY(const ImportReport report, importer->run({"model.pt2", "model", {}}));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct ImportRequest {
  std::string path;                             // the file or folder to import
  std::string out;                              // the folder to write; it must not exist
  std::map<std::string, std::string> settings;  // settings of the importer, by key
};

struct ImportReport {
  std::string model;  // MODEL for the other commands: a path in the folder `out`
  // a file or folder of safetensors in the folder `out`; "" if what was imported has no weights
  std::string weights;
  int64_t arrays = 0;      // number of parameters, each one array
  int64_t parameters = 0;  // elements of all parameters
  int64_t bytes = 0;       // bytes written
  std::vector<std::string> carried =
      {};  // names of files that were copied unchanged, for example tokenizer.json
  std::vector<std::string> notes = {};  // sentences that tell a user what to know
};

struct Importer {
  std::string name, summary;  // for the help text
  bool (*accepts)(const std::string& path);
  Result<ImportReport> (*run)(const ImportRequest& request);
  // The keys that `settings` may have, as pairs of key and meaning.
  std::vector<std::pair<std::string, std::string>> keys;
};
const std::vector<Importer>& importers();
// Returns an error that names the key if the importer has no such key. `where` begins the message.
Status check_settings(const Importer& importer, const std::map<std::string, std::string>& settings,
                      std::string_view where);
// Returns the importer of the path, or an error if no importer takes it.
Result<const Importer*> importer_of(const std::string& path);

}  // namespace tessera
