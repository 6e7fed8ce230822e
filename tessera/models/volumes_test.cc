// Tests cosmoflow and unet3d: sizes as published (docs/strategies/spatial.md section 10), maps,
// errors.
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"

namespace tessera::volumes_test {
namespace {

Graph graph_of(std::string_view spec, int64_t batch) {
  auto model = build_model(spec, batch);
  EXPECT_TRUE(model) << spec << ": " << (model ? "" : model.error().message);
  return model ? model->graph : Graph{};
}

std::string error_of(std::string_view spec, int64_t batch) {
  const auto model = build_model(spec, batch);
  return model ? "" : model.error().message;
}

int64_t parameters_of(const Graph& graph) {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter) count += tensor.elements();
  }
  return count;
}

// Returns the flops of convolutions, pools and matrix products.
double flops_of(const Graph& graph) {
  double flops = 0;
  for (const Op& op : graph.ops()) {
    if (op.kind.starts_with("conv") || op.kind.ends_with("pool") || op.kind == "einsum")
      flops += static_cast<double>(op_flops(op));
  }
  return flops;
}

std::string dims_of(const Graph& graph, std::string_view name) {
  const TensorId id = graph.find_tensor(name);
  return id.valid() ? describe(graph.tensor(id).dims) : "none";
}

TEST(Cosmoflow, HasThePublishedNumberOfParametersForEveryVolume) {
  for (const char* spec : {"cosmoflow:width=128", "cosmoflow:width=256", "cosmoflow:width=512"})
    EXPECT_EQ(parameters_of(graph_of(spec, 1)), 9'437'636) << spec;
}

TEST(Cosmoflow, HasThePublishedNumberOfFlops) {
  EXPECT_NEAR(flops_of(graph_of("cosmoflow:width=128", 1)), 18.53e9, 0.01 * 18.53e9);
  EXPECT_NEAR(flops_of(graph_of("cosmoflow:width=256", 1)), 147.94e9, 0.01 * 147.94e9);
  EXPECT_NEAR(flops_of(graph_of("cosmoflow:width=512", 1)), 1183.4e9, 0.01 * 1183.4e9);
}

TEST(Cosmoflow, PoolsWhileTheVolumeIsLargerThanItsLastOne) {
  const Graph large = graph_of("cosmoflow:width=512", 2);
  EXPECT_EQ(dims_of(large, "blocks.0.pool"),
            "[batch=2, inner=16, depth=256, height=256, width=256]");
  EXPECT_EQ(dims_of(large, "blocks.3.conv"),
            "[batch=2, channels=128, depth=32, height=32, width=32]");
  EXPECT_EQ(dims_of(large, "blocks.6.pool"), "[batch=2, inner=256, depth=2, height=2, width=2]");
  const Graph small = graph_of("cosmoflow:width=64", 2);
  EXPECT_EQ(dims_of(small, "blocks.3.pool"), "[batch=2, channels=128, depth=2, height=2, width=2]");
  EXPECT_EQ(dims_of(small, "blocks.4.pool"), "none");
  EXPECT_EQ(error_of("cosmoflow:width=48", 1),
            "model 'cosmoflow': width=48 must be a power of two from 4 to 4096");
}

TEST(Cosmoflow, LaterLayersHaveNoMoreFiltersThanTheWidest) {
  const Graph graph = graph_of("cosmoflow:width=8,filters=16,widest=32", 2);
  EXPECT_EQ(dims_of(graph, "blocks.0.conv"), "[batch=2, inner=16, depth=8, height=8, width=8]");
  EXPECT_EQ(dims_of(graph, "blocks.1.conv"), "[batch=2, channels=32, depth=4, height=4, width=4]");
  EXPECT_EQ(dims_of(graph, "blocks.6.conv"), "[batch=2, inner=32, depth=2, height=2, width=2]");
  EXPECT_EQ(dims_of(graph, "head.dense_1"), "[batch=2, features=256]");
  EXPECT_EQ(parameters_of(graph_of("cosmoflow:filters=4,widest=64", 1)),
            parameters_of(graph_of("cosmoflow:filters=4", 1)));
}

TEST(Unet3d, HasThePublishedNumberOfParametersAndFlops) {
  const Graph graph = graph_of("unet3d:width=64", 1);
  EXPECT_EQ(parameters_of(graph), 19'070'560);
  EXPECT_NEAR(flops_of(graph), 488.5e9, 0.01 * 488.5e9);
  EXPECT_NEAR(flops_of(graph_of("unet3d:width=128", 1)), 3908e9, 0.01 * 3908e9);
}

TEST(Unet3d, JoinsWhatEachLevelHadOnTheWayDown) {
  const Graph graph = graph_of("unet3d:width=16,ghost=2", 4);
  EXPECT_EQ(dims_of(graph, "blocks.3.act_2"),
            "[batch=2, sample=2, channels=512, depth=2, height=2, width=2]");
  EXPECT_EQ(dims_of(graph, "blocks.4.up"),
            "[batch=2, sample=2, channels=512, depth=4, height=4, width=4]");
  EXPECT_EQ(dims_of(graph, "blocks.4.join"),
            "[batch=2, sample=2, channels=768, depth=4, height=4, width=4]");
  EXPECT_EQ(dims_of(graph, "head"),
            "[batch=2, sample=2, depth=16, height=16, width=16, classes=3]");
  EXPECT_EQ(error_of("unet3d:width=20", 1), "model 'unet3d': width=20 must be a multiple of 8");
  EXPECT_EQ(error_of("unet3d:width=16,ghost=2", 3),
            "model 'unet3d': batch=3 must be a multiple of ghost=2, or below it");
}

}  // namespace
}  // namespace tessera::volumes_test
