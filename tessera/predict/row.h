// One published run as a row of a CSV tells it. What is left empty there is unset here. Texts with
// a meaning (dtype, recompute) become types once, when the row is made. Only what describes the run
// is read; columns with measured values (step_time_s, mem_GB, tflops_per_gpu, mfu,
// tokens_per_s_per_gpu) and remarks on them (notes, reported, provenance, quality) are not looked
// at and may be absent. Columns: docs/reference/predict.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/csv.h"
#include "tessera/base/result.h"

namespace tessera {

enum class Arithmetic : uint8_t { kFp32, kFp16, kBf16, kFp8, kFp4 };  // of products
std::string_view arithmetic_name(Arithmetic arithmetic);

// kExperts: what selective computes again, and mixtures of experts whole (hybrids only).
enum class Recompute : uint8_t { kNone, kSelective, kExperts, kFull };
std::string_view recompute_name(Recompute what);

// "bf16", "fp16", "mxfp8", "fp8(current scaling)", "amp", "fp16/bf16", ...
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

// "full", "none", "selective(attention)", "core_attn,layernorm", ...
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

struct Row {
  std::string id;
  std::string source, model, gpu;
  StatedRecompute recompute;
  StatedDtype dtype;
  std::optional<double> params;
  std::optional<int64_t> layers, hidden, heads, kv_heads, ffn, seq, vocab;
  std::optional<int64_t> gpus, gpus_a_node;
  std::optional<int64_t> tp, pp, vpp, dp, cp, ep, zero, microbatch, global_batch;
  int line = 0;
  std::string problem;  // why the row cannot be read: a cell that is no number; empty: none
};

// Names of the columns that must be there.
const std::vector<std::string>& required_columns();

// Errors: columns that are missing, all of them in one line with the nearest names found.
Result<std::vector<Row>> read_rows(const CsvTable& table, std::string_view file);

}  // namespace tessera
