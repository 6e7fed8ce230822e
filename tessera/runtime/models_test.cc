// Runs the encoder models: contents of their inputs, the loss at initialisation, plans against the
// serial run.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/models/model.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/testing.h"

namespace tessera::models_test {
namespace {

using testing::Workspace;

constexpr const char* kBert = "bert:layers=2,hidden=16,heads=2,seq=8,vocab=17,masked=3";
constexpr const char* kT5 = "t5:layers=2,hidden=16,heads=2,source=6,seq=4,vocab=17";
constexpr const char* kVit = "vit:layers=2,hidden=16,heads=2,image=8,patch=4,classes=5";
constexpr const char* kSwin =
    "swin:depths=2-2,hidden=8,heads=2,image=16,patch=2,window=2,classes=5";
constexpr const char* kEvoformer =
    "evoformer:layers=2,sequences=3,residues=4,hidden=8,pair=8,heads=2,outer=2,vocab=7,bins=5,"
    "recycles=1";

Model model_of(const char* spec) {
  auto model = build_model(spec, 4, DType::kFloat64);
  EXPECT_TRUE(model) << model.error().message;
  return model.value_or(Model{});
}

void load_inputs(const Model& model, Workspace& w) {
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role != Role::kInput) continue;
    const Box all = Box::whole(tensor.shape());
    load_random(model, 5, 1, tensor, all, w.view(tensor.id, all));
  }
}

TEST(Encoders, LossAtInitialisationIsThatOfAGuess) {
  const std::pair<const char*, double> cases[] = {{kBert, std::log(17)},
                                                  {kT5, std::log(17)},
                                                  {kVit, std::log(5)},
                                                  {kSwin, std::log(5)},
                                                  {kEvoformer, std::log(7) + std::log(5)}};
  for (const auto& [spec, expected] : cases) {
    const Model model = model_of(spec);
    Workspace w(model.graph);
    w.initialise();
    load_inputs(model, w);
    w.run();
    EXPECT_NEAR(w.get(model.graph.loss)[0], expected, 0.05 * expected) << spec;
  }
}

// Exactly `masked` tokens of each sequence are hidden in the tokens, and just these are kept in the
// targets.
TEST(Encoders, MaskedTokensAreTheTargets) {
  const Model model = model_of(kBert);
  Workspace w(model.graph);
  load_inputs(model, w);
  const std::vector<double> tokens = w.get(model.graph.find_tensor("tokens")),
                            targets = w.get(model.graph.find_tensor("targets"));
  for (size_t row = 0; row < 4; ++row) {
    int masked = 0;
    for (size_t i = row * 8; i < (row + 1) * 8; ++i) {
      if (targets[i] >= 0) ++masked;
      EXPECT_EQ(tokens[i] == 16, targets[i] >= 0);
      EXPECT_LT(targets[i], 16);
      EXPECT_GE(targets[i], -1);
    }
    EXPECT_EQ(masked, 3);
  }
}

TEST(Encoders, TheDecoderGoesOnWhereTheSourceEnds) {
  const Model model = model_of(kT5);
  Workspace w(model.graph);
  load_inputs(model, w);
  const auto row = [&](const char* name, size_t size) {
    const std::vector<double> all = w.get(model.graph.find_tensor(name));
    return std::vector<double>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
  };
  const std::vector<double> source = row("source", 6), tokens = row("tokens", 4),
                            targets = row("targets", 4);
  EXPECT_EQ(tokens[0], source[5]);
  EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
}

void expect_equal_to_serial(const char* model, const std::string& plan, int64_t batch) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = batch;
  const auto report = verify_plan(config);
  ASSERT_TRUE(report) << model << " " << plan << ": " << report.error().message;
  EXPECT_TRUE(report->ok) << model << " " << plan << ": " << report->why;
}

TEST(Encoders, EqualTheSerialRunUnderRecipes) {
  for (const char* model : {kBert, kT5, kVit, kSwin, kEvoformer}) {
    expect_equal_to_serial(model, "zero(3,3)", 6);
    expect_equal_to_serial(model, "megatron(tp=2,pp=2,micro_batches=2)", 4);
  }
}

}  // namespace
}  // namespace tessera::models_test
