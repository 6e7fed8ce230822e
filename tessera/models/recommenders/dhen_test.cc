// Tests of dhen: parameters by the closed forms of docs/theory/dhen.md, shapes of layers, errors.
// runtime/kernels/dhen_values_test.cc tests what the modules compute.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"

namespace tessera::dhen_test {
namespace {

// A sample has m embeddings of width d: one of its numbers and one of each of the 3 tables. A
// module makes l, its MLP has f units; attention heads and convolution have these sizes.
constexpr int64_t m = 4, d = 6, l = 3, f = 10, filters = 5, kernel = 3;
const std::string kFeatures =
    "dhen:dense=5,rows=7-9-11,bags=2,width=6,bottom=8-6,top=5-1,ffn=10,filters=5,";
const std::string kSizes = "embeddings=3,heads=2,";

Graph graph_of(const std::string& keys) {
  const auto model = build_model(kFeatures + keys, 8);
  EXPECT_TRUE(model) << keys << ": " << model.error().message;
  return model ? model->graph : Graph();
}

int64_t count(const Graph& graph, std::string_view prefix) {
  int64_t elements = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && tensor.name.starts_with(prefix))
      elements += tensor.elements();
  }
  return elements;
}

int64_t dense(int64_t in, int64_t out) { return (in + 1) * out; }

// Returns the parameters of a module that reads n embeddings.
int64_t parameters_of(const std::string& module, int64_t n) {
  const int64_t pairs = n * (n - 1) / 2;
  const std::map<std::string, int64_t> closed = {
      {"linear", n * l},
      // Four products and an MLP with biases, two norms, and the mixing of embeddings.
      {"attention", 4 * dense(d, d) + dense(d, f) + dense(f, d) + 2 * 2 * d + n * l},
      {"convolution", filters * kernel * kernel + filters * n * l},
      {"cross", n * n * l * d + l * d},
      {"dot", pairs * l * d},
      {"dlrm", dense(n * d, f) + dense(f, d) + (d + pairs) * l * d},
  };
  return closed.at(module);
}

TEST(Dhen, EachModuleHasTheParametersOfItsClosedForm) {
  for (const std::string module : {"linear", "attention", "convolution", "cross", "dot", "dlrm"}) {
    const Graph graph = graph_of(kSizes + "layers=2,modules=" + module);
    // A shortcut where the number of embeddings changes, and a norm behind the layer.
    EXPECT_EQ(count(graph, "blocks.0."), parameters_of(module, m) + m * l + 2 * d) << module;
    EXPECT_EQ(count(graph, "blocks.1."), parameters_of(module, l) + 2 * d) << module;
  }
}

TEST(Dhen, HasTheParametersOfItsTablesLayersAndMlps) {
  const Graph graph = graph_of(kSizes + "layers=3,modules=dlrm-linear");
  const int64_t n = 2 * l;
  const auto layer = [](int64_t reads) {
    return parameters_of("dlrm", reads) + parameters_of("linear", reads) + 2 * d;
  };
  EXPECT_EQ(count(graph, "tables."), (7 + 9 + 11) * d);
  EXPECT_EQ(count(graph, "bottom."), dense(5, 8) + dense(8, d));
  EXPECT_EQ(count(graph, "blocks."), layer(m) + m * n + 2 * layer(n));
  EXPECT_EQ(count(graph, "top."), dense(n * d, 5) + dense(5, 1));
  EXPECT_EQ(count(graph, ""), count(graph, "tables.") + count(graph, "bottom.") +
                                  count(graph, "blocks.") + count(graph, "top."));
}

int64_t embeddings_of(const Graph& graph, int layer) {
  const Tensor& y = graph.tensor(graph.find_tensor(fmt::format("blocks.{}.ln_out.y", layer)));
  EXPECT_EQ(describe(y.dims), fmt::format("[batch=8, seq={}, hidden=6]", y.dims[1].size));
  return y.dims[1].size;
}

