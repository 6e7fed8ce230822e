#include "tessera/predict/measured.h"

#include <fmt/format.h>

#include <optional>

#include "tessera/base/text.h"

namespace tessera {
namespace {

Result<double> number(const std::string& cell, std::string_view column, int line,
                      std::string_view file) {
  const std::string_view text = trim(cell);
  if (text.empty()) return 0.0;
  const auto value = parse_double(text);
  if (!value || !(*value >= 0)) {
    return invalid_input(
        fmt::format("{}:{}: column '{}': expected a number, found '{}'", file, line, column, text));
  }
  return *value;
}

}  // namespace

Result<std::vector<MeasuredRun>> read_measured(const CsvTable& table, std::string_view file) {
  const std::vector<std::string> names = {
      "step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mem_GB", "quality", "notes"};
  for (const std::string& name : names) {
    if (table.find(name) < 0) {
      return invalid_input(fmt::format("{}:1: expected the column '{}', found none", file, name));
    }
  }
  std::vector<MeasuredRun> all;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const auto cell = [&](const char* name) -> const std::string& {
      return table.rows[i][static_cast<size_t>(table.find(name))];
    };
    const int line = table.lines[i];
    MeasuredRun row;
    TESSERA_TRY(row.step_time_s, number(cell("step_time_s"), "step_time_s", line, file));
    TESSERA_TRY(row.tokens_per_s_per_gpu,
                number(cell("tokens_per_s_per_gpu"), "tokens_per_s_per_gpu", line, file));
    TESSERA_TRY(row.tflops_per_gpu, number(cell("tflops_per_gpu"), "tflops_per_gpu", line, file));
    TESSERA_TRY(row.memory_bytes, number(cell("mem_GB"), "mem_GB", line, file));
    const std::string& notes = cell("notes");
    row.memory_bytes *= notes.find("GiB") != std::string::npos ? 1024.0 * 1024 * 1024 : 1e9;
    row.out_of_memory = notes.find("OUT OF MEMORY") != std::string::npos;
    if (const std::string_view quality = trim(cell("quality")); !quality.empty()) {
      row.quality = quality[0];
    }
    all.push_back(row);
  }
  return all;
}

double model_flops_a_token(const Run& run) {
  const Architecture& m = run.model;
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  if (m.forward_flops > 0)  // a sample is an image, which counts as one token
    return 3 * m.forward_flops * real(m.seq * m.seq) / real(kImageSize * kImageSize);
  const double tables = real(m.vocab) * real(m.hidden) * (m.tied ? 1 : 2);
  const double products = active_parameter_count(m) - tables + real(m.vocab) * real(m.hidden);
  const double head = m.head_dim > 0 ? real(m.head_dim) : real(m.hidden) / real(m.heads);
  return 6 * products + 12 * real(m.layers) * real(run.seq) * head * real(m.heads);
}

double measured_step(const MeasuredRun& measured, const Run& run) {
  if (measured.step_time_s > 0) return measured.step_time_s;
  const double tokens = static_cast<double>(run.global_batch) * static_cast<double>(run.seq);
  const double a_gpu = tokens / static_cast<double>(run.gpus);
  if (measured.tokens_per_s_per_gpu > 0) return a_gpu / measured.tokens_per_s_per_gpu;
  if (measured.tflops_per_gpu <= 0) return 0;
  return a_gpu * model_flops_a_token(run) / (measured.tflops_per_gpu * 1e12);
}

}  // namespace tessera
