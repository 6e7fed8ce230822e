#include "tessera/models/alexnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/models/images.h"

namespace tessera {
namespace {

struct Layer {
  int64_t kernel, stride, multiple;  // of half the first width
  bool pooled;
};
constexpr std::array<Layer, 5> kLayers = {
    {{11, 4, 2, true}, {5, 1, 6, true}, {3, 1, 12, false}, {3, 1, 8, false}, {3, 1, 8, true}}};

struct Form {
  int64_t image, padding, pool, classes;  // padding of the first convolution
};
constexpr Form kImagenet = {224, 2, 3, 1000}, kCifar = {32, 5, 2, 10};

const Form& form_of(const AlexnetConfig& config) {
  return config.form == "cifar" ? kCifar : kImagenet;
}

}  // namespace

std::vector<ModelKey> model_keys(AlexnetConfig& config) {
  return {
      {"form",
       &config.form,
       "image, pools, dense and classes as of that data set",
       "",
       {"imagenet", "cifar"}},
      {"width", &config.width, "channels of the first convolution; a multiple of 2"},
      {"image", &config.image, "height and width in pixels", "224 (cifar: 32)", {}, 0},
      {"dense",
       &config.dense,
       "widths of the dense layers before the last; 0: none",
       "4096-4096 (cifar: 0)",
       {},
       0},
      {"channels", &config.channels, "of a pixel"},
      {"classes", &config.classes, "classes", "1000 (cifar: 10)", {}, 0},
      {"dropout", &config.dropout, "behind the last map and the dense layers before the last"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(AlexnetConfig& config) {
  const Form& form = form_of(config);
  if (config.image == 0) config.image = form.image;
  if (config.classes == 0) config.classes = form.classes;
  if (config.dense.empty()) {
    config.dense =
        config.form == "cifar" ? std::vector<int64_t>{0} : std::vector<int64_t>{4096, 4096};
  }
  if (config.width % 2 != 0)
    return model_error("alexnet", fmt::format("width={} must be a multiple of 2", config.width));
  const bool none = config.dense == std::vector<int64_t>{0};
  if (!none && std::count(config.dense.begin(), config.dense.end(), 0) > 0)
    return model_error("alexnet", "dense must be 0 or a list of widths of at least 1");
  if (config.image < form.image) {
    return model_error("alexnet", fmt::format("image={} must be at least {} in the form {}",
                                              config.image, form.image, config.form));
  }
  return {};
}

Result<Graph> build_alexnet(const AlexnetConfig& config, int64_t batch) {
  const Form& form = form_of(config);
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
  std::vector<std::string> from = {in.name, "height", "width"};
  const bool dense = config.dense.front() != 0;
  if (dense) x = dropout(g, "head.dropout", x, config.dropout, "head");
  for (size_t i = 0; dense && i < config.dense.size(); ++i) {
    const Dim out{i % 2 == 0 ? "features" : "units", config.dense[i]};
    const bool last = i + 1 == config.dense.size();
    x = dense_layer(g, fmt::format("head.dense_{}", i + 1), x, from, out,
                    last ? 0 : config.dropout);
    from = {out.name};
  }
  double fan_in = 1;
  for (const std::string& dim : from) fan_in *= static_cast<double>(size_of(g, x, dim));
  x = linear(g, "head.out", x, from, {{"classes", config.classes}},
             {normal(1 / std::sqrt(fan_in))});
  cross_entropy_loss(g, x, inputs.targets);
  return g.finish();
}

}  // namespace tessera
