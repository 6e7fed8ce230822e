#include "tessera/cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::cli {
namespace {

constexpr double kEveryS = 10;

// Returns the seconds between lines where standard error is no terminal.
double seconds_between_lines() {
  const char* given = std::getenv("TESSERA_PROGRESS_S");
  const double seconds = given == nullptr ? kEveryS : parse_double(given).value_or(kEveryS);
  return std::clamp(seconds, .01, 1e6);
}

}  // namespace

ProgressLine::ProgressLine(std::string command, double limit_s)
    : caller_(this_call().caller), command_(std::move(command)), limit_s_(limit_s) {
  if (!caller_->has_terminal()) return;
  writer_ = std::jthread([this](const std::stop_token& stop) {
    if (isatty(STDERR_FILENO) == 1) {
      write_on_terminal(stop);
    } else {
      write_lines(stop, seconds_between_lines());
    }
  });
}

ProgressLine::~ProgressLine() { end(); }

void ProgressLine::end() {
  if (!writer_.joinable()) return;
  writer_.request_stop();
  writer_.join();
}

std::string ProgressLine::text(double seconds) const {
  std::string out = fmt::format("{}: {}, {:.0f} s", command_, short_line(what_), seconds);
  if (limit_s_ > 0)
    out += fmt::format(" ({:.0f} % of the time)", 100 * std::min(seconds / limit_s_, 1.));
  return out;
}

void ProgressLine::write_on_terminal(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  int seconds = 0;
  while (!changed_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; })) {
    if (stop.stop_requested()) break;
    std::fputs(fmt::format("\r\x1b[K{}", text(++seconds)).c_str(), stderr);
  }
  if (seconds > 0) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::write_lines(const std::stop_token& stop, double every_s) {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> every(every_s);
  double seconds = 0;
  while (!changed_.wait_for(lock, stop, every, [] { return false; })) {
    if (stop.stop_requested()) break;
    std::fputs(fmt::format("tessera: {}\n", text(seconds += every_s)).c_str(), stderr);
  }
}

void ProgressLine::say(std::string_view what) {
  if (!caller_->has_terminal()) return caller_->progress(what);
  const std::lock_guard lock(mutex_);
  what_ = what;
}

}  // namespace tessera::cli
