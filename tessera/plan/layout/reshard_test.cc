// Cross-mesh resharding against the worked table of docs/strategies/cross-mesh.md (section
// 4), brute force over all orders and senders, lower bounds, coverage, and data that really moves.
#include "tessera/plan/layout/reshard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "tessera/plan/layout/reshard_order.h"
#include "tessera/plan/layout/reshard_spec.h"

namespace tessera {
namespace {

using Shape = std::vector<int64_t>;
using enum ReshardOrder;
constexpr auto kUnset = std::nullopt;

struct Sides {
  ReshardSide source, destination;
};
Sides sides(const std::string& from, const std::string& to, const Shape& shape) {
  const auto has = parse_reshard_spec(from, shape.size()),
             wants = parse_reshard_spec(to, shape.size());
  EXPECT_TRUE(has && wants);
  return {side_of(*has, shape, 0, 0),
          side_of(*wants, shape, has->mesh.size(), has->mesh.axes[0].size)};
}

int64_t volume(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Returns options in units of the whole tensor through one card.
ReshardOptions in_tensors(const Shape& shape, ReshardOrder order,
                          std::optional<ReshardWay> way = {}) {
  ReshardOptions options;
  options.bytes_per_element = 1;
  options.bytes_per_second = static_cast<double>(volume(shape));
  options.order = order;
  options.way = way;
  return options;
}

double time_of(const Sides& s, const ReshardOptions& options) {
  const auto plan = reshard(s.source, s.destination, options);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? plan->makespan_seconds : -1;
}

TEST(Reshard, WorkedTable) {
  struct Row {
    std::string from, to;
    Shape shape;
    double send_recv, local_all_gather, first_replica, size_balanced, longest_first, optimum;
  };
  const Shape cube = {1024, 1024, 512};
  const std::vector<Row> rows = {
      {"S0RR@2x4", "S0RR@2x4", cube, 2, 0.5, 0.5, 0.5, 0.5, 0.5},
      {"RRR@2x4", "S0RR@2x4", cube, 2, 0.5, 1, 0.5, 0.5, 0.5},
      {"S1RR@2x4", "S0RR@2x4", cube, 3.5, 0.875, 1, 0.75, 0.75, 0.5},
      {"S0RR@2x4", "S0RR@3x4", {3072, 1024, 170}, 4, 1, 1, 1, 2. / 3, 0.5},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.from + " -> " + row.to);
    const Sides s = sides(row.from, row.to, row.shape);
    const auto time = [&](ReshardOrder order, std::optional<ReshardWay> way) {
      return time_of(s, in_tensors(row.shape, order, way));
    };
    EXPECT_DOUBLE_EQ(time(kGenerated, ReshardWay::kSendRecv), row.send_recv);
    EXPECT_DOUBLE_EQ(time(kGenerated, ReshardWay::kLocalAllGather), row.local_all_gather);
    const auto broadcast = ReshardWay::kBroadcast;
    EXPECT_DOUBLE_EQ(time(kFirstReplica, broadcast), row.first_replica);
    EXPECT_DOUBLE_EQ(time(kSizeBalanced, broadcast), row.size_balanced);
    EXPECT_DOUBLE_EQ(time(kLongestFirst, broadcast), row.longest_first);
    EXPECT_DOUBLE_EQ(time(kExact, broadcast), row.optimum);
    const auto best = reshard(s.source, s.destination, in_tensors(row.shape, kBest));
    ASSERT_TRUE(best);
    EXPECT_DOUBLE_EQ(best->makespan_seconds, row.optimum);
    EXPECT_DOUBLE_EQ(best->bound_seconds, row.optimum);
    EXPECT_EQ(best->busiest_bytes, best->busiest_bound);
  }
}

// One sender, 3 receiving hosts with 2 devices each: the formulas of section 3, and the bytes of
// each card.
TEST(Reshard, WaysTakeTheStatedTimesAndBytes) {
  const Shape shape = {600};
  const Sides s = sides("R@1x1", "R@3x2", shape);
  struct Case {
    ReshardWay way;
    double seconds;
    std::vector<int64_t> out, in;  // by host: the sender's, then the receivers'
  };
  const int64_t d = 600;
  const std::vector<Case> cases = {
      {ReshardWay::kSendRecv, 6, {6 * d, 0, 0, 0}, {0, 2 * d, 2 * d, 2 * d}},
      {ReshardWay::kLocalAllGather, 3, {3 * d, 0, 0, 0}, {0, d, d, d}},
      // A third to each host, then 5/6 of the tensor over each edge of the ring.
      {ReshardWay::kGlobalAllGather, 2 - 1. / 6, {d, 500, 500, 500}, {0, 700, 700, 700}},
      {ReshardWay::kBroadcast, 1 + 2. / 10, {d, d, d, 0}, {0, d, d, d}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(way_name(one.way));
    ReshardOptions options = in_tensors(shape, kFirstReplica, one.way);
    options.chunks = 10;
    const auto plan = reshard(s.source, s.destination, options);
    ASSERT_TRUE(plan);
    EXPECT_DOUBLE_EQ(plan->makespan_seconds, one.seconds);
    for (size_t h = 0; h < 4; ++h) {
      EXPECT_EQ(plan->hosts[h].bytes_out, one.out[h]) << h;
      EXPECT_EQ(plan->hosts[h].bytes_in, one.in[h]) << h;
    }
  }
  ReshardOptions open = in_tensors(shape, kFirstReplica);
  open.chunks = 10;
  EXPECT_DOUBLE_EQ(time_of(s, open), 1.2);
  open.chunks = 1;  // a chain that is not pipelined: 3 t
  EXPECT_DOUBLE_EQ(time_of(s, open), 2 - 1. / 6);
}

// ---- orders
std::vector<reshard_order::Job> random_jobs(std::mt19937_64& random, int n, int senders,
                                            int receivers) {
  std::vector<reshard_order::Job> jobs;
  for (int j = 0; j < n; ++j) {
    reshard_order::Job job;
    for (int h = 0; h < senders; ++h) {
      if (random() % 2 == 0) job.senders.push_back(h);
    }
    if (job.senders.empty())
      job.senders.push_back(static_cast<int>(random() % static_cast<uint64_t>(senders)));
    for (int h = 0; h < receivers; ++h) {
      if (random() % 3 == 0) job.receivers.push_back(senders + h);
    }
    if (job.receivers.empty()) job.receivers.push_back(senders);
    if (random() % 3 == 0) job.relays.assign(job.receivers.begin(), job.receivers.end() - 1);
    if (random() % 4 == 0) job.relays.push_back(0);  // a host that sends and relays
    job.seconds = static_cast<double>(1 + random() % 6);
    std::erase(job.relays, job.senders.size() == 1 ? job.senders[0] : -1);
    jobs.push_back(job);
  }
  return jobs;
}

double brute_force(const std::vector<reshard_order::Job>& jobs, int hosts) {
  std::vector<int> order(jobs.size());
  std::iota(order.begin(), order.end(), 0);
  double best = std::numeric_limits<double>::infinity();
  do {
    reshard_order::Schedule schedule;
    for (int j : order) schedule.push_back({j, jobs[static_cast<size_t>(j)].senders[0]});
    std::vector<size_t> choice(jobs.size(), 0);
    for (bool more = true; more;) {
      for (size_t i = 0; i < order.size(); ++i)
        schedule[i].sender = jobs[static_cast<size_t>(order[i])].senders[choice[i]];
      best = std::min(best, reshard_order::makespan(jobs, schedule, hosts));
      more = false;
      for (size_t i = 0; i < order.size() && !more; ++i) {
        more = ++choice[i] < jobs[static_cast<size_t>(order[i])].senders.size();
        if (!more) choice[i] = 0;
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Reshard, ExactOrderIsBruteForceOverOrdersAndSenders) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 130; ++i) {
    const int n = i < 120 ? 1 + i % 6 : (i < 128 ? 7 : 8);
    const int senders = 1 + static_cast<int>(random() % (n < 7 ? 3 : 2)), receivers = 3;
    const auto jobs = random_jobs(random, n, senders, receivers);
    const int hosts = senders + receivers;
    const auto found =
        reshard_order::exact(jobs, reshard_order::longest_first(jobs, hosts), hosts, 0);
    EXPECT_EQ(found.size(), jobs.size());
    EXPECT_DOUBLE_EQ(reshard_order::makespan(jobs, found, hosts), brute_force(jobs, hosts)) << i;
  }
}

TEST(Reshard, WavesAreReproducibleAndTakeTheirSeed) {
  std::mt19937_64 random(3);
  const auto jobs = random_jobs(random, 20, 3, 4);
  const auto first = reshard_order::waves(jobs, 7, 1);
  EXPECT_EQ(first, reshard_order::waves(jobs, 7, 1));
  EXPECT_NE(first, reshard_order::waves(jobs, 7, 2));
}

// ---- random cases
struct RandomCase {
  Sides s;
  Shape shape;
  std::string name;
};
RandomCase random_case(std::mt19937_64& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  RandomCase out;
  const size_t rank = static_cast<size_t>(pick(1, 3));
  for (size_t d = 0; d < rank; ++d) out.shape.push_back(pick(24, 60));
  const auto spec = [&](int64_t hosts, int64_t devices) {
    std::vector<std::string> dims(rank, "R");
    for (const char* axis : random() % 2 == 0 ? std::array{"0", "1"} : std::array{"1", "0"}) {
      if (random() % 3 == 0) continue;  // replicas
      std::string& dim = dims[random() % rank];
      dim = (dim == "R" ? "S" : dim) + axis;
    }
    std::string text;
    for (const std::string& dim : dims) text += dim;
    return fmt::format("{}@{}x{}", text, hosts, devices);
  };
  const std::string from = spec(pick(1, 4), pick(1, 4)), to = spec(pick(1, 4), pick(1, 4));
  out.name = fmt::format("{} -> {}, shape {}", from, to, fmt::join(out.shape, ","));
  out.s = sides(from, to, out.shape);
  return out;
}

// An `Array` has values by position, as a rank holds them; -1 where it holds nothing.
using Array = std::vector<int64_t>;
template <class Visit>
void for_each_element(const Box& box, const Shape& shape, const Visit& visit) {
  const std::vector<int64_t> strides = row_major_strides(shape);
  for (int64_t i = 0; i < box.volume(); ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = box.rank(); d-- > 0;) {
      at += (box.dims[d].begin + rest % box.dims[d].size) * strides[d];
      rest /= box.dims[d].size;
    }
    visit(static_cast<size_t>(at));
  }
}

void expect_data_arrives(const ReshardPlan& plan, const Sides& s, const Shape& shape) {
  std::map<int64_t, Array> memory;
  for (const ReshardSide* side : {&s.source, &s.destination}) {
    for (const ReshardHolder& h : *side)
      memory[h.rank].assign(static_cast<size_t>(volume(shape)), -1);
  }
  for (const ReshardHolder& h : s.source) {
    for_each_element(h.box, shape,
                     [&](size_t i) { memory[h.rank][i] = 1000 + static_cast<int64_t>(i); });
  }
  for (const ReshardMessage& m : reshard_messages(plan, s.source, s.destination)) {
    for_each_element(m.region, shape, [&](size_t i) {
      ASSERT_GE(memory[m.from][i], 0) << "sent before it arrived";
      memory[m.to][i] = memory[m.from][i];
    });
  }
  for (const ReshardHolder& h : s.destination) {
    for_each_element(h.box, shape, [&](size_t i) {
      ASSERT_EQ(memory[h.rank][i], 1000 + static_cast<int64_t>(i)) << "rank " << h.rank;
    });
  }
}

void expect_coverage(const ReshardPlan& plan, const Sides& s, const Shape& shape) {
  for (const ReshardHolder& h : s.destination) {
    std::vector<int> times(static_cast<size_t>(volume(shape)), 0);
    for (const UnitTask& task : plan.tasks) {
      if (std::find(task.receivers.begin(), task.receivers.end(), h.rank) == task.receivers.end())
        continue;
      for_each_element(task.region, shape, [&](size_t i) { ++times[i]; });
    }
    int64_t once = 0;
    for (int t : times) {
      ASSERT_LE(t, 1);
      once += t;
    }
    ASSERT_EQ(once, h.box.volume());
    for_each_element(h.box, shape, [&](size_t i) { ASSERT_EQ(times[i], 1); });
  }
}

TEST(Reshard, RandomCasesKeepTheBoundsAndBeatEveryMode) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 1000; ++i) {
    const RandomCase one = random_case(random);
    SCOPED_TRACE(one.name);
    const auto plan = reshard(one.s.source, one.s.destination, in_tensors(one.shape, kBest));
    ASSERT_TRUE(plan);
    EXPECT_GE(plan->makespan_seconds, plan->bound_seconds * (1 - 1e-9));
    EXPECT_GE(plan->busiest_bytes, plan->busiest_bound);
    EXPECT_LE(static_cast<double>(plan->busiest_bytes),
              1.1 * static_cast<double>(plan->busiest_bound));
    const std::vector<std::pair<ReshardOrder, std::optional<ReshardWay>>> modes = {
        {kGenerated, ReshardWay::kSendRecv},
        {kGenerated, ReshardWay::kLocalAllGather},
        {kGenerated, kUnset},
        {kFirstReplica, kUnset},
        {kSizeBalanced, ReshardWay::kBroadcast},
        {kLongestFirst, kUnset},
        {kWaves, kUnset},
        {kLocalSearch, kUnset},
    };
    for (const auto& [order, way] : modes) {
      const double time = time_of(one.s, in_tensors(one.shape, order, way));
      EXPECT_LE(plan->makespan_seconds, time * (1 + 1e-9)) << order_name(order);
      EXPECT_GE(time, plan->bound_seconds * (1 - 1e-9)) << order_name(order);
    }
  }
}

TEST(Reshard, DataThatMovesEqualsSlicesOfTheTensor) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    RandomCase one = random_case(random);
    if (volume(one.shape) > 4000) continue;
    SCOPED_TRACE(one.name);
    for (ReshardOrder order : {kBest, kGenerated, kSizeBalanced}) {
      for (const auto way :
           {std::optional<ReshardWay>(), std::optional(ReshardWay::kSendRecv),
            std::optional(ReshardWay::kLocalAllGather), std::optional(ReshardWay::kGlobalAllGather),
            std::optional(ReshardWay::kBroadcast)}) {
        const auto plan =
            reshard(one.s.source, one.s.destination, in_tensors(one.shape, order, way));
        ASSERT_TRUE(plan);
        expect_data_arrives(*plan, one.s, one.shape);
        expect_coverage(*plan, one.s, one.shape);
      }
    }
  }
}

