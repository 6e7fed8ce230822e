#include "tessera/models/vision/vgg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/models/vision/images.h"

namespace tessera {
namespace {

constexpr size_t kVggStages = 5;
// Channels of each stage, divided by those of the first.
constexpr std::array<int64_t, kVggStages> kVggMultiples = {1, 2, 4, 8, 8};

struct VggDepth {
  int64_t layers;
  std::array<int64_t, kVggStages> convolutions;
};
constexpr std::array<VggDepth, 4> kVggDepths = {
    {{11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}}};

const VggDepth* vgg_depth(int64_t layers) {
  const auto* found = std::find_if(kVggDepths.begin(), kVggDepths.end(),
                                   [layers](const VggDepth& d) { return d.layers == layers; });
  return found == kVggDepths.end() ? nullptr : found;
}

}  // namespace

std::vector<ModelKey> model_keys(VggConfig& config) {
  return {
      {"layers", &config.layers, "11, 13, 16 or 19"},
      form_key(config.form, "image, dense and classes as of that data set"),
      {"norm", &config.norm, "batch norm behind each convolution"},
      {"bias", &config.bias, "of the convolutions; without effect where a norm is behind"},
      {"width", &config.width, "channels of the first stage"},
      form_image_key(config.image, "height and width in pixels; a multiple of 32"),
      dense_key(config.dense),
      {"channels", &config.channels, "of a pixel"},
      form_classes_key(config.classes),
      {"dropout", &config.dropout, "behind the dense layers before the last"},
      {"ghost", &config.ghost, "images whose batch norm statistics are taken together"},
      {"eps", &config.eps, "epsilon of the batch norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(VggConfig& config) {
  if (vgg_depth(config.layers) == nullptr) {
    return model_error("vgg",
                       fmt::format("layers={} must be one of 11, 13, 16 and 19", config.layers));
  }
  complete_form(config.form, config.image, config.classes);
  if (config.image % (1 << kVggStages) != 0)
    return model_error("vgg", fmt::format("image={} must be a multiple of 32", config.image));
  return complete_dense("vgg", config.form, config.dense);
}

Result<Graph> build_vgg(const VggConfig& config, int64_t batch) {
  GraphBuilder g("vgg");
  TESSERA_TRY(const ImageInputs inputs,
              image_inputs(g, "vgg", batch, config.norm ? config.ghost : 0, config.channels,
                           config.image, config.dtype));
  TensorId x = inputs.images;
  const VggDepth& depth = *vgg_depth(config.layers);
  Dim in{"channels", config.channels};
  int64_t block = 0;
  for (size_t stage = 0; stage < kVggStages; ++stage) {
    for (int64_t i = 0; i < depth.convolutions[stage] && g.ok(); ++i, ++block) {
      // Neighbouring layers have different names for their channels, so that a plan may cut the
      // channels of every second layer.
      const Dim out{block % 2 == 0 ? "inner" : "channels", config.width * kVggMultiples[stage]};
      ConvolutionOptions options;
      options.bias = config.bias;
      g.push(fmt::format("blocks.{}", block));
      x = image_convolution(g, "conv", x, in, out, options);
      if (config.norm) x = batch_norm(g, "bn", x, out, kNormedImages, config.eps);
      x = g.op1("act", "relu", {x});
      if (i + 1 == depth.convolutions[stage]) x = image_max_pool(g, "pool", x, 2, 2);
      g.pop();
      in = out;
    }
  }
  dense_classifier(g, x, {in.name, "height", "width"}, config.dense, config.dropout, config.dropout,
                   config.classes, inputs.targets);
  return g.finish();
}

}  // namespace tessera
