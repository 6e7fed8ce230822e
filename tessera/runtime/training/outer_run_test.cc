// Outer steps: the published histories, the rule by hand, and plans against islands of one rank.
#include "tessera/runtime/training/outer_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/plan/load.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/training/periods.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Makes a model of two weights of one element, both 1 at the start. The gradient of each is the
// input `x` times `factor`.
Model two_weights(double factor) {
  GraphBuilder g("two");
  const std::vector<Dim> dims{{"out", 1}, {"in", 1}};
  const TensorId x = g.input("x", dims, DType::kFloat64);
  std::vector<TensorId> terms;
  for (const std::string layer : {"layers.0", "layers.1"}) {
    const TensorId w = g.parameter(layer + ".weight", dims, {Init::Kind::kOnes}, DType::kFloat64);
    terms.push_back(g.op1(layer + ".sum", "reduce_sum", {g.op1(layer + ".times", "mul", {w, x})},
                          {{"dims", "out in"}, {"factor", factor}}));
  }
  g.graph().loss = g.op1("loss", "add", terms);
  Model model;
  model.graph = *g.finish();
  model.spec = "two weights";
  model.batch = 1;
  model.seq = 1;
  return model;
}

// The weights of an island after each step, and those of the last outer step.
struct History {
  std::map<int64_t, std::map<std::string, double>> own, common;
};

// Trains the model under the plan on threads. The input x of an island is `x(island)`. A rank that is
// idle in a step has no weights after it; one that comes back has those that it took after the step
// before.
std::vector<History> train(const Model& model, const std::string& plan_text, int64_t steps,
                           double lr, const std::function<double(int)>& x,
                           const std::vector<PlanChange>& changes = {}) {
  Compiler compiler;
  OptimizerSpec sgd;
  sgd.kind = "sgd";
  sgd.momentum = sgd.weight_decay = sgd.clip_norm = 0;
  const auto compile_plan = [&](const std::string& text) -> Result<Compiled> {
    TESSERA_TRY(Plan plan, parse_plan(text, "plan"));
    return compiler.compile(std::make_shared<const Model>(model), std::move(plan), DType::kFloat64,
                            {sgd});
  };
  auto periods = compile_periods(compile_plan, plan_text, changes);
  EXPECT_TRUE(periods) << periods.error().message;
  const int64_t ranks = largest_ranks(*periods);
  const Status lowered = lower_periods(*periods, ranks);
  EXPECT_TRUE(lowered) << lowered.error().message;
  std::vector<History> out(static_cast<size_t>(ranks));
  const Status ran = comm::run_threads(static_cast<int>(ranks), {}, [&](comm::Communicator& world) {
    PeriodExecutor executor(*periods, world, {});
    History& mine = out[static_cast<size_t>(world.rank())];
    const auto record = [&](int64_t step) {
      for (const Home& home : executor.program().homes) {
        const Tensor& tensor = executor.period().compiled.graph().tensor(home.tensor);
        if (tensor.role != Role::kParameter) continue;
        mine.own[step][tensor.name] = executor->read(home).values().front();
        mine.common[step][tensor.name] = executor.outer()->common(tensor.name).values().front();
      }
    };
    for (int64_t step = 1; step <= steps; ++step) {
      ASSERT_TRUE(executor.begin_step(step));
      if (!mine.own.contains(step - 1)) record(step - 1);
      executor->run_step(step, [&](const Tensor& tensor, const Box&, const kernels::Array& to) {
        const bool is_rate = tensor.init.kind == Init::Kind::kLearningRate;
        const bool is_step = tensor.init.kind == Init::Kind::kStep;
        load_scalar(is_rate ? lr : is_step ? static_cast<double>(step) : x(executor.island()), to);
      });
      executor.end_step(step);
      record(step);
    }
  });
  EXPECT_TRUE(ran) << ran.error().message;
  return out;
}

// The histories of torchft's tests (tests/data/torchft/README.md): two islands, every gradient 2,
// an inner rate of 1 and an outer rate of 2 without momentum.
class Histories : public ::testing::TestWithParam<std::tuple<int, int, double>> {};

