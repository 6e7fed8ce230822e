// Look-ups of the next batch right after the tables' update (a split of "step"): the run equals the
// serial one, to the last bit where no sum is taken in another order. Where look-ups do not wait
// for the update, the run differs, and is marked so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "row_models.h"
#include "tessera/plan/load.h"
#include "tessera/test/all_cases.h"

namespace tessera {
namespace {

using namespace row_models;  // NOLINT(google-build-using-namespace)

const std::vector<std::string> kOptimizers = {"rowwise_adagrad", "row_adam", "adamw"};

std::string ahead(const std::string& ops, const std::string& over = "ahead") {
  return fmt::format("{{ ops = \"{}\", dim = \"step\", over = \"{}\" }},\n", ops, over);
}

std::string cached(const char* tier, int64_t slots) {
  return fmt::format(
      "store = [{{ tensors = \"{{,optimizer.*.}}table\", tier = \"{}\", cache = {{ slots = {} }} "
      "}}]\n",
      tier, slots);
}

std::string recipe_with_split(const std::string& recipe, const Graph& graph,
                              const std::string& entry) {
  const auto text = load_plan_text(recipe, graph, "test", DType::kFloat64);
  EXPECT_TRUE(text) << recipe << (text ? "" : text.error().message);
  return text ? with_split(text->text, entry) : "";
}

TEST(StepsAheadTest, TrainToTheLastBitHoweverTheTableIsCut) {
  const std::string features = "{feature1,feature3}";
  const auto over = [&](const char* dim, const char* axis) {
    return "{ ops = \"" + features + "\", dim = \"" + dim + "\", over = \"" + axis + "\" },\n";
  };
  const std::string entry = ahead(features);
  const std::vector<std::string> plans = {
      "mesh = { a = 1 }\nsplit = [" + entry + "]\n",
      "mesh = { a = 2 }\nsplit = [" + entry + "{ ops = \"*\", dim = \"batch\", over = \"a\" }]\n",
      "mesh = { a = 3 }\nsplit = [" + entry + over("rows", "a") + "]\n",
      "mesh = { a = 4 }\nsplit = [" + entry + over("width", "a") + "]\n",
      "mesh = { a = 2, b = 3 }\nsplit = [" + entry + over("rows", "b") + over("width", "a") + "]\n",
      "mesh = { a = 2 }\nsplit = [" + entry + "]\npin = [{ ops = \"" + features +
          "\", axis = \"a\", at = 1 }]\n",
      // Rows of the next batch are fetched with those of this batch, which the update writes.
      "mesh = { a = 1 }\nsplit = [" + entry + "]\n" + cached("host", 4),
      "mesh = { a = 3 }\nsplit = [" + entry + over("rows", "a") + "]\n" + cached("host", 3),
      "mesh = { a = 2 }\nsplit = [" + entry + over("width", "a") + "]\n" + cached("disk", 9),
      "mesh = { a = 2 }\nsplit = [" + entry + "]\npin = [{ ops = \"" + features +
          "\", axis = \"a\", at = 1 }]\n" + cached("host", 18),
  };
  const Model model = one_table(18);
  for (const auto& [optimizer, plan] : combinations(kRowOptimizers, plans)) {
    const auto report = verify_model(model, plan, config_of(optimizer, 0, 4));
    ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
    EXPECT_FALSE(report->lossy) << plan;
    EXPECT_LE(report->parameters_error, allowed_error(optimizer, plan)) << optimizer << plan;
    EXPECT_EQ(report->bytes_predicted, report->bytes_counted) << plan;
    EXPECT_EQ(report->peak_predicted, report->peak_counted) << plan;
  }
}

// A loop over the batch moves its look-ups together with the pieces of the ids that they read.
TEST(StepsAheadTest, StepsOfALoopOverTheBatchAreEqualToSerial) {
  const std::string looped = "loop = [{ ops = \"*\", dim = \"batch\", steps = 3 }]\n";
  const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
  const std::vector<std::string> recipes = {"tables(1)", "tables(2)", "tables(2,row)",
                                            "tables(2,column,nodes=2)"};
  for (const auto& [optimizer, recipe] : combinations(kOptimizers, recipes)) {
    const std::string plan = recipe_with_split(recipe, model.graph, ahead("tables.*")) + looped;
    const auto report = verify_model(model, plan, config_of(optimizer, 1, 3));
    ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
    EXPECT_FALSE(report->lossy) << plan;
  }
}

TEST(StepsAheadTest, EveryShardingOfDlrmIsEqualToSerial) {
  for (const std::string& spec : {kDlrm, kDlrm + ",mode=position"}) {
    const bool weighted = spec != kDlrm;
    const Model model = build_model(spec, kBatch, DType::kFloat64).value();
    const std::string entry = ahead(weighted ? "{tables,positions}.*" : "tables.*");
    const std::vector<std::string> recipes = {"tables(1)",
                                              "tables(3)",
                                              "tables(2,row)",
                                              "tables(4,column)",
                                              "tables(2,table_row,nodes=2)",
                                              "tables(2,grid,nodes=3)",
                                              "tables(3,replica)",
                                              "tables(3,zero=1)"};
    for (const auto& [optimizer, recipe] : combinations(kOptimizers, recipes)) {
      const std::string plan = recipe_with_split(recipe, model.graph, entry);
      const auto report = verify_model(model, plan, config_of(optimizer, 1, 3));
      ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
      EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
      EXPECT_FALSE(report->lossy) << plan;
    }
  }
}

TEST(StepsAheadTest, OldValuesAreMarkedAsSuch) {
  const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
  const std::string store =
      "store = [{ tensors = \"{,optimizer.*.}tables.*\", tier = \"host\", cache = { slots = 9 } "
      "}]\n";
  for (const auto& [recipe, more] : std::vector<std::pair<std::string, std::string>>{
           {"tables(1)", ""}, {"tables(2)", ""}, {"tables(3,row)", ""}, {"tables(2,row)", store}}) {
    const std::string plan =
        recipe_with_split(recipe, model.graph, ahead("tables.*", "ahead_stale")) + more;
    const auto report = verify_model(model, plan, config_of("adagrad", 0, 4));
    ASSERT_TRUE(report) << plan << report.error().message;
    EXPECT_TRUE(report->ok) << plan << report->why;
    EXPECT_TRUE(report->lossy) << plan;
    EXPECT_GT(report->loss_error, 1e-9) << plan;  // from the second step on
  }
}

std::string refusal(const std::string& plan) {
  const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
  const auto report = verify_model(model, plan, config_of("adagrad", 0, 1));
  return report ? "" : report.error().message;
}

// Tables of an earlier stage than the ops that read their vectors, of the same stage, and on stages
// that no entry names; on as many ranks as stages and with replicas; with micro-batches of equal
// and unequal sizes, with a cache of rows, with hot rows and with the tables' optimizers.
TEST(StepsAheadTest, PipelinesAndMicroBatchesAreEqualToSerial) {
  const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
  const std::string apart =
      "stage = [{ ops = \"{bottom,tables}\", at = 0 }, { ops = \"{interaction,top,loss}\", at = 1 "
      "}]\n";
  const std::string together =
      "stage = [{ ops = \"{bottom,tables,interaction}\", at = 0 }, { ops = \"{top,loss}\", at = 1 "
      "}]\n";
  const std::string unnamed =
      "stage = [{ ops = \"bottom\", at = 0 }, { ops = \"{top,loss}\", at = 1 }]\n";
  const std::string three =
      "stage = [{ ops = \"tables\", at = 0 }, { ops = \"{bottom,interaction}\", at = 1 }, { ops = "
      "\"{top,loss}\", at = 2 }]\n";
  const std::string by_rows =
      "{ ops = \"*\", dim = \"batch\", over = \"dp\" }, { ops = \"tables\", dim = \"batch\", over "
      "= "
      "[] }, { ops = \"tables\", dim = \"rows\", over = \"dp\" }";
  const std::string hot = "loop = [{ ops = \"tables.0\", dim = \"rows\", sizes = [20, 80] }]\n";
  const std::string cached =
      "store = [{ tensors = \"{,optimizer.*.}tables.*\", tier = \"host\", cache = { slots = 9 } "
      "}]\n";
  const std::string on_disk =
      "store = [{ tensors = \"{,optimizer.*.}tables.*\", tier = \"disk\", cache = { slots = 5, "
      "prefetch = false } }]\n";
  struct Case {
    std::string mesh, splits, more;
  };
  const std::vector<Case> cases = {
      {"pp = 2", "", apart},
      {"pp = 2", "", together},
      {"pp = 2", "", unnamed},
      {"pp = 3", "", three},
      {"pp = 2, dp = 2", by_rows, apart},
      {"pp = 2, dp = 2", by_rows, together},
      {"pp = 2", "", apart + cached},
      {"pp = 2", "", apart + on_disk},
      {"pp = 2, dp = 2", by_rows, apart + hot},
      {"dp = 2", by_rows, ""},
      {"dp = 3", by_rows, ""},
      {"dp = 4", by_rows, hot},
      {"dp = 1", "", cached},
      {"dp = 1", "", on_disk},
  };
  int run = 0;
  for (const Case& one : cases) {
    for (const int64_t micro_batches : {1, 3, 2}) {
      if (!all_cases() && micro_batches != (&one - cases.data()) % 3 + 1) continue;
      const std::string plan =
          fmt::format("mesh = {{ {} }}\nmicro_batches = {}\nsplit = [{}{}]\n{}", one.mesh,
                      micro_batches, ahead("tables.*"), one.splits, one.more);
      const char* optimizer = ++run % 3 == 0 && one.more.find("cache") == std::string::npos
                                  ? "adamw"
                              : run % 2 == 0 ? "rowwise_adagrad"
                                             : "row_adam";
      const auto report = verify_model(model, plan, config_of(optimizer, run % 2, 3));
      ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
      EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
      EXPECT_FALSE(report->lossy) << plan;
      EXPECT_EQ(report->bytes_predicted, report->bytes_counted) << plan;
      EXPECT_EQ(report->peak_predicted, report->peak_counted) << plan;
      const std::string old = plan.substr(0, plan.find("\"ahead\"")) + "\"ahead_stale\"" +
                              plan.substr(plan.find("\"ahead\"") + 7);
      const auto stale = verify_model(model, old, config_of(optimizer, run % 2, 3));
      ASSERT_TRUE(stale) << optimizer << "\n" << old << stale.error().message;
      EXPECT_TRUE(stale->ok) << optimizer << "\n" << old << stale->why;
      EXPECT_TRUE(stale->lossy) << old;
      EXPECT_EQ(stale->bytes_predicted, stale->bytes_counted) << old;
    }
  }
}

TEST(StepsAheadTest, RefuseWhatIsNotThereOneStepEarly) {
  EXPECT_EQ(
      refusal("mesh = { pp = 2 }\nmicro_batches = 2\nschedule = \"1f1b\"\nsplit = [" +
              ahead("tables.*") +
              "]\nstage = [{ ops = \"{bottom,tables,interaction}\", at = 0 }, { ops = "
              "\"{top,loss}\", at = 1 }]\n"),
      "plan:3: schedule: expected \"gpipe\", found \"1f1b\": beside dim \"step\" (line 4) the "
      "2 micro-batches are steps of a loop, all forward and then all backward");
  EXPECT_EQ(
      refusal("mesh = { a = 1 }\nsplit = [" + ahead("top.*") + "]\n"),
      "plan:2: dim \"step\": expected ops that read inputs, parameters and what others of them "
      "make, found op 'top.0', which reads 'interaction.join' of op 'interaction.join'");
  EXPECT_EQ(refusal("mesh = { a = 1 }\nsplit = [" + ahead("tables.*", "later") + "]\n"),
            "plan:2: dim \"step\": expected over = \"ahead\" or \"ahead_stale\", found \"later\"");
}

}  // namespace
}  // namespace tessera
