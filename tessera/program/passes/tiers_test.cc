// Staging between tiers: the copies, their times, and the verifier's rules for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tessera/program/test_programs.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"

namespace tessera::tiers_test {
namespace {

using Direction = std::pair<Tier, Tier>;
constexpr Direction kUp{Tier::kHost, Tier::kDevice}, kDown{Tier::kDevice, Tier::kHost};

// y = x w1 ... wn and a loss of y: equal weights of `size` x `size` elements.
Graph chain(int layers, int64_t size = 4) {
  GraphBuilder g("chain");
  const std::vector<std::string> names{"a", "b"};
  auto x = g.input("x", {{"batch", 8}, {"a", size}}, DType::kFloat64);
  for (int i = 0; i < layers; ++i) {
    const std::string in = names[static_cast<size_t>(i % 2)],
                      out = names[static_cast<size_t>((i + 1) % 2)];
    const std::string layer = "blocks." + std::to_string(i);
    const auto w = g.parameter(layer + ".weight", {{in, size}, {out, size}},
                               {Init::Kind::kNormal, 0.1}, DType::kFloat64);
    x = g.op1(layer, "einsum", {x, w},
              {{"spec", "batch " + in + "+, " + in + " " + out + " -> batch " + out}});
  }
  const std::string last = names[static_cast<size_t>(layers % 2)];
  const auto square = g.op1("square", "mul", {x, x});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {square}, {{"dims", "batch " + last}, {"factor", 1.0}});
  auto graph = g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph ? *graph : Graph();
}

TestPrograms accepted(const Graph& graph, const std::string& plan) {
  TestPrograms lowered = lower_all(graph, plan);
  const auto rejections = verify(lowered.graph, lowered.programs);
  EXPECT_TRUE(rejections.empty()) << plan << ": " << rejections[0].to_string();
  EXPECT_FALSE(lowered.programs.empty());
  return lowered;
}

int64_t weight_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && !tensor.update_of.valid())
      bytes += tensor.elements() * dtype_bytes(tensor.dtype);
  }
  return bytes;
}

// Learning rate, step, norms and the like, which the update moves between host and device.
int64_t scalar_bytes(const Program& program, const Graph& graph, const Direction& direction) {
  int64_t bytes = 0;
  for (const Instruction& instruction : program.block(BlockKind::kUpdate)) {
    const auto* copy = std::get_if<Copy>(&instruction.body);
    if (copy == nullptr || !graph.tensor(copy->tensor).dims.empty()) continue;
    const Buffer &from = program.buffer(copy->from.buffer), &to = program.buffer(copy->to.buffer);
    if (Direction{from.tier, to.tier} == direction) bytes += dtype_bytes(from.dtype);
  }
  return bytes;
}

// Returns the bytes that copies between tiers move in a step of a rank, by direction: {from, to}.
std::map<std::pair<Tier, Tier>, int64_t> copied_bytes(const Program& program) {
  std::map<std::pair<Tier, Tier>, int64_t> out;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto* copy = std::get_if<Copy>(&instruction.body);
      if (copy == nullptr) continue;
      const Buffer &from = program.buffer(copy->from.buffer), &to = program.buffer(copy->to.buffer);
      if (from.tier == to.tier) continue;
      const int64_t runs = instruction.when == When::kAlways ? program.runs(ref) : 1;
      out[{from.tier, to.tier}] += runs * copy->region.volume() * dtype_bytes(from.dtype);
    }
  }
  return out;
}

// ---- bytes (docs/strategies/offload.md): with elements of e bytes, psi parameters, W
// ranks
TEST(Tiers, gradients_go_down_and_parameters_come_up_in_shards_once_a_step) {
  for (const int64_t ranks : {1, 2, 4}) {
    for (const char* micro_batches : {"1", "2"}) {
      for (const char* zero : {"1", "2"}) {
        const std::string plan = "offload(dp=" + std::to_string(ranks) + ",zero=" + zero +
                                 ",micro_batches=" + micro_batches + ")";
        const TestPrograms p = accepted(trained(chain(4)), plan);
        const int64_t psi = weight_bytes(p.graph);
        for (const Program& program : p.programs) {
          auto bytes = copied_bytes(program);
          EXPECT_EQ(bytes[kDown] - scalar_bytes(program, p.graph, kDown), psi / ranks) << plan;
          EXPECT_EQ(bytes[kUp], psi / ranks) << plan;
        }
      }
    }
  }
}

