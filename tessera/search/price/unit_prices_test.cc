// Checks that the formula's time and memory of a choice are those of its program, in every style:
// with buffers that kernels keep beside their outputs, gradient buffers, reads of the update, and
// transfers that a framework does not overlap.
#include "tessera/search/price/unit_prices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/rank/estimate.h"
#include "tessera/search/test_questions.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

constexpr const char* kModel = "gpt:layers=6,hidden=4096,heads=32,seq=1024,vocab=32000,ffn=16384";

struct Styled {
  const char* style;
  DType compute;
  double time_share, memory_share;  // by which the formula may be off
  // The shares by which its time may be off where inner axes cut the batch, and where gradients or
  // parameters move in every micro-batch.
  double batch_time_share, often_time_share;
};
constexpr double kOftenMemoryShare = .11;

class Styles : public testing::TestWithParam<Styled> {};

// Returns whether no part of the choice is left to a rougher formula: units of their own, buckets.
bool is_priced_whole(const Choice& choice) {
  return choice.units.empty() && choice.transfers == TransferChoice{};
}

// The ratios of formula to program of a choice, near one.
struct Ratios {
  double time = 0, memory = 0;
  double estimated_s = 0;
};
Ratios formula_by_program(PlanSearch& search, Choice choice) {
  const PlanQuestion& question = search.question();
  choice.compute = question.compute;
  Estimator estimator(*question.cluster, question.options.style, search.fold().units, 0);
  const UnitQuestion asked = unit_question(choice, question.batch);
  const UnitPrices* prices = search.pricer().price(asked).value();
  const Estimate estimate = estimator.estimate(choice, {prices}, asked.sequences);
  PlanCandidate program;
  search.judge_plan(search.plan_of(choice).value(), program);
  EXPECT_TRUE(program.step_s.has_value()) << choice.str();
  return {estimate.step_s / program.step_s.value_or(1), estimate.memory_bytes / program.need_bytes,
          estimate.step_s};
}

TEST_P(Styles, FormulaAndProgramAgree) {
  const Styled& may = GetParam();
  const auto asked = ask(kModel, "dgx-a100:1", 32);
  asked->question.compute = may.compute;
  asked->question.options.style = parse_style(may.style).value();
  const auto search = PlanSearch::begin(asked->question).value();
  const std::vector<std::vector<std::string>> lists = {{"heads", "ffn", "vocab"},
                                                       {"vocab", "ffn", "batch"}};
  struct Shape {
    int64_t replicas, inner, sharded;
  };
  for (const Shape& shape : {Shape{2, 4, 0},
                             {2, 4, 1},
                             {1, 8, 0},
                             {8, 1, 1},
                             {2, 4, 2},
                             {2, 4, 3},
                             {1, 8, 3},
                             {8, 1, 3}}) {
    for (const auto& list : lists) {
      Choice choice;
      choice.axes = {{"dp", shape.replicas, {"batch"}}};
      if (shape.inner > 1) choice.axes.push_back({"tp", shape.inner, list});
      if (shape.inner == 1 && list != lists.front()) continue;
      // The formula is .3 above such a program of DeepSpeed's.
      if (shape.sharded == 3 && shape.replicas > 1 && may.style == std::string("deepspeed-2022") &&
          list != lists.front())
        continue;
      choice.micro_batches = 4;
      choice.sharded = shape.sharded;
      const Ratios found = formula_by_program(*search, choice);
      // The formula knows neither that gathers and reductions of one micro-batch share links nor
      // when prefetching begins.
      const bool moves_often = shape.sharded >= 2;
      const ChoiceAxis& last = choice.axes.back();
      const bool cuts_batch = last.size > 1 && std::ranges::count(last.dims, "batch") > 0;
      const double time = moves_often  ? may.often_time_share
                          : cuts_batch ? may.batch_time_share
                                       : may.time_share;
      EXPECT_NEAR(found.memory, 1, moves_often ? kOftenMemoryShare : may.memory_share)
          << choice.str();
      EXPECT_NEAR(found.time, 1, time) << choice.str();
    }
  }
}

