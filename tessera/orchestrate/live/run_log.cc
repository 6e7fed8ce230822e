#include "tessera/orchestrate/live/run_log.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"

namespace tessera::share {
namespace {

constexpr int64_t kTail = 8192;  // bytes at the end of a log that was never looked at

}  // namespace

void RunLog::begin_process() {
  read();
  has_begun_ = has_stopped_ = false;
}

void RunLog::read() {
  std::ifstream in(path_, std::ios::binary | std::ios::ate);
  if (!in) return;
  const int64_t size = in.tellg();
  if (offset_ < 0) offset_ = std::max<int64_t>(0, size - kTail);
  in.seekg(offset_);
  std::string line;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // it is still being written
    offset_ += static_cast<int64_t>(line.size()) + 1;
    take(line);
  }
}

void RunLog::take(const std::string& line) {
  const auto json = parse_json(line);
  if (!json || !json->is_object()) return;
  if (json->contains("change")) {
    ++changes_;
    steps_per_s_ = 0;
    return;
  }
  if (const auto summary = json->find("summary"); summary != json->end() && summary->is_object()) {
    has_stopped_ = summary->contains("stopped_after");
    return;
  }
  const auto step = json->find("step"), seconds = json->find("step_time_s");
  if (step == json->end() || !step->is_number_integer()) return;
  step_ = step->get<int64_t>();
  has_begun_ = true;
  if (seconds != json->end() && seconds->is_number() && seconds->get<double>() > 0)
    steps_per_s_ = 1 / seconds->get<double>();
}

}  // namespace tessera::share
