#include "tessera/base/doing.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "tessera/base/one_line.h"

namespace tessera {
namespace {

// The work that was interrupted by an exception that has not been caught yet. The texts are copied,
// because their owners may be destroyed before the message is made. The copies are in arrays,
// because no memory can be allocated.
struct Interrupted {
  std::array<char, 32> what{};
  std::array<char, kMostQuotedBytes> of{};
  size_t what_bytes = 0, of_bytes = 0;
};
thread_local const Doing* innermost = nullptr;
thread_local Interrupted interrupted;

template <size_t kBytes>
size_t copy_text(std::string_view text, std::array<char, kBytes>& out) {
  return text.copy(out.data(), kBytes);  // the text may be null if it is empty
}

std::string message_of(std::string_view what, std::string_view of) {
  if (what.empty()) return "memory is exhausted";
  if (of.empty()) return fmt::format("memory is exhausted while {}", what);
  return fmt::format("memory is exhausted while {} '{}'", what, of);
}

[[noreturn]] void end_of_a_thread() {
  std::string what = "unknown exception";
  int code = exit_code(ErrorCode::kFault);
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      const bool memory = is_memory_exhausted(error);
      what = memory ? memory_exhausted().message : std::string(error.what());
      if (memory) code = exit_code(memory_exhausted().code);
    } catch (...) {
      what = "unknown exception";
    }
  }
  std::fprintf(stderr, "tessera: %s\n", message_line(what).c_str());
  std::fflush(stderr);
  std::_Exit(code);
}

}  // namespace

Doing::Doing(std::string_view what, std::string_view of)
    : what_(what), of_(of), outer_(innermost), exceptions_(std::uncaught_exceptions()) {
  if (exceptions_ == 0) interrupted.what_bytes = 0;
  innermost = this;
}

Doing::~Doing() {
  innermost = outer_;
  if (std::uncaught_exceptions() <= exceptions_ || interrupted.what_bytes > 0) return;
  interrupted.what_bytes = copy_text(what_, interrupted.what);
  interrupted.of_bytes = copy_text(of_, interrupted.of);
}

bool is_memory_exhausted(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return true;
  }
  const std::string_view what = error.what();
  return what.find("can't allocate memory") != std::string_view::npos ||
         what.find("not enough memory: you tried to allocate") != std::string_view::npos;
}

Error memory_exhausted() {
  std::string_view what(interrupted.what.data(), interrupted.what_bytes);
  std::string_view of(interrupted.of.data(), what.empty() ? 0 : interrupted.of_bytes);
  if (what.empty() && innermost != nullptr) {
    what = innermost->what_;
    of = innermost->of_;
  }
  Error error{ErrorCode::kInvalidInput, message_of(what, of)};
  interrupted.what_bytes = 0;
  return error;
}

void tell_when_memory_is_exhausted() { std::set_terminate(end_of_a_thread); }

}  // namespace tessera
