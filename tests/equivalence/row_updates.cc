// Tables that are updated by rows: whatever holds the rows, on however many ranks, the update is
// that of the serial run; to the last bit where no sum is taken in another order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "row_models.h"
#include "tessera/plan/load.h"
#include "tessera/test/all_cases.h"

namespace tessera {
namespace {

using namespace row_models;  // NOLINT(google-build-using-namespace)

const std::string kGpt = "gpt:layers=2,hidden=12,heads=4,seq=4,vocab=10,ffn=20,tied=0";
const std::string kSmall = "dlrm:dense=4,rows=20-10,width=4,bottom=4,top=4-1";

// Expects one table of 18 rows to end as in the serial run, under each of the plans and optimizers:
// parameters as near as allowed_error says, bytes as predicted.
void expect_as_serial(const std::vector<std::string>& plans) {
  const Model model = one_table(18);
  for (const auto& [optimizer, plan] : combinations(kRowOptimizers, plans)) {
    const auto report = verify_model(model, plan, config_of(optimizer, 0));
    ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
    EXPECT_LE(report->parameters_error, allowed_error(optimizer, plan)) << optimizer << plan;
    EXPECT_EQ(report->bytes_predicted, report->bytes_counted) << plan;
  }
}

TEST(RowUpdatesTest, AreTheSerialOnesToTheLastBitHoweverTheTableIsCut) {
  const std::string features = "{feature1,feature3}";
  const std::vector<std::string> plans = {
      "mesh = { a = 2 }\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"a\" }]\n",
      "mesh = { a = 3 }\nsplit = [{ ops = \"" + features + "\", dim = \"rows\", over = \"a\" }]\n",
      "mesh = { a = 4 }\nsplit = [{ ops = \"" + features + "\", dim = \"rows\", over = \"a\" }]\n",
      "mesh = { a = 3 }\nsplit = [{ ops = \"" + features + "\", dim = \"width\", over = \"a\" }]\n",
      "mesh = { a = 2, b = 3 }\nsplit = [\n  { ops = \"" + features +
          "\", dim = \"rows\", over = \"b\" },\n  { ops = \"" + features +
          "\", dim = \"width\", over = \"a\" },\n]\n",
      "mesh = { a = 2 }\nprecision = { loss_scale = 128 }\npin = [{ ops = "
      "\"" +
          features + "\", axis = \"a\", at = 1 }]\n",
      "mesh = { a = 2 }\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"a\" }]\n"
      "store = [{ tensors = \"table\", over = \"a\" }]\n",
      "mesh = { a = 2 }\nsplit = [{ ops = \"" + features +
          "\", dim = \"rows\", over = \"a\" }]\n"
          "store = [{ tensors = \"{,optimizer.*.}table\", tier = \"host\" }]\n",
      "mesh = { a = 2 }\npin = [{ ops = \"" + features +
          "\", axis = \"a\", at = 1 }]\n"
          "store = [{ tensors = \"{,optimizer.*.}table\", tier = \"disk\" }]\n",
  };
  expect_as_serial(plans);
}

TEST(RowUpdatesTest, EveryShardingOfDlrmIsEqualToSerialWithClipping) {
  const std::vector<std::string> plans = {"tables(3)",
                                          "tables(2,row)",
                                          "tables(4,column)",
                                          "tables(2,table_row,nodes=2)",
                                          "tables(2,grid,nodes=3)",
                                          "tables(3,replica,zero=2)",
                                          "tables(2,zero=3)"};
  for (const auto& [optimizer, plan] : combinations(kRowOptimizers, plans)) {
    VerifyConfig config = config_of(optimizer, 1);
    config.model = kDlrm;
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << optimizer << " " << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << " " << plan << ": " << report->why;
  }
}

// The first rows of a table lie on every rank; the others are cut or on one rank. A loop over the
// rows makes two tables of it, each with its own splits.
const std::string kFeatures = "{feature1,feature3}", kRest = "{feature1#1,feature3#1}";

std::string hot_plan(const std::string& mesh, const std::string& splits,
                     const std::string& more = "") {
  return "mesh = { " + mesh + " }\nloop = [{ ops = \"" + kFeatures +
         "\", dim = \"rows\", sizes = [5, 13] }]\nsplit = [\n  { ops = \"*\", dim = \"batch\", "
         "over = "
         "\"a\" },\n" +
         splits + "]\n" + more;
}

std::string of_rest(const std::string& dim, const std::string& over) {
  return "  { ops = \"" + kRest + "\", dim = \"" + dim + "\", over = " + over + " },\n";
}

TEST(RowUpdatesTest, HotRowsOnEveryRankAreTheSerialOnesToTheLastBit) {
  const std::string whole = of_rest("batch", "[]"), by_rows = whole + of_rest("rows", "\"a\"");
  const std::vector<std::string> plans = {
      hot_plan("a = 1", ""),
      hot_plan("a = 2", by_rows),
      hot_plan("a = 3", whole, "pin = [{ ops = \"" + kRest + "\", axis = \"a\", at = 1 }]\n"),
      hot_plan("a = 4", whole + of_rest("width", "\"a\"")),
      hot_plan("a = 2, b = 3", whole + of_rest("width", "\"a\"") + of_rest("rows", "\"b\"")),
      hot_plan("a = 2", by_rows, "store = [{ tensors = \"table#0\", over = \"a\" }]\n"),
      hot_plan(
          "a = 2", by_rows,
          "store = [{ tensors = \"{,optimizer.*.}table#1\", tier = \"host\", cache = { slots = 4 "
          "} }]\n"),
      hot_plan("a = 2",
               "  { ops = \"" + kFeatures + "\", dim = \"step\", over = \"ahead\" },\n" + by_rows),
  };
  expect_as_serial(plans);
}

// The recipe makes the plans. The optimizers include some that make gradients of the table's size,
// and the bags include means and weights, whose divisors are of the whole bag.
TEST(RowUpdatesTest, TablesWithHotRowsAreEqualToSerial) {
  std::vector<std::string> optimizers = kRowOptimizers;
  optimizers.insert(optimizers.end(), {"adamw", "sgd"});
  std::vector<std::pair<std::string, std::string>> ways;  // optimizers, modes
  for (const std::string& optimizer : optimizers) {
    for (const char* mode : {"sum", "mean", "position"}) {
      const bool one_of_each = optimizer == "rowwise_adagrad" || optimizer == "adamw";
      if (mode == std::string_view("sum") || one_of_each) ways.emplace_back(optimizer, mode);
    }
  }
  const std::vector<std::string> plans = {"tables(3,hot=20)",
                                          "tables(2,row,hot=10)",
                                          "tables(4,column,hot=7)",
                                          "tables(2,table_row,nodes=2,hot=30)",
                                          "tables(2,grid,nodes=3,hot=40)",
                                          "tables(3,replica,hot=10)",
                                          "tables(2,row,hot=10,micro_batches=3,zero=1)"};
  for (const auto& [way, plan] : combinations(ways, plans)) {
    const auto& [optimizer, mode] = way;
    VerifyConfig config = config_of(optimizer, 1);
    config.model = fmt::format("{},mode={}", kDlrm, mode);
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << optimizer << " " << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << " " << plan << ": " << report->why;
  }
}

// The first rows of a vocabulary lie on every rank. Each look-up is of one row: that row plus zeros
// from the other piece gives the row.
TEST(RowUpdatesTest, HotRowsOfAVocabularyAreTheSerialOnesToTheLastBit) {
  GraphBuilder g("tokens");
  const Dim batch{"batch", kBatch}, seq{"seq", 3}, hidden{"hidden", 6};
  const TensorId table =
      g.parameter("table", {{"vocab", 18}, hidden}, {Init::Kind::kNormal, 1}, DType::kFloat64);
  const TensorId ids = g.input("tokens", {batch, seq}, DType::kInt64);
  const TensorId c = g.input("c", {batch, seq, hidden}, DType::kFloat64);
  const TensorId product = g.op1("product", "mul", {g.op1("embed", "embedding", {ids, table}), c});
  g.graph().loss = g.op1("loss", "reduce_sum", {product}, {{"dims", "batch seq hidden"}});
  Model model;
  InputRule rule;
  rule.input = "tokens";
  rule.values = 18;
  model.inputs.push_back(rule);
  model.batch = kBatch;
  model.graph = g.finish().value();
  const std::string rest = "{ ops = \"embed#1\", dim = ";
  const std::vector<std::string> ends = {
      std::string("]\n"),
      rest + "\"vocab\", over = \"a\" }]\n",
      rest + "\"hidden\", over = \"a\" }]\n",
      std::string("]\npin = [{ ops = \"embed#1\", axis = \"a\", at = 1 }]\n"),
      rest +
          "\"vocab\", over = \"a\" }]\nstore = [{ tensors = "
          "\"{,optimizer.*.}table#1\", tier = \"host\", cache = { slots = 4 } }]\n",
      "{ ops = \"embed\", dim = \"step\", over = \"ahead\" }, " + rest +
          "\"vocab\", over = \"a\" }]\n"};
  for (const auto& [optimizer, more] : combinations(kRowOptimizers, ends)) {
    const std::string plan =
        "mesh = { a = 3 }\nloop = [{ ops = \"embed\", dim = \"vocab\", sizes = [5, 13] }]\n"
        "split = [{ ops = \"*\", dim = \"batch\", over = \"a\" }, { ops = \"embed#1\", dim = "
        "\"batch\", over = [] }, " +
        more;
    const auto report = verify_model(model, plan, config_of(optimizer, 0));
    ASSERT_TRUE(report) << optimizer << "\n" << plan << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << "\n" << plan << report->why;
    const bool in_parts = more.find("hidden") != std::string::npos;
    EXPECT_LE(report->parameters_error, in_parts ? 1e-14 : 0) << optimizer << plan;
    EXPECT_EQ(report->bytes_predicted, report->bytes_counted) << plan;
  }
}

// Returns a configuration in which only the table has the given optimizer. Adagrad would turn
// gradients that are only rounding, such as those of the keys' biases, into whole steps of the
// learning rate.
VerifyConfig config_of_tokens(const std::string& optimizer) {
  VerifyConfig config = config_of("adamw", 1);
  OptimizerGroup tables{"embed.*"};
  tables.kind = optimizer;
  config.optimizer.groups = {tables};
  return config;
}

// Language models by the recipe, also with gradients of the table's size, and with two look-ups of
// one table.
TEST(RowUpdatesTest, LanguageModelsWithHotRowsAreEqualToSerial) {
  const std::string t5 = "t5:layers=1,heads=2,hidden=12,seq=4,source=5,vocab=13,tied=0";
  const std::vector<std::string> optimizers = {"rowwise_adagrad", "row_adam", "adamw"};
  const std::vector<std::string> plans = {
      "tables(3,hot=4)",         "tables(2,row,hot=5)",
      "tables(4,column,hot=7)",  "tables(2,grid,nodes=2,hot=3)",
      "tables(3,replica,hot=6)", "tables(2,row,hot=5,micro_batches=3,zero=1)"};
  for (const std::string& model : {kGpt, t5}) {
    for (const auto& [optimizer, plan] : combinations(optimizers, plans)) {
      VerifyConfig config = config_of_tokens(optimizer);
      config.model = model;
      config.plan = plan;
      const auto report = verify_plan(config);
      ASSERT_TRUE(report) << optimizer << " " << plan << ": " << report.error().message;
      EXPECT_TRUE(report->ok) << optimizer << " " << plan << ": " << report->why;
    }
  }
}

// Look-ups read a copy in another dtype, which is made in pieces, so the table can rest in pieces.
TEST(RowUpdatesTest, HotRowsOfAConvertedTableAreEqualToSerial) {
  const Model model = build_model(kGpt, kBatch, DType::kFloat64).value();
  const auto recipe = load_plan_text("tables(2,row,hot=5)", model.graph, "test", DType::kFloat64);
  ASSERT_TRUE(recipe) << recipe.error().message;
  const std::string plan = "precision = { compute = \"bfloat16\" }\n" + recipe->text;
  for (const char* optimizer : {"rowwise_adagrad", "adamw"}) {
    const auto report = verify_model(model, plan, config_of_tokens(optimizer));
    ASSERT_TRUE(report) << optimizer << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << ": " << report->why;
  }
}

// A table that the head reads, too, rests in pieces if the head is in the loop.
TEST(RowUpdatesTest, HotRowsOfATiedTableAreEqualToSerial) {
  const std::string tied = kGpt.substr(0, kGpt.find(",tied"));
  const std::string looped =
      "mesh = { a = 2 }\nloop = [{ ops = \"{embed.token,head}\", dim = \"vocab\", sizes = [3, 7] "
      "}]\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"a\" }, { ops = \"embed.token#1\", "
      "dim = \"batch\", over = [] }, { ops = \"embed.token#1\", dim = \"vocab\", over = \"a\" }]\n"
      "store = [{ tensors = \"{,optimizer.*.}embed.token.weight#1\", over = \"a\" }]\n";
  const Model model = build_model(tied, kBatch, DType::kFloat64).value();
  const auto report = verify_model(model, looped, config_of("adamw", 1));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->ok) << report->why;
  VerifyConfig config = config_of("adamw", 1);
  config.model = tied;
  config.plan = "tables(2,row,hot=5)";
  const auto refused = verify_plan(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "recipe tables: hot = 5: expected tables that look-ups alone read, as their pieces "
            "rest apart, found 'embed.token.weight', which op 'head' reads, too");
}

TEST(RowUpdatesTest, RefuseAnOptimizerThatReadsAllRowsOfATableInPieces) {
  VerifyConfig config = config_of("lamb", 0);
  config.model = kDlrm;
  config.plan = "tables(2,row,hot=10)";
  const auto report = verify_plan(config);
  ASSERT_FALSE(report);
  EXPECT_EQ(
      report.error().message,
      "optimizer 'lamb' reads all rows of table 'tables.0.weight' at once, which a loop over its "
      "rows keeps in pieces: leave it out of the loop, or name another optimizer for the table");
}

// The dense layers of a recommender have an optimizer of their own, and are sharded in all ways,
// beside tables by rows.
TEST(RowUpdatesTest, DenseLayersMayHaveAnotherOptimizer) {
  const std::string spec =
      "dhen:dense=4,rows=20-10-13,width=6,bottom=5-6,top=8-1,bags=3-1-2,layers=2,embeddings=2,"
      "heads=2,ffn=9,modules=attention-linear+dlrm-cross";
  const std::vector<std::string> optimizers = {"adamw", "sgd", "lion", "lamb"};
  const std::vector<std::string> plans = {"data_parallel(3)",
                                          "fsdp(2,replicas=2)",
                                          "fsdp(3,micro_batches=2)",
                                          "tables(3,zero=3)",
                                          "tables(2,row,nodes=2,zero=1)",
                                          "tables(2,table,micro_batches=2)",
                                          "megatron(tp=2,pp=2,micro_batches=2)"};
  for (const auto& [dense, plan] : combinations(optimizers, plans)) {
    VerifyConfig config = config_of(dense, 1);
    config.optimizer.lr = 0.01;
    OptimizerGroup tables;
    tables.parameters = "tables.*";
    tables.kind = "rowwise_adagrad";
    config.optimizer.groups = {tables};
    config.model = spec;
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << dense << " " << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << dense << " " << plan << ": " << report->why;
  }
}

// Bags whose rows have trained weights: compares the additions to each row, and the gradients of
// the weights themselves, under every cut, by rows and with gradients of the table's size.
TEST(RowUpdatesTest, WeightedBagsAreEqualToSerial) {
  std::vector<std::string> optimizers = kRowOptimizers;
  optimizers.insert(optimizers.end(), {"adamw", "sgd"});
  const std::vector<std::string> plans = {"tables(3)",
                                          "tables(2,row)",
                                          "tables(4,column)",
                                          "tables(2,table_row,nodes=2)",
                                          "tables(2,grid,nodes=3)",
                                          "tables(3,replica,zero=2)",
                                          "tables(2,zero=3)",
                                          "tables(2,row,micro_batches=3)",
                                          "tables(2,micro_batches=2)"};
  for (const auto& [optimizer, plan] : combinations(optimizers, plans)) {
    VerifyConfig config = config_of(optimizer, 1);
    config.optimizer.lr = 0.01;
    config.model = kDlrm + ",mode=position";
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << optimizer << " " << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << " " << plan << ": " << report->why;
  }
}

// Rows of a gradient carry the loss scale until they are added to a row.
TEST(RowUpdatesTest, TheLossScaleMakesNoDifference) {
  const auto model = build_model(kSmall, kBatch, DType::kFloat32);
  ASSERT_TRUE(model) << model.error().message;
  for (const std::string& optimizer : kRowOptimizers) {
    VerifyConfig config = config_of(optimizer, 1);
    config.precision = "float32";
    config.optimizer.lr = 0.01;
    const auto report = verify_model(*model,
                                     "mesh = { a = 2 }\nprecision = { loss_scale = 128 }\npin = [{ "
                                     "ops = \"tables.1\", axis = \"a\", at = 1 }]\n",
                                     config);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << ": " << report->why;
  }
}

// Updates collect their inputs from all micro-batches, also uneven ones and those of stages.
TEST(RowUpdatesTest, MicroBatchesAreCollected) {
  const std::vector<std::pair<std::string, std::string>> plans = {
      {kSmall, "tables(2,micro_batches=2)"},
      {kSmall, "tables(2,row,micro_batches=3)"},
      {kSmall, "tables(2,replica,micro_batches=5)"},
      {kSmall, "tables(2,table_row,nodes=2,micro_batches=3)"},
      {kGpt, "zero(stage=2,dp=2,micro_batches=2)"},
      {kGpt, "megatron(tp=2,pp=2,dp=2,zero=3,micro_batches=3)"}};
  for (const auto& [optimizer, of_model] : combinations(kRowOptimizers, plans)) {
    const auto& [model, plan] = of_model;
    VerifyConfig config = config_of(optimizer, 1);
    config.steps = 2;  // gradients of key biases are rounding, which Adagrad scales up
    config.model = model;
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << optimizer << " " << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer << " " << plan << ": " << report->why;
  }
}

// Exchanges of tables (pooled vectors, their gradients) may use fewer bits: bytes are as predicted,
// and the losses are near those of the serial run. Compared with float64, bfloat16 takes a quarter,
// and int8 at most a seventh (an eighth and the scales). The dense gradients are reduced as before.
TEST(RowUpdatesTest, ExchangesOfTablesMayBeCompressed) {
  const std::string spec =
      "dlrm:dense=4,rows=100-50-40-30,width=64,bottom=8-64,top=8-1,bags=3-1-2-5";
  const Model model = build_model(spec, kBatch, DType::kFloat64).value();
  for (const char* by : {"table", "row", "column"}) {
    int64_t plain_dense = 0, plain_exchanged = 0;
    for (const char* codec : {"", "bfloat16", "int8"}) {
      const auto plan =
          load_plan_text(fmt::format("tables(2,by={})", by), model.graph, "", DType::kFloat32);
      ASSERT_TRUE(plan) << plan.error().message;
      std::string text = plan->text;
      if (*codec != 0) {
        text += fmt::format(
            "compress = [{{ tensors = \"{{,grad.}}tables.[0-9]\", with = \"{}\" }}]\n", codec);
      }
      VerifyConfig config = config_of("row_sgd", 0);
      config.optimizer.lr = 0.01;
      config.tolerance = *codec == 0 ? config.tolerance : 0.05;
      auto report = verify_model(model, text, config);
      ASSERT_TRUE(report) << by << " " << codec << ": " << report.error().message;
      EXPECT_TRUE(report->ok) << by << " " << codec << ": " << report->why;
      EXPECT_EQ(report->bytes_predicted, report->bytes_counted);
      const int64_t dense = report->bytes_by_kind["all_reduce"];
      const int64_t exchanged = report->bytes_counted - dense;
      if (*codec == 0) {
        plain_dense = dense;
        plain_exchanged = exchanged;
        continue;
      }
      EXPECT_EQ(dense, plain_dense) << by << " " << codec;
      EXPECT_LE((*codec == 'b' ? 4 : 7) * exchanged, plain_exchanged) << by << " " << codec;
    }
  }
}

}  // namespace
}  // namespace tessera
