// The arguments of Megatron-Core. Megatron-LM takes them as flags (megatron.cc); Megatron Bridge,
// the successor of NeMo's collections for language models, takes them as fields of its
// configuration (nemo.cc). One table says which flag is which field. Which setting an argument
// stands for, and which settings no argument can express, is the same for both.
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
  std::string field;        // "model.tensor_model_parallel_size"; "": Bridge sets it elsewhere
  std::string field_value;  // if not `value`: for switches "true" or "false"
  std::string comment;
};
// Returns the choices that planners are asked to keep fixed (ExportTarget::fixes): ranks in
// Megatron's order, and equal recomputation in all blocks.
std::vector<std::map<std::string, std::string>> core_fixes();

// Returns the arguments for the plan's settings and the model's sizes, in the order of writing.
Result<std::vector<CoreArgument>> core_arguments(const ExportJob& job, std::string_view target);

// Values by flag; a switch that is set has the value "true".
using CoreValues = std::map<std::string, std::string, std::less<>>;
// Returns the flag of a field, as "tensor-model-parallel-size"; "" if the table has no such field.
std::string flag_of_field(std::string_view field);
Result<ExportSettings> read_core(const CoreValues& values, int64_t ranks, const Graph& forward,
                                 std::string_view target);

// Returns how many transformer layers each stage has, as "Et*3|t*2|t*3L".
std::string pipeline_layout(const std::vector<int64_t>& blocks);
Result<std::vector<int64_t>> parse_pipeline_layout(std::string_view layout);

}  // namespace tessera
