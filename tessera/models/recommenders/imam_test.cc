// Tests imam: sizes by closed forms, the parameters that its parts share, shapes, errors.
#include "tessera/models/recommenders/imam.h"

#include <gtest/gtest.h>

#include <map>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"

namespace tessera::imam_test {
namespace {

constexpr const char* kSmall =
    "points=12,queries=6,plane=8,features=4,downs=1,middle=2,depth=2,codes=7,code_width=3,layers=2,"
    "hidden=8,heads=2,classes=5";

std::string small(const std::string& part) { return "imam:part=" + part + "," + kSmall; }

Graph graph_of(const std::string& spec, int64_t batch = 2) {
  auto model = build_model(spec, batch);
  EXPECT_TRUE(model) << spec << ": " << (model ? "" : model.error().message);
  return model ? model->graph : Graph{};
}

std::string error_of(const std::string& spec) {
  const auto model = build_model(spec, 2);
  return model ? "no error" : model.error().message;
}

std::map<std::string, std::string> parameters_of(const Graph& graph) {
  std::map<std::string, std::string> out;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter) out[tensor.name] = describe(tensor.dims);
  }
  return out;
}

int64_t count_of(const Graph& graph, std::string_view prefix = "") {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && tensor.name.starts_with(prefix))
      count += tensor.elements();
  }
  return count;
}

std::string dims_of(const Graph& graph, std::string_view name) {
  const TensorId id = graph.find_tensor(name);
  return id.valid() ? describe(graph.tensor(id).dims) : "none";
}

// Returns the number of the transformer's parameters: its blocks, the embeddings of tokens,
// classes, start and positions, and the head.
int64_t transformer_count(int64_t layers, int64_t h, int64_t codes, int64_t classes,
                          int64_t tokens) {
  const int64_t block = 12 * h * h + 13 * h;  // 4 products with biases, 4h wide MLP, two norms
  const int64_t head = 2 * h + h * h + h + 2 * h + codes;
  return layers * block + (codes + classes + 1 + tokens + 1) * h + head;
}

TEST(Imam, TheTransformerOfArgus3dHasThePublishedNumberOfParameters) {
  const Graph graph = graph_of("imam:part=sequence", 1);
  const int64_t weights = 12LL * 32 * 3072 * 3072;
  EXPECT_EQ(weights, 3'623'878'656);  // 3.62e9
  EXPECT_EQ(count_of(graph), transformer_count(32, 3072, 8192, 55, 1024));
  int64_t products = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && tensor.name.starts_with("blocks.") &&
        tensor.dims.size() > 1 && tensor.name.ends_with("weight"))
      products += tensor.elements();
  }
  EXPECT_EQ(products, weights);
  EXPECT_EQ(dims_of(graph, "tokens"), "[batch=1, seq=1024]");
}

TEST(Imam, TheAutoEncoderHasTheSizesOfItsLayers) {
  const auto dense = [](int64_t in, int64_t out) { return in * out + out; };
  const auto conv = [](int64_t in, int64_t out, int64_t kernel) {
    return in * out * kernel * kernel + out;
  };
  const auto pair = [&](int64_t in, int64_t out) { return conv(in, out, 3) + conv(out, out, 3); };
  const auto u_net = [&](int64_t c, int64_t levels) {
    int64_t count = pair(c, c) + conv(c, c, 1);
    for (int64_t l = 1; l < levels; ++l) {
      const int64_t wide = c << l, narrow = wide / 2;
      count += pair(narrow, wide) + conv(wide, narrow, 2) + pair(wide, narrow);
    }
    return count;
  };
  const int64_t f = 32;
  const int64_t encoder = dense(3, 2 * f) + 5 * (dense(2 * f, f) + dense(f, f) + 2 * f * f) +
                          dense(f, f) + conv(3 * f, 3 * f, 3) + conv(3 * f, f, 3) +
                          conv(32, 64, 2) + conv(64, 128, 2) + conv(128, 256, 2) +
                          conv(256, 512, 1) + dense(512, 4);
  const int64_t decoder = dense(4, 512) + u_net(512, 2) + conv(512, 128, 2) + conv(128, 64, 2) +
                          conv(64, 32, 2) + conv(32, 96, 3) + conv(96, 96, 3) + u_net(32, 4) +
                          dense(3, f) + 5 * (dense(f, f) + 2 * dense(f, f)) + dense(f, 1);
  const Graph graph = graph_of("imam", 1);
  EXPECT_EQ(count_of(graph, "encoder."), encoder);
  EXPECT_EQ(count_of(graph, "decoder."), decoder);
  EXPECT_EQ(count_of(graph, "codebook."), 8192 * 4);
  EXPECT_EQ(count_of(graph), encoder + decoder + 8192 * 4);
  EXPECT_EQ(dims_of(graph, "encoder.map"), "[batch=1, channels=96, height=256, width=256]");
  EXPECT_EQ(dims_of(graph, "encoder.wide.act"), "[batch=1, channels=512, height=32, width=32]");
  EXPECT_EQ(dims_of(graph, "quantise.ids"), "[batch=1, height=32, width=32]");  // 1024 tokens
  EXPECT_EQ(dims_of(graph, "decoder.planes"),
            "[batch=1, plane=3, channels=32, height=256, width=256]");
  EXPECT_EQ(dims_of(graph, "decoder.out"), "[batch=1, queries=2048]");
}

