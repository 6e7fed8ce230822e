// Shows what a command is working on. On a terminal this is one line of standard error that is
// overwritten each second, from the first second on. Elsewhere (a log of a batch job) it is a new
// line each ten seconds; TESSERA_PROGRESS_S sets another number of seconds. A caller that is another
// program (caller.h) gets each text itself.
//
//   ProgressLine line("plan", /*limit_s=*/60);
//   line.say("which dims to cut: [vocab,batch]");
//   // plan: which dims to cut: [vocab,batch], 12 s (20 % of the time)
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tessera/cli/libraries/caller.h"

namespace tessera::cli {

class ProgressLine {
 public:
  // limit_s: the seconds after which the work ends in any case; 0: not known.
  explicit ProgressLine(std::string command, double limit_s = 0);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void say(std::string_view what);
  void end();  // removes the line from the terminal; nothing is written after it

 private:
  std::string text(double seconds) const;
  void write_on_terminal(const std::stop_token& stop);
  void write_lines(const std::stop_token& stop, double every_s);

  Caller* caller_;
  std::string command_;
  double limit_s_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string what_ = "reading";
  std::jthread writer_;  // last, so that it stops before the members that it reads are destroyed
};

}  // namespace tessera::cli
