#include "tessera/models/science/cosmoflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

// Multiples of `filters`.
constexpr std::array<int64_t, 7> kCosmoFlowMultiples = {1, 2, 4, 8, 16, 16, 16};
constexpr size_t kStrided = 3;  // the number of the convolution with stride 2
constexpr int64_t kSmallest = 2;

}  // namespace

std::vector<ModelKey> model_keys(CosmoflowConfig& config) {
  return {
      {"width", &config.width, "of the volume in each direction; a power of two, at least 4"},
      {"channels", &config.channels, "of the volume"},
      {"outputs", &config.outputs, "numbers that are regressed"},
      {"filters", &config.filters, "of the first convolution"},
      {"widest", &config.widest, "the most filters of a convolution", "16 * filters"},
      {"dropout", &config.dropout, "behind the dense layers but the last"},
      {"slope", &config.slope, "of the rectifiers below 0"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(CosmoflowConfig& config) {
  const bool power = config.width >= 4 && std::has_single_bit(static_cast<uint64_t>(config.width));
  if (!power || config.width > 4096) {
    return model_error("cosmoflow",
                       fmt::format("width={} must be a power of two from 4 to 4096", config.width));
  }
  if (config.widest == 0) config.widest = kCosmoFlowMultiples.back() * config.filters;
  return {};
}

Result<Graph> build_cosmoflow(const CosmoflowConfig& config, int64_t batch) {
  const std::vector<std::string> space = {"depth", "height", "width"};
  GraphBuilder g("cosmoflow");
  Dim in{"channels", config.channels};
  TensorId x = g.input("volume",
                       {{"batch", batch},
                        in,
                        {"depth", config.width},
                        {"height", config.width},
                        {"width", config.width}},
                       config.dtype);
  // The loss is computed in float32 at least.
  const bool narrow = dtype_bytes(config.dtype) < dtype_bytes(DType::kFloat32);
  const DType wide = narrow ? DType::kFloat32 : config.dtype;
  const TensorId targets =
      g.input("targets", {{"batch", batch}, {"outputs", config.outputs}}, wide);
  int64_t width = config.width;
  for (size_t layer = 0; layer < kCosmoFlowMultiples.size() && g.ok(); ++layer) {
    // Neighbouring layers have different names for their channels, so that a plan may cut the
    // channels of every second layer.
    const Dim out{layer % 2 == 0 ? "inner" : "channels",
                  std::min(config.filters * kCosmoFlowMultiples[layer], config.widest)};
    const int64_t stride = layer == kStrided && width > kSmallest ? 2 : 1;
    g.push(fmt::format("blocks.{}", layer));
    x = convolution(g, "conv", x, in, out, space, 3, stride);
    x = g.op1("act", "leaky_relu", {x}, {{"slope", config.slope}});
    width /= stride;
    if (width > kSmallest) {
      x = g.op1("pool", "avg_pool", {x},
                {{"kernel", std::string("3 3 3")},
                 {"stride", std::string("2")},
                 {"padding", std::string("1")}});
      width /= 2;
    }
    g.pop();
    in = out;
  }
  const auto dense = [&](const std::string& name, const std::vector<std::string>& from,
                         const Dim& to) {
    double fan_in = 1;
    for (const std::string& dim : from) fan_in *= static_cast<double>(size_of(g, x, dim));
    x = linear(g, name, x, from, {to}, {normal(std::sqrt(2 / fan_in))});
  };
  const auto activate = [&](const std::string& name) {
    x = g.op1(name + ".act", "leaky_relu", {x}, {{"slope", config.slope}});
    x = dropout(g, name + ".dropout", x, config.dropout, name);
  };
  const int64_t features = 8 * in.size;
  dense("head.dense_1", {in.name, "depth", "height", "width"}, {"features", features});
  activate("head.dense_1");
  dense("head.dense_2", {"features"}, {"units", std::max<int64_t>(1, features / 8)});
  activate("head.dense_2");
  dense("head.out", {"units"}, {"outputs", config.outputs});
  if (narrow) x = g.op1("loss.cast", "cast", {x}, {{"dtype", std::string(dtype_name(wide))}});
  g.graph().loss = mean_square_error(g, "loss", x, targets);
  return g.finish();
}

}  // namespace tessera
