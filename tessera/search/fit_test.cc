#include "tessera/search/fit.h"
#include "tessera/base/memory_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "tessera/plan/load.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/test_graphs.h"

namespace tessera {
namespace {

class Fit : public testing::Test {
 protected:
  Fit() {
    model_ = std::make_shared<const Graph>(
        test_transformer({.layers = 2, .batch = 16, .seq = 64, .hidden = 64}));
    cluster_ = *load_cluster("dgx-a100:1");
    Device& device = cluster_.parts[0].type.device;
    device.context_bytes = 0;
    device.generation =
        Generation::named("cpu");  // no communication buffers: they dwarf this model
  }
  Result<Simulation> simulate_plan(const Plan& plan) const {
    TESSERA_TRY(const auto lowering, Compiler().lower(model_, plan));
    return simulate(*lowering, cluster_, {});
  }
  Simulation play(const std::string& plan) const {
    const auto loaded = load_plan(plan, *model_);
    EXPECT_TRUE(loaded.has_value());
    const auto simulation = simulate_plan(*loaded);
    EXPECT_TRUE(simulation.has_value()) << (simulation ? "" : simulation.error().message);
    return *simulation;
  }
  Simulation play_any(const Remedy& remedy) const {  // plays the plan that it names
    const auto plan =
        remedy.is_call ? load_plan(remedy.plan, *model_) : parse_plan(remedy.plan, "remedy.toml");
    EXPECT_TRUE(plan.has_value()) << remedy.plan;
    const auto simulation = simulate_plan(*plan);
    EXPECT_TRUE(simulation.has_value()) << remedy.plan;
    return *simulation;
  }
  void give_memory(int64_t bytes) { cluster_.parts[0].type.device.memory_bytes = bytes; }
  static int64_t need(const Simulation& simulation) {
    double most = 0;
    for (const RankResult& role : simulation.roles) most = std::max(most, role.memory.high);
    return static_cast<int64_t>(std::ceil(most));
  }
  FitQuestion question(const std::string& plan) const { return {model_, plan, &cluster_, {}}; }

