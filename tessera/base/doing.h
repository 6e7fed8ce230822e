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
// gives "memory is exhausted while reading 'plan.toml'". A thread says what it does itself; of
// several that are nested, the innermost one is named.
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
  int exceptions_;  // that were on their way when it began
};

// Is it std::bad_alloc, std::length_error (of a container that cannot be so large), or what libtorch
// throws in their place?
bool is_memory_exhausted(const std::exception& error);

// Returns wrong input, because what was asked for is larger than this machine or the process's limit,
// and a new try would end in the same way. Names what this thread was doing.
Error memory_exhausted();

// Makes a thread that cannot hand on what was thrown, as a destructor, end the process with the line
// of memory_exhausted() and its exit code, or with what the exception says and exit code 3.
void tell_when_memory_is_exhausted();

}  // namespace tessera