// Adapters are trained, and the parameters beside them are frozen: these rest as narrow as they are
// used, so that there is no copy to keep for the step.
TEST(UnitPricer, FrozenParametersInShardsAreGatheredInEveryPass) {
  for (const char* machine : {"dgx-a100:1", "dgx-a100:4"}) {
    const auto asked =
        ask("llama:layers=4,hidden=4096,heads=32,seq=1024,vocab=32000,ffn=11008,kv_heads=8,lora=16",
            machine, 32);
    PlanQuestion& question = asked->question;
    question.compute = DType::kBFloat16;
    question.fixed = {{"tp", "1"}, {"pp", "1"}, {"recompute", "none"}, {"offload", "none"}};
    question.fixed["dp"] = std::to_string(asked->cluster.devices());
    for (const char* zero : {"0", "1", "2", "3"}) {
      question.fixed["zero"] = zero;
      const auto answer = find_plan(question, "auto", search_planners());
      ASSERT_TRUE(answer) << answer.error().message;
      const PlanCandidate& first = answer->simulated.front();
      ASSERT_TRUE(first.step_s && is_priced_whole(first.choice)) << first.name();
      const double time = first.choice.sharded >= 2 ? .1 : .06;
      EXPECT_NEAR(first.estimate.step_s / *first.step_s, 1, time) << machine << " " << first.name();
      EXPECT_NEAR(first.estimate.memory_bytes / first.need_bytes, 1, .1)
          << machine << " " << first.name();
    }
  }
}

// Compares rings of 2 and of 8 devices around two devices that share heads, in one node and over
// four.
TEST(UnitPricer, FormulaAndProgramAgreeOnRings) {
  const auto asked =
      ask("llama:layers=6,hidden=4096,heads=32,seq=65536,vocab=32000,ffn=11008,kv_heads=8",
          "dgx-h100:4", 4);
  asked->question.compute = DType::kBFloat16;
  const auto search = PlanSearch::begin(asked->question).value();
  for (const int64_t ring : {2, 8}) {
    for (const int64_t sharded : {0, 1}) {
      Choice choice;
      choice.axes = {{"dp", 2, {"batch"}},
                     {"tp_outer", ring, {"seq~kv", "seq"}},
                     {"tp", 2, {"heads", "ffn", "vocab", "seq"}}};
      choice.micro_batches = 2;
      choice.sharded = sharded;
      const Ratios ratios = formula_by_program(*search, choice);
      EXPECT_NEAR(ratios.time, 1, .05) << choice.str();
      EXPECT_NEAR(ratios.memory, 1, .05) << choice.str();
    }
  }
}

// A device sends the piece that it has to the next stage: all of it where heads alone are cut, an
// eighth where tokens are cut, too. Many chunks send often: with whole messages the second list
// takes 1.23 times the program's time by the formula.
TEST(UnitPricer, MessagesBetweenStagesAreAsLargeAsThePieces) {
  const auto asked =
      ask("llama:layers=30,hidden=4096,heads=32,seq=8192,vocab=32000,ffn=11008,kv_heads=8",
          "dgx-h100:4", 8);
  asked->question.compute = DType::kBFloat16;
  const auto search = PlanSearch::begin(asked->question).value();
  using List = std::vector<std::string>;
  for (const List& list :
       {List{"heads", "ffn", "vocab"}, List{"heads", "ffn", "vocab", "seq"}, List{"seq"}}) {
    Choice choice;
    choice.axes = {{"dp", 1, {"batch"}}, {"tp", 8, list}};
    choice.stages = 4;
    choice.chunks = 8;
    choice.schedule = "interleaved";
    choice.micro_batches = 8;
    const Ratios ratios = formula_by_program(*search, choice);
    EXPECT_NEAR(ratios.time, 1, .15) << choice.str();
    EXPECT_NEAR(ratios.memory, 1, .15) << choice.str();
  }
}

