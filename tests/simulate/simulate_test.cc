// Whole plans on described machines. One rank of each class equals every rank, stretches simulated
// at once equal single items, bytes equal the programs' volume, and times lie above their bounds.
#include "tessera/simulate/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "compare.h"
#include "tessera/compile/compile.h"
#include "tessera/simulate/chrome_trace.h"

namespace tessera {
namespace {

struct Case {
  std::string model, plan;
  int64_t batch;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.plan; }

// Large enough to keep a device busy.
const std::string kGpt = "gpt:layers=4,hidden=1536,heads=12,seq=512,vocab=3072";
const std::string kDeep = "gpt:layers=8,hidden=1536,heads=12,seq=512,vocab=3072";
const std::string kSmall = "gpt:layers=4,hidden=96,heads=12,seq=48,vocab=384";  // the host is slow
const std::string kLlama =
    "llama:layers=4,hidden=1024,heads=8,kv_heads=4,seq=256,vocab=2048,ffn=3072";
const std::string kMixtral =
    "mixtral:layers=2,hidden=256,heads=8,kv_heads=4,experts=4,seq=128,vocab=512,ffn=512";

// Ranks 0 and 1 run the stages 0 and 1, ranks 2 and 3 the stages 1 and 2: so in the collectives of
// stage 1, the number of that stage among a rank's own stages differs.
const std::string kSharedPlaces = R"(micro_batches = 4
schedule = "interlaced"
split = [ { ops = "blocks.1.*", dim = "ffn", over = ["a", "b"] } ]
stage = [
  { ops = "{embed*,blocks.0}", at = 0, mesh = { b = 2 }, devices = 0 },
  { ops = "blocks.1", at = 1, mesh = { a = 2, b = 2 }, devices = 0 },
  { ops = "{blocks.[2-3],final*,head*,loss*}", at = 2, mesh = { a = 2 }, devices = 2 },
]
)";

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {kGpt, "serial", 4},
      {kGpt, "data_parallel(8)", 16},
      {kGpt, "data_parallel(4,micro_batches=3)", 24},
      {kGpt, "data_parallel(3)", 9},
      {kGpt, "data_parallel(4,micro_batches=4)", 12},  // one rank has no share; in the next two
      {kGpt, "data_parallel(4,micro_batches=4)", 8},
      {kGpt, "data_parallel(4,micro_batches=3)", 10},
      {kDeep, "one_f_one_b(8,micro_batches=16)", 40},
      {kDeep, "pipeline(4,micro_batches=8,schedule=zb_v)", 11},
      {kDeep, "megatron(tp=2,pp=2,dp=4,zero=1,micro_batches=4,sequence_shard=true)", 10},
      {kGpt, "fsdp(8,reshard_after_forward=4,micro_batches=3,prefetch=0)", 26},
      {kGpt, "zero(1,8)", 16},
      {kGpt, "zero(2,4,micro_batches=2)", 16},
      {kGpt, "zero(3,16)", 32},
      {kGpt, "fsdp(8,replicas=2,micro_batches=2,accumulate=whole,prefetch=0)", 32},
      {kGpt, "fsdp(4,prefetch=1,recompute=full)", 8},
      {kLlama, "fsdp(8,reshard=false,micro_batches=3,prefetch=0)", 24},
      {kGpt, "tensor_parallel(4)", 4},
      {kGpt, "tensor_parallel(3,sequence_shard=true)", 4},
      {kGpt, "summa(2,cols=3)", 4},
      {kGpt, "cannon(2)", 4},
      {kGpt, "tesseract(2,2)", 4},
      {kDeep, "gpipe(4,micro_batches=8)", 16},
      {kGpt, kSharedPlaces, 8},
      {kDeep, "one_f_one_b(8,micro_batches=16)", 16},
      {kDeep, "pipeline(4,micro_batches=8,schedule=zb_h1)", 8},
      {kDeep, "pipeline(2,micro_batches=4,schedule=interleaved,chunks=2)", 8},
      {kDeep, "megatron(tp=2,pp=4,dp=2,micro_batches=8)", 32},
      {kDeep, "megatron(tp=2,pp=2,dp=4,zero=1,micro_batches=4,recompute=full,sequence_shard=true)",
       32},
      {kDeep, "megatron(tp=4,pp=4,dp=4,zero=1,micro_batches=8)", 64},
      {kSmall, "megatron(tp=2,pp=2,dp=2,micro_batches=4)", 16},
      {kSmall, "zero(3,8,micro_batches=2)", 32},
      {kLlama, "megatron(cp=2,pp=2,tp=2,micro_batches=2)", 8},
      {kMixtral, "zero(1,4)", 8},
      // Messages whose receivers post them in another order than their senders.
      {kDeep, "pipeline(2,micro_batches=4,schedule=zb_v)", 8},
      {kDeep, "pipeline(4,micro_batches=8,schedule=zb_v)", 16},
      {kDeep,
       "megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=4,sequence_shard=true,schedule=interleaved,"
       "chunks=2)",
       16},
      {kDeep, "megatron(pp=2,dp=2,schedule=chimera)", 8},
      // Ranks at several places, whose meshes have different axes.
      {kDeep, "megatron(tp=2,pp=2,schedule=interlaced,micro_batches=2)", 8},
      {kDeep, "token_pipeline(2,4)", 8},
      {kLlama, "ring_attention(4)", 4},
      {kLlama, "ulysses(4)", 4},
      {kMixtral, "expert_parallel(4,dp=2,zero=1)", 16},
  };
  return all;
}

