// Keeps the module's state_dict in an imported folder, so that trained parameters go back to
// PyTorch under the module's own names and shapes. The file module.safetensors holds the arrays
// that the graph does not have (buffers, parameters that no op reads), and says in its metadata for
// each other array which parameter of the graph it is:
//
//   "parameters": {"head.weight": {"of": "tok.weight", "shape": [40, 16]}, ...}
//
// The graph may have cut a parameter's dims in parts; the order of the elements is the same. Two
// names of one parameter are tied.
//
//   TESSERA_TRY(const SafetensorsFile file, SafetensorsFile::open("mine/module.safetensors"));
//   TESSERA_TRY(const std::vector<StateArray> arrays, read_state(file));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/import/export_weights.h"
#include "tessera/state/safetensors.h"

namespace tessera::pt2 {

inline constexpr const char* kStateFile = "module.safetensors";

struct StateArray {
  std::string name;            // name in the module
  std::vector<int64_t> shape;  // shape in the module
  std::string parameter;       // name in the graph
};

// Returns the metadata of the file.
std::map<std::string, std::string> state_metadata(const std::vector<StateArray>& arrays);
// Reads the metadata. Returns an error (invalid input) if the file has none.
Result<std::vector<StateArray>> read_state(const SafetensorsFile& file);

// Writes the state_dict as model.safetensors in a new folder: the parameters from the weights, all
// else as it was imported. The request's model is the graph of an imported folder. Returns an error
// (invalid input) if the model is not such a graph, or the weights are of another model.
Result<ExportedWeights> export_state(const WeightsRequest& request);

}  // namespace tessera::pt2
