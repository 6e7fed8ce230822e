#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tessera/plan/plan.h"

namespace tessera::parse_test {
namespace {

constexpr std::string_view kMegatron = R"(mesh = { pp = 2, dp = 2, tp = 2 }
micro_batches = 8
schedule = "gpipe"
bucket_bytes = 1024
split = [
  { ops = "*", dim = "batch", over = "dp" },
  { ops = "blocks.*.mlp", dim = "ffn", over = ["tp", "time:4"], order = "rotated", skew = ["dp"] },
]
stage = [ { ops = "blocks.0", at = 0 }, { ops = "blocks.1", at = 1, mesh = { x = 4 }, devices = 4 } ]

[[store]]
tensors = "optimizer.*"
over = "dp"
dim = "hidden"
tier = "host"

[[store]]
tensors = "blocks.*"
recompute = true

[precision]
compute = "bfloat16"
)";

std::string error_of(std::string_view text) {
  const auto plan = parse_plan(text, "plan.toml");
  return plan ? "accepted" : plan.error().message;
}

TEST(ParsePlan, ReadsEveryKey) {
  const auto plan = parse_plan(kMegatron, "plan.toml");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  using Axes = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(plan->mesh,
            (Axes{{"pp", 2}, {"dp", 2}, {"tp", 2}}));  // the order of the text, not of the alphabet
  EXPECT_EQ(plan->micro_batches, 8);
  EXPECT_EQ(plan->schedule, "gpipe");
  EXPECT_EQ(plan->bucket_bytes, 1024);
  ASSERT_EQ(plan->splits.size(), 2u);
  EXPECT_EQ(plan->splits[0].over, std::vector<std::string>{"dp"});
  EXPECT_EQ(plan->splits[0].line, 6);
  EXPECT_EQ(plan->splits[1].over, std::vector<std::string>{"tp"});
  EXPECT_EQ(plan->splits[1].steps, 4);
  EXPECT_EQ(plan->splits[1].order, StepOrder::kRotated);
  EXPECT_EQ(plan->splits[1].skew, std::vector<std::string>{"dp"});
  ASSERT_EQ(plan->stages.size(), 2u);
  EXPECT_EQ(plan->stages[1].mesh, (Axes{{"x", 4}}));
  EXPECT_EQ(plan->stages[1].devices, 4);
  ASSERT_EQ(plan->stores.size(), 2u);
  EXPECT_EQ(plan->stores[0].tier, Tier::kHost);
  EXPECT_EQ(plan->stores[0].dim, "hidden");
  EXPECT_EQ(plan->stores[0].line, 11);
  EXPECT_EQ(plan->stores[1].recompute, true);
  EXPECT_EQ(plan->precision.compute, DType::kBFloat16);
}

TEST(ParsePlan, CachesOfRowsAreKeptByTheText) {
  const auto plan = parse_plan(
      "store = [ { tensors = \"t*\", tier = \"disk\", cache = { slots = 0.25, policy = \"lfu\", "
      "window = 3, counted = 7, prefetch = false, zipf = 0.9 } }, { tensors = \"u\", tier = "
      "\"host\", cache = { slots = 12 } } ]");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(plan->stores[0].cache, (RowCacheRule{0.25, "lfu", 3, 7, false, 0.9}));
  EXPECT_EQ(plan->stores[1].cache, (RowCacheRule{12, "lookahead", 8, 0, true, 1.05}));
  const auto again = parse_plan(to_toml(*plan));
  ASSERT_TRUE(again.has_value()) << to_toml(*plan) << again.error().message;
  EXPECT_EQ(*again, *plan);
}

TEST(ParsePlan, AnEmptyTextIsOneRank) {
  const auto plan = parse_plan("");
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(*plan, Plan());
  EXPECT_EQ(plan->ranks(), 1);
}

TEST(ParsePlan, ReadsAScheduleTable) {
  const auto plan = parse_plan(
      "micro_batches = 2\nmesh = { pp = 2 }\n"
      "schedule = [[\"F0\", \"F1\", \"B0\", \"B1\"], [\"F0\", \"B0\", \"F1\", \"B1\"]]");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  ASSERT_EQ(plan->schedule_table.size(), 2u);
  const PipelineShape shape{.places = 2, .micro_batches = 2, .at = {{0}, {1}}};
  EXPECT_EQ(plan_schedule(*plan, shape).value()[1][1], (BlockRun{BlockRun::kBackward, 0, 1}));
  EXPECT_EQ(*parse_plan(to_toml(*plan)), *plan);
}

TEST(ParsePlan, AScheduleTableNamesStagesWhereAPlaceHasSeveral) {
  const std::string text =
      "micro_batches = 1\nschedule = [\n  [\"F0@0\", \"F0@3\", \"B0@3\", \"W0@3\", \"B0@0\", "
      "\"W0@0\"],\n  [\"F0@1\", \"F0@2\", \"B0@2\", \"B0@1\"],\n]\n";
  const auto plan = parse_plan(text, "v.toml");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(parse_plan(to_toml(*plan)).value(), *plan);
  PipelineShape shape{.places = 2, .micro_batches = 1, .at = {{0}, {1}, {1}, {0}}};
  EXPECT_EQ(plan_schedule(*plan, shape).value(), plan->schedule_table);
  shape.at[3] = {1};
  EXPECT_EQ(plan_schedule(*plan, shape).error().message,
            "v.toml:2: schedule of place 0: F0@3 is of a stage that is not at this place, which "
            "has 0");
}

struct Case {
  std::string text, message;
};

TEST(ParsePlan, ErrorsAreOneLineWithPlaceAndTheNearestName) {
  const std::vector<Case> cases{
      {"mesh = { tp = 2 }\n\n[[split]]\nops = \"*\"\ndims = \"ffn\"\nover = \"tp\"",
       "plan.toml:5: unknown key 'dims' in [[split]], did you mean 'dim'?"},
      {"micro_batch = 2",
       "plan.toml:1: unknown key 'micro_batch' in the plan, did you mean 'micro_batches'?"},
      {"mesh = { pp = 2, dp = 2, tp = 2 }\nsplit = [\n { ops = \"*\", dim = \"ffn\", over = \"tq\" "
       "} ]",
       "plan.toml:3: axis 'tq' is not in the mesh {pp=2, dp=2, tp=2}, did you mean 'tp'?"},
      {"mesh = { tp = 2 }\nsplit = [ { ops = \"*\", dim = \"ffn\", over = [\"tp\", \"tp\"] } ]",
       "plan.toml:2: axis 'tp' is named twice in 'over'"},
      {"mesh = { pp = 2 }\nstage = [ { ops = \"a\", at = 0 } ]\nsplit = [ { ops = \"*\", dim = "
       "\"b\", over = \"pp\" } ]",
       "plan.toml:3: axis 'pp' is the stage axis; it places stages and cannot be used in 'over'"},
      {"mesh = { tp = 2.5 }",
       "plan.toml:1: 'tp' in mesh: expected an integer, found a number with a fraction"},
      {"mesh = { tp = 0 }", "plan.toml:1: expected tp >= 1, found 0"},
      {"mesh = 4",
       "plan.toml:1: 'mesh' in the plan: expected a table like { dp = 2, tp = 2 }, found an "
       "integer"},
      {"mesh = { time = 2 }", "plan.toml:1: 'time' cannot name a mesh axis"},
      {"\nmicro_batches = 0", "plan.toml:2: expected micro_batches >= 1, found 0"},
      {"micro_batches = \"8\"",
       "plan.toml:1: 'micro_batches' in the plan: expected an integer, found a string"},
      {"schedule = \"1f1c\"", "plan.toml:1: unknown schedule '1f1c', did you mean '1f1b'?"},
      {"resharding = \"gathr\"", "plan.toml:1: unknown resharding 'gathr', did you mean 'gather'?"},
      {"schedule = 3",
       "plan.toml:1: 'schedule' in the plan: expected a name or a list of lists of blocks, found "
       "an integer"},
      {"schedule = [[\"F0\"]]",
       "plan.toml:1: schedule of place 0: B0@0 is missing (micro_batches = 1)"},
      {"schedule = [[\"F0\",\n\"X0\"]]",
       "plan.toml:2: expected a block like 'F0', 'B3' or 'W3@1' (F, B or W, a micro-batch, and "
       "@stage "
       "where a place has several), found 'X0'"},
      {"split = [ { ops = \"*\", dim = \"ffn\", over = \"time:0\" } ]",
       "plan.toml:1: expected 'time:N' with N >= 1 steps, or 'time:rims', in 'over', found "
       "'time:0'"},
      {"mesh = { tp = 2 }\nsplit = [ { ops = \"*\", dim = \"ffn\", over = [\"time:2\", \"tp\"] } ]",
       "plan.toml:2: 'time:2' must be the last item of 'over' (a time loop is innermost)"},
      {"split = [ { ops = \"*\", dim = \"ffn\" } ]", "plan.toml:1: [[split]] needs the key 'over'"},
      {"split = [ { ops = \"*\", dim = 4, over = [] } ]",
       "plan.toml:1: 'dim' in [[split]]: expected a string, found an integer"},
      {"split = [ { ops = \"*\", dim = \"b\", over = 2 } ]",
       "plan.toml:1: 'over' in [[split]]: expected a string or a list of strings, found an "
       "integer"},
      {"split = [ { ops = \"*\", dim = \"b\", over = \"time:2\", order = \"rotate\" } ]",
       "plan.toml:1: unknown order 'rotate', did you mean 'rotated'?"},
      {"split = [ { ops = \"*\", dim = \"b\", over = [], order = \"rotated\" } ]",
       "plan.toml:1: 'order' needs a time loop ('over' with \"time:N\")"},
      {"mesh = { tp = 2 }\nsplit = [ { ops = \"*\", dim = \"b\", over = \"time:2\", skew = \"tp\" "
       "} ]",
       "plan.toml:2: 'skew' needs order = \"rotated\" or order = \"nested\""},
      {"split = [ { ops = \"*\", dim = \"b\", over = \"time:2\", order = \"nested\" } ]",
       "plan.toml:1: order = \"nested\" needs 'skew', the axes of its rings, outermost first"},
      {"mesh = { a = 2, tp = 2 }\nsplit = [ { ops = \"*\", dim = \"b\", over = \"time:2\", order = "
       "\"rotated\", skew = [\"a\", \"-tp\"] } ]",
       "plan.toml:2: expected a minus on all axes of a rotated loop or on none"},
      {"mesh = { tp = 2 }\nsplit = [ { ops = \"*\", dim = \"b\", over = \"time:2\", order = "
       "\"rotated\", skew = \"-tq\" } ]",
       "plan.toml:2: axis 'tq' is not in the mesh {tp=2}, did you mean 'tp'?"},
      {"reorder = [ { dim = \"seq\", as = \"zigzag\" } ]",
       "plan.toml:1: [[reorder]] needs the key 'pieces'"},
      {"reorder = [ { dim = \"seq\", as = \"zigzac\", pieces = 4 } ]",
       "plan.toml:1: unknown order 'zigzac', did you mean 'zigzag'?"},
      {"reorder = [ { dim = \"seq\", as = \"zigzag\", pieces = 3 } ]",
       "plan.toml:1: expected an even number of pieces in a zigzag (two for each cut), found 3"},
      {"expand = 3",
       "plan.toml:1: 'expand' in the plan: expected a string or a list of strings, "
       "found an integer"},
      {"split = [ { ops = \"*\", phase = \"backwards\", dim = \"b\", over = [] } ]",
       "plan.toml:1: unknown phase 'backwards', did you mean 'backward'?"},
      {"split = \"x\"",
       "plan.toml:1: 'split' in the plan: expected a list of tables, found a string"},
      {"stage = [ { ops = \"*\", at = -1 } ]", "plan.toml:1: expected at >= 0, found -1"},
      {"loop = [ { ops = \"*\", dim = \"seq\", sizes = [9223372036854775807, 2] } ]",
       "plan.toml:1: expected 'sizes' in [[loop]] of at most 1099511627776, found "
       "9223372036854775807"},
      {"mesh = { dp = 10000000 }",
       "plan.toml:1: expected a mesh of at most 1048576 ranks, found dp = 10000000"},
      {"mesh = { dp = 2048, tp = 2048 }",
       "plan.toml:1: expected a mesh of at most 1048576 ranks, found tp = 2048 times 2048"},
      {"mesh = { a = 4294967296, b = 4294967296 }",
       "plan.toml:1: expected a mesh of at most 1048576 ranks, found a = 4294967296"},
      {"stage = [ { ops = \"*\", at = 0, mesh = { dp = 1048577 } } ]",
       "plan.toml:1: expected a mesh of at most 1048576 ranks, found dp = 1048577"},
      {"stage = [ { ops = \"*\", at = 0, mesh = { dp = 1 }, devices = 9223372036854775807 } ]",
       "plan.toml:1: expected 'devices' to be below 1048576, the most ranks of a plan, found "
       "9223372036854775807"},
      {"stage = [ { ops = \"*\", at = 0, devices = 1 } ]",
       "plan.toml:1: 'devices' needs a 'mesh' of the stage's own"},
      {"store = [ { tensors = \"*\", tier = \"hots\" } ]",
       "plan.toml:1: unknown tier 'hots', did you mean 'host'?"},
      {"store = [ { tensors = \"*\", recompute = 1 } ]",
       "plan.toml:1: 'recompute' in [[store]]: expected true or false, found an integer"},
      {"store = [ { tensors = \"*\" } ]",
       "plan.toml:1: [[store]] needs at least one of 'over', 'tier', 'recompute', 'keep', "
       "'keep_over'"},
      {"store = [ { tensors = \"*\", cache = { slots = 10 } } ]",
       "plan.toml:1: 'cache' in [[store]] needs tier = \"host\" or tier = \"disk\""},
      {"store = [ { tensors = \"*\", tier = \"host\", cache = 10 } ]",
       "plan.toml:1: 'cache' in [[store]]: expected { slots = 10000, policy = \"lookahead\" }, "
       "found an integer"},
      {"store = [ { tensors = \"*\", tier = \"host\", cache = { policy = \"lru\" } } ]",
       "plan.toml:1: cache needs the key 'slots'"},
      {"store = [ { tensors = \"*\", tier = \"host\", cache = { slots = 1.5 } } ]",
       "plan.toml:1: expected slots = a number of rows, or a share of them between 0 and 1, found "
       "1.5"},
      {"store = [ { tensors = \"*\", tier = \"host\", cache = { slots = 9, policy = \"lruu\" } } ]",
       "plan.toml:1: unknown policy 'lruu', did you mean 'lru'?"},
      {"store = [ { tensors = \"*\", tier = \"disk\", cache = { slots = 9, zipf = -1 } } ]",
       "plan.toml:1: expected zipf of 0 or more, found -1"},
      {"store = [ { tensors = \"*\", tier = \"disk\", cache = { slots = 9, windw = 1 } } ]",
       "plan.toml:1: unknown key 'windw' in cache, did you mean 'window'?"},
      {"store = [ { tensors = \"*\", dim = \"h\", tier = \"host\" } ]",
       "plan.toml:1: 'dim' in [[store]] needs 'over'"},
      {"[precision]\ncompute = \"bfloat\"",
       "plan.toml:2: unknown dtype 'bfloat', did you mean 'bfloat16'?"},
      {"precision = { compute = \"int64\" }",
       "plan.toml:1: unknown dtype 'int64', did you mean 'float64'?"},
      {"precision = { loss_scale = \"dynamc\" }",
       "plan.toml:1: expected loss_scale to be \"dynamic\", a number or a table, found 'dynamc'"},
      {"precision = { loss_scale = 0 }", "plan.toml:1: expected loss_scale > 0, found 0"},
      {"precision = { loss_scale = { grwth = 2 } }",
       "plan.toml:1: unknown key 'grwth' in loss_scale, did you mean 'growth'?"},
      {"precision = { loss_scale = { min = 8, initial = 4 } }",
       "plan.toml:1: loss_scale: expected growth >= 1, backoff <= 1, min <= initial <= max, found "
       "2, 0.5, 8, 4, 4.29497e+09"},
      {"compress = [ { tensors = \"*\" } ]", "plan.toml:1: [[compress]] needs the key 'with'"},
      {"compress = [ { tensors = \"*\", with = \"int9\" } ]",
       "plan.toml:1: expected a codec (int8, int4, float16, bfloat16, topk:R, dct:K), found "
       "'int9'; nearest: "
       "'int8'"},
      {"compress = [ { tensors = \"*\", with = \"int8\", on = \"all_gathr\" } ]",
       "plan.toml:1: unknown edge 'all_gathr', did you mean 'all_gather'?"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of(c.text), c.message) << c.text;
}

TEST(ParsePlan, ATruncatedFileIsReportedWithItsLine) {
  const std::string message = error_of(kMegatron.substr(0, kMegatron.find("over = [\"tp\"") + 10));
  EXPECT_TRUE(message.starts_with("plan.toml:7: ")) << message;
  EXPECT_NE(message.find("end-of-file"), std::string::npos) << message;
}

TEST(ParsePlan, NoPrefixOfAPlanCrashesOrGivesAMessageOfTwoLines) {
  for (size_t size = 0; size <= kMegatron.size(); ++size) {
    const auto plan = parse_plan(kMegatron.substr(0, size), "plan.toml");
    if (plan) continue;
    EXPECT_TRUE(plan.error().message.starts_with("plan.toml:")) << plan.error().message;
    EXPECT_EQ(plan.error().message.find('\n'), std::string::npos) << plan.error().message;
  }
}

TEST(ParsePlan, ATableHeaderWithoutANameIsAnError) {
  EXPECT_EQ(error_of("micro_batches = 1\n[[=]]\n"),
            "plan.toml:2: expected the name of a table after '['");
  EXPECT_EQ(error_of("split = [\n[],\n]"),
            "plan.toml:2: 'split' in the plan: expected a list of tables, found a list");
}

TEST(ParsePlan, AHeaderWithKeysOnItsLineGetsAHint) {
  const std::string message =
      error_of("mesh = { dp = 2 }\n[[split]] ops = \"*\" dim = \"batch\" over = \"dp\"\n");
  EXPECT_TRUE(message.starts_with("plan.toml:2: ")) << message;
  EXPECT_TRUE(message.ends_with("; to write an entry on one line: split = [ { ... }, ]"))
      << message;
}

// ---- round trip

std::string random_name() {
  return *rc::gen::element<std::string>("*", "blocks.*.mlp", "{a,b}", "a \"quoted\" \\ name",
                                        "tab\there", "ünicode");
}

std::vector<std::string> random_axes() {
  using Names = std::vector<std::string>;
  return *rc::gen::element(Names{}, Names{"tp"}, Names{"dp"}, Names{"dp", "tp"}, Names{"tp", "dp"});
}

SplitEntry random_split() {
  SplitEntry entry;
  entry.ops = random_name();
  entry.dim = *rc::gen::element<std::string>("batch", "ffn");
  entry.over = random_axes();
  entry.steps = *rc::gen::inRange<int64_t>(1, 4);
  entry.phase = *rc::gen::element(
      std::optional<Phase>(std::nullopt), std::optional<Phase>(Phase::kForward),
      std::optional<Phase>(Phase::kBackward), std::optional<Phase>(Phase::kUpdate));
  if (entry.steps > 1 && *rc::gen::arbitrary<bool>()) {
    entry.skew = random_axes();
    const bool nested = !entry.skew.empty() && *rc::gen::arbitrary<bool>();
    entry.order = nested ? StepOrder::kNested : StepOrder::kRotated;
    const bool falls = *rc::gen::arbitrary<bool>();
    for (std::string& axis : entry.skew) {
      if (falls) axis = "-" + axis;
    }
  }
  return entry;
}

StoreEntry random_store() {
  StoreEntry entry;
  entry.tensors = random_name();
  entry.recompute = *rc::gen::element(std::optional<bool>(true), std::optional<bool>(false));
  if (*rc::gen::arbitrary<bool>()) entry.over = random_axes();
  if (entry.over && *rc::gen::arbitrary<bool>()) entry.dim = "hidden";
  entry.tier =
      *rc::gen::element(std::optional<Tier>(std::nullopt), std::optional<Tier>(Tier::kDevice),
                        std::optional<Tier>(Tier::kHost), std::optional<Tier>(Tier::kDisk));
  if (entry.tier) {
    entry.fraction =
        *rc::gen::element(std::optional<double>(std::nullopt), std::optional<double>(0.0),
                          std::optional<double>(0.4), std::optional<double>(1.0));
  }
  return entry;
}

StageEntry random_stage(int64_t at) {
  StageEntry entry;
  entry.ops = random_name();
  entry.at = at;
  if (*rc::gen::arbitrary<bool>()) {
    entry.mesh = {{"z", 2}, {"a", 3}};
    if (*rc::gen::arbitrary<bool>()) entry.devices = *rc::gen::inRange<int64_t>(0, 100);
  }
  return entry;
}

TEST(Plan, AShareIsANumberFromZeroToOneAndNeedsATier) {
  const auto error = [](const std::string& entry) {
    const auto plan = parse_plan("mesh = {}\nstore = [ { tensors = \"x\", " + entry + " } ]", "p");
    return plan.has_value() ? "" : plan.error().message;
  };
  EXPECT_EQ(error("tier = \"host\", fraction = 0.25"), "");
  EXPECT_EQ(error("tier = \"host\", fraction = 1"), "");
  EXPECT_EQ(error("tier = \"host\", fraction = 1.5"),
            "p:2: expected fraction = a number from 0 to 1, found 1.5");
  EXPECT_EQ(error("tier = \"host\", fraction = \"half\""),
            "p:2: expected fraction = a number from 0 to 1, found a string");
  EXPECT_EQ(error("keep = \"step\", fraction = 0.5"), "p:2: 'fraction' in [[store]] needs 'tier'");
}

RC_GTEST_PROP(Plan, PrintsAndParsesToAnEqualPlan, ()) {
  Plan plan;
  plan.mesh = {{"pp", *rc::gen::inRange<int64_t>(1, 4)},
               {"tp", 2},
               {"dp", *rc::gen::inRange<int64_t>(1, 9)}};
  plan.micro_batches = *rc::gen::inRange<int64_t>(1, 4);
  plan.micro_batch_dim = *rc::gen::element<std::string>("batch", "seq");
  plan.stage_axis = *rc::gen::element<std::string>("pp", "pipe");
  plan.bucket_bytes = *rc::gen::element(int64_t{0}, int64_t{25} << 20, int64_t{1} << 40);
  plan.resident_bytes = *rc::gen::element(int64_t{0}, int64_t{1} << 30);
  plan.precision.compute =
      *rc::gen::element(std::optional<DType>(std::nullopt), std::optional<DType>(DType::kBFloat16),
                        std::optional<DType>(DType::kFloat64));
  plan.precision.gradient = plan.precision.compute;
  if (*rc::gen::arbitrary<bool>()) {
    LossScale scale;
    scale.dynamic = *rc::gen::arbitrary<bool>();
    scale.initial = *rc::gen::element(65536.0, 1024.0, 0.5);
    if (scale.dynamic) scale.interval = *rc::gen::inRange<int64_t>(1, 2000);
    scale.min = scale.dynamic ? 0.25 : scale.min;
    plan.precision.loss_scale = scale;
  }
  if (*rc::gen::arbitrary<bool>()) {
    CompressEntry entry;
    entry.tensors = "grad.*";
    entry.on = *rc::gen::element<std::string>("*", "send", "all_gather");
    entry.with.codec = *rc::gen::element(
        Codec{.kind = Codec::Kind::kInt8}, Codec{.kind = Codec::Kind::kTopK, .ratio = 0.01},
        Codec{.kind = Codec::Kind::kDct, .kept = 32, .decay = 0.999});
    entry.with.error_feedback = *rc::gen::arbitrary<bool>();
    plan.compress.push_back(entry);
  }
  const auto stages = *rc::gen::inRange<int64_t>(0, 4);
  for (int64_t s = 0; s < stages; ++s) plan.stages.push_back(random_stage(s));
  if (*rc::gen::arbitrary<bool>()) {
    plan.schedule = "gpipe";
  } else if (stages > 0) {
    PipelineShape shape{.places = stages, .micro_batches = plan.micro_batches};
    for (int64_t s = 0; s < stages; ++s) shape.at.push_back({s});
    plan.schedule_table = make_schedule("1f1b", shape).value();
  }
  const auto splits = *rc::gen::inRange(0, 5);
  for (int i = 0; i < splits; ++i) plan.splits.push_back(random_split());
  const auto stores = *rc::gen::inRange(0, 5);
  for (int i = 0; i < stores; ++i) plan.stores.push_back(random_store());
  if (*rc::gen::arbitrary<bool>()) plan.expand = {"blocks.*.attn.core"};
  if (*rc::gen::arbitrary<bool>()) plan.expand.emplace_back("a \"quoted\" name");
  const auto reorders = *rc::gen::inRange(0, 3);
  for (int i = 0; i < reorders; ++i) {
    const int64_t pieces = 2 * *rc::gen::inRange<int64_t>(1, 5);
    plan.reorders.push_back({"seq", *rc::gen::element<std::string>("zigzag", "striped"), pieces});
  }
  const std::string text = to_toml(plan);
  const auto again = parse_plan(text);
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == plan);
  RC_ASSERT(to_toml(*again) == text);
}

RC_GTEST_PROP(Plan, TheParserTakesAnyBytes, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("mesh", " = ", "{", "}", "[", "]", "[[split]]", "\n", "\"",
                                    "ops", "dp", "2", ",", "over", "\xff", "#", "time:2"));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const auto plan = parse_plan(text, "x");
  const bool placed = plan.has_value() || plan.error().message.starts_with("x:");
  RC_ASSERT(placed);
}