Cluster nodes_of(int64_t devices) {
  Cluster cluster = load_cluster("dgx-a100:1").value();
  cluster.parts[0].type.devices = devices;
  cluster.parts[0].type.nics = devices;
  cluster.parts[0].nodes = (64 + devices - 1) / devices;
  return cluster;
}

Compiled planned(const Case& c) {
  auto out = compile({c.model, c.plan, c.batch});
  EXPECT_TRUE(out.has_value()) << c.plan << ": " << (out ? "" : out.error().message);
  return out ? std::move(*out) : Compiled{};
}
SimulateOptions options_of(const std::string& style = "tessera") {
  SimulateOptions options;
  options.style = parse_style(style).value();
  return options;
}
Simulation simulated(const Compiled& planned, const Cluster& cluster,
                     const SimulateOptions& options) {
  auto out = simulate(*planned.lowering, cluster, options);
  EXPECT_TRUE(out.has_value()) << (out ? "" : out.error().message);
  return out ? std::move(*out) : Simulation{};
}

class Plans : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Recipes, Plans, testing::ValuesIn(cases()));

TEST_P(Plans, OneRankOfEachClassStandsForAll) {
  const Compiled plan = planned(GetParam());
  // The last cluster has two sockets a node, with a slower link between them.
  const std::vector<Cluster> clusters{nodes_of(8), nodes_of(4), nodes_of(3),
                                      load_cluster("h100-nvl:8").value()};
  for (const Cluster& cluster : clusters) {
    SCOPED_TRACE(testing::Message() << cluster.parts[0].type.devices << " devices a node");
    SimulateOptions options = options_of();
    const Simulation folded = simulated(plan, cluster, options);
    options.fold = false;
    expect_equal(folded, simulated(plan, cluster, options));
  }
}

TEST_P(Plans, ARunAsksBeforeItPlays) {
  const Compiled plan = planned(GetParam());
  for (const int64_t devices : {8, 3}) {
    int64_t asked = -1;
    SimulateOptions options = options_of();
    options.may_play = [&](int64_t instructions) {
      asked = instructions;
      return true;
    };
    const Simulation played = simulated(plan, nodes_of(devices), options);
    int64_t expected = 0;
    for (const RankResult& one : played.roles) {
      const auto program = plan.lowering->lower(one.representative);
      ASSERT_TRUE(program);
      for (const auto& [ref, block] : program->blocks) expected += std::ssize(block);
    }
    EXPECT_EQ(asked, expected) << devices << " devices a node";
    options.may_play = [](int64_t) { return false; };
    const auto refused = simulate(*plan.lowering, nodes_of(devices), options);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(std::to_string(expected) + " instructions"),
              std::string::npos)
        << refused.error().message;
  }
}

TEST_P(Plans, StretchesPlayedAtOnceAreExact) {
  const Compiled plan = planned(GetParam());
  for (const auto& [style, path] : {std::pair("tessera", true),
                                    {"tessera", false},
                                    {"megatron-2022", true},
                                    {"megatron-2022", false}}) {
    SimulateOptions options = options_of(style);
    options.critical_path = path;  // without it, collectives beside kernels are in stretches, too
    const Cluster cluster = nodes_of(4);
    const Simulation compact = simulated(plan, cluster, options);
    options.compact = false;
    const Simulation detailed = simulated(plan, cluster, options);
    expect_equal(compact, detailed);
    EXPECT_LE(compact.simulated_events, detailed.simulated_events);
  }
}

