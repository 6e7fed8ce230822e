// Stages on meshes of their own: random plans, and cases that have failed.
#include <gtest/gtest.h>

#include <string>

#include "equivalence.h"
#include "tessera/runtime/session.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

void expect_equal(const std::string& model, const std::string& plan, int64_t batch) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = batch;
  const auto report = verify_plan(config);
  ASSERT_TRUE(report.has_value()) << plan << ": " << report.error().message;
  EXPECT_TRUE(report->ok) << plan << ": " << report->why;
}

TEST(Equivalence, random_plans_of_stages_on_unlike_meshes_equal_the_serial_run) {
  expect_equal_to_serial(mesh_cases(), 120);
}

constexpr const char* kT5 = "t5:layers=2,hidden=8,heads=2,seq=3,source=3,vocab=9";
constexpr const char* kEvoformer =
    "evoformer:layers=2,hidden=8,heads=2,pair=4,pair_heads=2,sequences=3,residues=4,vocab=5,bins=3,"
    "recycles=1,outer=3";

// No stage entry names the table of relative positions, nor its cast: both are at the stage of the
// blocks, which read them, and the table's gradient is cut over an axis of that stage.
TEST(UnlikeMeshes, have_casts_that_no_entry_names_where_they_are_read) {
  expect_equal(kT5, "megatron(pp=2,dp=2,zero=1,schedule=interlaced,precision=bfloat16)", 4);
  for (const char* const store :
       {"encoder.relative.weight", "role:parameter", "role:gradient", "role:optimizer_state"}) {
    for (const char* const inner : {"{ b = 2 }", "{ b = 2, a = 1 }", "{ c = 2, b = 2 }"}) {
      expect_equal(kT5,
                   std::string(R"(precision = { compute = "bfloat16" }
stage = [
  { ops = "embed", at = 0, mesh = { a = 2, b = 2 } },
  { ops = "{blocks,final,head,loss}", at = 1, mesh = )") +
                       inner + R"( },
]
store = [ { tensors = ")" +
                       store + "\", over = \"b\" } ]\n",
                   4);
    }
  }
}

// A loop cuts a parameter into slices that no entry names.
TEST(UnlikeMeshes, have_slices_of_loops_that_no_entry_names_where_they_are_read) {
  for (const char* const inner : {"{ b = 2 }", "{ c = 3, b = 2 }"}) {
    expect_equal(kEvoformer,
                 std::string(R"(stage = [
  { ops = "{embed,pass,recycle}", at = 0, mesh = { a = 2, b = 2 } },
  { ops = "{blocks,final,head,loss}", at = 1, mesh = )") +
                     inner + R"( },
]
store = [ { tensors = "role:parameter", over = "b" } ]
loop = [ { ops = "blocks.*.attn", dim = "heads", steps = 2 } ]
)",
                 6);
  }
}

// A loop's pieces are summed at the second stage and made at the first. The sum is recomputed at
// its own stage: at the stage of its terms it would be requested again and again.
TEST(UnlikeMeshes, compute_the_sum_of_a_loop_again_at_its_own_stage) {
  expect_equal(TESSERA_SOURCE_DIR "/tests/equivalence/graphs/sum_over_a_loop.graph", R"(
mesh = { pp = 2 }
stage = [ { ops = "embed", at = 0 }, { ops = "op3", at = 1 } ]
loop = [ { ops = "{embed,op2,op3,two}", dim = "f0", steps = 2, recompute = true } ]
store = [ { tensors = "op2", recompute = true } ]
)",
               4);
}

// Ten samples lie in four micro-batches. In micro-batches of three samples, a rank has nothing of a
// step's part of the sum; in those of two it has one sample.
TEST(UnequalMicroBatches, have_buffers_for_the_pieces_of_both_sizes) {
  expect_equal(TESSERA_SOURCE_DIR "/tests/equivalence/graphs/sum_in_steps.graph", R"(
micro_batches = 4
mesh = { c = 4 }
split = [
  { ops = "op2", dim = "batch", over = "time:2" },
  { ops = "op2", dim = "f0", over = "c" },
  { ops = "op1", dim = "batch", over = "c" },
]
store = [ { tensors = "role:activation", tier = "disk", fraction = 1.0 } ]
)",
               10);
}

}  // namespace
}  // namespace tessera
