// Tests imam: cells of points, causal logits, parts that give equal numbers, plans of recipes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/testing.h"

namespace tessera::imam_test {
namespace {

using testing::Workspace;
using Values = std::vector<double>;

const std::string kShapes =
    "imam:points=12,queries=6,plane=8,features=4,downs=1,middle=1,depth=2,codes=7,code_width=3,"
    "code_init=1";
const std::string kTokens =
    "imam:part=transformer,points=12,plane=4,features=2,downs=1,middle=1,depth=1,codes=7,"
    "code_width=3,code_init=1,layers=2,hidden=8,heads=2,classes=3";

// Computes the forward values of a model with its initial parameters.
class Forward {
 public:
  explicit Forward(const std::string& spec, int64_t batch)
      : model_(build_model(spec, batch, DType::kFloat64)), workspace_(model_->graph, 3) {
    workspace_.initialise();
  }
  void set(const std::string& name, const Values& values) {
    workspace_.set(model_->graph.find_tensor(name), values);
  }
  Values get(const std::string& name) {
    workspace_.run();
    return workspace_.get(model_->graph.find_tensor(name));
  }
  const Graph& graph() const { return model_->graph; }

 private:
  Result<Model> model_;
  Workspace workspace_;
};

TEST(Imam, CellsOfPointsAreTheirPlacesInEachPlane) {
  constexpr int64_t kPlane = 8, kPoints = 12;
  Forward net(kShapes, 1);
  Values points;
  for (int64_t i = 0; i < 3 * kPoints; ++i)
    points.push_back(std::sin(static_cast<double>(7 * i + 1)));
  points[0] = 5;  // outside: the last cell
  net.set("points", points);
  const Values ids = net.get("encoder.cells.ids");
  const auto cell = [&](int64_t point, int64_t axis) {
    const double x = points[static_cast<size_t>(3 * point + axis)];
    return std::clamp<int64_t>(static_cast<int64_t>(std::floor((x + 1) / 2 * kPlane)), 0,
                               kPlane - 1);
  };
  const int64_t axes[3][2] = {{0, 2}, {0, 1}, {1, 2}};  // xz, xy, yz
  ASSERT_EQ(ids.size(), static_cast<size_t>(3 * kPoints));
  for (int64_t plane = 0; plane < 3; ++plane) {
    for (int64_t i = 0; i < kPoints; ++i) {
      EXPECT_EQ(ids[static_cast<size_t>(plane * kPoints + i)],
                static_cast<double>(kPlane * cell(i, axes[plane][0]) + cell(i, axes[plane][1])))
          << plane << " " << i;
    }
  }
}

TEST(Imam, LogitsOfATokenKnowTheTokensBeforeItAlone) {
  constexpr int64_t kSeq = 16, kVocab = 7;
  Forward net(
      "imam:part=sequence,plane=8,downs=1,middle=1,depth=1,codes=7,layers=2,hidden=8,heads=2,"
      "classes=3,dropout=0,mlp_dropout=0",
      1);
  Values tokens;
  for (int64_t i = 0; i < kSeq; ++i) tokens.push_back(static_cast<double>(i * i % kVocab));
  net.set("classes", {1});
  net.set("tokens", tokens);
  net.set("targets", tokens);
  const Values before = net.get("head.biased");
  for (const int64_t k : {int64_t{0}, int64_t{5}, kSeq - 1}) {
    Values changed = tokens;
    auto& token = changed[static_cast<size_t>(k)];
    token = token == 0 ? 1 : 0;
    net.set("tokens", changed);
    const Values after = net.get("head.biased");
    const auto behind = static_cast<std::ptrdiff_t>((k + 1) * kVocab);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + behind, after.begin())) << k;
    const bool last = k == kSeq - 1;
    EXPECT_EQ(std::equal(before.begin() + behind, before.end(), after.begin() + behind), last) << k;
  }
  net.set("tokens", tokens);
  net.set("classes", {2});
  EXPECT_NE(net.get("head.biased")[0], before[0]);
}

TEST(Imam, PartsMakeTheSameNumbersOfTheSameCodes) {
  Forward whole(kShapes, 1);
  Values points, queries;
  for (int64_t i = 0; i < 36; ++i) points.push_back(std::sin(static_cast<double>(5 * i + 1)));
  for (int64_t i = 0; i < 18; ++i) queries.push_back(std::cos(static_cast<double>(3 * i + 1)));
  whole.set("points", points);
  whole.set("queries", queries);
  const Values ids = whole.get("quantise.ids"), made = whole.get("decoder.out");
  Forward decoder("imam:part=decoder," + kShapes.substr(kShapes.find(':') + 1), 1);
  decoder.set("tokens", ids);
  decoder.set("queries", queries);
  EXPECT_LT(testing::relative_error(decoder.get("decoder.out"), made), 1e-12);
}

// tests/matrix runs plans that cut the codebook or the planes, or separate the frozen part.
TEST(Imam, RecipesComputeWhatTheSerialPlanDoes) {
  for (const auto& [model, plan] : {std::pair{kShapes, "zero(3,2)"},
                                    {kShapes, "data_parallel(3)"},
                                    {kShapes, "filter_parallel(2)"},
                                    {kShapes, "spatial(h=2, channels=2)"},
                                    {kTokens, "megatron(tp=2,dp=3)"}}) {
    VerifyConfig config;
    config.model = model;
    config.plan = plan;
    config.batch = 6;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

}  // namespace
}  // namespace tessera::imam_test