// Runs each rank's sends and receives in the plan's order, blocking: each rank must reach the end.
// Both ends of every pair see their messages in the same order.
TEST(Reshard, IssueOrderNeverBlocks) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 200; ++i) {
    const RandomCase one = random_case(random);
    SCOPED_TRACE(one.name);
    const auto plan = reshard(one.s.source, one.s.destination, in_tensors(one.shape, kBest));
    ASSERT_TRUE(plan);
    const auto messages = reshard_messages(*plan, one.s.source, one.s.destination);
    std::map<int64_t, std::vector<size_t>> queue;  // by rank
    for (size_t m = 0; m < messages.size(); ++m) {
      queue[messages[m].from].push_back(m);
      if (messages[m].to != messages[m].from) queue[messages[m].to].push_back(m);
    }
    std::map<int64_t, size_t> at;
    size_t done = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [rank, mine] : queue) {
        if (at[rank] == mine.size()) continue;
        const size_t m = mine[at[rank]];
        const int64_t other = messages[m].from == rank ? messages[m].to : messages[m].from;
        if (at[other] == queue[other].size() || queue[other][at[other]] != m) continue;
        ++at[rank];
        if (other != rank) ++at[other];
        ++done;
        moved = true;
      }
    }
    EXPECT_EQ(done, messages.size());
  }
}

