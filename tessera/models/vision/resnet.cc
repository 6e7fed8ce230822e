#include "tessera/models/vision/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/models/running_norm.h"
#include "tessera/models/vision/images.h"

namespace tessera {
namespace {

constexpr int64_t kResNetStages = 4;

struct ResNetDepth {
  int64_t layers;
  std::array<int64_t, kResNetStages> blocks;
  int64_t expansion;  // channels of a block's output, divided by its width; 1: basic blocks
};
constexpr std::array<ResNetDepth, 5> kResNetDepths = {{{18, {2, 2, 2, 2}, 1},
                                                       {34, {3, 4, 6, 3}, 1},
                                                       {50, {3, 4, 6, 3}, 4},
                                                       {101, {3, 4, 23, 3}, 4},
                                                       {152, {3, 8, 36, 3}, 4}}};

const ResNetDepth* resnet_depth(int64_t layers) {
  const auto* found = std::find_if(kResNetDepths.begin(), kResNetDepths.end(),
                                   [layers](const ResNetDepth& d) { return d.layers == layers; });
  return found == kResNetDepths.end() ? nullptr : found;
}

bool is_for_cifar(const ResnetConfig& config) { return config.form == "cifar"; }

class ResNetBuilder {
 public:
  ResNetBuilder(GraphBuilder& g, const ResnetConfig& config) : g_(g), config_(config) {}

  // Adds a square convolution from x to `out`. `in` names the channels of x in the weight; they may
  // have any name in x.
  TensorId conv(const std::string& name, TensorId x, const Dim& in, const Dim& out, int64_t kernel,
                int64_t stride) {
    return convolution(g_, name, x, in, out, {"height", "width"}, kernel, stride);
  }
  TensorId norm(const std::string& name, TensorId x, const Dim& channels) {
    constexpr const char* kOver = "sample height width";
    if (config_.running == 0) return batch_norm(g_, name, x, channels, kOver, config_.eps);
    return running_batch_norm(g_, name, x, channels, kOver,
                              {.keep = config_.running, .eps = config_.eps});
  }

  // Adds convolution n of a block and its norm, and with `act` an activation.
  TensorId layer(int64_t n, TensorId x, const Dim& in, const Dim& out, int64_t kernel,
                 int64_t stride, bool act) {
    x = conv(fmt::format("conv_{}", n), x, in, out, kernel, stride);
    x = norm(fmt::format("bn_{}", n), x, out);
    return act ? g_.op1(fmt::format("act_{}", n), "relu", {x}) : x;
  }

  // Adds a block: x [batch, sample, channels, height, width] -> a map with other channels, whose
  // height and width are divided by `stride`.
  TensorId block(TensorId x, int64_t width, int64_t expansion, int64_t stride) {
    const int64_t wide = width * config_.widen;
    const Dim in{"channels", size_of(g_, x, "channels")},
        out{"channels", expansion == 1 ? wide : width * expansion};
    const Dim inner{"inner", wide}, outer{"outer", wide};
    TensorId h = x;
    if (expansion == 1) {
      h = layer(1, h, in, inner, 3, stride, true);
      h = layer(2, h, inner, out, 3, 1, false);
    } else {
      h = layer(1, h, in, inner, 1, 1, true);
      h = layer(2, h, inner, outer, 3, stride, true);
      h = layer(3, h, outer, out, 1, 1, false);
    }
    if (stride != 1 || in.size != out.size) {
      x = conv("shortcut.conv", x, {"source", in.size}, out, 1, stride);
      x = norm("shortcut.bn", x, out);
    }
    return g_.op1("act", "relu", {g_.op1("residual", "add", {x, h})});
  }

  // Adds all layers that come before the mean over the map.
  TensorId for_imagenet(TensorId x) {
    const ResNetDepth& depth = *resnet_depth(config_.layers);
    const Dim stem{"channels", config_.width};
    x = conv("embed.conv", x, {"source", config_.channels}, stem, 7, 2);
    x = norm("embed.bn", x, stem);
    x = g_.op1("embed.act", "relu", {x});
    x = g_.op1("embed.pool", "max_pool", {x},
               {{"kernel", std::string("3")},
                {"stride", std::string("2")},
                {"padding", std::string("1")}});
    int64_t index = 0, width = config_.width;
    for (size_t stage = 0; stage < depth.blocks.size(); ++stage, width *= 2) {
      for (int64_t i = 0; i < depth.blocks[stage] && g_.ok(); ++i, ++index) {
        g_.push(fmt::format("blocks.{}", index));
        x = block(x, width, depth.expansion, stage > 0 && i == 0 ? 2 : 1);
        g_.pop();
      }
    }
    return x;
  }

