// Compares three steps of each optimizer on a matrix [4, 6] and a vector [6] in float64 with
// PyTorch 2.13 (SGD, AdamW, Adagrad, Adafactor of torch.optim, the others written out after their
// papers in torch), whose results stand here as numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/graph/builder.h"
#include "tessera/graph/optimizers.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/testing.h"
#include "tessera/test/all_cases.h"

namespace tessera::optimizers_test {
namespace {

using Values = std::vector<double>;

constexpr double kRate = 0.02;
const std::vector<Dim> kMatrix{{"a", 4}, {"b", 6}}, kVector{{"b", 6}};

// The first element, the last one, and the sum of all squares.
struct Seen {
  double first, last, squares;
};
Seen seen(const Values& values) {
  Seen out{values.front(), values.back(), 0};
  for (const double value : values) out.squares += value * value;
  return out;
}

// Steps on parameters "w", with its published dims, and "b", whose gradients are inputs "dw" and
// "db".
class Steps {
 public:
  explicit Steps(const OptimizerSpec& spec, const std::vector<Dim>& matrix = kMatrix,
                 const std::string& published = "b a")
      : graph_(make(spec, matrix, published)), work_(graph_) {
    work_.initialise();
    set("w", [](int i) { return std::sin(i + 1); });
    set("b", [](int i) { return std::sin(i + 3); });
  }

  void step(int t, double clipped = 1) {
    set("dw", [=](int i) { return clipped * std::cos(0.7 * i + t); });
    set("db", [=](int i) { return clipped * std::cos(0.3 * i - t); });
    set("lr", [](int) { return kRate; });
    set("step", [=](int) { return t; });
    work_.run();
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.update_of.valid()) work_.set(tensor.update_of, work_.get(tensor.id));
    }
  }
  Values get(const std::string& name) const { return work_.get(graph_.find_tensor(name)); }
  const Graph& graph() const { return graph_; }

 private:
  static Graph make(const OptimizerSpec& spec, const std::vector<Dim>& matrix,
                    const std::string& published) {
    GraphBuilder g("optimizers");
    std::vector<TensorId> losses;
    for (const auto& [name, dims] : {std::pair{"w", matrix}, std::pair{"b", kVector}}) {
      std::string all, summed;
      for (const Dim& dim : dims) {
        all += dim.name + " ";
        summed += dim.name + "+ ";
      }
      const TensorId p = g.parameter(name, dims, {Init::Kind::kZeros, 0}, DType::kFloat64);
      if (dims.size() > 1) g.publish(p, published);
      const TensorId c = g.input(std::string("d") + name, dims, DType::kFloat64);
      losses.push_back(g.op1(std::string("loss_") + name, "einsum", {p, c},
                             {{"spec", summed + ", " + all + "-> ()"}}));
    }
    g.graph().loss = g.op1("loss", "add_n", losses);
    auto forward = g.finish();
    EXPECT_TRUE(forward) << forward.error().message;
    auto graph = differentiate(*forward, spec);
    EXPECT_TRUE(graph) << spec.kind << ": " << (graph ? "" : graph.error().message);
    return graph.value_or(Graph());
  }

