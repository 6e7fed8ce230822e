#include "tessera/cli/with_planning/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "tessera/base/one_line.h"

namespace tessera::cli {

ProgressLine::ProgressLine(std::string command) : command_(std::move(command)) {
  if (isatty(STDERR_FILENO) != 1) return;
  writer_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    int seconds = 0;
    while (!changed_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; })) {
      if (stop.stop_requested()) break;
      std::fputs(
          fmt::format("\r\x1b[K{}: {}, {} s", command_, short_line(what_), ++seconds).c_str(),
          stderr);
    }
    if (seconds > 0) std::fputs("\r\x1b[K", stderr);
  });
}

void ProgressLine::say(std::string_view what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

}  // namespace tessera::cli
