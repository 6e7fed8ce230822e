#include "tessera/models/science/unet3d.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

constexpr int64_t kLevels = 3;

class UNetBuilder {
 public:
  UNetBuilder(GraphBuilder& g, const Unet3dConfig& config) : g_(g), config_(config) {}

  // Adds two convolutions, each with a norm and a rectifier. The first has `inner` output channels,
  // the second `outer`.
  TensorId pair(TensorId x, int64_t inner, int64_t outer) {
    return layer("2", layer("1", x, {"inner", inner}), {"channels", outer});
  }

  // Doubles the size in each direction, by a transposed convolution with windows of 2^3 that do
  // not overlap.
  TensorId up(TensorId x) {
    const std::vector<Dim> dims = g_.tensor(x).dims;
    const int64_t channels = size_of(g_, x, "channels");
    std::string places;
    for (const std::string& dim : space_)
      places += fmt::format("{}{}={}", places.empty() ? "" : " ", dim, 2 * size_of(g_, x, dim));
    std::vector<Dim> weight = {{"channels", channels}, {"wider", channels}};
    for (const std::string& dim : space_) weight.push_back({"kernel_" + dim, 2});
    const double deviation = std::sqrt(2 / static_cast<double>(channels));
    const TensorId w = g_.parameter("up.weight", weight, normal(deviation), config_.dtype);
    return g_.op1("up", "conv_transpose", {x, w},
                  {{"dims", places},
                   {"channels", std::string("channels")},
                   {"stride", std::string("2")},
                   {"padding", std::string("0")}});
  }

  TensorId join(TensorId kept, TensorId x) {
    return g_.op1("join", "concat", {kept, x}, {{"dim", std::string("channels")}});
  }

  TensorId pool(TensorId x) {
    return g_.op1("pool", "max_pool", {x},
                  {{"kernel", std::string("2 2 2")}, {"stride", std::string("2")}});
  }

 private:
  TensorId layer(const std::string& n, TensorId x, const Dim& out) {
    const std::vector<Dim>& dims = g_.tensor(x).dims;
    const Dim channels = dims[dims.size() - space_.size() - 1];
    const Dim in{channels.name == out.name ? "source" : channels.name, channels.size};
    x = convolution(g_, "conv_" + n, x, in, out, space_, 3, 1);
    x = batch_norm(g_, "bn_" + n, x, out, "sample depth height width", config_.eps);
    return g_.op1("act_" + n, "relu", {x});
  }

  GraphBuilder& g_;
  const Unet3dConfig& config_;
  const std::vector<std::string> space_ = {"depth", "height", "width"};
};

}  // namespace

std::vector<ModelKey> model_keys(Unet3dConfig& config) {
  return {
      {"width", &config.width, "of the volume in each direction; a multiple of 8"},
      {"channels", &config.channels, "of the volume"},
      {"classes", &config.classes, "of a voxel"},
      {"filters", &config.filters, "of the first convolution"},
      {"ghost", &config.ghost, "volumes whose batch norm statistics are taken together"},
      {"eps", &config.eps, "epsilon of the batch norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(Unet3dConfig& config) {
  if (config.width % (1 << kLevels) != 0)
    return model_error("unet3d", fmt::format("width={} must be a multiple of 8", config.width));
  return {};
}

Result<Graph> build_unet3d(const Unet3dConfig& config, int64_t batch) {
  const int64_t ghost = std::min(config.ghost, batch);
  if (batch % ghost != 0) {
    return model_error("unet3d", fmt::format("batch={} must be a multiple of ghost={}, or below it",
                                             batch, config.ghost));
  }
  GraphBuilder g("unet3d");
  UNetBuilder net(g, config);
  const Dim groups{"batch", batch / ghost}, samples{"sample", ghost};
  const Dim depth{"depth", config.width}, height{"height", config.width},
      width{"width", config.width};
  TensorId x =
      g.input("volume", {groups, samples, {"channels", config.channels}, depth, height, width},
              config.dtype);
  const TensorId targets =
      g.input("targets", {groups, samples, depth, height, width}, DType::kInt64);
  std::vector<TensorId> kept;
  int64_t block = 0, filters = config.filters;
  const auto in_block = [&](auto&& make) {
    if (!g.ok()) return;
    g.push(fmt::format("blocks.{}", block++));
    make();
    g.pop();
  };
  for (int64_t level = 0; level < kLevels; ++level, filters *= 2) {
    in_block([&] {
      kept.push_back(net.pair(x, filters, 2 * filters));
      x = net.pool(kept.back());
    });
  }
  in_block([&] { x = net.pair(x, filters, 2 * filters); });
  for (int64_t level = kLevels; level-- > 0; filters /= 2) {
    in_block([&] {
      x = net.join(kept[static_cast<size_t>(level)], net.up(x));
      x = net.pair(x, filters, filters);
    });
  }
  const double deviation = 1 / std::sqrt(static_cast<double>(2 * config.filters));
  LinearOptions head = {normal(deviation)};
  head.bias = false;
  x = linear(g, "head", x, {"channels"}, {{"classes", config.classes}}, head);
  cross_entropy_loss(g, x, targets);
  return g.finish();
}

}  // namespace tessera
