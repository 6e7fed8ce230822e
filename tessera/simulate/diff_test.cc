#include "tessera/simulate/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/simulate/test_simulations.h"

namespace tessera {
namespace {

TEST(Diff, a_trace_equals_itself) {
  const Simulation s = test_simulation();
  const TraceDifference d = diff_traces(s, s);
  EXPECT_EQ(d.events, 6);
  for (const ClassDifference& c : d.classes) {
    EXPECT_EQ(c.change(), 0) << c.what;
    EXPECT_EQ(c.spread, 0) << c.what;
  }
  EXPECT_TRUE(d.only_a.empty());
  EXPECT_TRUE(d.only_b.empty());
}

TEST(Diff, error_of_each_class_and_its_share) {
  const Simulation a = test_simulation();
  Simulation b = a;
  b.step_time_s = 0.0077;
  for (TraceEvent& event : b.events) {  // matmuls 10 % longer
    if (event.what == 1) event.end_s += .1 * (event.end_s - event.start_s);
  }
  b.events[3].end_s = 0.004;  // the all-reduce takes half as long
  const TraceDifference d = diff_traces(a, b);
  ASSERT_EQ(d.classes.size(), 4u);
  EXPECT_EQ(d.classes[0].what, "all_reduce dp");
  EXPECT_NEAR(d.classes[0].change(), -.5, 1e-9);
  EXPECT_EQ(d.classes[1].what, "matmul");
  EXPECT_EQ(d.classes[1].events, 3);
  EXPECT_NEAR(d.classes[1].change(), .1, 1e-9);
  EXPECT_NEAR(d.classes[1].spread, .1 / 1.1, 1e-9);
  // Matmuls 7.5 ms, all-reduce 4, messages .5 + .5 of 12.5 ms.
  EXPECT_NEAR(d.classes[1].share, 7.5 / 12.5, 1e-9);
  EXPECT_NEAR(d.classes[1].rank_step, .75e-3 / 2 / .007, 1e-9);
  EXPECT_EQ(d.worst[0].id, "backward:1:9");
  EXPECT_EQ(d.worst[0].label, "grad");
  EXPECT_EQ(d.worst[1].id, "forward@1:0:2");
  EXPECT_EQ(d.worst[1].rank, 1);
}

TEST(Diff, opposite_errors_show_in_the_spread) {
  const Simulation a = test_simulation();
  Simulation b = a;
  b.events[0].end_s = 0.0005;
  b.events[2].end_s = 0.0025;
  const TraceDifference d = diff_traces(a, b);
  const auto it = std::find_if(d.classes.begin(), d.classes.end(),
                               [](const ClassDifference& c) { return c.what == "matmul"; });
  ASSERT_NE(it, d.classes.end());
  EXPECT_NEAR(it->change(), 0, 1e-9);
  EXPECT_NEAR(it->spread, (.5 + 1. / 3) / 3, 1e-9);
}

TEST(Diff, labels_are_compared_by_text_not_by_number) {
  const Simulation a = test_simulation();
  Simulation b = a;
  std::reverse(b.labels.begin(), b.labels.end());
  const auto last = static_cast<int32_t>(b.labels.size()) - 1;
  for (TraceEvent& event : b.events) {
    event.label = last - event.label;
    event.what = last - event.what;
  }
  const TraceDifference d = diff_traces(a, b);
  EXPECT_EQ(d.events, 6);
  EXPECT_TRUE(d.only_b.empty());
}

TEST(Diff, what_only_one_of_them_has) {
  const Simulation a = test_simulation();
  Simulation b = a;
  b.events[0].instruction = 99;
  const TraceDifference d = diff_traces(a, b);
  EXPECT_EQ(d.events, 5);
  ASSERT_EQ(d.only_a.size(), 1u);
  EXPECT_EQ(d.only_a[0].what, "matmul");
  EXPECT_EQ(d.only_a[0].example, "rank 0 forward:0:3");
  EXPECT_NEAR(d.only_a[0].seconds, .001, 1e-12);
  ASSERT_EQ(d.only_b.size(), 1u);
  EXPECT_EQ(d.only_b[0].example, "rank 0 forward:0:99");
}

TEST(Diff, ranks_that_one_trace_leaves_out_are_named_not_counted) {
  const Simulation a = test_simulation();
  Simulation b = a;
  b.events.push_back(b.events.back());
  b.events.back().rank = 3;
  const TraceDifference d = diff_traces(a, b);
  EXPECT_THAT(d.ranks, testing::ElementsAre(0, 1));
  EXPECT_THAT(d.only_b_ranks, testing::ElementsAre(3));
  EXPECT_TRUE(d.only_a_ranks.empty());
  EXPECT_TRUE(d.only_b.empty());
}

TEST(Diff, several_events_of_an_instruction_are_one_and_the_host_is_apart) {
  Simulation a = test_simulation();
  a.events.resize(1);
  Simulation b = a;
  b.events.push_back(b.events[0]);
  b.events[0].end_s = 0.0004;
  b.events[1].start_s = 0.0005;
  b.events[1].end_s = 0.0011;
  b.events.push_back(b.events[0]);
  b.events[2].lane = Lane::kHost;
  const TraceDifference d = diff_traces(a, b);
  EXPECT_EQ(d.events, 1);
  EXPECT_NEAR(d.classes[0].b_s, .001, 1e-12);
  ASSERT_EQ(d.only_b.size(), 1u);
  EXPECT_EQ(d.only_b[0].what, "host");
}

TEST(Diff, list_of_the_worst_is_as_long_as_asked) {
  const Simulation s = test_simulation();
  EXPECT_EQ(diff_traces(s, s, 2).worst.size(), 2u);
  EXPECT_EQ(diff_traces(s, s, 0).worst.size(), 0u);
}

}  // namespace
}  // namespace tessera
