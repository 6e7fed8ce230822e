// Notes what the program is doing, for the message that the program prints if memory is exhausted.
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
// gives "memory is exhausted while reading 'plan.toml'". Each thread has its own notes. If several
// notes are nested, the message names the innermost.
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
  int exceptions_;  // exceptions in flight when this note began
};

// Returns whether the error means that memory is exhausted: std::bad_alloc, std::length_error (a
// container cannot be that large), or the error that libtorch throws for either.
bool is_memory_exhausted(const std::exception& error);

// Returns the error for exhausted memory, which says what this thread was doing. Its code is
// kInvalidInput, because the user asked for more memory than the machine or the process's limit
// has, and a second try would fail too.
Error memory_exhausted();

// Sets what happens if an exception cannot be caught (for example in a destructor). The process
// then ends with the message of memory_exhausted() and its exit code if memory is exhausted, else
// with the exception's message and exit code 3.
void tell_when_memory_is_exhausted();

}  // namespace tessera