TEST(Reshard, HostOnBothSidesServesItself) {
  const Shape shape = {8};
  const auto spec = parse_reshard_spec("S0@2x2", 1), to = parse_reshard_spec("R@2x2", 1);
  ASSERT_TRUE(spec && to);
  const Sides s = {side_of(*spec, shape, 0, 0), side_of(*to, shape, 0, 0)};
  const auto plan = reshard(s.source, s.destination, in_tensors(shape, kBest));
  ASSERT_TRUE(plan);
  expect_data_arrives(*plan, s, shape);
  EXPECT_EQ(plan->busiest_bytes, 4);  // each half crosses once
  EXPECT_EQ(plan->hosts[0].bytes_in, 4);
  EXPECT_EQ(plan->hosts[1].bytes_in, 4);
}

TEST(Reshard, GeneralFormTakesOverlappingBoxes) {
  const ReshardSide source = {{0, 0, Box({{0, 6}})}, {1, 1, Box({{4, 6}})}};
  const ReshardSide destination = {{2, 2, Box({{3, 4}})}, {3, 3, Box({{0, 10}})}};
  const auto plan = reshard(source, destination, in_tensors({10}, kBest));
  ASSERT_TRUE(plan);
  expect_data_arrives(*plan, {source, destination}, {10});
  expect_coverage(*plan, {source, destination}, {10});
}

