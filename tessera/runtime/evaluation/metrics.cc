#include "tessera/runtime/evaluation/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/json_text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Returns the length of the file up to the end of the last complete line; -1 if the file cannot
// be read.
int64_t whole_lines(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return -1;
  std::array<char, 4096> part{};
  int64_t end = status.st_size;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(part.size()));
    const auto count = static_cast<size_t>(end - begin);
    if (::pread(descriptor, part.data(), count, begin) != static_cast<ssize_t>(count)) return -1;
    for (size_t i = count; i-- > 0;) {
      if (part[i] == '\n') return begin + static_cast<int64_t>(i) + 1;
    }
    end = begin;
  }
  return 0;
}

// Returns the number, or null if it is not finite, which JSON cannot express.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

Result<MetricsWriter> MetricsWriter::open(const std::string& folder, std::string_view file) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return invalid_input(fmt::format("folder: cannot make '{}': {}", folder, error.message()));
  }
  const std::string path = (std::filesystem::path(folder) / file).string();
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return invalid_input(fmt::format("folder: cannot write '{}': {}", path, std::strerror(errno)));
  }
  MetricsWriter writer(descriptor, path);
  const int64_t end = whole_lines(descriptor);
  if (end < 0 || ::ftruncate(descriptor, end) != 0) {
    return invalid_input(fmt::format("folder: cannot write '{}': {}", path, std::strerror(errno)));
  }
  return writer;
}

MetricsWriter::~MetricsWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
MetricsWriter::MetricsWriter(MetricsWriter&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
MetricsWriter& MetricsWriter::operator=(MetricsWriter&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

Status MetricsWriter::append(std::string line) {
  line += '\n';
  const ssize_t written = ::write(descriptor_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return {};
  return fault(fmt::format("cannot write '{}': {}", path_,
                           written < 0 ? std::strerror(errno) : "no room for a line"));
}

Status MetricsWriter::start(const TrainingStart& start) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  Json json{{"start",
             {{"time", now.count()},
              {"model", start.model},
              {"plan", start.plan},
              {"ranks", start.ranks},
              {"parameters", start.parameters},
              {"tokens_per_step", start.tokens_per_step}}}};
  if (start.tables.empty()) return append(dumped(json));
  Json tables = Json::array();
  for (const TableShare& share : start.tables) {
    tables.push_back({{"table", share.table},
                      {"rank", share.rank},
                      {"first_row", share.rows.begin},
                      {"rows", share.rows.size},
                      {"first_column", share.columns.begin},
                      {"columns", share.columns.size},
                      {"tier", tier_name(share.tier)},
                      {"bytes", share.bytes},
                      {"state_bytes", share.state_bytes}});
  }
  json["start"]["tables"] = std::move(tables);
  return append(dumped(json));
}

Status MetricsWriter::event(const std::string& text) { return append(text); }

std::string event_text(const SaveReport& report) {
  return dumped(Json{{"saved",
                      {{"step", report.step},
                       {"path", report.path},
                       {"bytes", report.bytes},
                       {"waited_s", report.waited_s},
                       {"seconds", report.seconds}}}});
}

std::string event_text(const LoadReport& report) {
  return dumped(Json{{"loaded",
                      {{"step", report.step},
                       {"path", report.path},
                       {"bytes", report.bytes},
                       {"seconds", report.seconds}}}});
}

std::string event_text(const std::vector<TableCacheSummary>& caches) {
  Json all = Json::array();
  for (const TableCacheSummary& one : caches) {
    all.push_back({{"table", one.table},
                   {"policy", one.policy},
                   {"rows", one.rows},
                   {"slots", one.slots},
                   {"row_bytes", one.row_bytes},
                   {"hit_rate", one.hit_rate()},
                   {"lookups", one.lookups},
                   {"rows_in", one.rows_in},
                   {"rows_out", one.rows_out},
                   {"overflow_rows", one.overflow_rows}});
  }
  return dumped(Json{{"row_caches", std::move(all)}});
}

std::string event_text(const ChangeReport& report) {
  return dumped(
      Json{{"change",
            {{"after", report.after},
             {"plan", report.plan},
             {"ranks", report.ranks},
             {"bytes", {{"predicted", report.bytes_predicted}, {"counted", report.bytes_counted}}},
             {"seconds", report.seconds},
             {"total_s", report.total_s},
             {"begun_anew", report.begun_anew}}}});
}

Status MetricsWriter::step(const StepReport& report) {
  Json json{{"step", report.step},
            {"loss", number(report.loss)},
            {"learning_rate", report.learning_rate},
            {"step_time_s", report.step_time_s},
            {"tokens_per_s", report.tokens_per_s},
            {"memory_bytes", report.memory_bytes},
            {"resident_bytes", report.resident_bytes}};
  if (report.eval_loss) json["eval_loss"] = number(*report.eval_loss);
  if (report.eval_accuracy) json["eval_accuracy"] = number(*report.eval_accuracy);
  if (report.eval_clicks) {
    json["eval_normalized_entropy"] = number(report.eval_clicks->normalized_entropy);
    json["eval_auc"] = number(report.eval_clicks->auc);
  }
  if (report.eval_accuracy) json["eval_accuracy"] = number(*report.eval_accuracy);
  return append(dumped(json));
}

}  // namespace tessera