TEST_P(Plans, PartsOfARanksTimeSumToTheStepAndBytesAreThePrograms) {
  const Compiled plan = planned(GetParam());
  const Simulation result = simulated(plan, nodes_of(8), options_of());
  double flops = 0;
  for (const RankResult& role : result.roles) {
    EXPECT_NEAR(std::accumulate(role.spent_s.begin(), role.spent_s.end(), 0.0), result.step_time_s,
                1e-9 * result.step_time_s);
    flops += role.flops * static_cast<double>(role.ranks);
    const Program program = plan.lowering->lower(role.representative).value();
    std::map<std::string, int64_t> bytes;
    for (const TrafficRow& row : role.traffic) {
      if (row.bytes > 0) bytes[row.kind] += row.bytes;
      EXPECT_LE(row.exposed_s, row.seconds + 1e-9 * result.step_time_s) << row.kind;
    }
    std::map<std::string, int64_t> expected;
    for (const auto& [kind, traffic] : volume(program, plan.graph()).by_kind) {
      if (traffic.bytes > 0) expected[kind] = traffic.bytes;
    }
    EXPECT_EQ(bytes, expected) << role.representative;
  }
  EXPECT_EQ(flops, result.hardware_flops);
  // Lower bound: all work at the peak on all devices.
  EXPECT_GT(result.step_time_s, result.model_flops / (static_cast<double>(result.ranks) * 312e12));
  // The critical path goes from the beginning to the end without gaps.
  double at = 0, more = 0;  // more: until the last occurrence of a part that repeats ends
  for (const PathStep& step : result.critical_path) {
    if (std::abs(step.start_s - at) > 1e-9 * result.step_time_s) at += more;
    EXPECT_NEAR(step.start_s, at, 1e-9 * result.step_time_s);
    at = step.end_s;
    more = static_cast<double>(step.times - 1) * step.period_s;
  }
  at += more;
  EXPECT_NEAR(at, result.step_time_s, 1e-9 * result.step_time_s);
}

TEST_P(Plans, EventsAreTheStep) {
  const Compiled plan = planned(GetParam());
  SimulateOptions options = options_of();
  const double step = simulated(plan, nodes_of(8), options).step_time_s;
  options.events = true;
  const Simulation result = simulated(plan, nodes_of(8), options);
  EXPECT_NEAR(result.step_time_s, step, kExact * step);
  double last = 0;
  std::map<std::pair<int, int>, double> compute_until;
  for (const TraceEvent& event : result.events) {
    EXPECT_LE(event.start_s, event.end_s);
    last = std::max(last, event.end_s);
    if (event.lane != Lane::kCompute) continue;
    double& until = compute_until[{event.rank, event.channel}];
    EXPECT_GE(event.start_s, until - 1e-12) << "a stream runs one kernel at a time";
    until = event.end_s;
  }
  EXPECT_NEAR(last, step, 1e-9 * step);
}

// Every rank is simulated, so all its ranks see every message and collective.
TEST_P(Plans, EventsThatBelongTogetherHaveANumber) {
  const Compiled plan = planned(GetParam());
  SimulateOptions options = options_of();
  options.events = true;
  options.fold = false;
  const Simulation result = simulated(plan, nodes_of(8), options);
  std::map<int32_t, std::vector<const TraceEvent*>> together;
  for (const TraceEvent& event : result.events) {
    EXPECT_GE(event.channel, 0) << instruction_id(event);
    const bool communicates = event.lane == Lane::kCollective || event.lane == Lane::kMessage;
    EXPECT_EQ(event.match >= 0, communicates) << instruction_id(event);
    if (communicates) together[event.match].push_back(&event);
  }
  std::map<int, Program> programs;
  for (int rank = 0; rank < plan.plan().ranks; ++rank) {
    auto program = plan.lowering->lower(rank);
    ASSERT_TRUE(program) << program.error().message;
    programs.emplace(rank, *std::move(program));
  }
  int32_t next = 0;
  for (const auto& [number, events] : together) {
    EXPECT_EQ(number, next++);
    std::set<int> ranks;
    for (const TraceEvent* event : events) {
      ranks.insert(event->rank);
      EXPECT_EQ(event->start_s, events[0]->start_s);
      EXPECT_EQ(event->end_s, events[0]->end_s);
      EXPECT_EQ(event->micro_batch, events[0]->micro_batch);
      EXPECT_EQ(event->label,
                events[0]->lane == Lane::kCollective ? events[0]->label : event->label);
    }
    EXPECT_EQ(ranks.size(), events.size());
    const TraceEvent& first = *events[0];
    const Program& program = programs.at(first.rank);
    const auto& body = program.block(first.block)[static_cast<size_t>(first.instruction)].body;
    std::set<int> expected{first.rank};
    if (const auto* issue = std::get_if<Issue>(&body)) {
      const auto& members = program.groups[static_cast<size_t>(issue->group)].members;
      expected.insert(members.begin(), members.end());
    } else if (const auto* send = std::get_if<Send>(&body)) {
      expected.insert(send->peer);
    } else {
      expected.insert(std::get<Recv>(body).peer);
    }
    EXPECT_EQ(ranks, expected) << instruction_id(first);
  }
}

