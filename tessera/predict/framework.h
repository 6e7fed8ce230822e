// The framework that made a run, and what its runs do where a row does not say. The cost options of
// a framework are its style (cost/style.h); the options here belong to the plan. All of it is data,
// each value with its source or reason: tessera/predict/data/frameworks.toml.
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

// The memory that a framework's log counts: all that the device holds (as nvidia-smi tells it), all
// that the allocator has reserved, or the allocated part of that.
enum class CountedMemory : uint8_t { kDevice, kReserved, kAllocated };
std::string_view memory_name(CountedMemory what);

struct Framework {
  std::string name;   // "megatron-core"
  std::string style;  // preset of cost/style.h
  // Recomputation where the row is silent, if the run fits so; a run that does not fit takes the
  // next stronger.
  Recompute recompute = Recompute::kNone;
  bool recompute_as_stated = true;  // false: `recompute` holds whatever a row states
  // false: full recompute leaves out the last stage (DeepSpeed's pipeline engine).
  bool recompute_last_stage = true;
  bool sequence_shard = false;            // with tp: seq over tp between the split ops
  bool sequence_shard_selective = false;  // as above, but with selective recompute only
  bool interleaved = false;               // stages in chunks of two blocks where vpp is not stated
  bool sharded_state = false;             // zero = 1 where the row is silent
  bool sharded_parameters = false;        // zero = 3 where it says neither zero, tp nor pp
  bool gathers_once = true;  // zero = 1: parameters are gathered once a step, not kept twice
  // With pp: parameters that zero = 3 gathers are kept for the step, and gradients (zero = 2, 3)
  // are reduced once.
  bool keeps_gathered = false;
  // Gradients are summed in the dtype of the computation: in fp16 runs, in bf16 runs.
  bool narrow_gradients = false, narrow_bf16_gradients = false;
  bool fused_gating = false;  // a gated MLP's activation is not kept for the backward pass
  bool weigh_inside = false;  // experts weigh before their last product
  // Its fused attention is FlashAttention's or cuDNN's, which have no kernels for older GPUs.
  bool flash_attention = false;
  double dropout = 0;               // of gpt and bert
  int64_t bucket_bytes = 25 << 20;  // gradients of a bucket are reduced together
  int64_t prefetch = 1;             // blocks, zero = 3
  int64_t persistent_elements = 0;  // zero = 3: parameters up to this size stay whole
  bool whole_blocks = false;        // zero = 3: a block is gathered and reduced in one piece
  int64_t vocab_multiple = 1;       // the vocabulary is padded to a multiple of this times tp
  int64_t vocab_from_tp = 1;        // from this degree on; below, it is as stated
  CountedMemory memory = CountedMemory::kDevice;
  bool benchmark_fine_tuning = false;  // no more sequences a step than GPUs: low-rank factors
  // A change of the preset's machine (apply_what_if()) for a framework whose runs had another
  // network.
  std::string machine;
  bool guessed = false;  // the row's source did not tell; no option
};

// Returns the framework of a row: by the row's source where its name is known, else by what the row
// says: degrees, ZeRO stage, dtype, GPU, and whether the model is `recent` (has gated blocks, which
// came with the frameworks of 2023). `reason` gets why if the source did not say.
Framework framework_of(const Row& row, std::string& reason, bool recent = false);

const std::vector<Framework>& all_frameworks();

// Sets "recompute_last_stage", "dropout", ... to `value`. Errors: unknown key, no value of it.
Status set_option(Framework& framework, std::string_view key, std::string_view value);
std::vector<std::string> framework_options();

// Reads the file. Errors: file:line of an unknown key, option or condition, of a name that is not
// above, of a value without kind and source.
struct FrameworkData;
Result<std::shared_ptr<const FrameworkData>> parse_frameworks(std::string_view toml,
                                                              std::string_view file);
const TextFiles& predict_data();  // the files in tessera/predict/data, made by CMake

}  // namespace tessera
