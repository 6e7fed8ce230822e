// Checks what crosses between two meshes of hosts with four devices and one card each: bytes
// through the busiest card in the programs, and simulated times, beside the bounds of
// plan/layout/reshard.h and the worked table of docs/strategies/cross-mesh.md section 4.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/graph/builder.h"
#include "tessera/plan/layout/reshard.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/instructions.h"
#include "tessera/program/lower.h"
#include "tessera/program/verify/verify.h"
#include "tessera/simulate/simulate.h"

namespace tessera::crossing_test {
namespace {

constexpr int64_t kDevices = 4;  // of a host
constexpr int64_t kM = 768, kN = 512, kK = 16;

// C = A B at one stage, the sum of its squares at the next.
Graph product_and_square(int64_t times) {
  GraphBuilder g("product");
  const Init init{Init::Kind::kNormal, 1};
  const auto a = g.parameter("A", {{"m", times * kM}, {"k", kK}}, init);
  const auto b = g.parameter("B", {{"k", kK}, {"n", times * kN}}, init);
  const auto c = g.op1("C", "einsum", {a, b}, {{"spec", std::string("m k+, k n -> m n")}});
  const auto square = g.op1("square", "mul", {c, c});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {square}, {{"dims", std::string("m n")}, {"factor", 0.5}});
  OptimizerSpec descent;
  descent.kind = "sgd";
  descent.momentum = descent.weight_decay = descent.clip_norm = 0;
  return *differentiate(*g.finish(), descent);
}

struct Case {
  std::string name;
  std::string from_mesh, to_mesh;  // hosts x devices
  std::string from, to;            // splits of C and of what reads it: keys of entries; "": whole
  double direct = 0;               // simulated, each receiver its own copy; of the whole tensor's
  double bound = 0;                // both in times of the whole tensor through one card
  int64_t times = 1;               // so many times as many rows and columns
};
const std::vector<Case>& cases() {
  const std::string m_h = "dim = \"m\", over = \"h\"", m_d = "dim = \"m\", over = \"d\"";
  const std::string m_i = "dim = \"m\", over = \"i\"";
  static const std::vector<Case> all{
      {"1 S0RR -> S0RR", "h = 2, d = 4", "i = 2, e = 4", m_h, m_i, 2, .5},
      {"2 RRR -> S0RR", "h = 2, d = 4", "i = 2, e = 4", "", m_i, 2, .5},
      {"5 S1RR -> S0RR", "h = 2, d = 4", "i = 2, e = 4", m_d, m_i, 2, .5},
      {"5 on equal meshes", "h = 2, d = 4", "h = 2, d = 4", m_d, m_h, 2, .5},
      {"6 S0RR -> S0RR, three hosts", "h = 2, d = 4", "i = 3, e = 4", m_h, m_i, 2, .5},
      {"S0RR -> RRR", "h = 2, d = 4", "i = 2, e = 4", m_h, "", 4, 1},
  };
  return all;
}

struct Programs {
  Prepared prepared;
  std::unique_ptr<Lowering> lowering;
  std::vector<Program> programs;
  TensorId c;
};
Programs lowered(const Case& one, const std::string& resharding) {
  const auto split = [](const char* ops, const std::string& keys) {
    return keys.empty() ? "" : fmt::format("  {{ ops = \"{}\", {} }},\n", ops, keys);
  };
  const std::string plan = fmt::format(
      "resharding = \"{}\"\nstage = [\n  {{ ops = \"C\", at = 0, mesh = {{ {} }} }},\n"
      "  {{ ops = \"{{square,loss}}\", at = 1, mesh = {{ {} }} }},\n]\nsplit = [\n{}{}]\n",
      resharding, one.from_mesh, one.to_mesh, split("C", one.from), split("{square,loss}", one.to));
  auto prepared = prepare(product_and_square(one.times), parse_plan(plan, "plan.toml").value());
  EXPECT_TRUE(prepared.has_value()) << (prepared ? "" : prepared.error().message);
  Programs out{std::move(*prepared), nullptr, {}, {}};
  out.c = out.prepared.graph.find_tensor("C");
  auto made = Lowering::create(std::make_shared<Graph>(out.prepared.graph), out.prepared.plan);
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
  out.lowering = std::make_unique<Lowering>(std::move(*made));
  for (int rank = 0; rank < static_cast<int>(out.prepared.plan.ranks); ++rank)
    out.programs.push_back(*out.lowering->lower(rank));
  const auto rejections = verify(out.prepared.graph, out.programs);
  EXPECT_TRUE(rejections.empty()) << rejections[0].to_string();
  return out;
}

// Elements of C that leave and enter each host in the forward blocks, including collectives of the
// receiving mesh, as the communicator moves them.
struct Card {
  int64_t out = 0, in = 0;
};
std::map<int64_t, Card> cards(const Programs& lowered) {
  std::map<int64_t, Card> out;
  const auto move = [&](int from, int to, int64_t elements) {
    if (from / kDevices == to / kDevices) return;
    out[from / kDevices].out += elements;
    out[to / kDevices].in += elements;
  };
  const int64_t first = lowered.prepared.plan.stages[1].mesh.first_device;
  for (const Program& program : lowered.programs) {
    for (const auto& [ref, block] : program.blocks) {
      if (ref.kind != BlockKind::kForward) continue;
      for (const Instruction& instruction : block) {
        const auto* send = std::get_if<Send>(&instruction.body);
        if (send != nullptr && send->tensor == lowered.c)
          move(program.rank, send->peer, send->region.volume());
        const auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue == nullptr || program.rank < first) continue;
        const Group& group = program.groups[static_cast<size_t>(issue->group)];
        for (const Transfer& transfer : issue->transfers) {
          if (transfer.tensor != lowered.c) continue;
          Redistribution what;
          what.kind = issue->kind;
          what.dtype = issue->dtype;
          what.hold = transfer.hold;
          what.need = transfer.need;
          for (const Take& take : takes(what, static_cast<size_t>(group.index)))
            move(group.members[take.source], program.rank, take.box.volume());
        }
      }
    }
  }
  return out;
}
int64_t busiest(const Programs& lowered) {
  int64_t most = 0;
  for (const auto& [host, card] : cards(lowered)) most = std::max({most, card.out, card.in});
  return most;
}
int64_t crossing(const Programs& lowered) {  // elements that the first mesh sends
  int64_t sum = 0;
  for (const auto& [host, card] : cards(lowered)) {
    if (host * kDevices < lowered.prepared.plan.stages[1].mesh.first_device) sum += card.out;
  }
  return sum;
}

