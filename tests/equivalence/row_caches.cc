// Tables only some rows of which are on the device: under every policy, and however the table is
// cut besides, training gives the serial run's result; to the last bit where no sum is taken in
// another order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "row_models.h"
#include "tessera/plan/load.h"
#include "tessera/program/rows/row_caches.h"
#include "tessera/sparse/cache/replay.h"

namespace tessera {
namespace {

using namespace row_models;  // NOLINT(google-build-using-namespace)

std::string store(const std::string& tensors, const std::string& tier, const std::string& cache) {
  return fmt::format(
      "store = [{{ tensors = \"{{,optimizer.*.}}{}\", tier = \"{}\", cache = {{ {} }} }}]\n",
      tensors, tier, cache);
}

TEST(RowCachesTest, TrainToTheLastBitUnderEveryPolicyAndCut) {
  const std::string features = "{feature1,feature3}";
  const auto over = [&](const char* dim, const char* axis) {
    return "{ ops = \"" + features + "\", dim = \"" + dim + "\", over = \"" + axis + "\" }";
  };
  const std::vector<std::string> cuts = {
      "mesh = { a = 1 }\n",
      "mesh = { a = 2 }\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"a\" }]\n",
      "mesh = { a = 3 }\nsplit = [" + over("rows", "a") + "]\n",
      "mesh = { a = 2 }\npin = [{ ops = \"" + features + "\", axis = \"a\", at = 1 }]\n",
      "mesh = { a = 4 }\nsplit = [" + over("width", "a") + "]\n",
      "mesh = { a = 2, b = 2 }\nsplit = [" + over("rows", "b") + ", " + over("width", "a") + "]\n",
  };
  const std::vector<std::string> caches = {
      "slots = 48, policy = \"lookahead\", window = 3",  // all open rows find a slot
      "slots = 7, policy = \"lookahead\", window = 2, counted = 2",
      "slots = 0.4, policy = \"lfu\", prefetch = false",
      "slots = 5, policy = \"lru\"",
      "slots = 20, policy = \"dataset\", counted = 3",
      "slots = 60",
  };
  const Model model = one_table(60);
  size_t turn = 0;
  for (const std::string& optimizer : kRowOptimizers) {
    for (const std::string& cut : cuts) {
      for (const char* tier : {"host", "disk"}) {
        const std::string plan = cut + store("table", tier, caches[turn++ % caches.size()]);
        const auto report = verify_model(model, plan, config_of(optimizer, 0, 6));
        ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
        EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
        EXPECT_LE(report->parameters_error, allowed_error(optimizer, plan)) << optimizer << plan;
        EXPECT_EQ(report->peak_predicted, report->peak_counted) << plan;
      }
    }
  }
}

// Compares a recommender on one rank: losses, gradients, parameters, each policy and optimizer.
TEST(RowCachesTest, ARecommenderIsTheSerialOneToTheLastBit) {
  for (const std::string& optimizer : kRowOptimizers) {
    for (const std::string& policy : row_cache_policies()) {
      for (const char* slots : {"0.1", "0.9"}) {
        const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
        const std::string plan =
            store("tables.*", "host",
                  fmt::format("slots = {}, policy = \"{}\", counted = 2", slots, policy));
        const auto report = verify_model(model, plan, config_of(optimizer, 1, 4));
        ASSERT_TRUE(report) << plan << report.error().message;
        EXPECT_TRUE(report->ok) << plan << report->why;
        EXPECT_EQ(report->parameters_error + report->loss_error + report->gradients_error, 0)
            << optimizer << plan;
      }
    }
  }
}

TEST(RowCachesTest, EveryShardingOfDlrmIsEqualToSerial) {
  const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
  for (const std::string& optimizer : kRowOptimizers) {
    for (const char* recipe :
         {"tables(3)", "tables(2,row)", "tables(2,table_row,nodes=2)", "tables(3,replica)",
          "tables(4,column)", "tables(2,micro_batches=2)", "tables(2,row,micro_batches=5)"}) {
      const auto text = load_plan_text(recipe, model.graph, "test", DType::kFloat64);
      ASSERT_TRUE(text) << recipe << text.error().message;
      const std::string plan = text->text + store("tables.*", "host", "slots = 0.3");
      const auto report = verify_model(model, plan, config_of(optimizer, 1, 3));
      ASSERT_TRUE(report) << plan << report.error().message;
      EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
    }
  }
}

std::string refusal(const std::string& plan, const std::string& optimizer) {
  const Model model = build_model(kDlrm, kBatch, DType::kFloat64).value();
  const auto report = verify_model(model, plan, config_of(optimizer, 0, 1));
  return report ? "" : report.error().message;
}

TEST(RowCachesTest, RefuseWhatNeedsAllRows) {
  const std::string cache = "slots = 4", own = store("tables.0.weight", "host", cache);
  EXPECT_EQ(refusal(own, "adamw"),
            "plan:1: cache of tensor 'tables.0.weight': expected ops that name rows by ids (a "
            "look-up, an optimizer that updates by rows), found op 'optimizer.tables.0.weight' "
            "(adamw), which needs all rows");
  EXPECT_EQ(
      refusal("store = [{ tensors = \"tables.*\", tier = \"host\", cache = { slots = 4 } }]\n",
              "adagrad"),
      "plan:1: cache of tensor 'tables.0.weight': expected the same cache for "
      "'optimizer.sum.tables.0.weight', as a row travels with its states (tensors = "
      "\"{,optimizer.*.}tables.0.weight\")");
  const std::string dense = "mesh = { a = 1 }\n" + store("top.0.weight", "host", cache);
  EXPECT_EQ(
      refusal(dense, "row_sgd"),
      "plan:2: cache of tensor 'top.0.weight': expected ops that name rows by ids (a look-up, "
      "an optimizer that updates by rows), found op 'top.0' (einsum), which needs all rows");
}

TEST(RowCachesTest, PoliciesOfPlansAreThoseOfTheCache) {
  for (const std::string& policy : row_cache_policies())
    EXPECT_TRUE(sparse::cache_policy(policy)) << policy;
}

// Compares the misses of a cache that keeps the most frequent rows, for look-ups by Zipf's law: by
// the formula, and by replay of a trace.
TEST(RowCachesTest, ExpectedRowsAreThoseOfAReplay) {
  for (const double exponent : {0.9, 1.2}) {
    sparse::ZipfTrace what;
    what.rows = 20'000;
    what.batches = 40;
    what.batch = 1024;
    what.exponent = exponent;
    const sparse::LookupTrace trace = sparse::make_trace(what);
    // The counts of the law itself, taken from a much longer trace.
    sparse::ZipfTrace longer = what;
    longer.batches = 400;
    const std::vector<int64_t> counts = sparse::make_trace(longer).counts(what.rows);
    for (const int64_t slots : {1'000, 4'000}) {
      sparse::CacheOptions options;
      options.rows = what.rows;
      options.slots = slots;
      options.policy = "dataset";
      options.counts = counts;
      sparse::ReplayOptions how;
      how.warm = 1;
      const auto replayed = sparse::replay(trace, options, how);
      ASSERT_TRUE(replayed);
      const double counted =
          static_cast<double>(replayed->rows_in) / static_cast<double>(what.batches);
      const double expected = expected_rows_behind(slots, what.rows, 1024, exponent);
      EXPECT_NEAR(expected / counted, 1, 0.1) << exponent << " " << slots;
    }
  }
}

}  // namespace
}  // namespace tessera
