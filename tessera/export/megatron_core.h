// The arguments of Megatron-Core, which Megatron-LM takes as flags (megatron.cc) and Megatron
// Bridge, the successor of NeMo's collections for language models, as fields of its configuration
// (nemo.cc). One table says which flag is which field; what a setting is, and what cannot be said,
// is the same.
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
  std::string flag;         // "tensor-model-parallel-size"
  std::string value;        // "" for a switch
  std::string field;        // "model.tensor_model_parallel_size"; "": Bridge says it elsewhere
  std::string field_value;  // where that is not `value`: of switches "true" or "false"
  std::string comment;
};
// What planners are asked for (ExportTarget::fixes): ranks in Megatron's order, all recomputation
// alike.
std::vector<std::map<std::string, std::string>> core_fixes();

// The arguments for the plan's settings and the model's sizes, in the order in which they are
// written.
Result<std::vector<CoreArgument>> core_arguments(const ExportJob& job, std::string_view target);

// Values by flag; a switch that is set has the value "true".
using CoreValues = std::map<std::string, std::string, std::less<>>;
// The flag of a field, as "tensor-model-parallel-size"; "" if it is not in the table.
std::string flag_of_field(std::string_view field);
Result<ExportSettings> read_core(const CoreValues& values, int64_t ranks, const Graph& forward,
                                 std::string_view target);

// "Et*3|t*2|t*3L": how many transformer layers each stage has.
std::string pipeline_layout(const std::vector<int64_t>& blocks);
Result<std::vector<int64_t>> parse_pipeline_layout(std::string_view layout);

}  // namespace tessera