  std::shared_ptr<const Graph> model_;
  Cluster cluster_;
};

TEST_F(Fit, shortage_is_counted_in_bytes_from_the_upper_bound) {
  const Simulation simulation = play("megatron(pp=2, dp=2, micro_batches=4)");
  give_memory(need(simulation));
  EXPECT_FALSE(find_shortage(simulation, cluster_).has_value());
  give_memory(need(simulation) - 7);
  const auto shortage = find_shortage(simulation, cluster_);
  ASSERT_TRUE(shortage.has_value());
  EXPECT_EQ(shortage->missing_bytes, 7);
  EXPECT_EQ(static_cast<int64_t>(std::ceil(shortage->memory.high)), need(simulation));
  give_memory(0);
  EXPECT_FALSE(find_shortage(simulation, cluster_).has_value()) << "a capacity that is not stated";
}

TEST_F(Fit, names_the_fastest_change_that_fits) {
  const std::string plan = "megatron(dp=4, micro_batches=1)";
  const Simulation simulation = play(plan);
  give_memory(need(simulation) * 4 / 5);
  const auto shortage = find_shortage(simulation, cluster_);
  ASSERT_TRUE(shortage.has_value());
  const auto advice = find_remedies(question(plan));
  ASSERT_TRUE(advice.has_value());
  ASSERT_TRUE(advice->best.has_value());
  const Remedy& best = advice->tried[*advice->best];
  ASSERT_TRUE(best.is_call);
  // The named plan does fit and is as fast as said.
  const Simulation again = play(best.plan);
  EXPECT_FALSE(find_shortage(again, cluster_).has_value());
  EXPECT_EQ(again.step_time_s, best.step_time_s);
  EXPECT_EQ(need(again), best.need_bytes);
  for (const Remedy& remedy : advice->tried) {
    EXPECT_TRUE(!remedy.step_time_s || *remedy.step_time_s >= *best.step_time_s);
    const Simulation tried = play_any(remedy);
    EXPECT_TRUE(!remedy.fits || tried.step_time_s >= *best.step_time_s) << remedy.plan;
  }
  const std::string text = fit_text(*shortage, *advice, simulation.step_time_s);
  EXPECT_NE(text.find(best.plan), std::string::npos) << text;
  const auto missing = static_cast<double>(shortage->missing_bytes);
  EXPECT_NE(text.find(memory_text(missing) + " too much"), std::string::npos) << text;
}

TEST_F(Fit, combines_changes_where_one_is_not_enough) {
  const std::string plan = "megatron(dp=8, micro_batches=1)";
  const Simulation simulation = play(plan);
  int64_t smallest = need(simulation);
  const auto singles = find_remedies(question(plan));
  ASSERT_TRUE(singles.has_value());
  for (const Remedy& remedy : singles->tried) {
    if (remedy.changes.size() == 1) smallest = std::min(smallest, remedy.need_bytes);
  }
  give_memory(smallest - 1);
  const auto advice = find_remedies(question(plan));
  ASSERT_TRUE(advice.has_value());
  ASSERT_TRUE(advice->best.has_value());
  EXPECT_GE(advice->tried[*advice->best].changes.size(), 2U);
}

// A simulation of the plan that a trial names finds what is said of the trial.
TEST_F(Fit, every_change_that_is_named_was_played) {
  const std::string plan = "megatron(dp=8, micro_batches=1)";
  give_memory(need(play("megatron(dp=8, micro_batches=2, zero=1)")));
  const auto advice = find_remedies(question(plan));
  ASSERT_TRUE(advice && advice->best);
  EXPECT_GE(advice->tried.size(), 8U);
  for (const Remedy& remedy : advice->tried) {
    const Simulation again = play_any(remedy);
    EXPECT_EQ(!find_shortage(again, cluster_).has_value(), remedy.fits) << remedy.plan;
    EXPECT_GE(need(again), remedy.need_bytes) << remedy.plan;
    if (!remedy.fits) continue;
    EXPECT_EQ(need(again), remedy.need_bytes) << remedy.plan;
    if (!remedy.step_time_s) continue;
    EXPECT_NEAR(again.step_time_s, *remedy.step_time_s, 1e-3 * again.step_time_s) << remedy.plan;
  }
}

TEST_F(Fit, a_recipe_without_an_argument_becomes_a_plan) {
  const std::string plan = "data_parallel(dp=4)";
  give_memory(need(play(plan)) - 1);
  const auto advice = find_remedies(question(plan));
  ASSERT_TRUE(advice);
  std::set<std::string> names;
  for (const Remedy& remedy : advice->tried) {
    names.insert(remedy.changes[0]);
    EXPECT_EQ(remedy.is_call, remedy.changes[0].starts_with("micro_batches=") ||
                                  remedy.changes[0].starts_with("dp doubled"))
        << remedy.plan;
  }
  EXPECT_TRUE(names.contains("recompute, full"));
  EXPECT_TRUE(names.contains("optimizer state sharded over the replicas"));
  // There are 4 sequences a replica: 2 micro-batches of two, or 4 of one.
  EXPECT_TRUE(names.contains("micro_batches=2"));
  EXPECT_TRUE(names.contains("micro_batches=4"));
  EXPECT_FALSE(names.contains("micro_batches=8"));
}

TEST_F(Fit, recomputes_more_and_takes_nothing_back) {
  const auto tried = [&](const std::string& again) {
    const std::string plan = "megatron(dp=8, micro_batches=1, recompute=" + again + ")";
    give_memory(need(play(plan)) - 1);
    const auto advice = find_remedies(question(plan));
    std::set<std::string> values;
    if (!advice) return values;
    for (const Remedy& remedy : advice->tried) {
      const size_t begin = remedy.plan.find("recompute=");
      if (remedy.changes.size() > 1 || begin == std::string::npos) continue;
      const size_t value = begin + 10;
      values.insert(remedy.plan.substr(value, remedy.plan.find_first_of(",)", value) - value));
    }
    return values;
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(tried("none"), (Set{"norm+act", "selective", "full"}));
  EXPECT_EQ(tried("mlp"), (Set{"mlp", "mlp+norm+act", "mlp+selective", "full"}));
  EXPECT_EQ(tried("selective"), (Set{"selective", "full"}));
}

// The bound is not a time: the answer is the same on every machine, and a larger bound begins
// alike.
TEST_F(Fit, is_bounded_by_a_number_of_evaluations) {
  const std::string plan = "megatron(dp=8, micro_batches=1)";
  const Simulation simulation = play(plan);
  give_memory(1000);
  const auto shortage = find_shortage(simulation, cluster_);
  ASSERT_TRUE(shortage);
  const auto all = find_remedies(question(plan));
  ASSERT_TRUE(all);
  EXPECT_LE(all->tried.size() + all->refused, kMostEvaluations);
  for (const size_t most : {0, 3, 7}) {
    FitQuestion few = question(plan);
    few.most_evaluations = most;
    const auto advice = find_remedies(few);
    ASSERT_TRUE(advice);
    EXPECT_EQ(advice->tried.size() + advice->refused, most);
    EXPECT_TRUE(advice->cut_short);
    for (size_t i = 0; i < advice->tried.size(); ++i)
      EXPECT_EQ(advice->tried[i].plan, all->tried[i].plan);
    EXPECT_NE(fit_text(*shortage, *advice, 1).find("; --evaluations ended the search)"),
              std::string::npos);
  }
}

TEST_F(Fit, counts_what_the_model_refuses) {
  const std::string plan = "megatron(pp=2, dp=2, micro_batches=2)";  // 2 blocks: not 4 stages
  const Simulation simulation = play(plan);
  give_memory(1000);
  const auto shortage = find_shortage(simulation, cluster_);
  const auto advice = find_remedies(question(plan));
  ASSERT_TRUE(shortage && advice);
  EXPECT_GT(advice->refused, 0U);
  EXPECT_LE(advice->tried.size() + advice->refused, 40U);
  const std::string text = fit_text(*shortage, *advice, 1);
  EXPECT_NE(text.find(std::to_string(advice->tried.size()) + " changes tried, " +
                      std::to_string(advice->refused) + " more are not possible"),
            std::string::npos)
      << text;
}

TEST_F(Fit, edits_plan_files_by_their_text) {
  const std::string path = testing::TempDir() + "/fit_test_plan.toml";
  std::ofstream(path) << *emit_recipe("data_parallel(dp=4)", *model_);
  const Simulation simulation = play(path);
  give_memory(need(simulation) * 4 / 5);
  const auto advice = find_remedies(question(path));
  ASSERT_TRUE(advice.has_value());
  ASSERT_TRUE(advice->best.has_value());
  const Remedy& best = advice->tried[*advice->best];
  EXPECT_FALSE(best.is_call);
  const auto plan = parse_plan(best.plan, "remedy.toml");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto again = simulate_plan(*plan);
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(find_shortage(*again, cluster_).has_value());
}

TEST_F(Fit, says_so_if_nothing_helps) {
  const std::string plan = "megatron(dp=2, micro_batches=1)";
  const Simulation simulation = play(plan);
  give_memory(1000);
  const auto shortage = find_shortage(simulation, cluster_);
  const auto advice = find_remedies(question(plan));
  ASSERT_TRUE(shortage.has_value() && advice.has_value());
  EXPECT_FALSE(advice->best.has_value());
  EXPECT_NE(fit_text(*shortage, *advice, 1).find("no change of the plan"), std::string::npos);
}

}  // namespace
}  // namespace tessera
