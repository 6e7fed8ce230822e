// One published run, as a row of a CSV tells it. Cells that are empty there are unset here. Texts
// with a meaning (dtype, recompute) become types once, when the row is made. Only what describes
// the run is read; columns with measured values (step_time_s, mem_GB, tflops_per_gpu, mfu,
// tokens_per_s_per_gpu) and remarks on them (reported, provenance, quality) are not looked at and
// may be absent. In notes only the words that tell low-rank fine-tuning count. Columns:
// docs/reference/predict.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"

namespace tessera {

// The arithmetic of products. kTf32: float32 numbers whose mantissas products cut to 10 bits.
enum class Arithmetic : uint8_t { kFp32, kTf32, kFp16, kBf16, kFp8, kFp4 };
std::string_view arithmetic_name(Arithmetic arithmetic);
// Returns whether its numbers are in float32 at rest and on the way.
bool is_wide(Arithmetic arithmetic);

// kExperts: as kSelective, and whole mixtures of experts, too (hybrids only).
enum class Recompute : uint8_t { kNone, kSelective, kExperts, kFull };
std::string_view recompute_name(Recompute what);

// A dtype as rows state it: "bf16", "fp16", "mxfp8", "fp8(current scaling)", "amp", "fp16/bf16",
// ...
struct StatedDtype {
  std::string text;
  std::optional<Arithmetic> arithmetic;  // unset: nothing is stated, or nothing that is known
  bool either = false;                   // fp16 or bfloat16: the source does not say which

  StatedDtype() = default;
  StatedDtype(std::string_view stated);  // NOLINT: cells are texts
  StatedDtype(const std::string& stated) : StatedDtype(std::string_view(stated)) {}  // NOLINT
  StatedDtype(const char* stated) : StatedDtype(std::string_view(stated)) {}         // NOLINT
  bool empty() const { return text.empty(); }
};

// Recomputation as rows state it: "full", "none", "selective(attention)", "core_attn,layernorm",
// ...
struct StatedRecompute {
  std::string text;
  std::optional<Recompute> what;  // unset: nothing is stated
  bool known = true;              // false: a word that is not known, taken as full

  StatedRecompute() = default;
  StatedRecompute(std::string_view stated);   // NOLINT
  StatedRecompute(const std::string& stated)  // NOLINT
      : StatedRecompute(std::string_view(stated)) {}
  StatedRecompute(const char* stated) : StatedRecompute(std::string_view(stated)) {}  // NOLINT
  bool empty() const { return text.empty(); }
};

// Says whether all parameters are trained, or low-rank factors beside them (LoRA), by a column or
// by words.
struct StatedLowRank {
  bool trains = false;          // low-rank factors
  std::optional<int64_t> rank;  // unset: not said
  bool narrow_base = false;     // the rest is kept in 4 bits (QLoRA)
};
// Reads low-rank tuning out of a text: "LoRA", "QLoRA", "low-rank", with "rank 8" or "r=8" behind
// or before it. "Without LoRA" and "no LoRA" say nothing.
StatedLowRank low_rank_in(std::string_view text);

struct Row {
  std::string id;
  std::string source, model, gpu;
  StatedRecompute recompute;
  StatedDtype dtype;
  std::optional<double> params;
  std::optional<int64_t> layers, hidden, heads, kv_heads, ffn, seq, vocab;
  std::optional<int64_t> gpus, gpus_a_node;
  std::optional<int64_t> tp, pp, vpp, dp, cp, ep, zero, microbatch, global_batch;
  std::optional<int64_t> lora;  // rank of the factors that are trained; 0: all parameters are
  std::string notes;
  int line = 0;
  std::string problem;  // why the row cannot be read: a cell that is no number; empty: none
};

// Returns the names of the columns that must be there.
const std::vector<std::string>& required_columns();

// Reads the rows. Errors: missing columns, all of them in one line with the nearest names found.
Result<std::vector<Row>> read_rows(const CsvTable& table, std::string_view file);

}  // namespace tessera