TEST(Tiers, parameters_come_up_for_each_use_and_sums_on_the_host_go_down_each_time) {
  const int64_t micro_batches = 2;
  const TestPrograms p = accepted(
      trained(chain(4)), "offload(dp=2,zero=3,parameters=1,gradients=true,micro_batches=2)");
  const int64_t psi = weight_bytes(p.graph);
  for (const Program& program : p.programs) {
    auto bytes = copied_bytes(program);
    EXPECT_EQ(bytes[kUp] - scalar_bytes(program, p.graph, kUp),
              2 * micro_batches * psi / 2 - micro_batches * psi / 4 / 2)
        << "forward and backward; the first layer's backward does not read its weight";
    EXPECT_EQ(bytes[kDown] - scalar_bytes(program, p.graph, kDown), micro_batches * psi / 2);
  }
}

TEST(Tiers, state_on_disk_is_read_and_written_once_a_step) {
  const TestPrograms p = accepted(trained(chain(4)), "offload(dp=2,zero=1,to=disk)");
  const int64_t psi = weight_bytes(p.graph);
  for (const Program& program : p.programs) {
    auto bytes = copied_bytes(program);
    const int64_t state_and_master = 3 * psi / 2;
    EXPECT_EQ((bytes[{Tier::kDisk, Tier::kHost}]), state_and_master);
    EXPECT_EQ((bytes[{Tier::kHost, Tier::kDisk}]), state_and_master);
    EXPECT_EQ((bytes[{Tier::kDisk, Tier::kDevice}]), psi / 2);
  }
}

TEST(Tiers, a_share_is_of_whole_tensors_that_are_used_last) {
  const TestPrograms p = lower_all(trained(chain(4)),
                                   "mesh = {}\nstore = [ { tensors = "
                                   "\"role:parameter\", tier = \"host\", fraction = 0.6 } ]");
  std::set<std::string> below;
  for (const Home& home : p.programs[0].homes) {
    if (p.programs[0].buffer(home.buffer).tier == Tier::kHost)
      below.insert(p.graph.tensor(home.tensor).name);
  }
  EXPECT_EQ(below, (std::set<std::string>{"blocks.2.weight", "blocks.3.weight"}));
}

// ---- when
TEST(Tiers, what_rests_below_is_copied_up_a_unit_before_its_gathering) {
  const std::string plan =
      "mesh = { dp = 2 }\nprefetch = { units = \"blocks.*\", ahead = 1 }\nbucket_bytes = 0\n"
      "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
      "store = [ { tensors = \"role:parameter\", over = \"dp\", tier = \"host\" } ]";
  const TestPrograms p = accepted(trained(chain(5)), plan);
  std::map<std::string, size_t> copied, gathered, computed;
  const auto& forward = p.programs[0].block(BlockKind::kForward);
  for (size_t i = 0; i < forward.size(); ++i) {
    const std::string path =
        forward[i].cause.valid() ? p.graph.op(forward[i].cause).path : std::string();
    if (std::holds_alternative<Copy>(forward[i].body)) copied[path] = i;
    if (std::holds_alternative<Issue>(forward[i].body)) gathered[path] = i;
    if (std::holds_alternative<Compute>(forward[i].body)) computed[path] = i;
  }
  for (int k = 2; k < 5; ++k) {
    const auto block = [](int i) { return "blocks." + std::to_string(i); };
    EXPECT_LT(gathered[block(k)], computed[block(k - 1)]);
    EXPECT_GT(gathered[block(k)], computed[block(k - 2)]);
    EXPECT_LT(copied[block(k)], computed[block(k - 2)]);
    if (k == 2) continue;
    EXPECT_GT(copied[block(k)], computed[block(k - 3)]) << "slots are bounded";
  }
}

TEST(Tiers, copies_overlap_what_computes) {
  const TestPrograms p = accepted(trained(chain(4)), "offload(zero=0,parameters=1,optimizer=0)");
  const auto& forward = p.programs[0].block(BlockKind::kForward);
  int overlapped = 0;
  std::set<int> open;
  for (const Instruction& instruction : forward) {
    if (const auto* copy = std::get_if<Copy>(&instruction.body)) open.insert(copy->handle);
    if (const auto* wait = std::get_if<Wait>(&instruction.body)) open.erase(wait->handle);
    overlapped += std::holds_alternative<Compute>(instruction.body) && !open.empty() ? 1 : 0;
  }
  EXPECT_GE(overlapped, 3);
}

