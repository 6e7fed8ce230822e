#include "tessera/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "tessera/base/broken_invariant.h"

namespace tessera {
namespace {

thread_local int throwing = 0;  // number of ChecksThrow objects of this thread

}  // namespace

void check_failure(const char* file, int line, const char* condition, const std::string& message) {
  if (throwing > 0) {
    throw BrokenInvariant(
        fmt::format("{}:{}: {} does not hold: {}", file, line, condition, message));
  }
  std::fprintf(stderr, "tessera: internal error: %s:%d: %s does not hold: %s\n", file, line,
               condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

ChecksThrow::ChecksThrow() { ++throwing; }
ChecksThrow::~ChecksThrow() { --throwing; }

void BrokenInvariants::add(const BrokenInvariants& other) {
  if (first.empty()) first = other.first;
  count += other.count;
}

std::string BrokenInvariants::left_out(std::string_view what) const {
  return fmt::format(
      "{} {}{} left out, as an invariant of Tessera does not hold, which is a fault to "
      "report{}: {}",
      count, what, count == 1 ? " was" : "s were", count == 1 ? "" : "; the first", first);
}

Error BrokenInvariants::note(const std::exception& found) {
  ++count;
  std::string message = std::string("internal error: ") + found.what();
  message = message.substr(0, message.find('\n'));
  if (first.empty()) first = message;
  return {ErrorCode::kFault, std::move(message)};
}

}  // namespace tessera
