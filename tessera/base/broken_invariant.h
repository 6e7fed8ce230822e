// Turns broken invariants of the program into errors, where one of many tries must not end the
// others. A search tries hundreds of plans: a plan that meets a fault of lowering is left out, and
// the answer says so.
//
//   BrokenInvariants broken;
//   for (const Plan& plan : plans) {
//     const auto step = broken.run([&]() -> Result<double> { return simulate(plan); });
//     if (!step) continue;
//   }
//   if (broken.count > 0) fmt::print("{}\n", broken.first);
//
// Outside of run() a TESSERA_CHECK that does not hold ends the process (check.h), and so it does on
// other threads than the one that calls run(). The changes that `body` made before the fault
// remain, so `body` should change nothing that outlives it except caches that store complete
// values.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/result.h"

namespace tessera {

// An exception that check_failure throws on a thread that is inside BrokenInvariants::run.
class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// While a `ChecksThrow` object exists, failed checks of its thread throw. Objects may be nested.
class ChecksThrow {
 public:
  ChecksThrow();
  ~ChecksThrow();
  ChecksThrow(const ChecksThrow&) = delete;
  ChecksThrow& operator=(const ChecksThrow&) = delete;
};

struct BrokenInvariants {
  int64_t count = 0;
  std::string first;  // the message, one line; "": there were none

  // Returns the Result that `body` returns, or an error if an invariant does not hold in `body`.
  template <class Body>
  auto run(Body&& body) -> decltype(body()) {
    try {
      const ChecksThrow here;
      return std::forward<Body>(body)();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& found) {  // also what at() and value() of containers throw
      return tl::unexpected(note(found));
    }
  }
  void add(const BrokenInvariants& other);
  // Returns one line: "2 plans were left out ..., the first: internal error: ...". `what`: "plan".
  std::string left_out(std::string_view what) const;

 private:
  Error note(const std::exception& found);
};

}  // namespace tessera
