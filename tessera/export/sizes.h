// The sizes of a model as arguments of Megatron-Core. Megatron-LM takes them as flags, Megatron
// Bridge (NeMo) takes them as fields of `model`. One table has both names.
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
  std::string flag;         // "num-query-groups", without leading dashes
  std::string field;        // "num_query_groups"; "": the field follows from other fields
  std::string value;        // "" for a switch
  std::string field_value;  // the field's value, if it differs from `value`
  std::string meaning;
};
// The sizes of a model, in the order in which they are written. `left_out` lists the keys of the
// model's spec that these frameworks lack and that do not change the cost of a plan. The sizes are
// known for the families gpt, llama and mixtral; for other families `left_out` says that they are
// not.
struct ModelSizes {
  std::string script;  // the script of Megatron-LM that trains the family: "pretrain_gpt.py"
  std::vector<SizeArgument> arguments;
  std::vector<std::string> left_out;
};
Result<ModelSizes> model_sizes(const Model& model);
// Returns the families that a script of Megatron-LM trains.
std::vector<std::string> megatron_families();

// Returns the value of a key in the model's spec if it is a number; nothing if the spec has no such
// key.
std::optional<int64_t> spec_number(const Model& model, std::string_view key);

}  // namespace tessera
