// Errors are values. Functions return wrong input, a missing file, an infeasible plan or a lost
// peer as an `Error` in a `Result<T>`. Broken invariants of the program are not returned;
// TESSERA_CHECK (check.h) ends the process for them.
//
//   Result<Plan> plan = parse_plan(text, "plan.toml");
//   if (!plan) return tl::unexpected(plan.error());
//
// TESSERA_TRY unwraps a Result, or returns its error from the calling function:
//   TESSERA_TRY(auto plan, parse_plan(text, "plan.toml"));
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tessera {

// The sort of an error. exit_code() returns the exit code that the command line has for each.
enum class ErrorCode {
  kCheckFailed,   // valid input failed a check: wrong result, plan that does not fit      (exit 1)
  kInvalidInput,  // what the user gave is wrong                                          (exit 2)
  kFault,         // run time: lost rank, full disk, torn file                            (exit 3)
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidInput;
  std::string message;  // one line: what was expected, what was found, where
};

inline int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCheckFailed: return 1;
    case ErrorCode::kInvalidInput: return 2;
    case ErrorCode::kFault: return 3;
  }
  return 3;
}

template <class T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

inline tl::unexpected<Error> invalid_input(std::string message) {
  return tl::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}
inline tl::unexpected<Error> check_failed(std::string message) {
  return tl::unexpected(Error{ErrorCode::kCheckFailed, std::move(message)});
}
inline tl::unexpected<Error> fault(std::string message) {
  return tl::unexpected(Error{ErrorCode::kFault, std::move(message)});
}

#define TESSERA_CONCAT_INNER(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_INNER(a, b)
#define TESSERA_TRY_IMPL(tmp, decl, expr)                                                          \
  auto tmp = (expr);                                                                               \
  if (!tmp) return tl::unexpected(std::move(tmp).error());                                         \
  decl = std::move(tmp).value()
#define TESSERA_TRY(decl, expr) TESSERA_TRY_IMPL(TESSERA_CONCAT(try_result_, __LINE__), decl, expr)
#define TESSERA_TRY_VOID(expr)                                                                     \
  do {                                                                                             \
    if (auto try_status = (expr); !try_status) {                                                   \
      return tl::unexpected(std::move(try_status).error());                                        \
    }                                                                                              \
  } while (false)

}  // namespace tessera
