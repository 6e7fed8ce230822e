// Compares the cost of residual networks by resolution with the published table.
#include "tessera/models/multiply_adds.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tessera {
namespace {

struct Row {
  int64_t image;
  double resnet_18, resnet_50;  // thousand million multiply-adds
  int64_t side;                 // of the last map
};
// Exact counts of the layer formulas, to two digits behind the point. Sides are rounded up, so 168
// pixels cost 0.61 times as much as 224 and not 0.56.
constexpr std::array<Row, 7> kTable = {{{112, 0.49, 1.08, 4},
                                        {168, 1.11, 2.50, 6},
                                        {224, 1.81, 4.09, 7},
                                        {280, 2.91, 6.58, 9},
                                        {336, 4.17, 9.35, 11},
                                        {392, 5.77, 12.98, 13},
                                        {448, 7.25, 16.35, 14}}};

Model resnet(int64_t layers, int64_t image) {
  auto model = build_model(
      "resnet:layers=" + std::to_string(layers) + ",ghost=1,image=" + std::to_string(image), 2);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(model).value();
}

TEST(MultiplyAdds, OfResidualNetworksAreThoseOfTheTableAtEveryResolution) {
  for (const Row& row : kTable) {
    const Model basic = resnet(18, row.image), bottlenecks = resnet(50, row.image);
    EXPECT_NEAR(multiply_adds_a_sample(basic) / 1e9, row.resnet_18, 0.0051) << row.image;
    EXPECT_NEAR(multiply_adds_a_sample(bottlenecks) / 1e9, row.resnet_50, 0.0051) << row.image;
    const Tensor& last = basic.graph.tensor(basic.graph.find_tensor("blocks.7.act"));
    EXPECT_EQ(last.dims.back().size, row.side) << row.image;
  }
}

}  // namespace
}  // namespace tessera