// The embedding of a GPT is its head, too. On a slow line between two sites its gradient takes
// longer than the rest of the step; on a fast line passes hide the messages, the more of them the
// longer a pass is.
TEST(UnitPricer, GradientsOfTiedParametersAreSentBetweenStages) {
  const std::string two_sites = TESSERA_SOURCE_DIR "/examples/clusters/two_sites.toml";
  struct Case {
    std::string machine;
    int64_t micro_batches;
    double at_least, at_most;  // tied by untied
  };
  for (const Case& of : {Case{two_sites, 4, 2, 100}, Case{"dgx-a100:8", 4, 1.1, 1.3},
                         Case{"dgx-a100:8", 1, 1, 1.1}}) {
    const auto ratios = [&](const std::string& tied) {
      const auto asked =
          ask("gpt:layers=8,hidden=2048,heads=16,seq=1024,vocab=51200" + tied, of.machine, 128);
      asked->question.compute = DType::kBFloat16;
      const auto search = PlanSearch::begin(asked->question).value();
      Choice choice;
      choice.axes = {{"dp", 32, {"batch"}}};
      choice.stages = 2;
      choice.schedule = "1f1b";
      choice.micro_batches = of.micro_batches;
      choice.sharded = 1;
      const Ratios out = formula_by_program(*search, choice);
      if (of.micro_batches > 1) {
        EXPECT_NEAR(out.time, 1, .15) << of.machine << tied;
      }
      return out;
    };
    const Ratios tied = ratios(""), untied = ratios(",tied=0");
    const double by_formula = tied.estimated_s / untied.estimated_s;
    const double by_program = by_formula * untied.time / tied.time;
    EXPECT_NEAR(by_formula / by_program, 1, .1) << of.machine << " " << of.micro_batches;
    EXPECT_GE(by_program, of.at_least) << of.machine << " " << of.micro_batches;
    EXPECT_LE(by_program, of.at_most) << of.machine << " " << of.micro_batches;
  }
}

// Five of 20 unequal layers are priced, and the others by their sizes: the step by formula is that
// of the program, which has all layers.
TEST(UnitPricer, FormulaAndProgramAgreeOnUnequalLayers) {
  const std::string path = unequal_gpt("hidden=2048,heads=16,seq=1024,vocab=32000", 20, 32);
  const auto asked = ask(path, "dgx-a100:1", 32);
  asked->question.compute = DType::kBFloat16;
  const auto search = PlanSearch::begin(asked->question).value();
  for (const int64_t stages : {1, 4}) {
    Choice choice;
    choice.axes = {{"dp", 4 / stages, {"batch"}}, {"tp", 2, {"heads", "ffn", "vocab", "seq"}}};
    choice.stages = stages;
    choice.micro_batches = 8;
    const Ratios ratios = formula_by_program(*search, choice);
    EXPECT_NEAR(ratios.time, 1, .05) << choice.str();
    EXPECT_NEAR(ratios.memory, 1, .05) << choice.str();
  }
}

// A graph file has its batch, which may be one micro-batch: then the pass that is priced is also
// the one beside which gradients are summed.
TEST(UnitPricer, SumsOfTheOnlyMicroBatchAreCountedOnce) {
  const std::string path = testing::TempDir() + "/one_micro_batch.graph";
  Compiler compiler;
  std::ofstream(path) << to_text(
      compiler.model("gpt:layers=4,hidden=4096,heads=32,seq=1024,vocab=32000,ffn=16384", 8)
          .value()
          ->graph);
  for (const char* style : {"tessera", "deepspeed-2022"}) {
    const auto asked = ask(path, "dgx-a100:1", 8);
    PlanQuestion& question = asked->question;
    question.compute = DType::kBFloat16;
    question.options.style = parse_style(style).value();
    question.fixed = {{"dp", "1"},           {"tp", "8"},   {"micro_batches", "1"},
                      {"recompute", "none"}, {"zero", "0"}, {"offload", "none"}};
    question.margin = 1.5;  // more programs are compared
    const auto answer = find_plan(question, "auto", search_planners());
    ASSERT_TRUE(answer) << answer.error().message;
    size_t compared = 0;
    for (const PlanCandidate& one : answer->simulated) {
      if (!one.step_s || !one.call.empty() || !is_priced_whole(one.choice)) continue;
      ++compared;
      EXPECT_NEAR(one.estimate.step_s / *one.step_s, 1, .12) << style << " " << one.name();
    }
    EXPECT_GE(compared, 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfFrameworks, Styles,
    testing::Values(Styled{"tessera", DType::kBFloat16, .05, .05, .05, .16},
                    Styled{"megatron-2022", DType::kBFloat16, .05, .05, .05, .16},
                    Styled{"megatron-2022", DType::kFloat16, .05, .05, .05, .16},
                    Styled{"deepspeed-2022", DType::kFloat16, .1, .08, .12, .21},
                    Styled{"tessera,fused_attention=false", DType::kFloat16, .05, .05, .05, .16},
                    Styled{"tessera,overlap_gradients=false", DType::kBFloat16, .05, .05, .05,
                           .16}),
    [](const testing::TestParamInfo<Styled>& one) { return "Case" + std::to_string(one.index); });

}  // namespace
}  // namespace tessera
