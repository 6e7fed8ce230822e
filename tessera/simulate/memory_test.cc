// Compares the timeline with a separate walk over every instruction; checks the bounds and the
// names at the peak.
#include "tessera/simulate/memory.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tessera/program/instructions.h"
#include "tessera/program/test_programs.h"

namespace tessera::memory_test {
namespace {

TestPrograms lowered(const std::string& plan, const TestModel& model = {.layers = 4, .batch = 8}) {
  return lower_all(trained(test_transformer(model)), plan);
}

Cluster test_cluster(const std::string& name = "dgx-a100:2") {
  const auto cluster = load_cluster(name);
  EXPECT_TRUE(cluster.has_value()) << (cluster ? "" : cluster.error().message);
  return *cluster;
}

// Returns the live device bytes at the highest and at the end, instruction by instruction.
std::pair<int64_t, int64_t> brute_live(const Program& program) {
  std::map<std::pair<size_t, int64_t>, int64_t> live;
  int64_t now = 0, most = 0;
  const auto touch = [&](BufferId id, int64_t micro_batch) {
    const Buffer& buffer = program.buffer(id);
    if (buffer.tier != Tier::kDevice) return;
    if (live.emplace(std::pair{id.index(), buffer.slot(micro_batch)}, buffer.bytes()).second)
      now += buffer.bytes();
    most = std::max(most, now);
  };
  for (const Buffer& buffer : program.buffers) {
    if (buffer.lifetime == Lifetime::kPersistent) touch(buffer.id, 0);
  }
  ByBlock<int64_t> runs, done;
  for (const BlockRunStep& step : program.schedule) ++runs[step.block];
  for (const BlockRunStep& step : program.schedule) {
    const int64_t run = ++done[step.block];
    for (const Instruction& instruction : program.block(step.block)) {
      if (instruction.when == When::kFirst && run != 1) continue;
      if (instruction.when == When::kLast && run != runs[step.block]) continue;
      const int64_t m = step.micro_batch;
      accesses(instruction, [&](const Access& access) {
        if (access.mode != AccessMode::kFree) return touch(access.buffer, m);
        const auto it = live.find({access.buffer.index(), program.buffer(access.buffer).slot(m)});
        if (it == live.end()) return;
        now -= it->second;
        live.erase(it);
      });
    }
  }
  return {most, now};
}

// Makes one event for each compute instruction, a second each.
std::vector<TraceEvent> even_events(const Program& program) {
  std::vector<TraceEvent> events;
  double now = 0;
  for (const BlockRunStep& step : program.schedule) {
    const auto& block = program.block(step.block);
    for (size_t i = 0; i < block.size(); ++i) {
      if (!std::holds_alternative<Compute>(block[i].body)) continue;
      TraceEvent event;
      event.block = step.block;
      event.micro_batch = step.micro_batch;
      event.instruction = static_cast<int32_t>(i);
      event.start_s = now;
      event.end_s = now += 1;
      events.push_back(event);
    }
  }
  return events;
}

class MemoryOfRecipes : public testing::TestWithParam<const char*> {};

TEST_P(MemoryOfRecipes, timeline_is_that_of_a_walk_and_below_the_arena) {
  const TestPrograms what = lowered(GetParam());
  const Cluster cluster = test_cluster();
  for (const Program& program : what.programs) {
    const MemoryUse use = memory_use(program, what.graph, cluster, {}, Style{}, {1.0, {}, {}});
    const auto [most, end] = brute_live(program);
    int64_t highest = 0;
    for (const MemorySample& sample : use.timeline) highest = std::max(highest, sample.bytes);
    EXPECT_EQ(highest, most) << "rank " << program.rank;
    EXPECT_EQ(use.timeline.back().bytes, end);
    EXPECT_EQ(use.peak_bytes, program.arena_bytes[0]);
    EXPECT_EQ(use.reserved_bytes, program.arena_bytes[0]);
    EXPECT_LE(most, use.peak_bytes);
    const MemorySizes sizes = AlikeMemory(program, what.graph, Style{}).sizes(program);
    EXPECT_EQ(sizes.live_bytes, most);
    EXPECT_EQ(sizes.reserved_bytes, program.arena_bytes[0]);
    EXPECT_EQ(memory_use(program, sizes, cluster, {}, 1.0).peak_time_s, use.peak_time_s);
    const int64_t named =
        std::accumulate(use.at_peak.begin(), use.at_peak.end(), int64_t{0},
                        [](int64_t sum, const LiveBuffer& live) { return sum + live.bytes; });
    EXPECT_EQ(named, most) << "what is named at the peak is what is live";
    EXPECT_TRUE(std::is_sorted(
        use.timeline.begin(), use.timeline.end(),
        [](const MemorySample& a, const MemorySample& b) { return a.time_s < b.time_s; }));
    EXPECT_GE(use.peak_time_s, 0);
    EXPECT_LE(use.peak_time_s, 1);
    EXPECT_LE(use.low, static_cast<double>(use.total_bytes()));
    EXPECT_GE(use.high, static_cast<double>(use.total_bytes()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    recipes, MemoryOfRecipes,
    testing::Values("serial()", "data_parallel(dp=2, micro_batches=2)",
                    "zero(stage=3, dp=4, micro_batches=2)",
                    "megatron(tp=2, pp=2, dp=2, micro_batches=4, recompute=full)",
                    "megatron(pp=2, micro_batches=4, schedule=interleaved, chunks=2)",
                    "megatron(pp=4, micro_batches=8, schedule=gpipe)",
                    "fsdp(dp=4, prefetch=1, recompute=selective)", "offload(dp=2, zero=1)"));

TEST(Memory, copies_of_micro_batches_are_joined) {
  const TestPrograms what = lowered("megatron(pp=4, micro_batches=8)");
  const MemoryUse use =
      memory_use(what.programs[0], what.graph, test_cluster(), {}, Style{}, {1.0, {}, {}});
  const bool joined = std::any_of(use.at_peak.begin(), use.at_peak.end(), [](const LiveBuffer& b) {
    return b.what == "activation" && b.name.ends_with(" x 4");
  });
  EXPECT_TRUE(joined) << "1F1B: the first of 4 stages holds 4 micro-batches";
}

// Error feedback keeps a residual beside a message: the simulator counts it as the planner does.
TEST(Memory, residuals_of_messages_are_counted) {
  TestPrograms what =
      lower_all(trained(test_perceptron()),
                "mesh = { pp = 2 }\nstage = [ { ops = \"{up,act}\", at = 0 }, { ops = "
                "\"{down,square,loss}\", at = 1 } ]\n"
                "compress = [ { tensors = \"*\", with = \"topk:0.1\", error_feedback = true } ]\n");
  const auto left = [&] {
    return memory_use(what.programs[0], what.graph, test_cluster(), {}, Style{}, {1.0, {}, {}})
        .timeline.back()
        .bytes;
  };
  const int64_t at_rest = left();
  int64_t residuals = 0;
  for (Buffer& buffer : what.programs[0].buffers) {
    if (!buffer.name.ends_with("@residual")) continue;
    buffer.lifetime = Lifetime::kStep;  // not there before the message uses it
    residuals += buffer.bytes();
  }
  EXPECT_GT(residuals, 0);
  EXPECT_EQ(left(), at_rest);
}

TEST(Memory, caching_allocator_reserves_at_least_what_is_live) {
  const TestPrograms what = lowered("megatron(pp=2, micro_batches=8)",
                                    {.layers = 2, .batch = 8, .seq = 512, .hidden = 256});
  for (const Style::Allocator kind : {Style::Allocator::kCaching, Style::Allocator::kExpandable}) {
    Style style;
    style.allocator = kind;
    const Program& program = what.programs[0];
    const MemoryUse use = memory_use(program, what.graph, test_cluster(), {}, style, {1.0, {}, {}});
    const auto [most, end] = brute_live(program);
    EXPECT_GE(use.reserved_bytes, most);
    EXPECT_LE(use.reserved_bytes, 2 * most);
    EXPECT_EQ(use.reserved_bytes % (int64_t{2} << 20), 0) << "whole pages";
  }
}

int64_t bytes_of(const MemoryUse& use, std::string_view what) {
  int64_t bytes = 0;
  for (const LiveBuffer& live : use.at_peak) bytes += live.what == what ? live.bytes : 0;
  return bytes;
}

// Layers 2, hidden 256: what unfused attention keeps is there with the activations, in float32
// here.
TEST(Memory, unfused_kernels_keep_scores_and_logits) {
  const TestPrograms what =
      lowered("serial()", {.layers = 2, .batch = 2, .seq = 512, .hidden = 256});
  const auto use = [&](const char* style) {
    return memory_use(what.programs[0], what.graph, test_cluster(), {}, *parse_style(style),
                      {1.0, {}, {}});
  };
  const MemoryUse fused = use("tessera"), unfused = use("tessera,fused_attention=false");
  EXPECT_EQ(fused.live_bytes, fused.peak_bytes) << "arena without gaps";
  EXPECT_EQ(fused.reserved_bytes, fused.peak_bytes);
  EXPECT_EQ(unfused.reserved_bytes, unfused.live_bytes) << "the arena does not have the scores";
  int64_t scores = 0;  // of a block
  for (const LiveBuffer& live : unfused.at_peak) {
    if (live.name.ends_with(".lse") && live.what == "activation")
      scores = std::max(scores, live.bytes);
  }
  const int64_t heads = unfused.at_peak.empty() ? 0 : scores / (10 * 2 * 512 * 512);
  EXPECT_GE(heads, 1) << "5 bytes a score in 16 bits, twice that in float32";
  EXPECT_GE(unfused.live_bytes - fused.live_bytes, 2 * heads * 10 * 2 * 512 * 512);
  EXPECT_GT(bytes_of(use("tessera,loss_saved=1,loss_workspace=1000"), "workspace"), 0);
  EXPECT_EQ(bytes_of(fused, "workspace"), 0);
}

// Two bytes a narrow parameter, four of the gradient all the time; the shard is a part of the
// gradient.
TEST(Memory, gradient_buffers_are_there_all_the_time) {
  const TestPrograms what = lowered("data_parallel(dp=2, micro_batches=2)");
  const auto use = [&](const char* style) {
    return memory_use(what.programs[0], what.graph, test_cluster(), {}, *parse_style(style),
                      {1.0, {}, {}});
  };
  const MemoryUse kept = use("tessera,gradient_buffers=true");
  int64_t parameters = 0;
  for (const Buffer& buffer : what.programs[0].buffers) {
    if (what.graph.tensor(buffer.tensor).role == Role::kParameter &&
        buffer.lifetime == Lifetime::kPersistent)
      parameters += buffer.bytes();
  }
  EXPECT_EQ(bytes_of(kept, "gradient"), parameters);
  EXPECT_GE(kept.timeline.front().bytes, use("tessera").timeline.front().bytes + parameters);
}

// Every block has the same layers, so that one placeholder for each layer of one block is there.
TEST(Memory, placeholders_of_gradients_are_those_of_one_block) {
  const TestPrograms what = lowered("tensor_parallel(tp=2)");
  const auto use = [&](const char* style) {
    return memory_use(what.programs[0], what.graph, test_cluster(), {}, *parse_style(style),
                      {1.0, {}, {}});
  };
  int64_t weights = 0;  // of the products in block 0, as this rank holds them
  for (const Buffer& buffer : what.programs[0].buffers) {
    const Tensor& tensor = what.graph.tensor(buffer.tensor);
    if (tensor.role == Role::kParameter && tensor.dims.size() > 1 &&
        tensor.name.starts_with("blocks.0.") && buffer.lifetime == Lifetime::kPersistent)
      weights += buffer.bytes();
  }
  EXPECT_GT(weights, 0);
  const MemoryUse with = use("tessera,placeholder_gradients=true"), without = use("tessera");
  EXPECT_EQ(with.live_bytes, without.live_bytes + weights);
  EXPECT_EQ(with.timeline.front().bytes, without.timeline.front().bytes + weights);
  EXPECT_EQ(bytes_of(with, "workspace"), bytes_of(without, "workspace") + weights);
}

// The logits and their gradient are there for a quarter of the tokens at a time.
TEST(Memory, a_loss_by_pieces_holds_one_piece_of_the_logits) {
  const TestPrograms what = lowered("serial()", {.layers = 1, .batch = 8, .vocab = 4096});
  const auto use = [&](const char* style) {
    return memory_use(what.programs[0], what.graph, test_cluster(), {}, *parse_style(style),
                      {1.0, {}, {}});
  };
  const auto logits = [](const MemoryUse& memory) {
    int64_t out = 0;
    for (const LiveBuffer& live : memory.at_peak) {
      if (live.name == "head" || live.name == "grad.head") out = std::max(out, live.bytes);
    }
    return out;
  };
  const MemoryUse whole = use("tessera"), pieces = use("tessera,loss_chunks=4");
  ASSERT_GT(logits(whole), 0);
  EXPECT_EQ(logits(pieces) * 4, logits(whole));
  EXPECT_LT(pieces.live_bytes, whole.live_bytes);
}

TEST(Memory, libraries_of_a_framework_count_beside_the_context) {
  const TestPrograms what = lowered("serial()");
  const auto use = [&](const char* style) {
    return memory_use(what.programs[0], what.graph, test_cluster(), {}, *parse_style(style),
                      {1.0, {}, {}});
  };
  const MemoryUse with = use("tessera,library_bytes=1000000000"), without = use("tessera");
  EXPECT_EQ(with.overhead_bytes, without.overhead_bytes + 1000000000);
  EXPECT_EQ(with.low, without.low + 1e9);
  EXPECT_EQ(with.high, without.high + 1e9);
  EXPECT_EQ(with.reserved_bytes, without.reserved_bytes);
}

// Inside a run the compute events of the rank say when.
TEST(Memory, events_give_the_times) {
  const TestPrograms what = lowered("serial()");
  const Program& program = what.programs[0];
  const std::vector<TraceEvent> events = even_events(program);
  const double now = events.back().end_s;
  const MemoryUse use =
      memory_use(program, what.graph, test_cluster(), {}, Style{}, {now, {}, events});
  const MemoryUse even =
      memory_use(program, what.graph, test_cluster(), {}, Style{}, {now, {}, {}});
  int64_t highest = 0, highest_even = 0;
  for (const MemorySample& sample : use.timeline) {
    EXPECT_LE(sample.time_s, now);
    highest = std::max(highest, sample.bytes);
  }
  for (const MemorySample& sample : even.timeline)
    highest_even = std::max(highest_even, sample.bytes);
  EXPECT_EQ(highest, highest_even);
  EXPECT_GT(use.timeline.size(), even.timeline.size());
  EXPECT_EQ(use.at_peak.front().bytes, even.at_peak.front().bytes);
  EXPECT_TRUE(even.intervals.empty());
}

TEST_P(MemoryOfRecipes, intervals_sum_to_the_timeline) {
  const TestPrograms what = lowered(GetParam());
  for (const Program& program : what.programs) {
    const std::vector<TraceEvent> events = even_events(program);
    const double end = events.back().end_s;
    const MemoryUse use =
        memory_use(program, what.graph, test_cluster(), {}, Style{}, {end, {}, events});
    ASSERT_FALSE(use.intervals.empty());
    ASSERT_LT(use.intervals.size(), 100'000U);
    std::set<std::string> kinds;
    for (size_t i = 0; i < use.timeline.size(); ++i) {
      const double next = i + 1 < use.timeline.size() ? use.timeline[i + 1].time_s : end;
      const double at = (use.timeline[i].time_s + next) / 2;
      if (at == use.timeline[i].time_s) continue;
      int64_t bytes = 0;
      for (const LiveInterval& live : use.intervals) {
        if (live.start_s > at || live.end_s <= at) continue;
        bytes += live.bytes;
        kinds.insert(live.what);
      }
      EXPECT_EQ(bytes, use.timeline[i].bytes) << "rank " << program.rank << " at " << at;
    }
    EXPECT_TRUE(kinds.contains("activation"));
  }
}

TEST(Memory, communication_buffers_grow_with_groups_and_vanish_on_cpus) {
  const TestPrograms alone = lowered("serial()"),
                     two = lowered("megatron(tp=2, dp=2, micro_batches=2)");
  const Cluster gpus = test_cluster();
  EXPECT_EQ(communication_bytes(alone.programs[0], gpus, {}), 0);
  const int64_t both = communication_bytes(two.programs[0], gpus, {});
  EXPECT_GT(both, 2 * 12 * 9 * (int64_t{1} << 20)) << "two rings of 12 channels, 9.2 MiB each";
  Cluster other = gpus;  // of another maker: as ampere's
  other.parts[0].type.device.generation = Generation::named("other");
  other.parts[0].type.inner.kind = LinkKind::kDirect;
  EXPECT_EQ(communication_bytes(two.programs[0], other, {}), both);
  Cluster cpus = gpus;
  cpus.parts[0].type.device.generation = Generation::named("cpu");
  EXPECT_EQ(communication_bytes(two.programs[0], cpus, {}), 0);
  EXPECT_EQ(library_workspace_bytes(cpus.parts[0].type.device), 0);
}

}  // namespace
}  // namespace tessera::memory_test