// Returns the best plan for the tensor's layouts on both sides, for the bounds.
ReshardPlan best(const Programs& lowered, const Case& one) {
  const auto side = [&](size_t stage, const std::string& keys) {
    const Mesh& mesh = lowered.prepared.plan.stages[stage].mesh;
    Layout layout = Layout::whole(2);
    const size_t quote = keys.rfind('"');
    if (quote != std::string::npos) layout.shards[0] = {mesh.find(keys.substr(quote - 1, 1))};
    const std::vector<int64_t> shape{one.times * kM, one.times * kN};
    return reshard_side(mesh, normalise(layout, mesh, shape), shape, kDevices);
  };
  return reshard(side(0, one.from), side(1, one.to)).value();
}

// Returns the time from the first send of C to the end of its last gather, in times of the whole
// tensor through one card. Links inside a host take no time, nor do kernels.
double simulated(const Programs& lowered, int64_t times = 1) {
  Cluster cluster = local_cluster(kDevices, nullptr);
  cluster.parts[0].nodes = 5;
  NodeType& type = cluster.parts[0].type;
  type.cores = 0;
  type.inner = {LinkKind::kMemory, 1e30, 0, true};
  type.nic = {LinkKind::kNic, 1e6, 0, true};
  type.nics = 1;
  type.device.synchronous = false;
  type.device.memory_rate = type.device.peak["fp32"] = 1e30;
  type.device.host_issue_s = 0;
  SimulateOptions options;
  options.style = parse_style("tessera").value();
  options.style.inner_efficiency = options.style.network_efficiency = 1;
  options.style.collective_gap_s = options.style.step_overhead_s = 0;
  options.style.host_collective_s = 0;
  options.events = true;
  const auto simulation = simulate(*lowered.lowering, cluster, options);
  EXPECT_TRUE(simulation.has_value()) << (simulation ? "" : simulation.error().message);
  double first = 1e30, last = 0;
  for (const TraceEvent& event : simulation->events) {
    if (event.block.kind != BlockKind::kForward) continue;
    if (simulation->labels[static_cast<size_t>(event.label)] != "C") continue;
    if (event.lane != Lane::kMessage && event.lane != Lane::kCollective) continue;
    first = std::min(first, event.start_s);
    last = std::max(last, event.end_s);
  }
  return (last - first) / static_cast<double>(times * times * kM * kN * 4) * 1e6;
}

