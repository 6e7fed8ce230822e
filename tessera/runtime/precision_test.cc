// Tests mixed precision and loss scaling: the scale's state machine, steps skipped everywhere,
// plans that agree under a scale, float16 training.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tessera/compile/compile.h"
#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/models/nn.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/testing.h"

namespace tessera::precision_test {
namespace {

// Runs one op of the kind on five scalars by its kernel.
struct ScaleMachine {
  ScaleMachine(double scale, const Attributes& attributes) {
    GraphBuilder g("scale");
    std::vector<TensorId> in;
    for (const char* name : {"scale", "clean", "overflows", "skipped", "flag"})
      in.push_back(g.input(name, {}, DType::kFloat32));
    g.op("next", "loss_scale", in, attributes);
    auto built = g.finish();
    EXPECT_TRUE(built) << built.error().message;
    graph = *built;
    state = {scale, 0, 0, 0};
  }
  void step(bool overflow) {
    testing::Workspace work(graph);
    for (size_t i = 0; i < 4; ++i) work.set(TensorId(i), {state[i]});
    work.set(TensorId(4), {overflow ? 1.0 : 0.0});
    work.run();
    for (size_t i = 0; i < 4; ++i) state[i] = work.get(TensorId(5 + i)).at(0);
  }
  Graph graph;
  std::vector<double> state;
};

TEST(LossScale, FollowsTheTable) {
  // The scale grows after 3 clean steps and backs off from the second overflow since it grew.
  ScaleMachine machine(1024, {{"interval", 3}});
  struct Row {
    bool overflow;
    double scale, clean, overflows, skipped;
  };
  const std::vector<Row> table = {
      {false, 1024, 1, 0, 0}, {false, 1024, 2, 0, 0}, {false, 2048, 0, 0, 0},  // grows
      {true, 2048, 0, 1, 1},                                                   // borne once
      {false, 2048, 1, 1, 1}, {true, 1024, 0, 2, 2},                           // the second halves
      {true, 512, 0, 2, 3},                                                    // and each one after
      {false, 512, 1, 2, 3},  {false, 512, 2, 2, 3},  {false, 1024, 0, 0, 3},  // grows: forgiven
      {true, 1024, 0, 1, 4},
  };
  for (size_t i = 0; i < table.size(); ++i) {
    machine.step(table[i].overflow);
    EXPECT_EQ(machine.state, (std::vector<double>{table[i].scale, table[i].clean,
                                                  table[i].overflows, table[i].skipped}))
        << "step " << i;
  }
}

TEST(LossScale, StaysBetweenItsBounds) {
  ScaleMachine low(2, {{"hysteresis", 1}});
  for (int i = 0; i < 3; ++i) low.step(true);
  EXPECT_EQ(low.state[0], 1);
  ScaleMachine high(0x1p31, {{"interval", 1}});
  for (int i = 0; i < 3; ++i) high.step(false);
  EXPECT_EQ(high.state[0], 0x1p32);
}

TEST(LossScale, FindsWhatIsNotFinite) {
  GraphBuilder g("flag");
  const TensorId x = g.input("x", {{"a", 3}}, DType::kFloat16);
  const TensorId flag = g.op1("flag", "non_finite", {x});
  auto graph = g.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  testing::Workspace work(*graph);
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::vector<double>, double>> cases = {
      {{65504, -65504, 0}, 0}, {{0, 65520, 0}, 1}, {{0, 0, -inf}, 1}, {{std::nan(""), 1, 2}, 1}};
  for (const auto& [values, expected] : cases) {
    work.set(x, values);
    work.run();
    EXPECT_EQ(work.get(flag).at(0), expected) << values[1];
  }
}

// Each row of x has one element that is not 0, so that only that row of the first weight's gradient
// differs from 0 (and overflows float16), while all other gradients are small.
Model overflowing_model() {
  GraphBuilder g("overflow");
  const TensorId x = g.input("x", {{"batch", 4}, {"in", 8}}, DType::kFloat32);
  const TensorId targets = g.input("targets", {{"batch", 4}}, DType::kInt64);
  const TensorId up = g.parameter("up.weight", {{"in", 8}, {"ffn", 8}}, normal(1e-3));
  const TensorId down = g.parameter("down.weight", {{"ffn", 8}, {"out", 4}}, normal(0.5));
  const TensorId h = g.op1("up", "einsum", {x, up}, {{"spec", "batch in+, in+ ffn -> batch ffn"}});
  const TensorId y =
      g.op1("down", "einsum", {h, down}, {{"spec", "batch ffn+, ffn+ out -> batch out"}});
  cross_entropy_loss(g, y, targets);
  auto graph = g.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  Model model;
  model.spec = "overflow";
  model.graph = *graph;
  model.vocab = 4;
  return model;
}

struct Rest {  // after each step, what is at rest on a rank, by name
  std::vector<std::map<std::string, std::vector<std::byte>>> homes;
  std::vector<bool> overflowed;  // a gradient on this rank had an element that is not finite
  std::vector<double> scale;     // on the ranks that hold it
};

TEST(LossScale, AnOverflowOnOneRankSkipsTheStepOnAll) {
  auto plan = parse_plan(R"(
mesh = { dp = 2, tp = 2 }
precision = { compute = "float16", loss_scale = { initial = 1024, hysteresis = 1 } }
split = [
  { ops = "*", dim = "batch", over = "dp" },
  { ops = "up", dim = "in", over = "tp" },
  { ops = "down", dim = "ffn", over = "tp" },
]
store = [ { tensors = "optimizer.*", over = "dp" } ]
)");
  ASSERT_TRUE(plan) << plan.error().message;
  CompileOptions options;
  options.fetch_gradients = true;
  const auto model = std::make_shared<const Model>(overflowing_model());
  const auto compiled = Compiler().compile(model, *plan, DType::kFloat32, options);
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto programs = lower_and_verify(*compiled->lowering);
  ASSERT_TRUE(programs) << programs.error().message;
  constexpr int kSteps = 14;
  std::vector<Rest> ranks(4);
  const auto load = [&](int64_t step, const Tensor& tensor, const Box& region,
                        const kernels::Array& to) {
    if (tensor.name == "lr") return load_scalar(0.01, to);
    if (tensor.name == "step") return load_scalar(static_cast<double>(step), to);
    if (tensor.name == "targets") return load_random(*compiled->model, 1, 1, tensor, region, to);
    for (int64_t i = 0; i < to.shape[0]; ++i) {
      for (int64_t j = 0; j < to.shape[1]; ++j) {
        const bool hot = region.dims[0].begin + i == 0 && region.dims[1].begin + j == 7;
        reinterpret_cast<float*>(to.data)[i * to.strides[0] + j * to.strides[1]] = hot ? 6000 : 0;
      }
    }
  };
  const Status ran = comm::run_threads(4, {}, [&](comm::Communicator& world) {
    const Program& program = (*programs)[static_cast<size_t>(world.rank())];
    auto executor =
        RankExecutor::create(compiled->graph(), program, world, ExecutorOptions{1, 1, false});
    if (!executor) throw comm::CommFault{executor.error().message};
    (*executor)->initialise();
    Rest& rest = ranks[static_cast<size_t>(world.rank())];
    for (int64_t step = 0; step <= kSteps; ++step) {
      if (step > 0) {
        (*executor)->run_step(
            step, [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
              load(step, tensor, region, to);
            });
        bool overflow = false;
        for (const Home& fetch : program.fetches) {
          for (const double value : (*executor)->read(fetch).values())
            overflow = overflow || !std::isfinite(value);
        }
        rest.overflowed.push_back(overflow);
      }
      auto& homes = rest.homes.emplace_back();
      for (const Home& home : program.homes) {
        const std::string& name = compiled->graph().tensor(home.tensor).name;
        const HostArray array = (*executor)->read(home);
        if (name.starts_with("optimizer.loss_scale")) {
          if (name == "optimizer.loss_scale") rest.scale.push_back(array.values().at(0));
        } else {
          homes[name] = array.data;
        }
      }
    }
  });
  ASSERT_TRUE(ran) << ran.error().message;
  int overflows = 0, updates = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    const auto hit = std::count_if(ranks.begin(), ranks.end(),
                                   [&](const Rest& rank) { return rank.overflowed[step]; });
    EXPECT_LE(hit, 1) << "step " << step;
    ++(hit > 0 ? overflows : updates);
    for (size_t r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(ranks[r].homes[step + 1] == ranks[r].homes[step], hit > 0)
          << "step " << step << " rank " << r;
      EXPECT_EQ(ranks[r].scale[step + 1], ranks[r].scale[step] * (hit > 0 ? 0.5 : 1.0))
          << "step " << step << " rank " << r;
    }
  }
  EXPECT_GT(overflows, 0);
  EXPECT_GT(updates, 0);
}

constexpr const char* kGpt = "gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32";

TEST(LossScale, PlansAgreeWithSerialUnderAScale) {
  const auto model = build_model(kGpt, 8, DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  for (const char* scale : {"\"dynamic\"", "256", "{ initial = 1024, interval = 1, max = 2048 }"}) {
    const std::string precision =
        std::string("precision = { compute = \"float16\", loss_scale = ") + scale + " }\n";
    for (const char* rest : {"mesh = { dp = 2, tp = 2 }\nmicro_batches = 2\n"
                             "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" }, "
                             "{ ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"tp\" } ]\n"
                             "store = [ { tensors = \"optimizer.*\", over = \"dp\" }, "
                             "{ tensors = \"role:gradient\", over = \"dp\" } ]\n",
                             "mesh = { pp = 2, dp = 2 }\nmicro_batches = 4\n"
                             "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
                             "stage = [ { ops = \"{embed,blocks.0}\", at = 0 }, "
                             "{ ops = \"{blocks.1,final,head,loss}\", at = 1 } ]\n"}) {
      VerifyConfig config;
      config.steps = 3;
      const auto report = verify_model(*model, precision + rest, config);
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_TRUE(report->ok) << scale << rest << report->why;
    }
  }
}

// The proof covers a plan's statements about narrow copies: kept for the step, in shards, gathered
// ahead, sums whole or in shards.
TEST(Exact, PlansOfNarrowCopiesAgreeWithSerial) {
  const auto model = build_model(kGpt, 8, DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  const std::string split =
      "mesh = { dp = 2, tp = 2 }\nmicro_batches = 2\nbucket_bytes = 2000\n"
      "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" }, "
      "{ ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"tp\" } ]\n";
  for (const char* precision : {"{ compute = \"bfloat16\", gradient = \"bfloat16\" }",
                                "{ compute = \"bfloat16\", gradient = \"float32\" }",
                                "{ compute = \"bfloat16\", parameter = \"bfloat16\" }"}) {
    for (
        const char* store :
        {R"({ tensors = "role:parameter", over = "dp" }, { tensors = "*.cast", keep = "step" })",
         R"({ tensors = "role:parameter", over = "dp" }, { tensors = "role:gradient", over = "dp" })",
         R"({ tensors = "role:gradient", over = "dp" }, { tensors = "grad.*.cast", over = [] })"}) {
      const std::string plan = "precision = " + std::string(precision) + "\n" + split +
                               "store = [ { tensors = \"optimizer.*\", over = \"dp\" }, " + store +
                               " ]\n";
      VerifyConfig config;
      config.steps = 3;
      const auto report = verify_model(*model, plan, config);
      const bool no_copies = std::string(precision).find("parameter") != std::string::npos;
      if (no_copies && std::string(store).find("cast") != std::string::npos) {
        EXPECT_FALSE(report) << plan;  // there is nothing to keep
        continue;
      }
      ASSERT_TRUE(report) << plan << report.error().message;
      EXPECT_TRUE(report->ok) << plan << report->why;
    }
  }
}

class Training : public ::testing::Test {
 protected:
  Training()
      : folder_(std::filesystem::temp_directory_path() /
                ("tessera_precision_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 500; ++i) text << "the same words again and again; ";
  }
  ~Training() override { std::filesystem::remove_all(folder_); }

  std::vector<double> losses(const std::string& precision) const {
    const std::string plan = (folder_ / "plan.toml").string();
    std::ofstream(plan) << "mesh = { dp = 2 }\nmicro_batches = 2\n"
                        << "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
                        << precision;
    RunConfig c;
    c.model = "gpt:layers=2,hidden=16,heads=2,seq=8,vocab=256";
    c.data = {(folder_ / "text").string()};
    c.batch = 8;
    c.steps = 20;
    c.plan = plan;
    c.optimizer.lr = 1e-2;
    c.optimizer.warmup = 2;
    std::vector<double> all;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) { all.push_back(report.loss); };
    const auto summary = run_training(c, callbacks);
    EXPECT_TRUE(summary) << summary.error().message;
    return all;
  }
  std::filesystem::path folder_;
};

TEST_F(Training, NarrowDTypesFollowFloat32) {
  const std::vector<double> wide = losses("");
  ASSERT_EQ(wide.size(), 20U);
  EXPECT_LT(wide.back(), wide.front() - 1);
  for (const char* precision :
       {"precision = { compute = \"float16\" }",
        "precision = { compute = \"float16\", gradient = \"float16\", loss_scale = 128 }",
        "precision = { compute = \"float16\", gradient = \"float32\", state = \"bfloat16\" }",
        "precision = { compute = \"bfloat16\", gradient = \"float32\" }"}) {
    const std::vector<double> narrow = losses(precision);
    ASSERT_EQ(narrow.size(), wide.size());
    for (size_t i = 0; i < wide.size(); ++i)
      EXPECT_NEAR(narrow[i], wide[i], 0.05) << precision << " step " << i + 1;
  }
  // Parameters of 8 bits of precision lose small updates, so the margin is coarser.
  const std::vector<double> bfloat16 =
      losses("precision = { compute = \"bfloat16\", parameter = \"bfloat16\" }");
  EXPECT_NEAR(bfloat16.back(), wide.back(), 0.3);
}

// Sums the gradients of narrow copies in shards, each micro-batch, or whole and reduced once a
// step.
TEST_F(Training, ShardsOfNarrowGradientsFollowWholeOnes) {
  const std::string narrow = "precision = { compute = \"bfloat16\", gradient = \"float32\" }\n";
  const std::vector<double> replicas = losses(narrow);
  ASSERT_EQ(replicas.size(), 20U);
  const std::string sharded =
      narrow +
      "store = [ { tensors = \"role:gradient\", over = \"dp\" }, { tensors = \"role:parameter\", "
      "over = \"dp\" }, { tensors = \"optimizer.*\", over = \"dp\" }";
  for (const char* rest : {" ]\n", ", { tensors = \"grad.*.cast\", over = [] } ]\n"}) {
    const std::vector<double> found = losses(sharded + rest);
    ASSERT_EQ(found.size(), replicas.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], replicas[i], 2e-3) << rest << " step " << i + 1;
  }
}

// A scale far beyond the range of float16 makes steps be skipped until it fits; then training goes
// on.
TEST_F(Training, SkipsUntilTheScaleFits) {
  const std::vector<double> all = losses(
      "precision = { compute = \"float16\", loss_scale = { initial = 4294967296, hysteresis = 1, "
      "backoff = 0.0625 } }");
  EXPECT_EQ(all.size(), 20U);
  EXPECT_LT(all.back(), all.front() - 1);
}

}  // namespace
}  // namespace tessera::precision_test