TEST_P(Plans, FasterLinksAndDevicesAreNeverSlower) {
  const Compiled plan = planned(GetParam());
  SimulateOptions options =
      options_of("tessera,compute_slowdown=1,network_slowdown=1,collective_slowdown=1");
  const Cluster cluster = nodes_of(4);
  const double step = simulated(plan, cluster, options).step_time_s;
  for (const char* change :
       {"link:nic*2", "link:inner*2", "device:peak*2", "device:memory_rate*2"}) {
    Cluster faster = cluster;
    const Status applied = apply_what_if(faster, change);
    ASSERT_TRUE(applied.has_value()) << applied.error().message;
    EXPECT_LE(simulated(plan, faster, options).step_time_s, step * (1 + 1e-9)) << change;
  }
}

TEST(Simulate, AStragglerHoldsUpTheOthersAndIsPlayedApart) {
  const Compiled plan = planned({kGpt, "data_parallel(8)", 16});
  SimulateOptions options = options_of();
  const double even = simulated(plan, nodes_of(8), options).step_time_s;
  options.stragglers = {{5, 2.0}};
  const Simulation folded = simulated(plan, nodes_of(8), options);
  EXPECT_GT(folded.step_time_s, 1.8 * even);
  EXPECT_LT(folded.roles.size(), 8U);
  options.fold = false;
  expect_equal(folded, simulated(plan, nodes_of(8), options));
}

// One of three replicas has its peer in its own socket.
TEST(Simulate, ReplicasWhoseMessagesCrossSocketsAreAClassOfTheirOwn) {
  const Compiled plan = planned({kDeep, "megatron(pp=2,dp=3,zero=1,schedule=chimera)", 12});
  const Cluster cluster = load_cluster("h100-nvl:1").value();
  SimulateOptions options = options_of();
  const Simulation folded = simulated(plan, cluster, options);
  EXPECT_EQ(folded.roles.size(), 4U);
  options.fold = false;
  expect_equal(folded, simulated(plan, cluster, options));
}

TEST(Simulate, ASimulatorThatIsUsedAgainFindsWhatAFreshOneFinds) {
  const Compiled plan = planned({kDeep, "megatron(tp=2,pp=2,dp=4,micro_batches=4)", 32});
  Simulator again(*plan.lowering);
  for (const int64_t devices : {8, 4, 8}) {
    for (const std::string style :
         {"tessera", "megatron-2022", "tessera,overlap_gradients=false"}) {
      const auto reused = again.run(nodes_of(devices), options_of(style));
      ASSERT_TRUE(reused.has_value()) << reused.error().message;
      const Simulation fresh = simulated(plan, nodes_of(devices), options_of(style));
      EXPECT_EQ(reused->step_time_s, fresh.step_time_s) << devices << " " << style;
      expect_equal(*reused, fresh);
    }
  }
}

