// Who called the program, and so where its texts go and who may end a search. A terminal calls the
// program itself (run() of cli.h). The Python package calls commands in the process of its user
// (tessera/python): its caller keeps the texts, follows what a search does, and may stop it.
//
//   class Kept : public Caller { ... };
//   Kept kept;
//   const int code = run({"simulate", "gpt:layers=4", ..., "--json"}, kept);
//
// There is one caller for each thread, for the time of run(). So several threads may call commands
// at once. The call of the terminal is one for all threads that have no other: a thread that a
// command starts belongs to it. Such threads only work for commands that serve or train, which are
// not called from other programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

class Caller {
 public:
  virtual ~Caller() = default;
  // Takes the answer, which has one piece or several. Error: it cannot be written.
  virtual Status answer(std::string_view text) = 0;
  // Takes what stands beside the answer: notes and the line of an error.
  virtual void note(std::string_view text) = 0;
  // Takes what a long command is doing. It may be called on another thread than the command's.
  virtual void progress(std::string_view what) = 0;
  // Takes the best answer that a search has so far, as answer() takes one. If a search does not end
  // soon after stopped(), the caller has this answer. May be called on another thread.
  virtual void best_so_far(std::string_view text) = 0;
  // Returns whether a search should end with the best answer so far. May be called on any thread.
  virtual bool stopped() const = 0;
  // Returns whether the process is the program, so that a command may show a line of progress on
  // the terminal and handle Ctrl-C. If not, it tells progress() and asks stopped().
  virtual bool has_terminal() const = 0;
};

// Holds what is known about the answer of one call.
struct Call {
  Caller* caller = nullptr;
  bool json = false, has_schema = false;
  std::vector<std::string> first = {};  // lines that stand before the next text
};

// Returns the call of this thread; that of the terminal outside of run().
Call& this_call();

// Makes a call that of this thread until the object is destroyed.
class Calling {
 public:
  explicit Calling(Caller& caller);
  ~Calling();
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

 private:
  Call call_;
  Call* outer_;
};

// Returns the caller of the program itself: standard output and standard error.
Caller& terminal();

}  // namespace tessera::cli
