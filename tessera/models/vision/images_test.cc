// Tests vgg, alexnet, mobilenet_v2, wide resnet: sizes and multiply-adds as published, maps,
// errors; and layers of images.h.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"
#include "tessera/models/vision/images.h"

namespace tessera::images_test {
namespace {

Graph graph_of(const std::string& spec, int64_t batch) {
  auto model = build_model(spec, batch);
  EXPECT_TRUE(model) << spec << ": " << (model ? "" : model.error().message);
  return model ? model->graph : Graph{};
}

std::string error_of(const std::string& spec, int64_t batch = 2) {
  const auto model = build_model(spec, batch);
  return model ? "no error" : model.error().message;
}

int64_t parameters_of(const std::string& spec) {
  int64_t count = 0;
  const Graph graph = graph_of(spec, 2);
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter) count += tensor.elements();
  }
  return count;
}

// Returns 10^9 multiply-adds of an image in convolutions and matrix products.
double gmac_of(const std::string& spec) {
  double flops = 0;
  const Graph graph = graph_of(spec, 1);
  for (const Op& op : graph.ops()) {
    if (info_of(op).work == WorkClass::kConvolution || info_of(op).work == WorkClass::kMatmul)
      flops += static_cast<double>(op_flops(op));
  }
  return flops / 2 / 1e9;
}

std::string dims_of(const Graph& graph, std::string_view name) {
  const TensorId id = graph.find_tensor(name);
  return id.valid() ? describe(graph.tensor(id).dims) : "none";
}

TEST(Vgg, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameters_of("vgg:layers=11"), 132'863'336);
  EXPECT_EQ(parameters_of("vgg:layers=13"), 133'047'848);
  EXPECT_EQ(parameters_of("vgg"), 138'357'544);
  EXPECT_EQ(parameters_of("vgg:layers=19"), 143'667'240);
  EXPECT_EQ(parameters_of("vgg:layers=11,norm=1"), 132'868'840);
  EXPECT_EQ(parameters_of("vgg:layers=13,norm=1"), 133'053'736);
  EXPECT_EQ(parameters_of("vgg:norm=1"), 138'365'992);
  EXPECT_EQ(parameters_of("vgg:norm=1,bias=0"), 138'365'992 - 4'224);
  EXPECT_EQ(parameters_of("vgg:layers=19,norm=1"), 143'678'248);
}

TEST(Vgg, HasTheKnownSizesInTheFormForCifar) {
  EXPECT_EQ(parameters_of("vgg:layers=11,form=cifar,norm=1"), 9'231'114);
  EXPECT_EQ(parameters_of("vgg:layers=13,form=cifar,norm=1"), 9'416'010);
  EXPECT_EQ(parameters_of("vgg:form=cifar,norm=1"), 14'728'266);
  EXPECT_EQ(parameters_of("vgg:layers=19,form=cifar,norm=1"), 20'040'522);
}

TEST(Vgg, HasTheKnownNumberOfMultiplyAdds) {
  EXPECT_NEAR(gmac_of("vgg"), 15.47, 0.005);
  EXPECT_NEAR(gmac_of("vgg:layers=19"), 19.63, 0.005);
}

TEST(Vgg, HalvesMapsBehindEachOfFiveStages) {
  const Graph graph = graph_of("vgg", 4);
  EXPECT_EQ(dims_of(graph, "images"), "[batch=4, channels=3, height=224, width=224]");
  EXPECT_EQ(dims_of(graph, "blocks.1.pool"), "[batch=4, channels=64, height=112, width=112]");
  EXPECT_EQ(dims_of(graph, "blocks.12.pool"), "[batch=4, inner=512, height=7, width=7]");
  EXPECT_EQ(dims_of(graph, "head.dense_1.weight"), "[inner=512, height=7, width=7, features=4096]");
  const Graph cifar = graph_of("vgg:form=cifar,norm=1,ghost=2", 4);
  EXPECT_EQ(dims_of(cifar, "blocks.12.pool"), "[batch=2, sample=2, inner=512, height=1, width=1]");
  EXPECT_EQ(dims_of(cifar, "head.dense_1"), "none");
  EXPECT_EQ(dims_of(cifar, "head.out"), "[batch=2, sample=2, classes=10]");
}

TEST(Vgg, ErrorsNameTheKey) {
  EXPECT_EQ(error_of("vgg:layers=12"), "model 'vgg': layers=12 must be one of 11, 13, 16 and 19");
  EXPECT_EQ(error_of("vgg:image=100"), "model 'vgg': image=100 must be a multiple of 32");
  EXPECT_EQ(error_of("vgg:dense=8-0"),
            "model 'vgg': dense must be 0 or a list of widths of at least 1");
  EXPECT_EQ(error_of("vgg:norm=1,ghost=2", 3),
            "model 'vgg': batch=3 must be a multiple of ghost=2, or below it");
}

TEST(Alexnet, HasTheKnownNumbersOfParametersAndMultiplyAdds) {
  EXPECT_EQ(parameters_of("alexnet"), 61'100'840);
  EXPECT_EQ(parameters_of("alexnet:form=cifar"), 2'472'266);
  EXPECT_EQ(parameters_of("alexnet:form=cifar,classes=100"), 2'495'396);
  EXPECT_NEAR(gmac_of("alexnet"), 0.714, 0.0005);
}