TEST(Reshard, ErrorsSayWhatIsMissing) {
  const ReshardSide half = {{0, 0, Box({{0, 4}})}}, all = {{1, 1, Box({{0, 8}})}};
  const auto plan = reshard(half, all);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "reshard: expected a source holder of [4:8], which rank 1 needs, found none");
  const Sides many = sides("S0@3x1", "S01@4x4", {48});
  const auto exact = reshard(many.source, many.destination, in_tensors({48}, kExact));
  ASSERT_FALSE(exact);
  EXPECT_EQ(exact.error().message,
            "reshard: expected at most 8 tasks for the exact order, found 18");
}

TEST(ReshardSpec, ErrorsNameTheText) {
  for (const std::string text : {"S0RR", "S0RR@2", "S0RR@2x", "S0RR@0x4", "QRR@2x4", "SRR@2x4",
                                 "S0S0R@2x4", "R0RR@2x4", "S0R@2x4", "S0RRR@2x4"}) {
    const auto spec = parse_reshard_spec(text, 3);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().message.find(fmt::format("layout '{}': expected ", text)), 0U) << text;
  }
  const auto spec = parse_reshard_spec("RS10R@2x4", 3);
  ASSERT_TRUE(spec);
  EXPECT_EQ(to_string(spec->layout, spec->mesh, {}), "[?: -, ?: device.host, ?: -]");
}

