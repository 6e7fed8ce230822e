#include "tessera/models/vision/mobilenet_v2.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/models/vision/images.h"

namespace tessera {
namespace {

// A row of table 2 of the paper on MobileNetV2.
struct Stage {
  int64_t expansion, channels, blocks, stride;
};
constexpr std::array<Stage, 7> kMobileNetStages = {{{1, 16, 1, 1},
                                                    {6, 24, 2, 2},
                                                    {6, 32, 3, 2},
                                                    {6, 64, 4, 2},
                                                    {6, 96, 3, 1},
                                                    {6, 160, 3, 2},
                                                    {6, 320, 1, 1}}};
constexpr int64_t kFirst = 32, kLast = 1280;
constexpr double kMaxMultiplier = 1024;

// Returns the multiple of the divisor that is nearest to the width, or the next larger one if the
// nearest is more than a tenth below the width.
int64_t rounded(double width, int64_t divisor) {
  const auto nearest =
      static_cast<int64_t>(width + static_cast<double>(divisor) / 2) / divisor * divisor;
  const int64_t least = std::max(divisor, nearest);
  return static_cast<double>(least) < 0.9 * width ? least + divisor : least;
}

class MobileNetBuilder {
 public:
  MobileNetBuilder(GraphBuilder& g, const MobilenetV2Config& config) : g_(g), config_(config) {}

  int64_t width(int64_t channels) const {
    return rounded(static_cast<double>(channels) * config_.multiplier, config_.divisor);
  }

  // Adds a convolution, its norm, and with `act` a rectifier limited to [0, 6]: ops `conv<suffix>`,
  // `bn<suffix>`, `act<suffix>`.
  TensorId layer(const std::string& suffix, TensorId x, const Dim& in, const Dim& out,
                 int64_t kernel, int64_t stride, bool depth_wise, bool act) {
    ConvolutionOptions options = {kernel, stride};
    if (depth_wise) options.groups = out.size;
    x = image_convolution(g_, "conv" + suffix, x, in, out, options);
    x = batch_norm(g_, "bn" + suffix, x, out, kNormedImages, config_.eps);
    if (!act) return x;
    return g_.op1("act" + suffix, "clamp", {x}, {{"min", 0.0}, {"max", 6.0}});
  }

  TensorId block(TensorId x, int64_t expansion, int64_t channels, int64_t stride) {
    const Dim in{"channels", size_of(g_, x, "channels")}, out{"channels", channels};
    // If the block has no expansion, its depth-wise convolution has the channels of the block.
    const Dim inner{expansion == 1 ? "channels" : "inner", in.size * expansion};
    TensorId h = x;
    if (expansion != 1) h = layer("_1", h, in, inner, 1, 1, false, true);
    h = layer("_2", h, {"one", inner.size}, inner, 3, stride, true, true);
    h = layer("_3", h, {expansion == 1 ? "source" : "inner", inner.size}, out, 1, 1, false, false);
    if (stride != 1 || in.size != out.size) return h;
    return g_.op1("residual", "add", {x, h});
  }

 private:
  GraphBuilder& g_;
  const MobilenetV2Config& config_;
};

}  // namespace

std::vector<ModelKey> model_keys(MobilenetV2Config& config) {
  return {
      {"multiplier", &config.multiplier, "of all widths"},
      {"divisor", &config.divisor, "widths are multiples of it"},
      {"image", &config.image, "height and width in pixels"},
      {"channels", &config.channels, "of a pixel"},
      {"classes", &config.classes, "classes"},
      {"dropout", &config.dropout, "before the last layer"},
      {"ghost", &config.ghost, "images whose batch norm statistics are taken together"},
      {"eps", &config.eps, "epsilon of the batch norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(MobilenetV2Config& config) {
  if (config.multiplier > 0 && config.multiplier <= kMaxMultiplier) return {};
  return model_error("mobilenet_v2", fmt::format("multiplier={} must be above 0 and at most {}",
                                                 config.multiplier, kMaxMultiplier));
}

Result<Graph> build_mobilenet_v2(const MobilenetV2Config& config, int64_t batch) {
  GraphBuilder g("mobilenet_v2");
  MobileNetBuilder net(g, config);
  TESSERA_TRY(const ImageInputs inputs, image_inputs(g, "mobilenet_v2", batch, config.ghost,
                                                     config.channels, config.image, config.dtype));
  g.push("embed");
  TensorId x = net.layer("", inputs.images, {"source", config.channels},
                         {"channels", net.width(kFirst)}, 3, 2, false, true);
  g.pop();
  int64_t index = 0;
  for (const Stage& stage : kMobileNetStages) {
    for (int64_t i = 0; i < stage.blocks && g.ok(); ++i, ++index) {
      g.push(fmt::format("blocks.{}", index));
      x = net.block(x, stage.expansion, net.width(stage.channels), i == 0 ? stage.stride : 1);
      g.pop();
    }
  }
  const int64_t last =
      rounded(static_cast<double>(kLast) * std::max(1.0, config.multiplier), config.divisor);
  g.push("final");
  x = net.layer("", x, {"source", size_of(g, x, "channels")}, {"channels", last}, 1, 1, false,
                true);
  g.pop();
  x = mean_pool(g, x, "height width");
  x = dropout(g, "final.dropout", x, config.dropout, "final");
  const LinearOptions head = {normal(1 / std::sqrt(static_cast<double>(last)))};
  x = linear(g, "head", x, {"channels"}, {{"classes", config.classes}}, head);
  cross_entropy_loss(g, x, inputs.targets);
  return g.finish();
}

}  // namespace tessera
