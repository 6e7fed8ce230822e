// The arguments of Megatron-Core. Megatron-LM takes them as flags (megatron.cc). Megatron Bridge,
// the successor of NeMo's collections for language models, takes them as fields of its
// configuration (nemo.cc). One table says which flag corresponds to which field. Both formats share
// the rules about which argument stands for which setting, and which settings no argument can
// express.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/target.h"

namespace tessera {

struct CoreArgument {
  std::string flag;   // "tensor-model-parallel-size"
  std::string value;  // "" for a switch, a flag without a value
  // The field in Bridge's configuration, "model.tensor_model_parallel_size"; "" if Bridge sets it
  // elsewhere.
  std::string field;
  std::string field_value;  // if it differs from `value`: "true" or "false" for a switch
  std::string comment;
};
// Returns the choices that a planner must keep fixed so that Megatron can express its plan
// (ExportTarget::fixes): ranks in Megatron's order, and the same recomputation in all blocks.
std::vector<std::map<std::string, std::string>> core_fixes();

// Returns the degrees and switches that Megatron-Core runs, for planners (ExportTarget::grid).
DegreeGrid core_grid();

// Returns the arguments for the plan's settings and the model's sizes, in the order in which they
// are written.
Result<std::vector<CoreArgument>> core_arguments(const ExportJob& job, std::string_view target);

// Values by flag; a switch that is set has the value "true".
using CoreValues = std::map<std::string, std::string, std::less<>>;
// Returns the flag of a field, "tensor-model-parallel-size"; "" if the table has no such field.
std::string flag_of_field(std::string_view field);
// Returns the field of a flag, "model.tensor_model_parallel_size"; "" if the table has no such flag.
std::string field_of_flag(std::string_view flag);
Result<ExportSettings> read_core(const CoreValues& values, int64_t ranks, const Graph& forward,
                                 std::string_view target);

// Returns the number of transformer layers on each stage in Megatron's notation: "Et*3|t*2|t*3L".
// parse_pipeline_layout() reads that notation.
std::string pipeline_layout(const std::vector<int64_t>& blocks);
Result<std::vector<int64_t>> parse_pipeline_layout(std::string_view layout);

}  // namespace tessera