TEST(LayoutSpec, ReadsBackAndNamesWhatIsWrong) {
  const auto mesh = parse_mesh_sizes("2x4x3");
  ASSERT_TRUE(mesh) << mesh.error().message;
  EXPECT_EQ(mesh->size(), 24);
  EXPECT_EQ(mesh->axes[0].stride, 12);
  for (const std::string text : {"RRR", "S0RS12", "RS210R", "RS1RP0", "RRRP012"}) {
    const auto layout = parse_layout_spec(text, *mesh, 3);
    ASSERT_TRUE(layout) << layout.error().message;
    EXPECT_EQ(layout_spec(*layout), text);
    EXPECT_EQ(dims_of_layout_spec(text), 3U);
  }
  for (const std::string text :
       {"RR", "RRRR", "S3RR", "SRR", "S0S0R", "S0RRP0", "P0RRR", "RRRP", "RRRP0P1", "QRR", ""}) {
    const auto layout = parse_layout_spec(text, *mesh, 3);
    ASSERT_FALSE(layout) << text;
    EXPECT_EQ(
        layout.error().message.find(fmt::format("layout '{}' on mesh 2x4x3: expected ", text)), 0U)
        << layout.error().message;
  }
  for (const std::string text : {"", "2x", "x4", "0x4", "2x2x2x2x2", "70000", "300x300", "2y4"})
    EXPECT_FALSE(parse_mesh_sizes(text)) << text;
}

}  // namespace
}  // namespace tessera