// ---- what stays on the device
// Returns the fewest copies for a trace of uses if `room` items (of one size) may stay between two
// uses: at each use, any set of the held items and the used one may be kept.
int fewest_copies(const std::vector<int>& trace, size_t room) {
  std::map<std::set<int>, int> cost{{{}, 0}};
  for (const int item : trace) {
    std::map<std::set<int>, int> next;
    for (const auto& [held, copies] : cost) {
      const int now = copies + (held.contains(item) ? 0 : 1);
      std::set<int> all = held;
      all.insert(item);
      std::vector<int> items(all.begin(), all.end());
      for (uint32_t mask = 0; mask < (1u << items.size()); ++mask) {
        std::set<int> kept;
        for (size_t i = 0; i < items.size(); ++i) {
          if ((mask >> i & 1) != 0) kept.insert(items[i]);
        }
        if (kept.size() > room) continue;
        const auto [it, fresh] = next.try_emplace(std::move(kept), now);
        it->second = std::min(it->second, now);
      }
    }
    cost = std::move(next);
  }
  int best = 1 << 30;
  for (const auto& [held, copies] : cost) best = std::min(best, copies);
  return best;
}

// Returns the uses of weights on the device in the order of the schedule.
std::vector<int> uses(const TestPrograms& p) {
  std::vector<int> trace;
  const Program& program = p.programs[0];
  for (const BlockRunStep& step : program.schedule) {
    if (step.block.once()) continue;
    for (const Instruction& instruction : program.block(step.block)) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute == nullptr) continue;
      for (TensorId input : p.graph.op(compute->op).inputs) {
        if (p.graph.tensor(input).role == Role::kParameter) trace.push_back(input.value);
      }
    }
  }
  return trace;
}

int copies_of_weights(const TestPrograms& p) {
  const Program& program = p.programs[0];
  int count = 0;
  for (const BlockRunStep& step : program.schedule) {
    if (step.block == BlockKind::kUpdate) continue;
    for (const Instruction& instruction : program.block(step.block))
      count += std::holds_alternative<Copy>(instruction.body) ? 1 : 0;
  }
  return count;
}

TEST(Tiers, as_few_copies_as_any_eviction_can_reach) {
  const int64_t size = 4, bytes = size * size * 8;
  for (const int layers : {3, 4, 5}) {
    for (const int micro_batches : {1, 2, 4}) {
      for (const char* schedule : {"1f1b", "gpipe"}) {
        for (int64_t room = 0; room <= layers; ++room) {
          const std::string plan =
              "mesh = {}\nmicro_batches = " + std::to_string(micro_batches) + "\nschedule = \"" +
              schedule + "\"\nresident_bytes = " + std::to_string(room * bytes) +
              "\nstore = [ { tensors = \"role:parameter\", tier = \"host\" } ]";
          const TestPrograms p = accepted(trained(chain(layers, size)), plan);
          EXPECT_EQ(copies_of_weights(p), fewest_copies(uses(p), static_cast<size_t>(room)))
              << plan << " layers " << layers;
        }
      }
    }
  }
}

// ---- text and verifier
TEST(Tiers, programs_print_and_parse) {
  const TestPrograms p =
      accepted(trained(chain(3)),
               "offload(dp=2,zero=1,gradients=true,parameters=0.5,to=disk,micro_batches=2)");
  for (const Program& program : p.programs) {
    const std::string text = to_text(program, p.graph);
    const auto parsed = parse_program(text, p.graph, "p.program");
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(*parsed, program);
    EXPECT_NE(text.find("copy #"), std::string::npos);
  }
}

std::string rejection(const TestPrograms& p, const std::function<void(Program&)>& change) {
  std::vector<Program> programs = p.programs;
  change(programs[0]);
  const auto found = verify(p.graph, programs);
  return found.empty() ? "" : found[0].to_string();
}

template <class Body, class Change>
void change_first(Program& program, const Change& change) {
  for (auto& [ref, block] : program.blocks) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (auto* body = std::get_if<Body>(&block[i].body);
          body != nullptr && change(*body, block, i))
        return;
    }
  }
  FAIL() << "nothing to change";
}