// Without a critical path, rounds that repeat are not simulated.
TEST(Simulate, RoundsThatRepeatAreCountedAsPlayed) {
  for (const char* text :
       {"one_f_one_b(4,micro_batches=32)", "data_parallel(8,micro_batches=32)",
        "pipeline(4,micro_batches=32,schedule=zb_h1)",
        "pipeline(2,micro_batches=32,schedule=interleaved,chunks=2)",
        "megatron(tp=2,pp=4,dp=2,micro_batches=32)",
        "megatron(tp=2,pp=2,dp=4,zero=1,micro_batches=32,recompute=full,sequence_shard=true)"}) {
    const Compiled plan = planned({kDeep, text, 256});
    for (const std::string style : {"tessera", "megatron-2022", "tessera,overlap_messages=false"}) {
      SCOPED_TRACE(std::string(text) + " " + style);
      SimulateOptions options = options_of(style);
      options.events = true;  // then every round is played
      const Simulation played = simulated(plan, nodes_of(8), options);
      options.events = false;
      const Simulation counted = simulated(plan, nodes_of(8), options);
      expect_equal(counted, played);
      for (size_t i = 0; i < played.roles.size(); ++i) {
        for (size_t row = 0; row < played.roles[i].traffic.size(); ++row) {
          EXPECT_NEAR(counted.roles[i].traffic[row].exposed_s,
                      played.roles[i].traffic[row].exposed_s, 1e-9 * played.step_time_s);
        }
      }
      EXPECT_LT(counted.simulated_events, played.simulated_events);
    }
  }
}

TEST(Simulate, JitterIsRepeatedByItsSeedAndCostsTime) {
  const Compiled plan = planned({kGpt, "data_parallel(8)", 16});
  SimulateOptions options = options_of();
  const double even = simulated(plan, nodes_of(8), options).step_time_s;
  options.jitter = 0.05;
  const double noisy = simulated(plan, nodes_of(8), options).step_time_s;
  EXPECT_GT(noisy, even);
  EXPECT_EQ(simulated(plan, nodes_of(8), options).step_time_s, noisy);
}

TEST(Simulate, ACollectiveThatTheHostWaitsForIsExposed) {
  const Compiled plan = planned({kGpt, "data_parallel(16)", 32});
  const double beside = simulated(plan, nodes_of(4), options_of()).step_time_s;
  const double blocking =
      simulated(plan, nodes_of(4), options_of("tessera,overlap_gradients=false")).step_time_s;
  EXPECT_GT(blocking, beside);
}

// 1,024 of the 1,536 ranks hold two rows each, the others none: the shards are exchanged directly,
// and each device takes nearly all of the array from other nodes.
TEST(Simulate, UnevenShardsPayTheNetwork) {
  const Compiled plan =
      planned({"gpt:layers=1,hidden=2048,heads=16,seq=128,vocab=2048", "zero(3,1536)", 1536});
  const Cluster cluster = load_cluster("dgx-a100:192").value();
  const Simulation step = simulated(plan, cluster, options_of());
  int64_t found = 0;
  for (const TrafficRow& row : step.roles.front().traffic) {
    if (row.kind != "exchange") continue;
    const double away = static_cast<double>(row.bytes) * 191 / 192;
    EXPECT_GT(row.seconds, away / cluster.parts[0].type.nic.rate);
    found += row.bytes;
  }
  EXPECT_GT(found, 100 << 20);
}

// A halo costs a plane or two of a piece, not the piece; tiles that need no halo hide most of it.
TEST(Simulate, HalosPayForWhatTheyMoveAndTilesHideThem) {
  const std::string model = "cosmoflow:width=128,dropout=0";
  const Cluster cluster = load_cluster("dgx-v100-16:1").value();
  const auto exchange = [&](const std::string& plan) {
    const Simulation step = simulated(planned({model, plan, 8}), cluster, options_of());
    TrafficRow sum;
    for (const TrafficRow& row : step.roles.front().traffic) {
      if (row.kind != "exchange") continue;
      sum.count += row.count;
      sum.bytes += row.bytes;
      sum.seconds += row.seconds;
      sum.exposed_s += row.exposed_s;
    }
    return sum;
  };
  const TrafficRow whole = exchange("spatial(d=8)"), tiles = exchange("spatial(d=8, tiles=4)");
  EXPECT_GT(whole.count, 8);
  EXPECT_EQ(tiles.bytes, whole.bytes);
  EXPECT_EQ(tiles.count, whole.count);
  const double moved = static_cast<double>(whole.bytes) / cluster.parts[0].type.inner.rate;
  EXPECT_GT(whole.seconds, moved);
  EXPECT_LT(whole.seconds, 10 * moved + static_cast<double>(whole.count) * 1e-4);
  EXPECT_LT(tiles.exposed_s, 0.7 * whole.exposed_s);
  // With two dims cut, every tile waits for the halo of one dim; the interior does not.
  const TrafficRow two = exchange("spatial(d=4, h=2)"),
                   rims = exchange("spatial(d=4, h=2, rims=true)");
  EXPECT_EQ(rims.bytes, two.bytes);
  EXPECT_EQ(rims.count, two.count);
  EXPECT_LT(rims.exposed_s, 0.7 * two.exposed_s);
}

