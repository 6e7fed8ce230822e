// Notes what the program is doing, for the one line that it writes when memory is exhausted.
//
//   Result<Plan> load(const std::string& path) {
//     const Doing doing("reading", path);   // both texts must outlive it
//     ...
//   }
//   try {
//     ...
//   } catch (const std::exception& error) {
//     if (is_memory_exhausted(error)) return tl::unexpected(memory_exhausted());
//     ...
//   }
// gives "memory is exhausted while reading 'plan.toml'". Each thread notes its own work; if several
// notes are nested, the innermost is named.
#pragma once

#include <exception>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

class Doing {
 public:
  explicit Doing(std::string_view what, std::string_view of = {});
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  friend Error memory_exhausted();
  std::string_view what_, of_;
  const Doing* outer_;
  int exceptions_;  // exceptions in flight when it began
};

// Returns whether the error is std::bad_alloc, std::length_error (of a container that cannot be so
// large), or an error that libtorch throws in their place.
bool is_memory_exhausted(const std::exception& error);

// Returns an error of wrong input, because the user asked for more than this machine or the
// process's limit has, and a new try would end in the same way. Names what this thread was doing.
Error memory_exhausted();

// Makes a thread that cannot pass on an exception (for example in a destructor) end the process
// with the line of memory_exhausted() and its exit code, or with the exception's message and exit
// code 3.
void tell_when_memory_is_exhausted();

}  // namespace tessera
