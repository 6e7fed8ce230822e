// Shows what a command is working on, in one line of the terminal that is overwritten each second.
// Nothing is written where standard error is no terminal, nor within the first second.
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
  std::jthread writer_;  // last: it stops before what it reads is gone
};

}  // namespace tessera::cli