TEST(Alexnet, PoolsOverlapInTheFormForImagenet) {
  const Graph graph = graph_of("alexnet", 2);
  EXPECT_EQ(dims_of(graph, "blocks.0.conv"), "[batch=2, inner=64, height=55, width=55]");
  EXPECT_EQ(dims_of(graph, "blocks.0.pool"), "[batch=2, inner=64, height=27, width=27]");
  EXPECT_EQ(dims_of(graph, "blocks.4.pool"), "[batch=2, inner=256, height=6, width=6]");
  EXPECT_EQ(dims_of(graph_of("alexnet:form=cifar", 2), "blocks.4.pool"),
            "[batch=2, inner=256, height=1, width=1]");
  EXPECT_EQ(error_of("alexnet:image=64"),
            "model 'alexnet': image=64 must be at least 224 in the form imagenet");
}

TEST(MobilenetV2, HasThePublishedNumbersOfParametersAndMultiplyAdds) {
  EXPECT_EQ(parameters_of("mobilenet_v2"), 3'504'872);
  EXPECT_NEAR(gmac_of("mobilenet_v2"), 0.3008, 0.0001);
}

TEST(MobilenetV2, ConvolvesEachChannelByItselfInsideABlock) {
  const Graph graph = graph_of("mobilenet_v2", 4);
  EXPECT_EQ(dims_of(graph, "blocks.1.act_1"),
            "[batch=1, sample=4, inner=96, height=112, width=112]");
  EXPECT_EQ(dims_of(graph, "blocks.1.conv_2.weight"),
            "[inner=96, one=1, kernel_height=3, kernel_width=3]");
  EXPECT_EQ(dims_of(graph, "blocks.2.residual"),
            "[batch=1, sample=4, channels=24, height=56, width=56]");
  EXPECT_EQ(dims_of(graph, "final.act"), "[batch=1, sample=4, channels=1280, height=7, width=7]");
  EXPECT_EQ(dims_of(graph_of("mobilenet_v2:multiplier=0.5", 2), "blocks.16.bn_3.y"),
            "[batch=1, sample=2, channels=160, height=7, width=7]");
  EXPECT_EQ(error_of("mobilenet_v2:multiplier=0"),
            "model 'mobilenet_v2': multiplier=0 must be above 0 and at most 1024");
}

TEST(WideResnet, HasThePublishedNumbersOfParametersAndMultiplyAddsInTheFormForCifar) {
  EXPECT_EQ(parameters_of("resnet:form=cifar,layers=28,widen=10"), 36'479'194);
  EXPECT_EQ(parameters_of("resnet:form=cifar,layers=16,widen=8"), 10'961'370);
  EXPECT_EQ(parameters_of("resnet:form=cifar,layers=40,widen=4"), 8'949'210);
  EXPECT_EQ(parameters_of("resnet:form=cifar,layers=40,widen=2"), 2'243'546);
  EXPECT_NEAR(gmac_of("resnet:form=cifar,layers=28,widen=10"), 5.245, 0.005);
  const Graph graph = graph_of("resnet:form=cifar,layers=28,widen=10", 2);
  EXPECT_EQ(dims_of(graph, "images"), "[batch=1, sample=2, channels=3, height=32, width=32]");
  EXPECT_EQ(dims_of(graph, "blocks.0.shortcut.conv.weight"),
            "[channels=160, source=16, kernel_height=1, kernel_width=1]");
  EXPECT_EQ(dims_of(graph, "final.act"), "[batch=1, sample=2, channels=640, height=8, width=8]");
  EXPECT_EQ(
      error_of("resnet:form=cifar,layers=18"),
      "model 'resnet': layers=18 must be 6 n + 4 in the form cifar: 10, 16, 22, 28 and so on");
}

TEST(WideResnet, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameters_of("resnet:layers=50,widen=2"), 68'883'240);
  EXPECT_EQ(parameters_of("resnet:layers=101,widen=2"), 126'886'696);
  const Graph graph = graph_of("resnet:layers=18,widen=2,image=64", 2);
  EXPECT_EQ(dims_of(graph, "blocks.7.act"),
            "[batch=1, sample=2, channels=1024, height=2, width=2]");
  EXPECT_EQ(error_of("resnet:width=4194304,widen=2"),
            "model 'resnet': width times widen, 4194304 x 2, must be at most 4194304");
}

// The multiply-adds are those of Yan et al. (2021) for both networks, to the digits printed there.
TEST(Resnet, HasTheMultiplyAddsOfEveryResolution) {
  struct Row {
    int64_t image, side;
    double layers_18, layers_50;
  };
  for (const Row& row : {Row{112, 4, .49, 1.08}, Row{168, 6, 1.11, 2.50}, Row{224, 7, 1.81, 4.09},
                         Row{280, 9, 2.91, 6.58}, Row{336, 11, 4.17, 9.35},
                         Row{392, 13, 5.77, 12.98}, Row{448, 14, 7.25, 16.35}}) {
    const std::string image = std::to_string(row.image), side = std::to_string(row.side);
    const auto printed = [](double gmac) { return std::round(100 * gmac); };
    EXPECT_EQ(printed(gmac_of("resnet:layers=18,image=" + image)), printed(row.layers_18)) << image;
    EXPECT_EQ(printed(gmac_of("resnet:layers=50,image=" + image)), printed(row.layers_50)) << image;
    EXPECT_EQ(dims_of(graph_of("resnet:layers=18,image=" + image, 1), "blocks.7.act"),
              "[batch=1, sample=1, channels=512, height=" + side + ", width=" + side + "]");
  }
}

}  // namespace
}  // namespace tessera::images_test
