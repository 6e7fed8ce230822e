// Exports weights in the form that another tool reads. The input is a file or folder of safetensors
// under our names, and the model of these weights; the output is a folder of the other tool. Each
// kind of folder is one row of weight_targets(); `tessera export --to` takes the names of these
// rows, and for plans the names of export_targets().
//
//   const WeightsTarget* target = find_weights_target("hf");
//   TESSERA_TRY(const ExportedWeights done, target->run({"out", "llama:layers=2", "folder"}));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct WeightsRequest {
  std::string weights;  // a file or folder of safetensors under our names
  std::string model;    // the text of the model to which the weights belong
  std::string out;      // the folder to write; it must not exist
};

struct ExportedWeights {
  int64_t arrays = 0;      // arrays written, as the other tool counts them
  int64_t parameters = 0;  // elements of all arrays
  int64_t bytes = 0;       // bytes of the file of weights
  std::vector<std::string> carried =
      {};  // names of files that were copied unchanged, for example tokenizer.json
  std::vector<std::string> notes = {};  // sentences that tell a user what to know
};

struct WeightsTarget {
  std::string name, summary, version;  // for the help text
  Result<ExportedWeights> (*run)(const WeightsRequest& request);
};
const std::vector<WeightsTarget>& weight_targets();
const WeightsTarget* find_weights_target(std::string_view name);  // null if unknown

}  // namespace tessera