TEST_P(Histories, are_reproduced_to_the_last_digit) {
  const auto& [number, delay, mix] = GetParam();
  const std::string plan = fmt::format(
      "mesh = {{ site = 2 }}\nouter = {{ axis = \"site\", every = 6, fragments = 2, "
      "delay = {}, mix = {}, lr = 2.0, momentum = 0, nesterov = false }}\n",
      delay, mix);
  const auto found = train(two_weights(2), plan, 15, 1, [](int) { return 1.; });
  std::ifstream file(
      fmt::format("{}/tests/data/torchft/streaming_diloco_{}.json", TESSERA_SOURCE_DIR, number));
  const Json published = Json::parse(file);
  ASSERT_EQ(published.size(), found.size());
  size_t compared = 0;
  for (size_t island = 0; island < found.size(); ++island) {
    const Json& record = published[island][0];
    for (const auto& [key, of] : {std::pair{"history", &found[island].own},
                                  {"global_parameter_history", &found[island].common}}) {
      for (const auto& [step, weights] : record.at(key).items()) {
        for (const auto& [name, value] : weights.items()) {
          const double expected =
              value.is_array() ? value[0][0].get<double>() : value.get<double>();
          EXPECT_EQ(of->at(std::stoll(step)).at(name), expected)
              << key << " " << step << " " << name;
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, 2U * 2U * (16 + 5));
}

INSTANTIATE_TEST_SUITE_P(Torchft, Histories,
                         ::testing::Values(std::tuple{0, 0, 0.}, std::tuple{1, 0, .5},
                                           std::tuple{2, 0, 1.}, std::tuple{3, 1, 0.},
                                           std::tuple{4, 1, .5}, std::tuple{5, 1, 1.}));

// The history in which a replica fails after its step 2. The other one goes on alone. When it has made
// step 9, the first one comes back with the state of the other, and counts on from its own step 3.
TEST(OuterRun, an_island_that_fails_and_comes_back_is_reproduced_to_the_last_digit) {
  const auto plan = [](int islands) {
    return fmt::format(
        "mesh = {{ site = {} }}\nouter = {{ axis = \"site\", every = 6, fragments = 2, lr = 2.0, "
        "momentum = 0, nesterov = false }}\n",
        islands);
  };
  const auto found =
      train(two_weights(2), plan(2), 21, 1, [](int) { return 1.; }, {{2, plan(1)}, {9, plan(2)}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_FALSE(found[1].own.contains(3));
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) +
                     "/tests/data/torchft/failure_recovery_0.json");
  const Json published = Json::parse(file);
  size_t compared = 0;
  for (size_t island = 0; island < 2; ++island) {
    const Json& record = published[island][0];
    for (const auto& [key, of] : {std::pair{"history", &found[island].own},
                                  {"global_parameter_history", &found[island].common}}) {
      for (const auto& [text, weights] : record.at(key).items()) {
        const int64_t own_step = std::stoll(text);
        const int64_t step = island == 1 && own_step > 2 ? own_step + 6 : own_step;
        for (const auto& [name, value] : weights.items()) {
          EXPECT_EQ(of->at(step).at(name), value[0][0].get<double>())
              << island << " " << key << " " << text << " " << name;
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, 2U * (22 + 7 + 16 + 5));
}

// Three islands of unlike gradients, of which two leave at different times in the middle of inner
// steps and come back together: the rule by hand.
TEST(OuterRun, the_mean_is_that_of_the_islands_that_take_part) {
  const int every = 4;
  const double inner_lr = .125, lr = .7, momentum = .9;
  const auto x = [](int island) { return 1. + 3 * island; };
  const auto plan = [](int islands) {
    return fmt::format("mesh = {{ site = {} }}\nouter = {{ axis = \"site\", every = 4 }}\n",
                       islands);
  };
  const std::map<int, int> islands_after = {{6, 2}, {9, 1}, {14, 3}};
  std::vector<PlanChange> changes;
  for (const auto& [after, islands] : islands_after) changes.push_back({after, plan(islands)});
  const auto found = train(two_weights(1), plan(3), 24, inner_lr, x, changes);
  std::vector<double> own(3, 1);
  double common = 1, moved = 0;
  int active = 3;
  for (int step = 1; step <= 24; ++step) {
    if (const auto change = islands_after.find(step - 1); change != islands_after.end()) {
      for (int island = active; island < change->second; ++island)
        own[static_cast<size_t>(island)] = own[0];
      active = change->second;
    }
    double apart = 0;
    for (int island = 0; island < active; ++island) {
      double& weight = own[static_cast<size_t>(island)];
      weight -= inner_lr * x(island);
      apart += (common - weight) / active;
    }
    if (step % every == 0) {
      moved = momentum * moved + apart;
      common -= lr * (apart + momentum * moved);
      std::fill_n(own.begin(), active, common);
    }
    for (int island = 0; island < 3; ++island) {
      const History& history = found[static_cast<size_t>(island)];
      if (island >= active) {
        EXPECT_FALSE(history.own.contains(step) && islands_after.count(step) == 0) << step;
        continue;
      }
      EXPECT_NEAR(history.own.at(step).at("layers.0.weight"), own[static_cast<size_t>(island)],
                  1e-12 * std::abs(common))
          << "island " << island << ", step " << step;
      EXPECT_NEAR(history.common.at(step).at("layers.0.weight"), common, 1e-12 * std::abs(common))
          << "island " << island << ", step " << step;
    }
  }
}

TEST(OuterRun, nesterov_on_the_mean_of_unlike_islands) {
  const int every = 5;
  const double inner_lr = .125, lr = .7, momentum = .9;
  const auto x = [](int island) { return 1. + 3 * island; };
  const auto found =
      train(two_weights(1), "mesh = { site = 3 }\nouter = { axis = \"site\", every = 5 }\n", 20,
            inner_lr, x);
  double common = 1, moved = 0;
  for (int step = 1; step <= 20; ++step) {
    const int since = (step - 1) % every + 1;
    if (since == every) {
      // The pseudo-gradient: what the islands went down, on average.
      const double difference = every * inner_lr * (x(0) + x(1) + x(2)) / 3;
      moved = momentum * moved + difference;
      common -= lr * (difference + momentum * moved);
    }
    for (int island = 0; island < 3; ++island) {
      const double expected = since == every ? common : common - since * inner_lr * x(island);
      EXPECT_NEAR(found[static_cast<size_t>(island)].own.at(step).at("layers.1.weight"), expected,
                  1e-12 * std::abs(expected))
          << "island " << island << ", step " << step;
    }
  }
}

// Verifies a plan against islands of one rank.
VerifyReport verified(const std::string& plan, const std::string& precision = "float64") {
  VerifyConfig config;
  config.model = "gpt:layers=4,hidden=16,heads=2,seq=8,vocab=24";
  config.plan = plan;
  config.batch = 8;
  config.steps = 5;
  config.precision = precision;
  const auto report = verify_plan(config);
  EXPECT_TRUE(report) << report.error().message;
  return report.value_or(VerifyReport{});
}

std::string outer_plan(const std::string& axes, const std::string& outer, const std::string& rest) {
  return "mesh = { site = 2" + axes + " }\nouter = { axis = \"site\", " + outer + " }\n" + rest;
}
const std::string kBatch = "{ ops = \"*\", dim = \"batch\", over = \"dp\" }, ";

TEST(OuterRun, plans_inside_islands_change_nothing) {
  const std::string plans[] = {
      outer_plan("", "every = 2", ""),
      outer_plan(", dp = 2", "every = 4, fragments = 2, delay = 1, mix = 0.25",
                 "split = [ " + kBatch + "]\nstore = [ { tensors = \"*\", over = \"dp\" } ]\n"),
      outer_plan(", dp = 2, tp = 2", "every = 2, momentum = 0.5",
                 "split = [ " + kBatch +
                     "{ ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"tp\" }, "
                     "{ ops = \"blocks.*.attn\", dim = \"heads\", over = \"tp\" } ]\n"),
      outer_plan(", pp = 2", "every = 4, fragments = 4, optimizer = \"adamw\", lr = 0.01",
                 "micro_batches = 2\nstage = [ { ops = \"*\", at = 0 }, "
                 "{ ops = \"{blocks.2,blocks.3,final,head,loss}\", at = 1 } ]\n")};
  for (const std::string& plan : plans) {
    const VerifyReport report = verified(plan);
    EXPECT_TRUE(report.ok) << report.why << "\n" << plan;
    EXPECT_LT(report.parameters_error, 1e-9) << plan;
    EXPECT_EQ(report.bytes_predicted, report.bytes_counted) << plan;
    EXPECT_GT(report.bytes_counted, 0) << plan;
    EXPECT_FALSE(report.lossy) << "no codec";
  }
}

TEST(OuterRun, a_codec_sends_less_and_is_lossy) {
  const VerifyReport plain = verified(outer_plan("", "every = 1", ""), "float32");
  const VerifyReport coded =
      verified(outer_plan("", "every = 1, with = \"int8\", error_feedback = true", ""), "float32");
  EXPECT_TRUE(coded.lossy);
  EXPECT_TRUE(coded.ok) << coded.why;
  EXPECT_GT(coded.parameters_error, 0);
  EXPECT_EQ(coded.bytes_predicted, coded.bytes_counted);
  EXPECT_LT(coded.bytes_counted, plain.bytes_counted / 3);
}

}  // namespace
}  // namespace tessera
