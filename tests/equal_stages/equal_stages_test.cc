// A plan whose equal stages are lowered once is priced as a plan all of whose stages are lowered:
// times, traffic and memory of every role are equal to the last bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "support/seed.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/program/copies/alike_programs.h"
#include "tessera/program/place_text.h"
#include "tessera/simulate/memory.h"
#include "tessera/simulate/simulate.h"

namespace tessera {
namespace {

struct Case {
  std::string model, plan;
  int64_t batch = 0;
  std::string style = "tessera", cluster = "dgx-a100:64";
};

SimulateOptions quick(const std::string& style) {
  SimulateOptions out;
  out.style = parse_style(style).value();
  out.memory_details = out.critical_path = false;
  return out;
}

struct Lowered {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Lowering> lowering;
  bool shorter() const {
    return lowering->graph().ops().size() < lowering->whole_graph().ops().size();
  }
};

Lowered lowered(Compiler& compiler, const Case& one, const CompileOptions& options) {
  Lowered out;
  out.model = compiler.model(one.model, one.batch).value();
  auto plan = load_plan(one.plan, out.model->graph);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  if (!plan) return out;
  auto lowering = compiler.lower(forward_of(out.model), *plan, options);
  EXPECT_TRUE(lowering.has_value()) << (lowering ? "" : lowering.error().message);
  if (lowering) out.lowering = std::move(*lowering);
  return out;
}

void expect_equal(const MemoryUse& a, const MemoryUse& b) {
  EXPECT_EQ(std::tie(a.peak_bytes, a.live_bytes, a.reserved_bytes, a.overhead_bytes, a.low, a.high,
                     a.peak_time_s, a.arena_bytes),
            std::tie(b.peak_bytes, b.live_bytes, b.reserved_bytes, b.overhead_bytes, b.low, b.high,
                     b.peak_time_s, b.arena_bytes));
}

void expect_equal(const RankResult& a, const RankResult& b) {
  SCOPED_TRACE(fmt::format("rank {}", a.representative));
  EXPECT_EQ(std::tie(a.representative, a.device, a.ranks, a.stages, a.spent_s, a.busy_s, a.flops),
            std::tie(b.representative, b.device, b.ranks, b.stages, b.spent_s, b.busy_s, b.flops));
  expect_equal(a.memory, b.memory);
  ASSERT_EQ(a.traffic.size(), b.traffic.size());
  for (size_t i = 0; i < a.traffic.size(); ++i) {
    const TrafficRow &x = a.traffic[i], &y = b.traffic[i];
    EXPECT_EQ(std::tie(x.kind, x.axes, x.count, x.bytes, x.seconds, x.exposed_s, x.algorithm),
              std::tie(y.kind, y.axes, y.count, y.bytes, y.seconds, y.exposed_s, y.algorithm));
  }
}

void expect_equal(const Simulation& a, const Simulation& b) {
  EXPECT_EQ(
      std::tie(a.step_time_s, a.uncertainty, a.device_s, a.uncertain_s, a.ranks, a.tokens,
               a.model_flops, a.hardware_flops, a.peak_flops, a.source_share, a.simulated_events),
      std::tie(b.step_time_s, b.uncertainty, b.device_s, b.uncertain_s, b.ranks, b.tokens,
               b.model_flops, b.hardware_flops, b.peak_flops, b.source_share, b.simulated_events));
  ASSERT_EQ(a.roles.size(), b.roles.size());
  for (size_t i = 0; i < a.roles.size(); ++i) expect_equal(a.roles[i], b.roles[i]);
}

// The memory of a program that is made of another one may be computed from the other's blocks.
void expect_alike_memory(const Lowering& lowering, const Program& known, const Program& made,
                         const std::string& style) {
  const auto sizes = [&](const Program& first) {
    return AlikeMemory(first, lowering.graph(), parse_style(style).value()).sizes(made);
  };
  const MemorySizes a = sizes(known), b = sizes(made);
  EXPECT_EQ(std::tie(a.live_bytes, a.reserved_bytes, a.peak_run, a.peak_share, a.groups, a.peers),
            std::tie(b.live_bytes, b.reserved_bytes, b.peak_run, b.peak_share, b.groups, b.peers));
}

// A program that is made of another one equals the program that lowering makes.
void expect_alike_programs(const Lowering& lowering) {
  const AlikePrograms alike(lowering.texts(), lowering.plan());
  for (const RankClass& role : lowering.roles()) {
    const auto other = alike.like(role.representative);
    if (!other) continue;
    for (const bool offsets : {false, true}) {
      const Program known = lowering.lower(*other, offsets).value();
      const auto made = alike.program(known, role.representative, offsets);
      EXPECT_EQ(made.has_value(), known.larger == 0);
      if (!made) continue;
      EXPECT_TRUE(*made == lowering.lower(role.representative, offsets).value())
          << "rank " << role.representative << " of rank " << *other;
      for (const std::string style : {"tessera", "megatron-2022"})
        expect_alike_memory(lowering, known, *made, style);
    }
  }
}
// Returns the number of places whose program is made of another place's program.
size_t alike_places(const Lowering& lowering) {
  const AlikePrograms alike(lowering.texts(), lowering.plan());
  std::set<PlaceId> places;
  for (const RankClass& role : lowering.roles()) {
    if (alike.like(role.representative))
      places.insert(lowering.plan().places_of(role.representative)[0]);
  }
  return places.size();
}

// Returns whether the plan is lowered from a shorter graph. Either way its price must equal the
// price with all stages.
bool is_lowered_once(const Case& one, const OptimizerSpec& optimizer = {}) {
  SCOPED_TRACE(fmt::format("{} under {}, batch {}, style {}, on {}", one.model, one.plan, one.batch,
                           one.style, one.cluster));
  Compiler compiler;
  const Lowered whole = lowered(compiler, one, {optimizer}),
                once = lowered(compiler, one, for_price(optimizer));
  if (!whole.lowering || !once.lowering) return false;
  EXPECT_FALSE(whole.shorter());
  const Cluster cluster = load_cluster(one.cluster).value();
  const auto expected = simulate(*whole.lowering, cluster, quick(one.style)),
             found = simulate(*once.lowering, cluster, quick(one.style));
  EXPECT_TRUE(expected.has_value()) << (expected ? "" : expected.error().message);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  if (expected && found) expect_equal(*expected, *found);
  expect_alike_programs(*once.lowering);
  return once.shorter();
}

const std::string kGpt = "gpt:layers=16,hidden=256,heads=8,seq=64,vocab=512";

OptimizerSpec unclipped() {
  OptimizerSpec out;
  out.clip_norm = 0;
  return out;
}

TEST(EqualStages, schedules_are_priced_as_with_all_stages) {
  for (const std::string schedule : {"1f1b", "gpipe", "zb_h1", "zb_h2", "eager_1f1b"}) {
    const std::string plan =
        fmt::format("megatron(tp=2,pp=8,dp=2,micro_batches=12,schedule={})", schedule);
    EXPECT_TRUE(is_lowered_once({kGpt, plan, 48})) << schedule;
    EXPECT_TRUE(is_lowered_once({kGpt, plan, 48}, unclipped())) << schedule << ", unclipped";
  }
}

// Stages 1 and 9 of place 1 equal stages 2 and 10 of place 2, and so on.
TEST(EqualStages, places_of_several_stages_are_priced_as_with_all_stages) {
  const std::string deep = "gpt:layers=36,hidden=96,heads=4,seq=12,vocab=64";
  for (const std::string more : {"", ",zero=1", ",zero=3", ",sequence_shard=true",
                                 ",recompute=full", ",recompute=selective,zero=2"}) {
    const std::string two = fmt::format(
        "megatron(tp=2,pp=8,dp=2,micro_batches=16,schedule=interleaved,chunks=2{})", more);
    EXPECT_TRUE(is_lowered_once({kGpt, two, 64})) << more;
    EXPECT_TRUE(is_lowered_once({kGpt, two, 64, "megatron-2022"}, unclipped())) << more;
    const std::string six =
        fmt::format("megatron(tp=1,pp=6,dp=2,micro_batches=6,schedule=interleaved,chunks=6{})",
                    more == ",sequence_shard=true" ? "" : more);
    EXPECT_TRUE(is_lowered_once({deep, six, 60})) << more;
    const std::string there_and_back =
        fmt::format("megatron(tp=2,pp=8,dp=2,micro_batches=12,schedule=zb_v{})", more);
    EXPECT_TRUE(is_lowered_once({kGpt, there_and_back, 48})) << more;
  }
}

TEST(EqualStages, what_rests_in_shards_is_priced_as_with_all_stages) {
  for (const int zero : {0, 1, 2, 3}) {
    const std::string plan = fmt::format("megatron(tp=2,pp=8,dp=4,micro_batches=16,zero={})", zero);
    EXPECT_TRUE(is_lowered_once({kGpt, plan, 64})) << zero;
  }
}

TEST(EqualStages, ways_to_cut_and_to_keep_are_priced_as_with_all_stages) {
  for (const std::string more :
       {"sequence_shard=true", "recompute=full", "recompute=selective", "precision=bfloat16"}) {
    const std::string plan = fmt::format("megatron(tp=4,pp=8,dp=2,micro_batches=16,{})", more);
    EXPECT_TRUE(is_lowered_once({kGpt, plan, 64})) << more;
  }
}

TEST(EqualStages, styles_and_machines_are_priced_as_with_all_stages) {
  const std::string plan = "megatron(tp=2,pp=8,dp=2,micro_batches=16,zero=1,precision=bfloat16)";
  for (const std::string style : {"eager", "megatron-2022", "nemo", "deepspeed-2022"}) {
    for (const std::string cluster : {"dgx-a100:32", "h100-nvl:32", "p3.16xlarge:64"}) {
      EXPECT_TRUE(is_lowered_once({kGpt, plan, 64, style, cluster})) << style << " " << cluster;
    }
  }
}

TEST(EqualStages, optimizers_are_priced_as_with_all_stages) {
  for (const std::string kind : {"sgd", "adamw", "lion", "muon", "lamb"}) {
    OptimizerSpec optimizer;
    optimizer.kind = kind;
    EXPECT_TRUE(is_lowered_once({kGpt, "megatron(tp=2,pp=8,dp=2,micro_batches=12)", 48}, optimizer))
        << kind;
  }
}

TEST(EqualStages, other_models_are_priced_as_with_all_stages) {
  const std::string llama =
      "llama:layers=12,hidden=256,heads=8,kv_heads=4,ffn=512,seq=64,vocab=512";
  EXPECT_TRUE(is_lowered_once({llama, "megatron(tp=2,pp=6,dp=2,micro_batches=12)", 24}));
}

// Each layer adds its router's loss to the losses of the layers before it, and no stage exchanges
// data with a stage far away.
TEST(EqualStages, mixtures_are_priced_as_with_all_stages) {
  const std::string experts =
      "mixtral:layers=12,hidden=256,heads=8,kv_heads=4,ffn=512,experts=4,seq=64,vocab=512";
  for (const std::string& model : {experts, experts + ",z_loss=0.001", experts + ",balance=0"}) {
    for (const std::string plan : {"megatron(tp=2,pp=6,dp=2,micro_batches=12)",
                                   "expert_parallel(ep=2,pp=6,dp=2,micro_batches=12)",
                                   "expert_parallel(ep=4,pp=6,zero=1,micro_batches=8)",
                                   "megatron(tp=2,pp=6,micro_batches=6,schedule=interleaved,"
                                   "chunks=2)"}) {
      EXPECT_TRUE(is_lowered_once({model, plan, 48})) << model << " under " << plan;
    }
  }
}

// Where micro-batches are of two sizes, each size has blocks of its own.
TEST(EqualStages, uneven_micro_batches_are_priced_as_with_all_stages) {
  EXPECT_TRUE(is_lowered_once({kGpt, "megatron(tp=2,pp=8,dp=1,micro_batches=6)", 21}));
}

// Every drawn plan is priced as with all stages; most of them the short way.
TEST(EqualStages, random_plans_are_priced_as_with_all_stages) {
  SCOPED_TRACE(seed_text());
  std::mt19937_64 random(test_seed(5));
  const auto one_of = [&](const std::vector<std::string>& choices) {
    return choices[std::uniform_int_distribution<size_t>(0, choices.size() - 1)(random)];
  };
  constexpr int kPlans = 60;
  int once = 0;
  for (int i = 0; i < kPlans; ++i) {
    // Places, micro-batches and schedule: with one stage a place, or with two.
    const std::string pipeline =
        one_of({"one", "one", "several"}) == "one"
            ? fmt::format("pp={},micro_batches={},schedule={}", one_of({"6", "8", "16"}),
                          one_of({"4", "7", "8", "20"}), one_of({"1f1b", "gpipe", "zb_h1"}))
            : one_of({"pp=6,micro_batches=6,schedule=interleaved,chunks=2",
                      "pp=6,micro_batches=12,schedule=interleaved,chunks=2",
                      "pp=8,micro_batches=16,schedule=interleaved,chunks=2",
                      "pp=8,micro_batches=20,schedule=zb_v"});
    const std::string plan =
        fmt::format("megatron(tp={},{},dp={},zero={}{}{})", one_of({"1", "2", "4"}), pipeline,
                    one_of({"1", "2", "3"}), one_of({"0", "1", "2", "3"}),
                    one_of({"", ",recompute=full", ",recompute=selective"}),
                    one_of({"", ",precision=bfloat16"}));
    const std::string model =
        one_of({"gpt:layers=16,hidden=96,heads=4,seq=12,vocab=64",
                "llama:layers=24,hidden=48,heads=4,kv_heads=4,ffn=96,seq=8,vocab=64",
                "mixtral:layers=16,hidden=48,heads=4,kv_heads=4,ffn=96,experts=4,seq=8,vocab=64",
                "gpt:layers=19,hidden=48,heads=4,seq=8,vocab=64"});
    once += is_lowered_once({model, plan, 60, one_of({"tessera", "megatron-2022", "eager"}),
                             one_of({"dgx-a100:64", "p3.16xlarge:64"})},
                            one_of({"clipped", "not"}) == "not" ? unclipped() : OptimizerSpec());
  }
  EXPECT_GE(once, kPlans / 2);
}

// A copy's program is made of another's where their places run alike: under 1f1b, all of eight
// places but the first two and the last.
TEST(AlikePrograms, most_places_take_their_programs_from_others) {
  Compiler compiler;
  for (const std::string schedule : {"1f1b", "interleaved,chunks=2"}) {
    const Lowered once = lowered(
        compiler,
        {kGpt, fmt::format("megatron(tp=2,pp=8,micro_batches=32,schedule={})", schedule), 64},
        for_price());
    EXPECT_EQ(alike_places(*once.lowering), 4U) << schedule;
    const Lowered whole = lowered(
        compiler,
        {kGpt, fmt::format("megatron(tp=2,pp=8,micro_batches=32,schedule={})", schedule), 64}, {});
    EXPECT_EQ(alike_places(*whole.lowering), 0U) << schedule;
  }
}

// Stage 0 sends the coefficient of clipping to all others.
TEST(RunningSum, one_number_of_the_norm_crosses_each_border) {
  Compiler compiler;
  const Lowered found = lowered(
      compiler,
      {"gpt:layers=8,hidden=16,heads=4,seq=8,vocab=24,tied=0", "megatron(pp=4,micro_batches=4)", 4},
      {});
  const auto programs = lower_and_verify(*found.lowering);
  ASSERT_TRUE(programs.has_value()) << programs.error().message;
  for (const Program& program : *programs) {
    std::vector<int> scalars_to;
    for (const Instruction& instruction : program.block(BlockKind::kUpdate)) {
      const auto* send = std::get_if<Send>(&instruction.body);
      if (send == nullptr) continue;
      EXPECT_TRUE(found.lowering->graph().tensor(send->tensor).dims.empty());
      scalars_to.push_back(send->peer);
    }
    const std::vector<int> expected =
        program.rank == 0 ? std::vector<int>{1, 2, 3} : std::vector<int>{program.rank - 1};
    EXPECT_EQ(scalars_to, expected) << "rank " << program.rank;
  }
}

TEST(EqualStages, stages_that_a_plan_tells_apart_are_all_lowered) {
  // Layers 4 to 7 keep less; they are stages 2 and 3 of eight.
  const std::string plan = R"(
mesh = { pp = 8, dp = 2 }
micro_batches = 8
split = [{ ops = "*", dim = "batch", over = "dp" }]
stage = [
  { ops = "{embed,blocks.[0-1]}", at = 0 }, { ops = "blocks.[2-3]", at = 1 },
  { ops = "blocks.[4-5]", at = 2 },         { ops = "blocks.[6-7]", at = 3 },
  { ops = "blocks.[8-9]", at = 4 },         { ops = "blocks.[10-11]", at = 5 },
  { ops = "blocks.[12-13]", at = 6 },       { ops = "{blocks.[14-15],final,head,loss}", at = 7 },
]
)";
  const auto store = [](const std::string& blocks) {
    return fmt::format("store = [{{ tensors = \"blocks.{}.mlp.*\", recompute = true }}]\n", blocks);
  };
  EXPECT_TRUE(is_lowered_once({kGpt, plan, 32}));
  EXPECT_TRUE(is_lowered_once({kGpt, plan + store("*"), 32}));
  EXPECT_FALSE(is_lowered_once({kGpt, plan + store("[6-9]"), 32}));  // stages 3 and 4
}

// With two stages a place, layers 3 and 11 are at place 3 of eight, 4 and 12 at place 4.
TEST(EqualStages, places_one_of_whose_stages_a_plan_tells_apart_are_all_lowered) {
  const std::string recipe =
      "megatron(tp=2,pp=8,dp=2,micro_batches=8,schedule=interleaved,chunks=2)";
  Compiler compiler;
  const auto model = compiler.model(kGpt, 32).value();
  const std::string plan = to_toml(load_plan(recipe, model->graph).value());
  EXPECT_TRUE(is_lowered_once({kGpt, plan, 32}));
  for (const std::string layers : {"{3,4}", "{11,12}"}) {
    const std::string store =
        fmt::format("store = [{{ tensors = \"blocks.{}.mlp.*\", recompute = true }}]\n", layers);
    EXPECT_FALSE(is_lowered_once({kGpt, plan + store, 32})) << layers;
  }
}

TEST(EqualStages, stages_of_unequal_depth_are_all_lowered) {
  const std::string uneven = "gpt:layers=11,hidden=256,heads=8,seq=64,vocab=512";
  is_lowered_once({uneven, "megatron(tp=2,pp=8,dp=2,micro_batches=12)", 48});
  // Four places are too few, however many stages each has.
  EXPECT_FALSE(is_lowered_once(
      {kGpt, "megatron(tp=2,pp=4,dp=2,micro_batches=8,schedule=interleaved,chunks=4)", 32}));
}

}  // namespace
}  // namespace tessera