// One halo of two layers' widths means fewer exchanges and more work.
TEST(Simulate, HalosOfSeveralLayersAreFewerExchangesAndMoreWork) {
  const std::string model = "vgg:layers=13,form=cifar,image=64,dropout=0";
  const Cluster cluster = load_cluster("dgx-v100-16:1").value();
  const auto step = [&](int layers) {
    return simulated(planned({model, "spatial(h=8, layers=" + std::to_string(layers) + ")", 8}),
                     cluster, options_of())
        .roles.front();
  };
  const auto exchanges = [](const auto& role) {
    int64_t count = 0;
    for (const TrafficRow& row : role.traffic) count += row.kind == "exchange" ? row.count : 0;
    return count;
  };
  const auto one = step(1), two = step(2);
  EXPECT_LT(exchanges(two), exchanges(one));
  EXPECT_GT(two.flops, one.flops);
}

// In a style that overlaps no gradients of parameters, gradients of narrow copies count as such.
TEST(Simulate, ACollectiveOfNarrowGradientsIsOneOfParameters) {
  const std::string file = testing::TempDir() + "narrow_gradients.toml";
  std::ofstream(file) << R"(mesh = { dp = 16 }
bucket_bytes = 0
precision = { compute = "bfloat16" }
split = [ { ops = "*", dim = "batch", over = "dp" } ]
)";
  const Compiled plan = planned({kGpt, file, 32});
  const double beside = simulated(plan, nodes_of(4), options_of()).step_time_s;
  const double blocking =
      simulated(plan, nodes_of(4), options_of("tessera,overlap_gradients=false")).step_time_s;
  EXPECT_GT(blocking, beside);
}

// All-to-alls of heads (Ulysses) count as activations between ops; those of experts' tokens do not.
TEST(Simulate, OnlyTokensOfExpertsAreHiddenLikeTokens) {
  for (const auto& [c, tokens] : {std::pair(Case{kLlama, "ulysses(4)", 4}, false),
                                  {Case{kMixtral, "expert_parallel(4,dp=2)", 16}, true}}) {
    const Compiled plan = planned(c);
    const auto step = [&](const std::string& style) {
      return simulated(plan, nodes_of(4), options_of("tessera," + style)).step_time_s;
    };
    EXPECT_EQ(step("routing_overlap=0.7") < step("routing_overlap=0"), tokens) << c.plan;
    EXPECT_TRUE(tokens || step("activation_overlap=0.7") < step("activation_overlap=0"));
  }
}

// On two nodes, half of the time both choices of a token fall on one node: three quarters of the
// copies cross the network. Exchanged heads of attention cross it as before.
TEST(Simulate, TokensMayCrossTheNetworkOnceANode) {
  for (const auto& [c, tokens] : {std::pair(Case{kLlama, "ulysses(4)", 4}, false),
                                  {Case{kMixtral, "expert_parallel(4)", 16}, true}}) {
    const Compiled plan = planned(c);
    const auto step = [&](const std::string& style) {
      return simulated(plan, nodes_of(2), options_of("tessera," + style)).step_time_s;
    };
    EXPECT_EQ(step("tokens_once_a_node=true") < step("tokens_once_a_node=false"), tokens) << c.plan;
  }
}

TEST(Simulate, MessagesThatBlockAreExposed) {
  for (const std::string plan : {"gpipe(4,micro_batches=8)", "one_f_one_b(4,micro_batches=8)",
                                 "pipeline(4,micro_batches=8,schedule=zb_h1)",
                                 "pipeline(4,micro_batches=8,schedule=interleaved,chunks=2)"}) {
    const Compiled made = planned({kDeep, plan, 32});
    const double beside = simulated(made, nodes_of(1), options_of()).step_time_s;
    const double blocking =
        simulated(made, nodes_of(1), options_of("tessera,overlap_messages=false")).step_time_s;
    EXPECT_GT(blocking, beside) << plan;
  }
}

TEST(Simulate, AClusterThatIsTooSmallIsRefused) {
  const Compiled plan = planned({kGpt, "data_parallel(16)", 16});
  const auto result = simulate(*plan.lowering, load_cluster("dgx-a100:1").value(), options_of());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message,
            "cluster 'dgx-a100': expected at least 16 devices for the plan's ranks, found 8");
}

}  // namespace
}  // namespace tessera
