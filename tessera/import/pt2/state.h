// Keeps the module's state_dict in an imported folder, so that trained parameters go back to
// PyTorch under the module's own names and shapes. The file module.safetensors holds the arrays of
// the state_dict that the graph does not have (buffers, parameters that no op reads). Its metadata
// names every other array of the state_dict, with the parameter of the graph that has the elements
// ("of"):
//
//   "parameters": {"head.weight": {"of": "tok.weight", "shape": [40, 16]}, ...}
//
// The graph may split a dim of a parameter into several dims, but the order of the elements is the
// same. If two arrays name the same parameter, they are tied.
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

// Returns the metadata of module.safetensors for these arrays.
std::map<std::string, std::string> state_metadata(const std::vector<StateArray>& arrays);
// Reads the arrays from the metadata of module.safetensors. Returns an error (invalid input) if the
// file has no such metadata.
Result<std::vector<StateArray>> read_state(const SafetensorsFile& file);

// Writes the state_dict as model.safetensors in a new folder. The parameters of the graph come from
// the request's weights, and all other arrays from the imported folder. Returns an error (invalid
// input) if the request's model is not the graph of an imported folder, or if the weights belong to
// another model.
Result<ExportedWeights> export_state(const WeightsRequest& request);

}  // namespace tessera::pt2
