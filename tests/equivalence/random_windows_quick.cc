// Random networks of windows, and cases that they have found.
#include <gtest/gtest.h>

#include <string>

#include "equivalence.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

TEST(Equivalence, random_windows_under_random_plans_equal_the_serial_run) {
  expect_equal_to_serial(window_cases(), 200);
}

void expect_equal(const std::string& graph, const std::string& plan) {
  Model model;
  model.graph = parse_graph(graph, "windows.graph").value();
  model.family = model.spec = "windows";
  VerifyConfig config;
  config.optimizer.kind = "sgd";  // AdamW divides by gradients that cancel
  const auto report = verify_model(model, plan, config);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok) << report->why;
}

// The gradient of the pool's result is a sum of two terms and should be computed with the pool's
// halo. But the sum moves fewer bytes than its terms would, so it is computed where they lie.
TEST(Halos, of_sums_that_move_less_than_their_terms_are_exchanged_behind_them) {
  expect_equal(R"(graph "squares"
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
)",
               R"(mesh = { a = 2 }
split = [
  { ops = "*", dim = "width", over = "a" },
  { ops = "pool", dim = "width", over = "a", halo = "compute" },
]
)");
}

// A step takes one of the gradient's rows. On the first rank no window lies under that row, on the
// second rank one does; all ranks need the halo of the columns.
TEST(Halos, of_one_dim_are_there_for_steps_over_another) {
  expect_equal(R"(graph "steps"
parameter %shift.weight [channels=2, height=4, width=3] float64 init=normal(0.5)
input %x [batch=2, channels=2, height=4, width=3] float64
activation %shift [batch=2, channels=2, height=4, width=3] float64
parameter %conv.weight [out=2, channels=2, k0=1, k1=2] float64 init=normal(0.5)
activation %conv [batch=2, out=2, height=2, width=3] float64
activation %square [batch=2, out=2, height=2, width=3] float64
activation %sum [] float64
forward op "shift" %shift = add(%x, %shift.weight)
forward op "conv" %conv = conv(%shift, %conv.weight) {dilation="1 2", padding="0 1", stride="3 1"}
forward op "square" %square = mul(%conv, %conv)
forward op "sum" %sum = reduce_sum(%square) {dims="batch out height width", factor=0.1}
loss %sum
)",
               R"(mesh = { a = 3, b = 2 }
split = [
  { ops = "conv", dim = "height", over = ["b", "time:2"] },
  { ops = "conv", dim = "width", over = "a" },
]
)");
}

// With cut filters each rank has a part of the gradient of the convolution's input; the gradient is
// the sum of the parts. The pools before the convolution are linear, but they read through windows,
// so their result at a place is not made of the parts' elements at that place.
TEST(Parts, are_added_up_before_an_op_reads_them_through_windows) {
  expect_equal(R"(graph "parts"
parameter %shift.weight [channels=4, width=8] float64 init=normal(0.5)
input %x [batch=4, channels=4, width=8] float64
activation %shift [batch=4, channels=4, width=8] float64
activation %pool [batch=4, channels=4, width=2] float64
parameter %conv.weight [out=4, channels=4, k0=5] float64 init=normal(0.5)
activation %conv [batch=4, out=4, width=1] float64
activation %square [batch=4, out=4, width=1] float64
activation %sum [] float64
forward op "shift" %shift = add(%x, %shift.weight)
forward op "pool" %pool = avg_pool(%shift) {kernel="1 3", padding="0 0", stride="1 3"}
forward op "conv" %conv = conv(%pool, %conv.weight) {padding="2", stride="2"}
forward op "square" %square = mul(%conv, %conv)
forward op "sum" %sum = reduce_sum(%square) {dims="batch out width", factor=0.1}
loss %sum
)",
               R"(mesh = { a = 3 }
split = [ { ops = "{conv,square,sum}", dim = "out", over = "a" } ]
)");
}

}  // namespace
}  // namespace tessera