class Crossing : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Worked, Crossing, testing::ValuesIn(cases()),
                         [](const auto& one) { return fmt::format("case_{}", one.index); });

TEST_P(Crossing, no_card_carries_more_than_a_tenth_above_the_bound) {
  const Case& one = GetParam();
  SCOPED_TRACE(one.name);
  const Programs now = lowered(one, "auto"), before = lowered(one, "direct");
  const ReshardPlan plan = best(now, one);
  EXPECT_NEAR(plan.bound_seconds / (kM * kN * 4), one.bound, 1e-9);
  EXPECT_LE(static_cast<double>(4 * busiest(now)), 1.1 * static_cast<double>(plan.busiest_bound));
  EXPECT_GE(busiest(before), 4 * busiest(now)) << "a copy for each of four devices";
  EXPECT_EQ(crossing(now), kM * kN) << "each element crosses once";
}

TEST_P(Crossing, takes_as_long_as_the_bound_says) {
  const Case& one = GetParam();
  SCOPED_TRACE(one.name);
  EXPECT_NEAR(simulated(lowered(one, "direct")), one.direct, .05 * one.direct);
  EXPECT_LE(simulated(lowered(one, "auto")), 1.1 * one.bound);
}

// A producer that sums over axes of its mesh: the parts are reduce-scattered, not all-reduced, and
// each rank sends what it has summed.
TEST(CrossingParts, are_scattered_before_they_cross) {
  const std::string k_d = "dim = \"k\", over = \"d\"", k_hd = "dim = \"k\", over = [\"h\", \"d\"]";
  const auto kinds = [](const Programs& lowered) {
    std::map<CollectiveKind, int> out;
    for (const auto& [ref, block] : lowered.programs[0].blocks) {
      for (const Instruction& instruction : block) {
        const auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue != nullptr && issue->transfers[0].tensor == lowered.c) ++out[issue->kind];
      }
    }
    return out;
  };
  using Kinds = std::map<CollectiveKind, int>;
  for (const Case& one :
       {Case{"whole", "h = 2, d = 4", "i = 2, e = 4", k_d, ""},
        Case{"cut", "h = 2, d = 4", "i = 2, e = 4", k_hd, "dim = \"m\", over = \"i\""},
        Case{"equal meshes", "h = 2, d = 4", "h = 2, d = 4", k_hd, ""}}) {
    SCOPED_TRACE(one.name);
    const Programs now = lowered(one, "auto"), direct = lowered(one, "direct");
    EXPECT_EQ(kinds(now), (Kinds{{CollectiveKind::kReduceScatter, 1}}));
    EXPECT_EQ(kinds(direct), (Kinds{{CollectiveKind::kAllReduce, 1}}));
    EXPECT_EQ(crossing(now), kM * kN);
    EXPECT_GE(crossing(direct), 4 * kM * kN);
  }
}