  // Adds three stages of blocks in which each convolution follows its norm and activation.
  TensorId for_cifar(TensorId x) {
    constexpr int64_t kCifarStages = 3;
    const int64_t blocks = (config_.layers - 4) / (2 * kCifarStages);
    x = conv("embed.conv", x, {"source", config_.channels}, {"channels", config_.width}, 3, 1);
    int64_t index = 0, width = config_.width * config_.widen;
    for (int64_t stage = 0; stage < kCifarStages; ++stage, width *= 2) {
      for (int64_t i = 0; i < blocks && g_.ok(); ++i, ++index) {
        g_.push(fmt::format("blocks.{}", index));
        x = block_before(x, width, stage > 0 && i == 0 ? 2 : 1);
        g_.pop();
      }
    }
    x = norm("final.bn", x, {"channels", size_of(g_, x, "channels")});
    return g_.op1("final.act", "relu", {x});
  }

 private:
  TensorId block_before(TensorId x, int64_t width, int64_t stride) {
    const Dim in{"channels", size_of(g_, x, "channels")}, inner{"inner", width},
        out{"channels", width};
    TensorId h = g_.op1("act_1", "relu", {norm("bn_1", x, in)});
    if (stride != 1 || in.size != out.size)
      x = conv("shortcut.conv", h, {"source", in.size}, out, 1, stride);
    h = conv("conv_1", h, in, inner, 3, stride);
    h = g_.op1("act_2", "relu", {norm("bn_2", h, inner)});
    return g_.op1("residual", "add", {x, conv("conv_2", h, inner, out, 3, 1)});
  }

  GraphBuilder& g_;
  const ResnetConfig& config_;
};

}  // namespace

std::vector<ModelKey> model_keys(ResnetConfig& config) {
  return {
      {"layers", &config.layers,
       "18 and 34 (basic blocks), 50, 101 and 152 (bottlenecks); in the form for CIFAR 6 n + 4"},
      form_key(config.form, "blocks, width, image and classes as of that data set"),
      {"width", &config.width, "channels behind the first convolution", "64 (cifar: 16)", {}, 0},
      {"widen", &config.widen, "times the channels inside the blocks (wide residual networks)"},
      form_image_key(config.image, "height and width in pixels"),
      {"channels", &config.channels, "of a pixel"},
      form_classes_key(config.classes),
      {"ghost", &config.ghost, "images whose batch norm statistics are taken together"},
      {"eps", &config.eps, "epsilon of the batch norms"},
      {"running", &config.running,
       "share of the running statistics that a step keeps (0.9); evaluations normalise by them. 0: "
       "there are none"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(ResnetConfig& config) {
  constexpr int64_t kMaxWidth = int64_t{1} << 22;
  const bool cifar = is_for_cifar(config);
  if (config.width == 0) config.width = cifar ? 16 : 64;
  complete_form(config.form, config.image, config.classes);
  if (cifar && (config.layers < 10 || (config.layers - 4) % 6 != 0)) {
    return model_error("resnet", fmt::format("layers={} must be 6 n + 4 in the form cifar: 10, 16, "
                                             "22, 28 and so on",
                                             config.layers));
  }
  if (!cifar && resnet_depth(config.layers) == nullptr) {
    return model_error(
        "resnet", fmt::format("layers={} must be one of 18, 34, 50, 101 and 152", config.layers));
  }
  if (config.width > kMaxWidth) {
    return model_error("resnet",
                       fmt::format("width={} must be at most {}", config.width, kMaxWidth));
  }
  if (config.widen > kMaxWidth / config.width) {
    return model_error("resnet", fmt::format("width times widen, {} x {}, must be at most {}",
                                             config.width, config.widen, kMaxWidth));
  }
  return check_running("resnet", config.running);
}

Result<Graph> build_resnet(const ResnetConfig& config, int64_t batch) {
  GraphBuilder g("resnet");
  ResNetBuilder net(g, config);
  TESSERA_TRY(const ImageInputs inputs, image_inputs(g, "resnet", batch, config.ghost,
                                                     config.channels, config.image, config.dtype));
  TensorId x =
      is_for_cifar(config) ? net.for_cifar(inputs.images) : net.for_imagenet(inputs.images);
  x = mean_pool(g, x, "height width");
  const LinearOptions head = {
      normal(1 / std::sqrt(static_cast<double>(size_of(g, x, "channels"))))};
  x = linear(g, "head", x, {"channels"}, {{"classes", config.classes}}, head);
  cross_entropy_loss(g, x, inputs.targets);
  return g.finish();
}

}  // namespace tessera
