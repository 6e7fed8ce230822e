// The memory plan, by brute force: the schedule is walked instruction by instruction, and no two
// buffers alive at one time may overlap in the arena.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tessera/program/instructions.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/verify/verify.h"

namespace tessera::memory_test {
namespace {

// A buffer, or one slot of it.
using Instance = std::pair<size_t, int64_t>;

class ArenaWalk {
 public:
  explicit ArenaWalk(const Program& program) : program_(program) {
    for (const Buffer& buffer : program.buffers) {
      if (buffer.lifetime == Lifetime::kPersistent) begin({buffer.id.index(), 0});
    }
  }

  void run() {
    ByBlock<int64_t> done, runs;
    for (const BlockRunStep& step : program_.schedule) ++runs[step.block];
    for (const BlockRunStep& step : program_.schedule) {
      const bool first = done[step.block] == 0;
      const bool last = ++done[step.block] == runs[step.block];
      for (const Instruction& instruction : program_.block(step.block)) {
        if (instruction.when == When::kFirst && !first) continue;
        if (instruction.when == When::kLast && !last) continue;
        execute(instruction, step);
      }
    }
    EXPECT_GE(program_.arena_bytes[0], peak_);
    EXPECT_EQ(program_.arena_bytes[0], end_) << "the arena ends with its last byte in use";
  }
  int64_t peak() const { return peak_; }

 private:
  Instance instance(BufferId id, int64_t micro_batch) const {
    return {id.index(), program_.buffer(id).slot(micro_batch)};
  }
  Interval range(const Instance& at) const {
    const Buffer& buffer = program_.buffers[at.first];
    return {buffer.offset + at.second * buffer.slot_bytes, buffer.bytes()};
  }

  void begin(const Instance& at) {
    if (!alive_.insert(at).second) return;
    const Interval mine = range(at);
    if (mine.size == 0) return;
    EXPECT_GE(mine.begin, 0) << program_.buffers[at.first].name;
    for (const Instance& other : alive_) {
      if (other == at) continue;
      EXPECT_TRUE(intersect(mine, range(other)).empty())
          << program_.buffers[at.first].name << " over " << program_.buffers[other.first].name;
    }
    live_ += mine.size;
    peak_ = std::max(peak_, live_);
    end_ = std::max(end_, mine.end());
  }

  void end(const Instance& at) {
    EXPECT_EQ(in_flight_.count(at), 0U) << program_.buffers[at.first].name << " freed in flight";
    if (alive_.erase(at) > 0) live_ -= range(at).size;
  }

  void execute(const Instruction& instruction, const BlockRunStep& step) {
    const int64_t micro_batch = step.micro_batch;
    if (const auto* free = std::get_if<Free>(&instruction.body)) {
      const int64_t slots = step.block.once() ? program_.buffer(free->buffer).slots : 1;
      for (int64_t slot = 0; slot < slots; ++slot) end(instance(free->buffer, micro_batch + slot));
      return;
    }
    const int handle = handle_of(instruction);
    accesses(instruction, [&](const Access& access) {
      const Instance touched = instance(access.buffer, micro_batch);
      begin(touched);
      if (handle < 0) return;
      flights_[{handle, micro_batch}].push_back(touched);
      in_flight_.insert(touched);
    });
    if (const auto* wait = std::get_if<Wait>(&instruction.body)) land(*wait, micro_batch);
  }

  // Ends the flight of this micro-batch if there is one, else the oldest.
  void land(const Wait& wait, int64_t micro_batch) {
    auto it = wait.lag == 0 ? flights_.find({wait.handle, micro_batch}) : flights_.end();
    if (it == flights_.end()) it = flights_.lower_bound({wait.handle, -1});
    if (it == flights_.end() || it->first.first != wait.handle) return;
    for (const Instance& at : it->second) in_flight_.erase(in_flight_.find(at));
    flights_.erase(it);
  }

