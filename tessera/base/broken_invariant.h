// Turns broken invariants of the program into errors, for loops in which one failed try must not
// end the process. For example, a search tries hundreds of plans; if the lowering of a plan breaks
// an invariant, this plan is left out, and the answer says so.
//
//   BrokenInvariants broken;
//   for (const Plan& plan : plans) {
//     const auto step = broken.run([&]() -> Result<double> { return simulate(plan); });
//     if (!step) continue;
//   }
//   if (broken.count > 0) fmt::print("{}\n", broken.first);
//
// Outside of run(), and on other threads than the one that calls run(), a TESSERA_CHECK that does
// not hold ends the process (check.h). Changes that `body` makes before the broken check are not
// undone. So `body` should change nothing that is used after it, except caches that store complete
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

// The exception that check_failure() throws if its thread is inside BrokenInvariants::run().
class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// While a `ChecksThrow` object exists, a failed check on its thread throws BrokenInvariant and does
// not end the process. Objects may be nested.
class ChecksThrow {
 public:
  ChecksThrow();
  ~ChecksThrow();
  ChecksThrow(const ChecksThrow&) = delete;
  ChecksThrow& operator=(const ChecksThrow&) = delete;
};

struct BrokenInvariants {
  int64_t count = 0;
  std::string first;  // message of the first one, one line; "" if there was none

  // Returns the Result that `body` returns. If `body` breaks an invariant, counts it and returns an
  // error.
  template <class Body>
  auto run(Body&& body) -> decltype(body()) {
    try {
      const ChecksThrow here;
      return std::forward<Body>(body)();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& found) {  // also exceptions of at() and value() of containers
      return tl::unexpected(note(found));
    }
  }
  void add(const BrokenInvariants& other);
  // Returns one line, "2 plans were left out ..., the first: internal error: ...", where `what` is
  // "plan".
  std::string left_out(std::string_view what) const;

 private:
  Error note(const std::exception& found);
};

}  // namespace tessera
