#include "tessera/search/own_dims.h"

#include <gtest/gtest.h>

#include "tessera/search/planners/test_questions.h"
#include "tessera/search/spaces.h"

namespace tessera {
namespace {

// Convolutions with much work and few parameters stand before dense layers with many parameters, on
// cards with slow links: convolutions are better cut by the batch, dense layers by their features.
const char* const kConvolutionsAndDense = "alexnet:dense=1024-1024,dropout=0";

struct Searched {
  explicit Searched(const std::string& model) {
    asked = ask(model, "2080ti:1", 64);
    search = PlanSearch::begin(asked->question).value();
    ranking.emplace(asked->question, search->fold(), search->pricer());
    space = whole_space(*ranking).value();
    own.emplace(*search, *ranking);
  }
  // Returns a simulated candidate with so many replicas.
  PlanCandidate replicas(int64_t count) {
    PlanCandidate out;
    out.choice.axes = {{"dp", count, {"batch"}}};
    EXPECT_TRUE(ranking->estimate_own(out));
    judge(out);
    return out;
  }
  void judge(PlanCandidate& candidate) {
    search->judge_plan(search->plan_of(candidate.choice).value(), candidate);
    EXPECT_EQ(candidate.refused, "");
    ASSERT_TRUE(candidate.step_s.has_value());
  }

  std::unique_ptr<Asked> asked;
  std::unique_ptr<PlanSearch> search;
  std::optional<Ranking> ranking;
  Space space;
  std::optional<OwnDims> own;
};

TEST(OwnDims, DenseLayersBehindConvolutionsAreCutOtherwise) {
  Searched searched(kConvolutionsAndDense);
  const PlanCandidate from = searched.replicas(8);
  std::vector<PlanCandidate> edits = searched.own->edits(from, searched.space);
  ASSERT_FALSE(edits.empty());
  double best_s = *from.step_s;
  for (PlanCandidate& edit : edits) {
    EXPECT_LT(edit.estimate.step_s, from.estimate.step_s) << edit.choice.str();
    ASSERT_EQ(edit.choice.units.size(), searched.search->fold().units.size());
    EXPECT_EQ(edit.choice.ranks(), 8);
    searched.judge(edit);
    best_s = std::min(best_s, *edit.step_s);
    // Choices with units of their own dims have no edits of this kind.
    EXPECT_TRUE(searched.own->edits(edit, searched.space).empty());
  }
  EXPECT_LT(best_s, .7 * *from.step_s);
  // Its convolutions still cut the batch, and not all of its units do.
  const std::string text = write_plan(edits.front().choice, searched.search->forward(),
                                      searched.search->fold().units, "")
                               .value();
  EXPECT_NE(text.find("dim = \"batch\""), std::string::npos) << text;
  EXPECT_EQ(text.find("{ ops = \"*\", dim = \"batch\""), std::string::npos) << text;
}

TEST(OwnDims, EqualLayersStayEqual) {
  Searched searched("gpt:layers=6,hidden=256,heads=4,seq=128,vocab=8192");
  const std::vector<PlanCandidate> edits =
      searched.own->edits(searched.replicas(8), searched.space);
  ASSERT_FALSE(edits.empty());
  const std::vector<FoldUnit>& units = searched.search->fold().units;
  for (const PlanCandidate& edit : edits) {
    for (size_t u = 1; u < units.size(); ++u) {
      if (units[u].run >= 0 && units[u].run == units[u - 1].run &&
          units[u].stand_in == units[u - 1].stand_in) {
        EXPECT_EQ(edit.choice.units[u], edit.choice.units[u - 1]) << edit.choice.str();
      }
    }
  }
}

TEST(OwnDims, LeavesWhatIsFixedAndWhatItCannotEdit) {
  Searched searched(kConvolutionsAndDense);
  const PlanCandidate from = searched.replicas(8);
  PlanCandidate sliced = from, apart = from, recipe = from, one = from;
  sliced.choice.slices = {16, 16};
  apart.choice.replicas_apart = true;
  recipe.call = "zero(stage=1, dp=8)";
  one.choice.axes.front().size = 1;
  for (const PlanCandidate& other : {sliced, apart, recipe, one})
    EXPECT_TRUE(searched.own->edits(other, searched.space).empty()) << other.name();
  for (const char* key : {"dp", "tp"}) {
    searched.asked->question.fixed = {{key, key == std::string("dp") ? "8" : "1"}};
    EXPECT_TRUE(searched.own->edits(from, searched.space).empty()) << key;
  }
}

// The whole search finds such units: its answer is faster than that of the same space in which
// lists are not edited and units have no dims of their own.
TEST(OwnDims, MakeTheAnswerFaster) {
  const auto asked = ask("alexnet:dropout=0", "2080ti:1", 64);
  asked->question.fixed = {{"pp", "1"}, {"zero", "0"}};
  asked->question.evaluations = 16;
  const PlanAnswer with = find_in_space(asked->question, whole_space).value();
  expect_sound(with, asked->question);
  const auto without_own = [](Ranking& ranking) -> Result<Space> {
    TESSERA_TRY(Space space, whole_space(ranking));
    space.own_lists = false;
    return space;
  };
  const PlanAnswer without = find_in_space(asked->question, without_own).value();
  EXPECT_LT(step_of(with), .99 * step_of(without));
}

}  // namespace
}  // namespace tessera