// Larger tensors cross in chunks, so that gathers between hosts run beside the messages: near to the
// time of the broadcast chains that reshard() finds, where shares that are gathered behind all
// messages take up to 1.78 times as long as the tensor through a card.
TEST(CrossingChunks, gather_between_hosts_while_messages_arrive) {
  const std::string m_d = "dim = \"m\", over = \"d\"", n_d = "dim = \"n\", over = \"d\"";
  struct Times {
    Case one;
    double whole, chunks;  // at most
  };
  for (const auto& [one, whole, chunks] :
       {Times{{"one host to two", "d = 4", "i = 2, e = 4", m_d, "", 0, 1, 8}, 1.52, 1.10},
        {{"one host to three", "d = 4", "i = 3, e = 4", m_d, "", 0, 1, 8}, 1.69, 1.25},
        {{"one host to three, by columns", "d = 4", "i = 3, e = 4", n_d, "", 0, 1, 8}, 1.69, 1.25},
        {{"one host to four, of replicas", "d = 4", "i = 4, e = 4", "", "", 0, 1, 8},
         1.78,
         1.36}}) {
    SCOPED_TRACE(one.name);
    Case small = one;
    small.times = 1;  // a share is below two mebibytes
    EXPECT_NEAR(simulated(lowered(small, "auto")), whole, .01);
    const Programs now = lowered(one, "auto");
    EXPECT_LE(simulated(now, one.times), chunks);
    EXPECT_EQ(crossing(now), one.times * one.times * kM * kN) << "each element crosses once";
    const ReshardPlan plan = best(now, one);
    EXPECT_LE(static_cast<double>(4 * busiest(now)), 1.1 * static_cast<double>(plan.busiest_bound));
  }
}

TEST(CrossingChunks, are_whole_where_nothing_is_gathered_or_messages_would_be_small) {
  const auto messages = [](const Programs& lowered) {
    int64_t most = 0;
    for (const Program& program : lowered.programs) {
      int64_t count = 0;
      const auto block = program.blocks.find(BlockKind::kForward);
      if (block == program.blocks.end()) continue;
      for (const Instruction& instruction : block->second) {
        const auto* receive = std::get_if<Recv>(&instruction.body);
        count += receive != nullptr && receive->tensor == lowered.c ? 1 : 0;
      }
      most = std::max(most, count);
    }
    return most;
  };
  const std::string m_d = "dim = \"m\", over = \"d\"";
  const std::string m_ie = "dim = \"m\", over = [\"i\", \"e\"]";
  EXPECT_EQ(messages(lowered({"", "d = 4", "i = 2, e = 4", m_d, "", 0, 1, 8}, "auto")), 8);
  EXPECT_EQ(messages(lowered({"", "d = 4", "i = 2, e = 4", m_d, "", 0, 1, 1}, "auto")), 1);
  EXPECT_EQ(messages(lowered({"", "d = 4", "i = 2, e = 4", m_d, m_ie, 0, 1, 8}, "auto")), 1);
}

// Where as many receivers as senders share a tensor unequally, ranks that see the same may have
// peers that do not: they are of different classes, so that one can stand for all of its class.
TEST(CrossingClasses, exchange_messages_with_whole_classes) {
  const std::string m_h = "dim = \"m\", over = \"h\"";
  for (const Case& one :
       {Case{"two hosts to three", "h = 2, d = 4", "i = 3, e = 4", m_h, "", 0, 1},
        Case{"three hosts to two", "h = 3, d = 4", "i = 2, e = 4", m_h, "", 0, 1},
        Case{"two to three, replicas", "h = 2, d = 4", "i = 3, e = 4", "", "", 0, 1},
        Case{"larger", "h = 2, d = 4", "i = 3, e = 4", m_h, "", 0, 1, 8}}) {
    SCOPED_TRACE(one.name);
    const Programs now = lowered(one, "auto");
    const double found = simulated(now, one.times);
    EXPECT_GE(found, .5);
    EXPECT_LE(found, 1.35);
  }
}

}  // namespace
}  // namespace tessera::crossing_test