  template <class F>
  void set(const std::string& name, F f) {
    const TensorId id = graph_.find_tensor(name);
    if (!id.valid()) return;
    Values values(static_cast<size_t>(graph_.tensor(id).elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = f(static_cast<int>(i));
    work_.set(id, values);
  }

  Graph graph_;
  testing::Workspace work_;
};

OptimizerSpec unclipped(const std::string& kind) {
  OptimizerSpec spec;
  spec.kind = kind;
  spec.clip_norm = 0;
  return spec;
}

TEST(OptimizersTest, EachComputesWhatPyTorchComputes) {
  const struct {
    const char* name;
    Seen matrix, vector;
  } expected[] = {
      {"sgd",
       {0.83844031146508513, -0.93298736018901685, 12.436318342800604},
       {0.14744905280261433, 0.90703039038373534, 2.9011965162727571}},
      {"nesterov",
       {0.85114680549710586, -0.95527686167935111, 12.48422180780063},
       {0.1641328888739286, 0.87874512949873107, 2.8349001150275837}},
      {"adamw",
       {0.82471560715317982, -0.90661013197394391, 12.465964940897049},
       {0.12932037392334003, 0.93298880538523343, 2.9660283457371652}},
      {"adagrad",
       {0.84666733844348496, -0.91970280214914657, 12.602869819697908},
       {0.14979420134060806, 0.95407803704735594, 2.934355419513893}},
      {"adafactor",
       {0.8528439232077869, -0.93076488848454875, 12.503761223981837},
       {0.15844926039109319, 0.95957257440246757, 2.9207314596319267}},
      {"lion",
       {0.85647216981909891, -0.92019567153030135, 12.5170442858401},
       {0.1611200080598672, 0.92935824662338173, 2.9229771392729269}},
      {"lamb",
       {0.83160035712453761, -0.91283307456780116, 12.483175978449967},
       {0.12932037392334003, 0.93298880538523343, 2.9660283457371652}},
      {"lars",
       {0.84146716150814982, -0.90560327942820995, 12.533190191719543},
       {0.14744905280261433, 0.90703039038373534, 2.9011965162727571}},
      {"muon",
       {0.83533399104032968, -0.90979537870485672, 12.415147680868355},
       {0.12932037392334003, 0.93298880538523343, 2.9660283457371652}},
      {"muon_nesterov",
       {0.83915753034836815, -0.91226572443059606, 12.425969167041121},
       {0.12932037392334003, 0.93298880538523343, 2.9660283457371652}},
  };
  for (const auto& [name, matrix, vector] : expected) {
    const std::string text = name;
    OptimizerSpec spec = unclipped(text == "nesterov" ? "sgd" : text.substr(0, text.find('_')));
    spec.nesterov = text.ends_with("nesterov") ? 1 : 0;
    Steps run(spec);
    for (const int t : {1, 2, 3}) run.step(t);
    for (const auto& [parameter, wanted] : {std::pair{"w", matrix}, std::pair{"b", vector}}) {
      const Seen found = seen(run.get(parameter));
      EXPECT_NEAR(found.first, wanted.first, 1e-12) << name << " " << parameter;
      EXPECT_NEAR(found.last, wanted.last, 1e-12) << name << " " << parameter;
      EXPECT_NEAR(found.squares, wanted.squares, 1e-11) << name << " " << parameter;
    }
  }
}

// A coefficient of clipping reaches every optimizer: a gradient that is ten times as long and then
// clipped to its length makes the same step.
TEST(OptimizersTest, EachTakesTheClippedGradient) {
  for (const Optimizer& optimizer : all_optimizers()) {
    OptimizerSpec spec = unclipped(optimizer.name);
    spec.clip_norm = 1;
    Steps once(spec), ten(spec);
    for (const int t : {1, 2, 3}) {
      once.step(t, 10);
      ten.step(t, 100);
    }
    for (const char* parameter : {"w", "b"}) {
      EXPECT_LT(testing::relative_error(once.get(parameter), ten.get(parameter)), 1e-6)
          << optimizer.name << " " << parameter;
    }
  }
}

// The graph's dims do not matter: [2, 2, 6] and [4, 3, 2] that are published as [6, 4] get the step
// that [4, 6] gets.
TEST(OptimizersTest, EachWorksOnThePublishedShape) {
  for (const Optimizer& optimizer : all_optimizers()) {
    const OptimizerSpec spec = unclipped(optimizer.name);
    Steps flat(spec), deep(spec, {{"a", 2}, {"c", 2}, {"b", 6}}, "b (a c)"),
        tall(spec, {{"a", 4}, {"c", 3}, {"b", 2}}, "(c b) a");
    for (const int t : {1, 2, 3}) {
      flat.step(t);
      deep.step(t);
      tall.step(t);
    }
    EXPECT_LT(testing::relative_error(deep.get("w"), flat.get("w")), 1e-12) << optimizer.name;
    EXPECT_LT(testing::relative_error(tall.get("w"), flat.get("w")), 1e-12) << optimizer.name;
  }
}

// Dims that are published as one are a vector: it has no ratio, no factors, and does not decay.
TEST(OptimizersTest, EachTakesWhatIsPublishedAsAVectorForOne) {
  for (const Optimizer& optimizer : all_optimizers()) {
    const OptimizerSpec spec = unclipped(optimizer.name);
    Steps flat(spec, {Dim{"a", 24}}), heads(spec, {{"a", 4}, {"b", 6}}, "(a b)");
    for (const int t : {1, 2, 3}) {
      flat.step(t);
      heads.step(t);
    }
    EXPECT_LT(testing::relative_error(heads.get("w"), flat.get("w")), 1e-12) << optimizer.name;
    OptimizerSpec undecayed = spec;
    undecayed.weight_decay = 0;
    Steps without(undecayed, {{"a", 4}, {"b", 6}}, "(a b)");
    for (const int t : {1, 2, 3}) without.step(t);
    EXPECT_EQ(heads.get("w"), without.get("w")) << optimizer.name;
  }
}

// Two experts [2, n, m] in a batched product: x is the identity for each expert, so that the
// gradient of expert e is the input "dw"[e].
class ExpertSteps {
 public:
  ExpertSteps(std::vector<Dim> weight, const std::string& spec)
      : graph_(make(std::move(weight), spec)), work_(graph_) {
    work_.initialise();
    Values identity(2UL * 3 * 3);
    for (size_t i = 0; i < identity.size(); ++i) identity[i] = i % 9 % 4 == 0 ? 1 : 0;
    work_.set(graph_.find_tensor("x"), identity);
    work_.set(graph_.find_tensor("lr"), {kRate});
    work_.set(graph_.find_tensor("step"), {1});
  }

  // Returns the updated weights, which begin at 0.
  Values step(const Values& gradient) {
    work_.set(graph_.find_tensor("dw"), gradient);
    work_.run();
    return work_.get(graph_.find_tensor("updated.w"));
  }

 private:
  static Graph make(std::vector<Dim> weight, const std::string& spec) {
    GraphBuilder g("experts");
    const Dim experts{"experts", 2}, batch{"batch", 3}, in{"in", 3}, out{"out", 4};
    const TensorId x = g.input("x", {experts, batch, in}, DType::kFloat64),
                   w = g.parameter("w", std::move(weight), {Init::Kind::kZeros}, DType::kFloat64),
                   dw = g.input("dw", {experts, batch, out}, DType::kFloat64);
    g.publish(w, "experts out in");
    const TensorId y = g.op1("y", "einsum", {x, w}, {{"spec", spec}});
    g.graph().loss = g.op1("loss", "reduce_sum", {g.op1("product", "mul", {y, dw})},
                           {{"dims", std::string("experts batch out")}});
    auto forward = g.finish();
    EXPECT_TRUE(forward) << forward.error().message;
    OptimizerSpec muon = unclipped("muon");
    muon.weight_decay = 0;
    auto graph = differentiate(*forward, muon);
    EXPECT_TRUE(graph) << graph.error().message;
    return graph.value_or(Graph());
  }

  Graph graph_;
  testing::Workspace work_;
};

// Applies five steps of s -> a s + b s^3 + c s^5 to a singular value of a matrix of norm 1.
double orthogonalised_value(double s) {
  for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
  return s;
}

// The gradient of an expert is diagonal, so that its singular values are the diagonal's, and Muon's
// result for the matrix is known in closed form.
TEST(OptimizersTest, MuonMakesTheMatrixOfEachExpertOrthogonal) {
  const double diagonals[2][3] = {{3, 4, 0.5}, {1e-3, 2e-3, 5e-3}};
  Values gradient(2UL * 3 * 4), expected(gradient.size());
  for (size_t e = 0; e < 2; ++e) {
    double norm = 0;
    for (const double value : diagonals[e]) norm += value * value;
    norm = std::sqrt(norm);
    for (size_t i = 0; i < 3; ++i) {
      const size_t at = e * 12 + i * 5;
      gradient[at] = diagonals[e][i];
      // The matrix is published with 4 rows and 3 columns: sqrt(max(1, rows / columns)).
      expected[at] = -kRate * std::sqrt(4.0 / 3) * orthogonalised_value(diagonals[e][i] / norm);
    }
  }
  ExpertSteps first({{"experts", 2}, {"in", 3}, {"out", 4}},
                    "experts batch in+, experts in out -> experts batch out");
  EXPECT_LT(testing::relative_error(first.step(gradient), expected), 1e-12);

  // The experts need not be the first dim of the weights.
  ExpertSteps last({{"in", 3}, {"out", 4}, {"experts", 2}},
                   "experts batch in+, in out experts -> experts batch out");
  Values turned(expected.size());
  for (size_t e = 0; e < 2; ++e) {
    for (size_t i = 0; i < 12; ++i) turned[i * 2 + e] = expected[e * 12 + i];
  }
  EXPECT_LT(testing::relative_error(last.step(gradient), turned), 1e-12);
}

TEST(OptimizersTest, MuonOnExpertsIsEqualToTheSerialRunUnderPlans) {
  for (const char* plan : {"expert_parallel(2)", "expert_parallel(2,tp=2,zero=1)",
                           "expert_parallel(ep=1,dp=4,zero=3)", "gpipe(pp=2,micro_batches=2)"}) {
    VerifyConfig config;
    config.model = "mixtral:layers=2,hidden=8,heads=2,kv_heads=2,experts=4,seq=4,vocab=10,ffn=12";
    config.plan = plan;
    config.batch = 8;
    config.optimizer.kind = "muon";
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

TEST(OptimizersTest, GroupsHaveARateADecayAndAnOptimizerOfTheirOwn) {
  OptimizerSpec plain = unclipped("adamw"), grouped = plain;
  grouped.groups = {{"w", 3, 0.5, ""}, {"*", 2, std::nullopt, "sgd"}, {"w", 0.5, 0.0, "lion"}};
  OptimizerSpec lion = unclipped("lion"), sgd = unclipped("sgd");
  lion.weight_decay = 0;
  lion.groups = {{"w", 0.5, std::nullopt, ""}};
  sgd.groups = {{"b", 2, std::nullopt, ""}};
  Steps mixed(grouped), only_lion(lion), only_sgd(sgd);
  for (const int t : {1, 2}) {
    mixed.step(t);
    only_lion.step(t);
    only_sgd.step(t);
  }
  EXPECT_EQ(mixed.get("w"), only_lion.get("w"));
  EXPECT_EQ(mixed.get("b"), only_sgd.get("b"));
  OptimizerSpec wrong = plain;
  wrong.groups = {{"w", 1, std::nullopt, "adan"}};
  GraphBuilder g("none");
  EXPECT_EQ(differentiate(g.graph(), wrong).error().message,
            "group 'w': expected an optimizer (adafactor, adagrad, adamw, lamb, lars, lion, muon, "
            "row_adam, row_sgd, rowwise_adagrad, sgd) or none, "
            "found 'adan'");
  wrong.groups = {{"we*", 1, std::nullopt, ""}};
  g.parameter("body.w", {{"x", 2}}, {Init::Kind::kZeros});
  EXPECT_EQ(differentiate(g.graph(), wrong).error().message,
            "optimizer.group: expected a pattern of the model's parameters (as 'body.w'), found "
            "'we*', which none has");
}

// With norms, factored moments and matrix products of sharded parameters, every plan computes what
// one rank does.
TEST(OptimizersTest, EachIsEqualToTheSerialRunUnderPlans) {
  const std::vector<std::string> plans = {"zero(stage=1,dp=4)",
                                          "zero(stage=2,dp=2,micro_batches=2)",
                                          "zero(stage=3,dp=4)",
                                          "tensor_parallel(tp=2)",
                                          "megatron(tp=2,pp=2,dp=2,zero=2,micro_batches=2)",
                                          "tensor_parallel_3d(2,1,2)",
                                          "gpipe(pp=2,micro_batches=2)"};
  for (const auto& [optimizer, plan] : combinations(all_optimizers(), plans)) {
    VerifyConfig config;
    config.model = "gpt:layers=2,hidden=12,heads=4,seq=4,vocab=10,ffn=20,tied=0";
    config.plan = plan;
    config.batch = 8;
    config.optimizer.kind = optimizer.name;
    config.optimizer.nesterov = 1;
    config.optimizer.groups = {{"head", 0.5, 0.0, ""}};
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << optimizer.name << " " << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << optimizer.name << " " << plan << ": " << report->why;
  }
}

// A weight that is published as [1, units] has one factor without dims; a bias that is published as
// [1] has none at all.
TEST(OptimizersTest, AFactorWithoutDimsIsOnAllRanks) {
  for (const char* plan : {"data_parallel(2)", "zero(stage=1,dp=2)", "zero(stage=3,dp=4)"}) {
    VerifyConfig config;
    config.model = "ga_planes:training=nonconvex,hidden=8,lines=2,planes=1,volume=0";
    config.plan = plan;
    config.batch = 4;
    config.optimizer.kind = "adafactor";
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

// Two axes cut a vocabulary in turn, and the moments by row take both cuts.
TEST(OptimizersTest, FactoredMomentsKeepTheCutsOfTheirParameter) {
  VerifyConfig config;
  config.model = "llama:layers=1,hidden=8,heads=2,kv_heads=2,seq=4,vocab=9,ffn=6,tied=0";
  config.batch = 4;
  config.optimizer.kind = "adafactor";
  for (const char* plan : {"megatron(tp=2,dp=2,zero=3)", "megatron(tp=2,dp=2,zero=1)"}) {
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

}  // namespace
}  // namespace tessera::optimizers_test
