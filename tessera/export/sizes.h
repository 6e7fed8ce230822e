// The sizes of a model as arguments of Megatron-Core, which Megatron-LM takes as flags and Megatron
// Bridge (NeMo) as fields of `model`: one table for both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/models/model.h"

namespace tessera {

struct SizeArgument {
  std::string flag;         // "num-query-groups", without dashes in front
  std::string field;        // "num_query_groups"; "": the field follows from others
  std::string value;        // "" for a switch
  std::string field_value;  // of the field, where that is not `value`
  std::string meaning;
};
// In the order in which they are written. Keys of the spec that say nothing of a plan's cost and
// that these frameworks lack go to `left_out`. Families: gpt, llama, mixtral; of others the sizes
// are not known, and `left_out` says so.
struct ModelSizes {
  std::string script;  // of Megatron-LM that trains the family: "pretrain_gpt.py"
  std::vector<SizeArgument> arguments;
  std::vector<std::string> left_out;
};
Result<ModelSizes> model_sizes(const Model& model);
// Those that a script of Megatron-LM trains.
std::vector<std::string> megatron_families();

// The number that a key of the model's spec has; nothing if it has no such key.
std::optional<int64_t> spec_number(const Model& model, std::string_view key);

}  // namespace tessera
