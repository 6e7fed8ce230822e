#include <gtest/gtest.h>

#include "equivalence.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

TEST(Equivalence, random_windows_under_random_plans_equal_the_serial_run) {
  expect_equal_to_serial(window_cases(), 200);
}

// The gradient of the pool's result is a sum of two terms, which is to be computed with the pool's
// halo; but it moves less than its terms would, so it is computed as they lie.
TEST(Halos, of_sums_that_move_less_than_their_terms_are_exchanged_behind_them) {
  constexpr const char* kGraph = R"(graph "squares"
parameter %shift.weight [channels=2, width=7] float64 init=normal(0.5)
input %x [batch=2, channels=2, width=7] float64
activation %shift [batch=2, channels=2, width=7] float64
activation %pool [batch=2, channels=2, width=3] float64
activation %square [batch=2, channels=2, width=3] float64
activation %sum [] float64
forward op "shift" %shift = add(%x, %shift.weight)
forward op "pool" %pool = max_pool(%shift) {kernel="1 3", padding="0 0", stride="1 2"}
forward op "square" %square = mul(%pool, %pool)
forward op "sum" %sum = reduce_sum(%square) {dims="batch channels width", factor=0.1}
loss %sum
)";
  Model model;
  model.graph = parse_graph(kGraph, "squares.graph").value();
  model.family = model.spec = "squares";
  const auto report = verify_model(model, R"(mesh = { a = 2 }
split = [
  { ops = "*", dim = "width", over = "a" },
  { ops = "pool", dim = "width", over = "a", halo = "compute" },
]
)",
                                   VerifyConfig{});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok) << report->why;
}

}  // namespace
}  // namespace tessera
