#include "tessera/models/vision/alexnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/models/vision/images.h"

namespace tessera {
namespace {

struct Layer {
  int64_t kernel, stride, multiple;  // `multiple`: output channels, in halves of `width`
  bool pooled;
};
constexpr std::array<Layer, 5> kLayers = {
    {{11, 4, 2, true}, {5, 1, 6, true}, {3, 1, 12, false}, {3, 1, 8, false}, {3, 1, 8, true}}};

struct AlexNetForm {
  // `image`: the least size; `padding`: of the first convolution; `pool`: kernel of the pools
  int64_t image, padding, pool;
};
constexpr AlexNetForm kImagenet = {224, 2, 3}, kCifar = {32, 5, 2};

const AlexNetForm& form_of(const AlexnetConfig& config) {
  return config.form == "cifar" ? kCifar : kImagenet;
}

}  // namespace

std::vector<ModelKey> model_keys(AlexnetConfig& config) {
  return {
      form_key(config.form, "image, pools, dense and classes as of that data set"),
      {"width", &config.width, "channels of the first convolution; a multiple of 2"},
      form_image_key(config.image, "height and width in pixels"),
      dense_key(config.dense),
      {"channels", &config.channels, "of a pixel"},
      form_classes_key(config.classes),
      {"dropout", &config.dropout, "behind the last map and the dense layers before the last"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(AlexnetConfig& config) {
  const AlexNetForm& form = form_of(config);
  complete_form(config.form, config.image, config.classes);
  if (config.width % 2 != 0)
    return model_error("alexnet", fmt::format("width={} must be a multiple of 2", config.width));
  TESSERA_TRY_VOID(complete_dense("alexnet", config.form, config.dense));
  if (config.image < form.image) {
    return model_error("alexnet", fmt::format("image={} must be at least {} in the form {}",
                                              config.image, form.image, config.form));
  }
  return {};
}

Result<Graph> build_alexnet(const AlexnetConfig& config, int64_t batch) {
  const AlexNetForm& form = form_of(config);
  GraphBuilder g("alexnet");
  TESSERA_TRY(const ImageInputs inputs,
              image_inputs(g, "alexnet", batch, 0, config.channels, config.image, config.dtype));
  TensorId x = inputs.images;
  Dim in{"channels", config.channels};
  for (size_t i = 0; i < kLayers.size() && g.ok(); ++i) {
    const Layer& layer = kLayers[i];
    const Dim out{i % 2 == 0 ? "inner" : "channels", config.width / 2 * layer.multiple};
    ConvolutionOptions options = {layer.kernel, layer.stride};
    options.bias = true;
    if (i == 0) options.padding = form.padding;
    g.push(fmt::format("blocks.{}", i));
    x = image_convolution(g, "conv", x, in, out, options);
    x = g.op1("act", "relu", {x});
    if (layer.pooled) x = image_max_pool(g, "pool", x, form.pool, 2);
    g.pop();
    in = out;
  }
  if (config.dense.front() != 0) x = dropout(g, "head.dropout", x, config.dropout, "head");
  dense_classifier(g, x, {in.name, "height", "width"}, config.dense, config.dropout, 0,
                   config.classes, inputs.targets);
  return g.finish();
}

}  // namespace tessera
