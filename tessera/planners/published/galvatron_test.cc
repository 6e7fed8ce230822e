#include "tessera/planners/published/galvatron.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera::published {
namespace {

GalvatronSearch search_of(const char* model, const char* space, int64_t memory_mb) {
  return {*galvatron_model(model), rtx_titan_links(), strategies_of(space), memory_mb};
}

double best_throughput(const GalvatronSearch& search, int64_t most_batch) {
  double best = 0;
  for (int64_t batch = 8; batch <= most_batch; batch += 8) {
    const auto plan = best_plan(search, batch);
    if (plan) best = std::max(best, plan->throughput());
  }
  return best;
}

TEST(Galvatron, NamesOfStrategiesDiffer) {
  const auto all = strategies_of("full");
  EXPECT_EQ(all.size(), static_cast<size_t>(count_strategies(8, false, false)));
  std::set<std::string> names;
  for (const GalvatronStrategy& strategy : all) names.insert(to_string(strategy));
  EXPECT_EQ(names.size(), all.size());
  EXPECT_TRUE(names.contains("1-2*-4f"));
}

TEST(Galvatron, SpacesHoldWhatTheirNamesSay) {
  const auto names = [](const char* space) {
    std::vector<std::string> out;
    for (const auto& strategy : strategies_of(space)) out.push_back(to_string(strategy));
    return out;
  };
  EXPECT_EQ(names("dp"), (std::vector<std::string>{"1-1-8"}));
  EXPECT_EQ(names("sdp"), (std::vector<std::string>{"1-1-8f"}));
  EXPECT_EQ(names("tp"), (std::vector<std::string>{"1-8-1"}));
  EXPECT_EQ(names("pp"), (std::vector<std::string>{"8-1-1"}));
  EXPECT_EQ(names("dp+tp"),
            (std::vector<std::string>{"1-1-8", "1-2*-4", "1-2-4*", "1-4*-2", "1-4-2*", "1-8-1"}));
  EXPECT_EQ(names("dp+pp"), (std::vector<std::string>{"1-1-8", "2-1-4", "4-1-2", "8-1-1"}));
  EXPECT_TRUE(names("no such space").empty());
}

// Throughput never falls with memory, nor with a larger set of strategies.
TEST(Galvatron, MoreMemoryAndMoreStrategiesAreNeverSlower) {
  for (const std::string& model : galvatron_models()) {
    double before = 0;
    for (const int64_t memory_mb : {8192, 12288}) {
      const double full = best_throughput(search_of(model.c_str(), "full", memory_mb), 24);
      EXPECT_GE(full, before) << model;
      before = full;
      for (const char* space : {"dp", "sdp", "tp", "pp", "dp+tp", "dp+pp"}) {
        const double part = best_throughput(search_of(model.c_str(), space, memory_mb), 24);
        EXPECT_GE(full, part) << model << " " << space;
      }
    }
  }
}

TEST(Galvatron, APlanFitsAndSaysWhatIsLeft) {
  const auto plan = best_plan(search_of("T5-Large-48", "full", 12288), 8);
  ASSERT_TRUE(plan.has_value());
  size_t layers = 0;
  for (const GalvatronStage& stage : plan->stage) {
    EXPECT_GE(stage.left_mb, 0);
    EXPECT_EQ(stage.left_mb + stage.memory_mb, 12288);
    layers += stage.layers.size();
  }
  EXPECT_EQ(layers, 48u);
  EXPECT_FALSE(best_plan(search_of("T5-Large-48", "full", 2000), 8).has_value());
}

TEST(Galvatron, StagesAreFilledFromTheLastUpToTheAverage) {
  EXPECT_EQ(divide_by_memory({1, 1, 1, 1}, {0, 0}), (std::vector<size_t>{2, 2}));
  // Other memory of the first stage leaves it fewer layers.
  EXPECT_EQ(divide_by_memory({1, 1, 1, 1}, {2, 0}), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(divide_by_memory({1, 1, 1, 1}, {100, 0}), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(divide_by_memory({4, 1, 1, 1, 1}, {0, 0}), (std::vector<size_t>{1, 4}));
  // A context on every stage moves no layer; half of a layer of 1 would not fit below 1.75 - 1.5.
  EXPECT_EQ(divide_by_memory({1, 1, 1, 1}, {5, 5}), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(divide_by_memory({1, 1}, {0, 1.5}), (std::vector<size_t>{1, 1}));
}

}  // namespace
}  // namespace tessera::published
