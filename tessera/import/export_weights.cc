#include "tessera/import/export_weights.h"

#include "tessera/import/huggingface/folder.h"
#include "tessera/import/pt2/state.h"

namespace tessera {

const std::vector<WeightsTarget>& weight_targets() {
  static const std::vector<WeightsTarget> table{
      {"hf", "weights as a Hugging Face folder", "transformers 5.23", export_huggingface},
      {"pt2", "weights as the state_dict of an imported module", "PyTorch 2.13",
       pt2::export_state}};
  return table;
}

const WeightsTarget* find_weights_target(std::string_view name) {
  for (const WeightsTarget& target : weight_targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace tessera