TEST(Imam, PlanesThatAreNotCoupledHaveTokensOfTheirOwn) {
  const Graph coupled = graph_of(small("autoencoder"));
  const Graph apart = graph_of(small("autoencoder") + ",coupled=0");
  EXPECT_EQ(dims_of(coupled, "quantise.ids"), "[batch=2, height=4, width=4]");
  EXPECT_EQ(dims_of(apart, "quantise.ids"), "[batch=2, plane=3, height=4, width=4]");
  EXPECT_EQ(dims_of(apart, "decoder.conv_2_bias"), dims_of(coupled, "decoder.planes"));
  EXPECT_EQ(dims_of(graph_of(small("transformer") + ",coupled=0"), "quantise.tokens"),
            "[batch=2, seq=48]");
  EXPECT_EQ(dims_of(graph_of(small("sequence") + ",coupled=0"), "tokens"), "[batch=2, seq=48]");
  // The parts share parameters as they do with coupled planes; planes share parameters too.
  const auto whole = parameters_of(apart);
  for (const auto& [name, dims] : parameters_of(graph_of(small("decoder") + ",coupled=0")))
    EXPECT_EQ(whole.at(name), dims) << name;
  EXPECT_EQ(whole.at("encoder.conv_1.weight"),
            "[channels=4, source=4, kernel_height=3, kernel_width=3]");
}

TEST(Imam, PartsShareTheParametersThatBothHave) {
  const Graph shapes = graph_of(small("autoencoder"));
  const auto whole = parameters_of(shapes), tokens = parameters_of(graph_of(small("sequence")));
  const auto both = parameters_of(graph_of(small("transformer")));
  for (const auto& [name, dims] : parameters_of(graph_of(small("decoder"))))
    EXPECT_EQ(whole.at(name), dims) << name;
  for (const auto& [name, dims] : tokens) EXPECT_EQ(both.at(name), dims) << name;
  size_t encoder = 0;
  for (const auto& [name, dims] : both) {
    if (tokens.contains(name)) continue;
    EXPECT_EQ(whole.at(name), dims) << name;
    ++encoder;
  }
  EXPECT_EQ(both.size(), tokens.size() + encoder);
  EXPECT_FALSE(both.contains("decoder.out.weight"));
}

TEST(Imam, TheFirstStageIsFrozenInsideTheSecond) {
  const Graph forward = graph_of(small("transformer"));
  auto training = differentiate(forward, OptimizerSpec{});
  ASSERT_TRUE(training) << training.error().message;
  for (const Tensor& tensor : training->tensors()) {
    EXPECT_FALSE(tensor.name.starts_with("grad.encoder.")) << tensor.name;
    EXPECT_FALSE(tensor.name.starts_with("grad.codebook.")) << tensor.name;
    EXPECT_FALSE(tensor.name.starts_with("optimizer.m.encoder.")) << tensor.name;
  }
  EXPECT_TRUE(training->find_tensor("grad.embed.token.weight").valid());
}

TEST(Imam, ErrorsNameTheKey) {
  EXPECT_EQ(error_of("imam:plane=20"),
            "model 'imam': plane=20 must be a multiple of 16, which downs=3, middle=2 and depth=4 "
            "ask for");
  EXPECT_EQ(error_of("imam:plane=8192"), "model 'imam': plane=8192 must be at most 4096");
  EXPECT_EQ(error_of("imam:downs=13"), "model 'imam': downs=13 must be at most 12");
  EXPECT_EQ(error_of("imam:hidden=10,heads=4"),
            "model 'imam': hidden=10 must be a multiple of heads=4");
  EXPECT_EQ(error_of("imam:dropout=1"), "model 'imam': dropout=1 must be below 1");
  EXPECT_EQ(error_of("imam:part=codes"),
            "model 'imam': part must be one of autoencoder, transformer, sequence, decoder, found "
            "'codes'");
}

}  // namespace
}  // namespace tessera::imam_test
