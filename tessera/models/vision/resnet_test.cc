// Tests resnet: sizes as published, names, groups of samples, errors.
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"

namespace tessera::resnet_test {
namespace {

Model model_of(std::string_view spec, int64_t batch) {
  auto model = build_model(spec, batch);
  EXPECT_TRUE(model) << spec << ": " << (model ? "" : model.error().message);
  return model.value_or(Model{});
}

int64_t parameters_of(std::string_view spec) {
  const Model model = model_of(spec, 2);
  int64_t count = 0;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role == Role::kParameter) count += tensor.elements();
  }
  return count;
}

std::string dims_of(const Graph& graph, std::string_view name) {
  const TensorId id = graph.find_tensor(name);
  return id.valid() ? describe(graph.tensor(id).dims) : "none";
}

TEST(Resnet, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameters_of("resnet:layers=18"), 11'689'512);
  EXPECT_EQ(parameters_of("resnet:layers=34"), 21'797'672);
  EXPECT_EQ(parameters_of("resnet"), 25'557'032);
  EXPECT_EQ(parameters_of("resnet:layers=101"), 44'549'160);
  EXPECT_EQ(parameters_of("resnet:layers=152"), 60'192'808);
}

// An image costs 4.09e9 multiply-adds (He et al., 2016, give 3.8e9 for the stride at the first
// convolution of a block), and twice as many backward.
TEST(Resnet, HasTheKnownNumberOfFlops) {
  const Model model = model_of("resnet:image=224", 1);
  const auto products = [](const Graph& graph) {
    double flops = 0;
    for (const Op& op : graph.ops()) {
      if (op.kind.starts_with("conv") || op.kind == "einsum")
        flops += static_cast<double>(op_flops(op));
    }
    return flops;
  };
  const double forward = products(model.graph);
  EXPECT_NEAR(forward, 2 * 4.089e9, 2e7);
  const auto training = differentiate(model.graph, OptimizerSpec{});
  ASSERT_TRUE(training);
  // The images need no gradient.
  EXPECT_NEAR(products(*training), 3 * forward - 2 * 118e6, 2e7);
}

TEST(Resnet, MapsHaveTheSizesOfThePaper) {
  const Graph graph = model_of("resnet", 64).graph;
  EXPECT_EQ(dims_of(graph, "images"), "[batch=2, sample=32, channels=3, height=224, width=224]");
  EXPECT_EQ(dims_of(graph, "embed.conv"),
            "[batch=2, sample=32, channels=64, height=112, width=112]");
  EXPECT_EQ(dims_of(graph, "embed.pool"), "[batch=2, sample=32, channels=64, height=56, width=56]");
  EXPECT_EQ(dims_of(graph, "blocks.0.conv_1"),
            "[batch=2, sample=32, inner=64, height=56, width=56]");
  EXPECT_EQ(dims_of(graph, "blocks.3.conv_2"),
            "[batch=2, sample=32, outer=128, height=28, width=28]");
  EXPECT_EQ(dims_of(graph, "blocks.3.shortcut.conv.weight"),
            "[channels=512, source=256, kernel_height=1, kernel_width=1]");
  EXPECT_EQ(dims_of(graph, "blocks.15.act"),
            "[batch=2, sample=32, channels=2048, height=7, width=7]");
  EXPECT_EQ(dims_of(graph, "blocks.15.bn_1.mean"), "[batch=2, inner=512]");
  EXPECT_EQ(dims_of(graph, "head"), "[batch=2, sample=32, classes=1000]");
  EXPECT_EQ(dims_of(model_of("resnet:layers=34", 8).graph, "blocks.0.conv_2"),
            "[batch=1, sample=8, channels=64, height=56, width=56]");
}

TEST(Resnet, ErrorsNameTheKey) {
  const auto error_of = [](std::string_view spec, int64_t batch) {
    const auto model = build_model(spec, batch);
    return model ? std::string("no error") : model.error().message;
  };
  EXPECT_EQ(error_of("resnet:layers=20", 2),
            "model 'resnet': layers=20 must be one of 18, 34, 50, 101 and 152");
  EXPECT_EQ(error_of("resnet:ghost=16", 40),
            "model 'resnet': batch=40 must be a multiple of ghost=16, or below it");
}

}  // namespace
}  // namespace tessera::resnet_test