TEST(Dhen, ConcatenationMakesAllEmbeddingsAndASumThoseOfOneModule) {
  EXPECT_EQ(embeddings_of(graph_of(kSizes + "layers=1,modules=linear-cross-dot"), 0), 3 * l);
  EXPECT_EQ(embeddings_of(graph_of(kSizes + "layers=1,modules=linear-cross-dot,ensemble=sum"), 0),
            l);
  const Graph weighted = graph_of(kSizes + "layers=2,modules=linear-cross,ensemble=weighted");
  EXPECT_EQ(embeddings_of(weighted, 1), l);
  EXPECT_EQ(count(weighted, "blocks.0.ensemble."), 2) << "a number for each module";
}

TEST(Dhen, TheShortcutIsTheIdentityExactlyIfTheNumberOfEmbeddingsStays) {
  for (const auto& [keys, changes] :
       {std::pair{"layers=1,modules=linear,embeddings=4", false},
        {"layers=1,modules=linear,embeddings=5", true},
        {"layers=1,modules=linear-cross,embeddings=2", false},
        {"layers=1,modules=linear-cross,embeddings=4", true},
        {"layers=1,modules=linear-cross,embeddings=4,ensemble=sum", false}}) {
    const Graph graph = graph_of(keys);
    EXPECT_EQ(graph.find_tensor("blocks.0.shortcut.mix.weight").valid(), changes) << keys;
  }
}

TEST(Dhen, LayersTakeListsOfModulesInTurn) {
  const Graph graph = graph_of(kSizes + "layers=3,modules=linear-cross+attention");
  const auto has = [&](const char* path) { return graph.find_tensor(path).valid(); };
  EXPECT_TRUE(has("blocks.0.cross.mix") && has("blocks.2.linear.mix") && has("blocks.1.attn.out"));
  EXPECT_FALSE(has("blocks.1.linear.mix") || has("blocks.0.attn.out"));
}

TEST(Dhen, ReadsWhatDlrmReads) {
  const std::string keys = "dense=3,rows=7-5,bags=3-1,width=4,bottom=4,top=1";
  const auto dhen = build_model("dhen:heads=1," + keys, 6), dlrm = build_model("dlrm:" + keys, 6);
  ASSERT_TRUE(dhen && dlrm);
  ASSERT_EQ(dhen->inputs.size(), dlrm->inputs.size());
  for (size_t i = 0; i < dhen->inputs.size(); ++i) {
    EXPECT_EQ(dhen->inputs[i].input, dlrm->inputs[i].input);
    EXPECT_EQ(dhen->inputs[i].values, dlrm->inputs[i].values);
    EXPECT_EQ(dhen->inputs[i].mask, dlrm->inputs[i].mask);
  }
}

TEST(Dhen, RefusesModulesThatDoNotFit) {
  const auto error_of = [](const std::string& keys) {
    const auto model = build_model(kFeatures + keys, 1);
    return model ? "" : model.error().message;
  };
  EXPECT_EQ(error_of("modules=linear-dots"),
            "model 'dhen': modules=linear-dots must be names of modules (linear, attention, "
            "convolution, cross, dot, dlrm) joined by '-', of several layers by '+', found 'dots'");
  EXPECT_EQ(error_of("modules=dot+linear-linear"),
            "model 'dhen': modules=dot+linear-linear: a layer has 'linear' twice");
  EXPECT_EQ(error_of("kernel=2"), "model 'dhen': kernel=2 must be odd");
  EXPECT_EQ(error_of("modules=attention,heads=4"),
            "model 'dhen': width=6 must be a multiple of heads=4");
  EXPECT_EQ(error_of("modules=linear,heads=4"), "");
  EXPECT_EQ(error_of("modules=dot,embeddings=1"),
            "model 'dhen': module dot of layer 1 needs 2 to 1024 embeddings, found 1");
  EXPECT_EQ(error_of("modules=cross,embeddings=1000000"),
            "model 'dhen': module cross of layer 1 is too large: it reads 1000000 embeddings and "
            "has a weight of more than 2^56 elements");
}

}  // namespace
}  // namespace tessera::dhen_test
