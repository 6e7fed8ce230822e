// Compares a real step's trace with the simulated one: equal instructions under equal names.
#include "tessera/runtime/measure/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tessera/compile/compile.h"
#include "tessera/runtime/session.h"
#include "tessera/simulate/chrome_trace.h"
#include "tessera/simulate/simulate.h"

namespace tessera {
namespace {

struct Named {
  std::string label, what;
  int64_t bytes;
  friend bool operator==(const Named&, const Named&) = default;
};
using Events = std::map<std::pair<int32_t, std::string>, Named>;  // by rank and id

Events events_of(const Simulation& simulation) {
  Events events;
  for (const TraceEvent& event : simulation.events) {
    const auto label = [&](int32_t i) { return simulation.labels[static_cast<size_t>(i)]; };
    events[{event.rank, instruction_id(event)}] = {label(event.label), label(event.what),
                                                   event.bytes};
  }
  return events;
}

class Trace : public ::testing::TestWithParam<const char*> {
 protected:
  Trace()
      : data_(
            (std::filesystem::temp_directory_path() / ("tessera_trace_" + std::to_string(getpid())))
                .string()) {
    std::ofstream file(data_);
    for (int i = 0; i < 200; ++i) file << "the same words again and again; ";
  }
  ~Trace() override { std::filesystem::remove(data_); }

  RunConfig config(const char* plan) const {
    RunConfig config;
    config.model = "gpt:layers=2,hidden=16,heads=2,seq=8,vocab=256";
    config.data = {data_};
    config.batch = 8;
    config.steps = 3;
    config.plan = plan;
    return config;
  }

  std::string data_;
};

TEST_P(Trace, has_the_instructions_of_the_simulated_step) {
  const RunConfig run = config(GetParam());
  Simulation real;
  TrainingCallbacks callbacks;
  callbacks.trace_step = 2;
  callbacks.trace = [&](const Simulation& step) { real = step; };
  const auto summary = run_training(run, callbacks);
  ASSERT_TRUE(summary) << summary.error().message;

  const auto compiled = compile({run.model, run.plan, run.batch});
  ASSERT_TRUE(compiled) << compiled.error().message;
  SimulateOptions options;
  options.fold = false;
  options.events = true;
  const auto simulated =
      simulate(*compiled->lowering, local_cluster(compiled->ranks(), nullptr), options);
  ASSERT_TRUE(simulated) << simulated.error().message;

  const Events expected = events_of(*simulated), found = events_of(real);
  EXPECT_EQ(found.size(), real.events.size());  // an id names one event
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [id, event] : expected) {
    const auto at = found.find(id);
    ASSERT_NE(at, found.end()) << "rank " << id.first << " " << id.second << " " << event.what;
    EXPECT_EQ(at->second.label, event.label) << id.second;
    EXPECT_EQ(at->second.what, event.what) << id.second;
  }
  EXPECT_GT(real.step_time_s, 0);
  for (const TraceEvent& event : real.events) {
    EXPECT_GE(event.start_s, 0);
    EXPECT_LE(event.start_s, event.end_s);
    EXPECT_LE(event.end_s, real.step_time_s);
  }
}
INSTANTIATE_TEST_SUITE_P(Plans, Trace,
                         ::testing::Values("serial", "recompute(full,micro_batches=2)",
                                           "data_parallel(2)", "tensor_parallel(2)", "zero(3,2,2)",
                                           "fsdp(2,prefetch=1)", "one_f_one_b(2,4)",
                                           "megatron(tp=2,dp=2,sequence_shard=true)"));

TEST_F(Trace, of_communication_begins_when_all_are_ready) {
  Simulation real;
  TrainingCallbacks callbacks;
  callbacks.trace_step = 3;
  callbacks.trace = [&](const Simulation& step) { real = step; };
  ASSERT_TRUE(run_training(config("tensor_parallel(2)"), callbacks));
  std::map<std::string, std::vector<const TraceEvent*>> meetings;
  std::set<int32_t> numbers;
  for (const TraceEvent& event : real.events) {
    if (event.lane == Lane::kCollective) meetings[instruction_id(event)].push_back(&event);
  }
  ASSERT_FALSE(meetings.empty());
  for (const auto& [id, members] : meetings) {
    ASSERT_EQ(members.size(), 2U) << id;
    EXPECT_EQ(members[0]->start_s, members[1]->start_s) << id;
    EXPECT_EQ(members[0]->match, members[1]->match) << id;
    numbers.insert(members[0]->match);
  }
  EXPECT_EQ(numbers.size(), meetings.size());
  EXPECT_FALSE(numbers.contains(-1));
}

TEST_F(Trace, a_send_and_its_receive_have_one_number) {
  Simulation real;
  TrainingCallbacks callbacks;
  callbacks.trace_step = 1;
  callbacks.trace = [&](const Simulation& step) { real = step; };
  ASSERT_TRUE(run_training(config("one_f_one_b(2,4)"), callbacks));
  std::map<int32_t, std::vector<const TraceEvent*>> messages;
  for (const TraceEvent& event : real.events) {
    if (event.lane != Lane::kMessage) continue;
    EXPECT_GT(event.channel, 0);
    messages[event.match].push_back(&event);
  }
  EXPECT_FALSE(messages.contains(-1));
  EXPECT_GE(messages.size(), 8U);  // forth and back, 4 micro-batches
  for (const auto& [number, ends] : messages) {
    ASSERT_EQ(ends.size(), 2U) << number;
    EXPECT_NE(ends[0]->rank, ends[1]->rank) << number;
    EXPECT_EQ(ends[0]->micro_batch, ends[1]->micro_batch) << number;
    EXPECT_EQ(ends[0]->label, ends[1]->label) << number;
  }
}

TEST_F(Trace, survives_the_file) {
  Simulation real;
  TrainingCallbacks callbacks;
  callbacks.trace_step = 1;
  callbacks.trace = [&](const Simulation& step) { real = step; };
  ASSERT_TRUE(run_training(config("data_parallel(2)"), callbacks));
  const auto back = parse_chrome_trace(to_chrome_trace(real), "trace.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(events_of(*back), events_of(real));
}

}  // namespace
}  // namespace tessera
