// The framework that a run used, and what its runs do where a row does not say. The cost options of
// a framework are its style (cost/style.h); the options in this file concern the plan. All values
// are in the data file tessera/predict/data/frameworks.toml, each with its source or reason.
//
//   std::string reason;
//   const Framework framework = framework_of(row, reason, /*recent=*/true);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/data_file.h"
#include "tessera/base/result.h"
#include "tessera/predict/row.h"

namespace tessera {

// The memory that a framework's log reports. kDevice: all memory that is in use on the device, as
// nvidia-smi shows it. kReserved: what the allocator has reserved. kAllocated: the part of the
// reserved memory that the allocator has given out.
enum class CountedMemory : uint8_t { kDevice, kReserved, kAllocated };
std::string_view memory_name(CountedMemory what);

struct Framework {
  std::string name;   // "megatron-core"
  std::string style;  // name of a preset of styles (cost/style.h)
  // The recomputation of a run whose row does not state any. If the run then does not fit in
  // memory, the next stronger recomputation is used.
  Recompute recompute = Recompute::kNone;
  // The value of the recipes' argument `recompute` that selective recomputation of a dense model
  // means.
  std::string selective = "selective";
  bool recompute_as_stated = true;  // false: a row's statement is ignored and `recompute` is used
  // False: full recompute does not apply to the last stage (DeepSpeed's pipeline engine).
  bool recompute_last_stage = true;
  bool sequence_shard = false;            // with tp: sequence parallelism (Megatron's)
  bool sequence_shard_selective = false;  // as sequence_shard, but only with selective recompute
  bool interleaved = false;         // a stage is cut into chunks of two blocks if vpp is not stated
  bool sharded_state = false;       // zero = 1 if the row states none
  bool sharded_parameters = false;  // zero = 3 if the row states none of zero, tp, pp
  // With zero = 1: the float32 parameters are kept in shards only, and the copy in 16 bits that is
  // gathered from them is kept for the step.
  bool gathers_once = true;
  // With pp: the parameters that zero = 3 gathers are kept for the whole step, and the gradients
  // (zero = 2 or 3) are reduced once a step.
  bool keeps_gathered = false;
  // Gradients are summed in the 16-bit dtype of the computation and not in float32. The first flag
  // is for fp16 runs, the second for bf16 runs.
  bool narrow_gradients = false, narrow_bf16_gradients = false;
  bool fused_gating = false;  // a gated MLP's activation is computed again for the backward pass
  bool weigh_inside = false;  // experts apply a token's weight before their last product
  // Fused attention uses the kernels of FlashAttention or cuDNN, which do not exist for older GPUs.
  bool flash_attention = false;
  double dropout = 0;               // dropout of the models gpt and bert
  int64_t bucket_bytes = 25 << 20;  // gradients are reduced in buckets of this size
  int64_t prefetch = 1;             // with zero = 3: blocks that are gathered ahead
  // With zero = 3: parameters with at most so many elements are not sharded.
  int64_t persistent_elements = 0;
  bool whole_blocks = false;   // with zero = 3: a block is gathered and reduced in one collective
  int64_t vocab_multiple = 1;  // the vocabulary is padded to a multiple of this times tp
  int64_t vocab_from_tp = 1;   // the least tp for which the vocabulary is padded
  CountedMemory memory = CountedMemory::kDevice;
  // Runs with at most one sequence a GPU train low-rank factors.
  bool benchmark_fine_tuning = false;
  // A change of the preset's machine in the form of apply_what_if(), for runs whose network differs
  // from the preset's.
  std::string machine;
  bool guessed = false;  // true: the row's source did not tell the framework (not an option)
};

// Returns the framework of a row. If the name of the row's source is known, the source determines
// it. Otherwise it is guessed from the degrees, the ZeRO stage, the dtype, the GPU, and from
// whether the model is `recent`, that is, has gated blocks, which came with the frameworks of 2023.
// For a guess `reason` gets an explanation.
Framework framework_of(const Row& row, std::string& reason, bool recent = false);

const std::vector<Framework>& all_frameworks();

// Sets an option ("recompute_last_stage", "dropout", ...) to `value`. Returns an error if the key
// is unknown or cannot have this value.
Status set_option(Framework& framework, std::string_view key, std::string_view value);
std::vector<std::string> framework_options();

// The content of frameworks.toml. parse_frameworks() returns an error with file:line for an unknown
// key, option or condition, for the name of a framework that is not defined earlier in the file,
// and for a value without kind and source.
struct FrameworkData;
Result<std::shared_ptr<const FrameworkData>> parse_frameworks(std::string_view toml,
                                                              std::string_view file);
// Returns the files in tessera/predict/data, which CMake puts into the program.
const TextFiles& predict_data();

}  // namespace tessera
