// The sizes of a model as arguments of Megatron-Core: Megatron-LM takes them as flags, Megatron
// Bridge (NeMo) as fields of `model`. One table serves both.
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
  std::string field_value;  // the field's value, if not `value`
  std::string meaning;
};
// Arguments in the order of writing. `left_out` has the keys of the spec that say nothing of a
// plan's cost and that these frameworks lack. Families: gpt, llama, mixtral; the sizes of other
// families are not known, and `left_out` says so.
struct ModelSizes {
  std::string script;  // the script of Megatron-LM that trains the family: "pretrain_gpt.py"
  std::vector<SizeArgument> arguments;
  std::vector<std::string> left_out;
};
Result<ModelSizes> model_sizes(const Model& model);
// Returns the families that a script of Megatron-LM trains.
std::vector<std::string> megatron_families();

// Returns the number of a key in the model's spec; nothing if the spec has no such key.
std::optional<int64_t> spec_number(const Model& model, std::string_view key);

}  // namespace tessera
