#include "support/brute.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/program/verify/verify.h"

namespace tessera {
namespace {

Graph one_input() {
  GraphBuilder g("one");
  g.input("x", {{"n", 4}}, DType::kFloat32);
  return *g.finish();
}

// Ranks that load x and pass copies of it around; the tests write the bodies of "forward".
class World {
 public:
  explicit World(int ranks) : graph(one_input()) {
    for (int r = 0; r < ranks; ++r) {
      Program p;
      p.rank = r;
      p.ranks = ranks;
      p.schedule = {{BlockKind::kForward, 0}};
      Group all;
      for (int m = 0; m < ranks; ++m) all.members.push_back(m);
      all.index = r;
      p.groups = {all};
      programs.push_back(std::move(p));
      const View x = buffer(r);
      add(r, Load{TensorId(0), x.box, x});
    }
  }
  View buffer(int rank) {
    auto& buffers = programs[static_cast<size_t>(rank)].buffers;
    Buffer b;
    b.id = BufferId(buffers.size());
    b.tensor = TensorId(0);
    b.shape = {4};
    b.lifetime = Lifetime::kStep;
    buffers.push_back(b);
    return {b.id, Box::whole(b.shape)};
  }
  View source() const { return {BufferId(0), Box::whole({4})}; }
  template <class Body>
  void add(int rank, Body body) {
    Instruction instruction;
    instruction.body = std::move(body);
    programs[static_cast<size_t>(rank)]
        .block(BlockKind::kForward)
        .push_back(std::move(instruction));
  }
  void send(int rank, int handle, int peer, int64_t tag) {
    add(rank, Send{handle, peer, tag, TensorId(0), Box::whole({4}), source()});
  }
  void recv(int rank, int handle, int peer, int64_t tag) {
    add(rank, Recv{handle, peer, tag, TensorId(0), Box::whole({4}), buffer(rank)});
  }
  void gather(int rank, int handle) {
    Issue issue;
    issue.handle = handle;
    issue.kind = CollectiveKind::kAllGather;
    Transfer transfer;
    transfer.tensor = TensorId(0);
    transfer.hold = transfer.need = std::vector<Box>(programs.size(), Box::whole({4}));
    transfer.in = source();
    transfer.out = buffer(rank);
    issue.transfers = {transfer};
    add(rank, std::move(issue));
  }
  void wait(int rank, int handle) { add(rank, Wait{handle, 0}); }

  Graph graph;
  std::vector<Program> programs;
};

// docs/theory/superscaler.md section 8: rank 0 receives a, then sends b; rank 1 receives b, then
// sends a.
World toy_cycle(bool wait_at_once) {
  World world(2);
  for (int r = 0; r < 2; ++r) {
    world.recv(r, 0, 1 - r, r);
    if (wait_at_once) world.wait(r, 0);
    world.send(r, 1, 1 - r, 1 - r);
    if (!wait_at_once) world.wait(r, 0);
    world.wait(r, 1);
  }
  return world;
}

TEST(Order, toy_cycle_is_a_deadlock_if_receives_are_waited_for_at_once) {
  const World world = toy_cycle(true);
  EXPECT_EQ(try_all_interleavings(world.programs, false), Outcome::kDeadlocks);
  const auto rejections = verify(world.graph, world.programs);
  ASSERT_EQ(rejections.size(), 1u);
  EXPECT_EQ(rejections[0].rule, "order");
  EXPECT_EQ(
      rejections[0].message,
      "rank 0 waits at forward[2] wait #0 (micro-batch 0) for rank 1, which waits at forward[2] "
      "wait #0 (micro-batch 0) for rank 0: a deadlock");
}

TEST(Order, toy_cycle_is_a_deadlock_only_under_blocking_semantics_if_waited_for_later) {
  const World world = toy_cycle(false);
  EXPECT_EQ(try_all_interleavings(world.programs, false), Outcome::kFinishes);
  EXPECT_TRUE(verify(world.graph, world.programs).empty());
  EXPECT_EQ(try_all_interleavings(world.programs, true), Outcome::kDeadlocks);
  VerifyOptions options;
  options.blocking = true;
  const auto rejections = verify(world.graph, world.programs, options);
  ASSERT_EQ(rejections.size(), 1u);
  EXPECT_EQ(rejections[0].rule, "order");
}

TEST(Order, a_rank_that_ends_early_is_named) {
  World world(2);
  world.recv(0, 0, 1, 7);
  world.wait(0, 0);
  const auto rejections = verify(world.graph, world.programs);
  ASSERT_EQ(rejections.size(), 1u);
  EXPECT_EQ(
      rejections[0].to_string(),
      "message: rank 0, forward[2] wait #0, tensor x, waits for rank 1, which ends without its "
      "side");
}

// Returns random programs: messages and collectives that match, in an order of each rank's own,
// with waits anywhere behind them.
World random_world() {
  const int ranks = *rc::gen::inRange(2, 4);
  World world(ranks);
  const int messages = *rc::gen::inRange(1, 4), collectives = *rc::gen::inRange(0, 3);
  struct Todo {
    int kind, peer, number;  // 0 send, 1 receive, 2 collective
  };
  std::vector<std::vector<Todo>> todo(static_cast<size_t>(ranks));
  for (int m = 0; m < messages; ++m) {
    const int from = *rc::gen::inRange(0, ranks);
    const int to = (from + *rc::gen::inRange(1, ranks)) % ranks;
    todo[static_cast<size_t>(from)].push_back({0, to, m});
    if (*rc::gen::inRange(0, 12) > 0) todo[static_cast<size_t>(to)].push_back({1, from, m});
  }
  for (int c = 0; c < collectives; ++c) {
    for (auto& list : todo) list.push_back({2, 0, messages + c});
  }
  for (int r = 0; r < ranks; ++r) {
    auto& list = todo[static_cast<size_t>(r)];
    std::vector<int> open;
    const auto wait_some = [&](int chance) {
      while (!open.empty() && *rc::gen::inRange(0, 4) < chance) {
        const size_t at = *rc::gen::inRange<size_t>(0, open.size());
        world.wait(r, open[at]);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      }
    };
    while (!list.empty()) {
      const size_t at = *rc::gen::inRange<size_t>(0, list.size());
      const Todo next = list[at];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      if (next.kind == 0) world.send(r, next.number, next.peer, next.number);
      if (next.kind == 1) world.recv(r, next.number, next.peer, next.number);
      if (next.kind == 2) world.gather(r, next.number);
      open.push_back(next.number);
      wait_some(2);
    }
    wait_some(4);
  }
  return world;
}

RC_GTEST_PROP(Order, verifier_agrees_with_all_interleavings, ()) {
  const World world = random_world();
  for (const bool blocking : {false, true}) {
    VerifyOptions options;
    options.blocking = blocking;
    const Outcome outcome = try_all_interleavings(world.programs, blocking);
    RC_ASSERT(outcome != Outcome::kDependsOnInterleaving);
    const bool finishes = outcome == Outcome::kFinishes &&
                          try_all_interleavings(world.programs, false) == Outcome::kFinishes;
    const auto rejections = verify(world.graph, world.programs, options);
    RC_ASSERT(rejections.empty() == finishes);
    RC_CLASSIFY(!finishes && blocking, "deadlocks if blocking");
    RC_CLASSIFY(!finishes && !blocking, "deadlocks");
    for (const Rejection& rejection : rejections) {
      RC_ASSERT(rejection.rule == "order" || rejection.rule == "message");
    }
  }
}

}  // namespace
}  // namespace tessera