TEST(Tiers, the_verifier_rejects_kernels_on_disk_and_copies_nobody_waits_for) {
  const TestPrograms p = accepted(trained(chain(3)), "offload(zero=0,to=disk)");
  const auto kernel = rejection(p, [](Program& program) {
    change_first<Compute>(program, [&](Compute& compute, auto&, size_t) {
      program.buffers[compute.outputs[0].view.buffer.index()].tier = Tier::kDisk;
      return true;
    });
  });
  EXPECT_TRUE(kernel.starts_with("tier: ") || kernel.starts_with("memory: ")) << kernel;
  const auto at_once = rejection(p, [](Program& program) {
    change_first<Copy>(program, [](Copy& copy, auto&, size_t) {
      copy.handle = -1;
      return true;
    });
  });
  EXPECT_NE(at_once.find("between disk and memory at once: expected a handle"), std::string::npos)
      << at_once;
  const auto early = rejection(p, [](Program& program) {
    change_first<Wait>(program, [](Wait&, std::vector<Instruction>& block, size_t i) {
      if (i + 1 >= block.size() || !std::holds_alternative<Compute>(block[i + 1].body))
        return false;
      std::swap(block[i], block[i + 1]);
      return true;
    });
  });
  EXPECT_TRUE(early.starts_with("lifetime: ")) << early;
  const auto never = rejection(p, [](Program& program) {
    auto& update = program.block(BlockKind::kUpdate);
    ASSERT_TRUE(std::holds_alternative<Wait>(update.back().body) ||
                std::holds_alternative<Free>(update.back().body));
    std::erase_if(update,
                  [](const Instruction& i) { return std::holds_alternative<Wait>(i.body); });
  });
  EXPECT_TRUE(never.starts_with("lifetime: ")) << never;
}

TEST(Tiers, the_verifier_rejects_collectives_of_host_memory) {
  const TestPrograms p = accepted(trained(chain(3)), "offload(dp=2,zero=3,parameters=1)");
  const auto found = rejection(p, [](Program& program) {
    change_first<Issue>(program, [&](Issue& issue, auto&, size_t) {
      for (Buffer& buffer : program.buffers) {
        if (buffer.tier != Tier::kHost || buffer.shape != issue.transfers[0].in->box.shape())
          continue;
        issue.transfers[0].in->buffer = buffer.id;
        return true;
      }
      return false;
    });
  });
  EXPECT_TRUE(found.starts_with("tier: ")) << found;
}

// A value that the prologue receives in shares and gathers, and that only blocks of micro-batches
// read, goes to where it rests before they run. The blocks are rewritten before the prologue is.
TEST(Tiers, what_arrives_before_all_micro_batches_rests_for_each_of_them) {
  GraphBuilder g("rates");
  const Dim batch{"batch", 4}, a{"a", 4};
  const auto x = g.input("x", {batch, a}, DType::kFloat64);
  const auto w = g.parameter("w", {a}, {Init::Kind::kNormal, 0.3}, DType::kFloat64);
  const auto rates = g.op1("rates", "exp", {w});
  const auto y = g.op1("y", "mul", {g.op1("h", "mul", {x, w}), rates});
  const auto square = g.op1("square", "mul", {y, y});
  g.graph().loss = g.op1("loss", "reduce_sum", {square}, {{"dims", "batch a"}, {"factor", 1.0}});
  const auto graph = g.finish();
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const TestPrograms p = accepted(trained(*graph), R"(mesh = { a = 1 }
micro_batches = 2
[[stage]]
ops = "{rates,h}"
at = 0
[[stage]]
ops = "{y,square,loss}"
at = 1
mesh = { b = 2 }
[[store]]
tensors = "role:activation"
tier = "host"
)");
  const auto rests = [&](const Instruction& instruction) {
    const auto* copy = std::get_if<Copy>(&instruction.body);
    return copy != nullptr && p.graph.tensor(copy->tensor).name == "rates" &&
           p.programs[2].buffer(copy->to.buffer).tier == Tier::kHost;
  };
  EXPECT_EQ(std::ranges::count_if(p.programs[2].block(BlockKind::kPrologue), rests), 1);
}

}  // namespace
}  // namespace tessera::tiers_test