  const Program& program_;
  std::set<Instance> alive_;
  std::multiset<Instance> in_flight_;
  std::map<std::pair<int, int64_t>, std::vector<Instance>> flights_;
  int64_t live_ = 0, peak_ = 0, end_ = 0;
};

class MemoryOf : public testing::TestWithParam<const char*> {};

TEST_P(MemoryOf, never_overlaps_what_is_alive) {
  const TestPrograms lowered = lower_all(trained(test_transformer()), GetParam());
  for (const Program& program : lowered.programs) ArenaWalk(program).run();
}

TEST_P(MemoryOf, is_not_far_above_what_is_alive_at_once) {
  const TestPrograms lowered = lower_all(trained(test_transformer()), GetParam());
  for (const Program& program : lowered.programs) {
    ArenaWalk walk(program);
    walk.run();
    const auto alignment = static_cast<int64_t>(program.buffers.size()) * 64;
    EXPECT_LE(program.arena_bytes[0], walk.peak() * 3 / 2 + alignment) << program.rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, MemoryOf,
                         testing::Values("serial()", "data_parallel(3)", "zero(1, 2)", "zero(3, 2)",
                                         "tensor_parallel(3)", "summa(2)", "gpipe(2, 4)",
                                         "one_f_one_b(2, 8)",
                                         "megatron(tp=2, pp=2, dp=2, zero=2, micro_batches=2)"));

constexpr const char* kStages =
    "stage = [\n  { ops = \"up\", at = 0 },\n  { ops = \"{act,down,square,loss}\", at = 1 },\n]\n";

TEST(Slots, are_the_micro_batches_in_flight_of_a_schedule) {
  const auto slots = [](const std::string& schedule) {
    const TestPrograms lowered =
        lower_all(trained(test_perceptron()),
                  "mesh = { pp = 2 }\nmicro_batches = 4\nschedule = " + schedule + "\n" + kStages);
    std::vector<int64_t> out;
    for (const Program& program : lowered.programs) {
      out.push_back(program.slots());
      ArenaWalk(program).run();
    }
    return out;
  };
  EXPECT_EQ(slots("\"gpipe\""), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(slots("\"1f1b\""), (std::vector<int64_t>{2, 1}));
  // Out of order: micro-batches 0 and 2 are in flight together, so two slots (mod 2) would clash.
  EXPECT_EQ(slots("[[\"F0\", \"F1\", \"B1\", \"F2\", \"B0\", \"B2\", \"F3\", \"B3\"],\n"
                  " [\"F0\", \"F1\", \"B1\", \"F2\", \"B0\", \"B2\", \"F3\", \"B3\"]]"),
            (std::vector<int64_t>{3, 3}));
}

// Compares with all numbers of slots, one after the other, for any order of 8 micro-batches at one
// place.
TEST(Slots, are_the_fewest_that_keep_micro_batches_in_flight_apart) {
  std::mt19937_64 random(40);
  const Graph graph = trained(test_perceptron());
  for (int i = 0; i < 60; ++i) {
    std::vector<int64_t> forwards = {0, 1, 2, 3, 4, 5, 6, 7}, alive;
    if (i % 2 == 0) std::shuffle(forwards.begin(), forwards.end(), random);
    std::string row;
    std::vector<std::pair<int64_t, bool>> runs;  // micro-batch; whether it is a forward pass
    size_t begun = 0;
    while (runs.size() < 16) {
      const bool begins = begun < 8 && (alive.empty() || random() % 3 != 0);
      const size_t pick = begins ? 0 : random() % alive.size();
      const int64_t m = begins ? forwards[begun++] : alive[pick];
      if (begins) {
        alive.push_back(m);
      } else {
        alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(pick));
      }
      runs.emplace_back(m, begins);
      row += fmt::format("{}\"{}{}\"", row.empty() ? "" : ", ", begins ? 'F' : 'B', m);
    }
    const auto fits = [&](int64_t slots) {
      std::set<int64_t> taken;
      return std::all_of(runs.begin(), runs.end(), [&](const auto& run) {
        if (!run.second) return taken.erase(run.first % slots) == 1;
        return taken.insert(run.first % slots).second;
      });
    };
    int64_t fewest = 1;
    while (!fits(fewest)) ++fewest;
    const TestPrograms lowered = lower_all(
        graph, fmt::format("mesh = {{ dp = 1 }}\nmicro_batches = 8\nschedule = [[{}]]\n", row));
    EXPECT_EQ(lowered.programs[0].slots(), fewest) << row;
    ArenaWalk(lowered.programs[0]).run();
  }
}

TEST(Slots, are_spaced_by_the_bytes_of_one_micro_batch) {
  const TestPrograms lowered = lower_all(
      trained(test_perceptron()),
      std::string("mesh = { pp = 2 }\nmicro_batches = 4\nschedule = \"gpipe\"\n") + kStages);
  const Program& program = lowered.programs[1];
  int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.lifetime != Lifetime::kMicroBatch) continue;
    bytes += buffer.bytes();
    EXPECT_EQ(buffer.slots, 4);
    EXPECT_GE(program.arena_bytes[0], 3 * buffer.slot_bytes + buffer.bytes());
  }
  EXPECT_GT(bytes, 0);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.lifetime != Lifetime::kMicroBatch) continue;
    EXPECT_GE(buffer.slot_bytes, bytes);
  }
}

