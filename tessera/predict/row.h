// One published run, as a row of a CSV describes it. An empty cell is an unset field. Texts with a
// meaning (dtype, recompute) are interpreted once, when the row is read. Only columns that describe
// the run are read. Columns with measured values (step_time_s, mem_GB, tflops_per_gpu, mfu,
// tokens_per_s_per_gpu) and remarks on these values (reported, provenance, quality) are ignored and
// may be absent. The notes are only searched for words that mean low-rank fine-tuning.
// docs/reference/predict.md describes the columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"

namespace tessera {

// The arithmetic of matrix products. kTf32: numbers are in float32, and products use only 10 bits
// of their mantissas.
enum class Arithmetic : uint8_t { kFp32, kTf32, kFp16, kBf16, kFp8, kFp4 };
std::string_view arithmetic_name(Arithmetic arithmetic);
// Returns whether numbers are stored and sent in float32 with this arithmetic (kFp32, kTf32).
bool is_wide(Arithmetic arithmetic);

// How much is computed again for the backward pass. kExperts: what kSelective computes again and
// whole mixtures of experts in addition (only for hybrids).
enum class Recompute : uint8_t { kNone, kSelective, kExperts, kFull };
std::string_view recompute_name(Recompute what);

// A dtype in the words of a row: "bf16", "fp16", "mxfp8", "fp8(current scaling)", "amp",
// "fp16/bf16", ...
struct StatedDtype {
  std::string text;
  std::optional<Arithmetic> arithmetic;  // unset: nothing or an unknown dtype is stated
  bool either = false;                   // true: fp16 or bfloat16; the source does not say which

  StatedDtype() = default;
  StatedDtype(std::string_view stated);  // NOLINT: cells are texts
  StatedDtype(const std::string& stated) : StatedDtype(std::string_view(stated)) {}  // NOLINT
  StatedDtype(const char* stated) : StatedDtype(std::string_view(stated)) {}         // NOLINT
  bool empty() const { return text.empty(); }
};

// Recomputation in the words of a row: "full", "none", "selective(attention)",
// "core_attn,layernorm", ...
struct StatedRecompute {
  std::string text;
  std::optional<Recompute> what;  // unset: nothing is stated
  bool known = true;              // false: an unknown word, which counts as full

  StatedRecompute() = default;
  StatedRecompute(std::string_view stated);   // NOLINT
  StatedRecompute(const std::string& stated)  // NOLINT
      : StatedRecompute(std::string_view(stated)) {}
  StatedRecompute(const char* stated) : StatedRecompute(std::string_view(stated)) {}  // NOLINT
  bool empty() const { return text.empty(); }
};

// The statement of a text about low-rank fine-tuning (LoRA), which trains small factors and not the
// parameters themselves.
struct StatedLowRank {
  bool trains = false;          // true: low-rank factors are trained
  std::optional<int64_t> rank;  // unset: not stated
  bool narrow_base = false;     // true: all other parameters are kept in 4 bits (QLoRA)
};
// Finds low-rank fine-tuning in a text by the words "LoRA", "QLoRA" and "low-rank", and its rank by
// "rank 8" or "r=8" after or before these words. "Without LoRA" and "no LoRA" do not count.
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
  std::optional<int64_t> lora;  // rank of the low-rank factors; 0: all parameters are trained
  std::string notes;
  int line = 0;
  std::string problem;  // why the row cannot be read (a cell that is not a number); empty if it can
};

// Returns the names of the columns that a CSV must have.
const std::vector<std::string>& required_columns();

// Reads the rows. If columns are missing, returns an error of one line that names all of them, with
// the nearest names that the CSV has.
Result<std::vector<Row>> read_rows(const CsvTable& table, std::string_view file);

}  // namespace tessera
