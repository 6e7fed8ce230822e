// TESSERA_CHECK(condition, "format", args...): a broken invariant of the program prints file, line,
// the condition and the values, and aborts. User input can never reach it (wrong input is a
// Result).
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