// 8 elements in 7 micro-batches of 2, 1, 1, ..., or in 5 of 2, 2, 2, 1, 1, cut over two ranks, the
// second of which has nothing of the smaller ones. By rank of the first stage: slots of the buffer
// that it sends.
TEST(Slots, are_those_of_micro_batches_that_use_a_buffer) {
  const std::string plan = "mesh = { pp = 2, dp = 2 }\n" + std::string(kStages) +
                           "split = [{ ops = \"*\", dim = \"batch\", over = \"dp\" }]\n";
  const auto slots = [&](const std::string& schedule, int micro_batches) {
    const TestPrograms lowered =
        lower_all(trained(test_perceptron()), plan + fmt::format("schedule = \"{}\"\n"
                                                                 "micro_batches = {}\n",
                                                                 schedule, micro_batches));
    for (const Rejection& rejection : verify(lowered.graph, lowered.programs))
      ADD_FAILURE() << schedule << ": " << rejection.to_string();
    std::vector<int64_t> out;
    for (const Program& program : lowered.programs) {
      ArenaWalk(program).run();
      for (const Buffer& buffer : program.buffers) {
        if (buffer.name == "up" && program.rank < 2) out.push_back(buffer.slots);
      }
    }
    return out;
  };
  EXPECT_EQ(slots("gpipe", 7), (std::vector<int64_t>{7, 1}));
  EXPECT_EQ(slots("gpipe", 5), (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(slots("1f1b", 7), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(slots("1f1b", 5), (std::vector<int64_t>{2, 2}));
}

TEST(Lifetimes, follow_from_the_blocks_that_touch_a_buffer) {
  const TestPrograms lowered = lower_all(
      trained(test_perceptron()),
      "mesh = { dp = 2 }\nmicro_batches = 2\nsplit = [{ ops = \"*\", dim = \"batch\", over "
      "= \"dp\" }]\n");
  const auto lifetime = [&](const std::string& name) {
    for (const Buffer& buffer : lowered.programs[0].buffers) {
      if (buffer.name == name) return buffer.lifetime;
    }
    ADD_FAILURE() << "no buffer " << name;
    return Lifetime::kBlock;
  };
  EXPECT_EQ(lifetime("up.weight"), Lifetime::kPersistent);
  EXPECT_EQ(lifetime("act"), Lifetime::kMicroBatch);
  EXPECT_EQ(lifetime("grad.act"), Lifetime::kBlock);
  EXPECT_EQ(lifetime("grad.up.weight"), Lifetime::kStep);
  EXPECT_EQ(lifetime("loss"), Lifetime::kStep) << "fetched";
}

// Stage 2 reads `soft` for its weights, stage 1 for the op before it, in another order in each
// micro-batch.
class OrdersThatDiffer : public testing::TestWithParam<std::pair<std::string, BlockRef>> {
 protected:
  static Graph graph() {
    GraphBuilder g("chain");
    const Dim batch{"batch", 4}, in{"in", 4}, mid{"mid", 4}, out{"out", 4};
    const Init init{Init::Kind::kNormal, 0.02};
    const auto x = g.input("x", {batch, in}, DType::kFloat64);
    const auto up = g.parameter("up.weight", {in, mid}, init, DType::kFloat64);
    const auto down = g.parameter("down.weight", {mid, out}, init, DType::kFloat64);
    auto h = g.op1("first", "gelu", {x});
    h = g.op1("up", "einsum", {h, up}, {{"spec", std::string("batch in+, in mid -> batch mid")}});
    h = g.op1("soft", "softmax", {h}, {{"dim", std::string("mid")}});
    h = g.op1("down", "einsum", {h, down},
              {{"spec", std::string("batch mid+, mid out -> batch out")}});
    const auto square = g.op1("square", "mul", {h, h});
    g.graph().loss = g.op1("loss", "reduce_sum", {square},
                           {{"dims", std::string("batch out")}, {"factor", 1.0 / 16}});
    auto graph = g.finish();
    EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
    return graph ? *graph : Graph();
  }
};

TEST_P(OrdersThatDiffer, free_behind_the_last_use_in_all) {
  const auto& [row, freed] = GetParam();
  const TestPrograms lowered =
      lower_all(trained(graph()),
                "mesh = { pp = 2 }\nmicro_batches = 2\nplace = [0, 1, 1, 0]\nschedule = [\n"
                "[\"F0@0\", \"F1@0\", \"F0@3\", \"B0@3\", \"F1@3\", \"B1@3\"],\n[" +
                    row +
                    "]]\nstage = [ { ops = \"first\", at = 0 }, { ops = \"{up,soft}\", at = 1 },\n"
                    "{ ops = \"down\", at = 2 }, { ops = \"{square,loss}\", at = 3 } ]\n");
  for (const Rejection& rejection : verify(lowered.graph, lowered.programs))
    ADD_FAILURE() << rejection.to_string();
  for (const Program& program : lowered.programs) ArenaWalk(program).run();
  const Program& program = lowered.programs[1];
  std::vector<BlockRef> blocks;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto* free = std::get_if<Free>(&instruction.body);
      if (free != nullptr && program.buffer(free->buffer).name == "soft") blocks.push_back(ref);
    }
  }
  EXPECT_EQ(blocks, std::vector<BlockRef>{freed});
}

constexpr const char* kForwards = "\"F0@1\", \"F0@2\", \"F1@1\", \"F1@2\", ";
INSTANTIATE_TEST_SUITE_P(
    Memory, OrdersThatDiffer,
    testing::Values(
        std::pair{kForwards + std::string("\"B0@2\", \"W0@2\", \"B0@1\", \"B1@2\", \"B1@1\", "
                                          "\"W1@2\""),
                  BlockRef{BlockKind::kUpdate}},
        std::pair{kForwards + std::string("\"B0@2\", \"W0@2\", \"B0@1\", \"W0@1\", \"B1@2\", "
                                          "\"B1@1\", \"W1@2\", \"W1@1\""),
                  BlockRef{BlockKind::kWeight, 0}},
        std::pair{kForwards + std::string("\"B0@2\", \"W0@2\", \"B0@1\", \"B1@2\", \"W1@2\", "
                                          "\"B1@1\""),
                  BlockRef{BlockKind::kBackward, 0}}));

TEST(Tiers, have_an_arena_each) {
  const TestPrograms lowered =
      lower_all(trained(test_perceptron()),
                "mesh = { dp = 1 }\nstore = [{ tensors = \"optimizer.*\", tier = \"host\" }]\n");
  const Program& program = lowered.programs[0];
  EXPECT_GT(program.arena_bytes[static_cast<size_t>(Tier::kHost)], 0);
  for (const Home& home : program.homes) {
    const bool state = lowered.graph.tensor(home.tensor).role == Role::kOptimizerState;
    EXPECT_EQ(program.buffer(home.buffer).tier, state ? Tier::kHost : Tier::kDevice);
  }
}

}  // namespace
}  // namespace tessera::memory_test
