// TESSERA_CHECK(condition, "format", args...) checks an invariant of the program. If the condition
// does not hold, it prints file, line, condition and the formatted message, and aborts. User input
// must never make a check fail; for wrong input functions return an error in a Result.
#pragma once

#include <fmt/format.h>

#include <string>

namespace tessera {
[[noreturn]] void check_failure(const char* file, int line, const char* condition,
                                const std::string& message);
}  // namespace tessera

#define TESSERA_CHECK(condition, ...)                                                              \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      ::tessera::check_failure(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__));        \
    }                                                                                              \
  } while (false)
