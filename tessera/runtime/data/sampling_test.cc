#include "tessera/runtime/data/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/data/test_files.h"
#include "tessera/models/model.h"
#include "tessera/runtime/testing.h"
#include "tessera/state/safetensors.h"

namespace tessera::sampling_test {
namespace {

constexpr const char* kModel = "gpt:layers=2,hidden=16,heads=4,seq=6,vocab=12";

TEST(ChooseToken, TheLikeliestWithoutTemperatureAndOfEqualOnesTheLowest) {
  EXPECT_EQ(choose_token({1, 3, 2}, 0, 0, 0.9), 1);
  EXPECT_EQ(choose_token({2, 3, 3}, 0, 0, 0.9), 1);
  EXPECT_EQ(choose_token({1, 3, 2}, 5, 1, 0.9), 1);
}

TEST(ChooseToken, DrawsFromTheSoftmaxOfTheLikeliest) {
  const std::vector<double> logits{0.5, 2, -1, 1};
  for (const int64_t top_k : {0, 2, 3, 9}) {
    std::vector<double> counts(4, 0), expected(4, 0);
    constexpr int kDraws = 10'000;
    for (int i = 0; i < kDraws; ++i)
      counts[static_cast<size_t>(choose_token(logits, 2, top_k, (i + 0.5) / kDraws))] += 1;
    const std::vector<size_t> order{1, 3, 0, 2};
    const size_t kept = top_k == 0 ? 4 : std::min<size_t>(4, static_cast<size_t>(top_k));
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) sum += std::exp(logits[order[i]] / 2);
    for (size_t i = 0; i < kept; ++i) expected[order[i]] = std::exp(logits[order[i]] / 2) / sum;
    // The draws are evenly spaced: a share is off by at most a draw on either side.
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / kDraws, expected[i], 2.0 / kDraws);
  }
}

class Sampling : public TestFiles {
 protected:
  // Sets parameters that tell tokens apart, in `work` and in the file that it returns.
  std::string weights(testing::Workspace& work) {
    std::vector<ArrayEntry> arrays;
    std::string data;
    for (const Tensor& tensor : work.graph().tensors()) {
      if (tensor.role != Role::kParameter) continue;
      work.randomise(tensor.id, -0.7, 0.7);
      arrays.push_back({tensor.name, DType::kFloat64, tensor.shape(), 0, 0});
      data += bytes_of(work.get(tensor.id));
    }
    return write("model.safetensors", layout_safetensors(std::move(arrays)).head + data);
  }
  SampleConfig config(const std::string& plan = "serial") {
    SampleConfig c;
    c.model = kModel;
    c.weights = path("model.safetensors");
    c.plan = plan;
    c.precision = "float64";
    c.prompt = {3, 1};
    c.count = 12;
    return c;
  }
  static std::vector<int64_t> tokens(const SampleConfig& c) {
    auto made = sample_tokens(c);
    EXPECT_TRUE(made) << c.plan << ": " << (made ? "" : made.error().message);
    return made.value_or(std::vector<int64_t>{});
  }
  static std::string error_of(const SampleConfig& c) {
    const auto made = sample_tokens(c);
    return made ? "" : made.error().message;
  }
  static Model model_of(const std::string& spec) {
    auto model = build_model(spec, 1, DType::kFloat64);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(model).value();
  }
};

// The oracle runs the graph op by op on whole tensors and takes the largest logit, with a window
// over the last tokens once there are more than the model sees.
TEST_F(Sampling, GreedyTokensAreThoseOfTheGraphRunOpByOp) {
  const Model model = model_of(kModel);
  testing::Workspace work(model.graph);
  work.initialise();
  weights(work);
  SampleConfig c = config();
  c.temperature = 0;
  std::vector<int64_t> text = c.prompt;
  for (int64_t i = 0; i < c.count; ++i) {
    const size_t seen = std::min<size_t>(text.size(), 6);
    std::vector<double> inputs(text.end() - static_cast<std::ptrdiff_t>(seen), text.end());
    inputs.resize(6, 0);
    work.set(model.graph.find_tensor("tokens"), inputs);
    work.run();
    const std::vector<double> logits = work.get(model.graph.find_tensor("head"));
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>((seen - 1) * 12);
    text.push_back(std::max_element(first, first + 12) - first);
  }
  EXPECT_EQ(tokens(c), std::vector<int64_t>(text.begin() + 2, text.end()));
}

TEST_F(Sampling, EveryPlanMakesTheSameTokens) {
  const Model model = model_of(kModel);
  testing::Workspace work(model.graph);
  work.initialise();
  weights(work);
  const std::vector<int64_t> serial = tokens(config());
  EXPECT_EQ(serial.size(), 12U);
  for (const char* plan : {"data_parallel(2)", "tensor_parallel(2)", "zero(stage=3, dp=2)",
                           "gpipe(pp=2, micro_batches=2)", "ring_attention(2)", "fsdp(2)"})
    EXPECT_EQ(tokens(config(plan)), serial) << plan;
  SampleConfig other = config();
  other.seed = 2;
  EXPECT_NE(tokens(other), serial);
}

TEST_F(Sampling, NothingIsDroppedAndDocumentsAreKeptApart) {
  const Model model = model_of(kModel);
  testing::Workspace work(model.graph);
  work.initialise();
  weights(work);
  SampleConfig c = config();
  const std::vector<int64_t> plain = tokens(c);
  c.model = std::string(kModel) + ",dropout=0.4,attention_dropout=0.4";
  EXPECT_EQ(tokens(c), plain);
  // Tokens before the end of a document do not count: position 1 sees nothing but itself.
  c.model = std::string(kModel) + ",eod=1";
  c.count = 1;
  c.temperature = 0;
  c.prompt = {3, 1, 5};
  const std::vector<int64_t> one = tokens(c);
  c.prompt = {7, 1, 5};
  EXPECT_EQ(tokens(c), one);
}

TEST_F(Sampling, ErrorsAreOneLine) {
  const Model model = model_of(kModel);
  testing::Workspace work(model.graph);
  work.initialise();
  const std::string file = weights(work);
  SampleConfig c = config();
  c.prompt = {};
  EXPECT_EQ(error_of(c), "sample: expected a prompt of at least one token");
  c.prompt = {3, 12};
  EXPECT_EQ(error_of(c),
            "sample: prompt, token 1: expected a token below 12 (vocab = 12), found 12");
  c = config();
  c.model = "gpt:layers=3,hidden=16,heads=4,seq=6,vocab=12";
  EXPECT_EQ(error_of(c), "sample: weights '" + file +
                             "': expected the parameter 'blocks.2.ln_1.weight' [16], found none");
  c.model = "gpt:layers=2,hidden=16,heads=4,seq=7,vocab=12";
  EXPECT_EQ(error_of(c), "sample: weights '" + file +
                             "': expected the shape [7, 16] of 'embed.position.weight', found [6, "
                             "16]");
  c.model = "bert:layers=1,hidden=16,heads=2,seq=8,vocab=17";
  EXPECT_EQ(error_of(c).find("sample: expected a model that predicts the next token of a text, "
                             "found 'bert:"),
            0U)
      << error_of(c);
  c.model = "mlp:in=4";
  EXPECT_EQ(error_of(c).find("sample: expected a model that predicts"), 0U) << error_of(c);
}

}  // namespace
}  // namespace tessera::sampling_test
