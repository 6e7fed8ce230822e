// Shows what a command is working on, in one line of the terminal that is overwritten each second.
// Nothing is written in the first second, or if standard error is not a terminal.
//
//   ProgressLine line("reproduce");
//   line.say("batch 64");
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tessera::cli {

class ProgressLine {
 public:
  explicit ProgressLine(std::string command);
  void say(std::string_view what);

 private:
  std::string command_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string what_ = "reading";
  std::jthread writer_;  // last, so that it stops before the members that it reads are destroyed
};

}  // namespace tessera::cli