TEST(ParsePlan, Loops) {
  const std::string text = R"(mesh = {}
loop = [
  { ops = "blocks.*.mlp", dim = "ffn", steps = 4, recompute = true },
  { ops = "*", dim = "seq", sizes = [24, 16, 8], stages = true },
]
)";
  const auto plan = parse_plan(text);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(to_toml(*plan), text);
  EXPECT_EQ(plan->stage_steps(), 3);
  const auto error = [](const std::string& entries) {
    const auto result = parse_plan("loop = [ " + entries + " ]", "p.toml");
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(error("{ ops = '*', dim = 'seq' }"),
            "p.toml:1: [[loop]] needs one of 'steps' and 'sizes'");
  EXPECT_EQ(error("{ ops = '*', dim = 'seq', sizes = [4, 0] }"),
            "p.toml:1: expected sizes >= 1, found 0");
  EXPECT_EQ(error("{ ops = '*', dim = 'seq', sizes = 4 }"),
            "p.toml:1: 'sizes' in [[loop]]: expected a list of integers, found an integer");
  EXPECT_EQ(error("{ ops = '*', dim = 'seq', step = 4 }"),
            "p.toml:1: unknown key 'step' in [[loop]], did you mean 'steps'?");
  EXPECT_EQ(error("{ ops = '*', dim = 'seq', steps = 4, stages = true }, "
                  "{ ops = '*', dim = 'batch', steps = 2, stages = true }"),
            "p.toml:1: the loop of line 1 has stages = true already");
}

}  // namespace
}  // namespace tessera::parse_test
