#include "tessera/models/science/smc.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tessera/graph/carried.h"
#include "tessera/models/running_norm.h"
#include "tessera/models/vision/images.h"

namespace tessera {
namespace {

constexpr size_t kSmcBlocks = 3;
constexpr const char* kAhead = "ahead";  // the scope of the pass over the next step's samples

class SmcBuilder {
 public:
  SmcBuilder(GraphBuilder& g, const SmcConfig& config) : g_(g), config_(config) {}

  // Adds a convolution, a batch norm, a rectifier and a pool. Neighbouring blocks have different
  // names for their channels, so that a plan may cut the channels of every second block.
  TensorId block(TensorId x, size_t index, bool ahead) {
    constexpr std::array<const char*, kSmcBlocks> kChannels = {"first", "second", "third"};
    const std::string from = index == 0 ? "source" : kChannels[index - 1];
    const int64_t from_size = size_of(g_, x, index == 0 ? "channels" : from);
    const Dim out{kChannels[index], config_.width << index};
    x = convolution(g_, "conv_1", x, {from, from_size}, out, {"height", "width"}, 3, 1);
    x = running_batch_norm(g_, "bn_1", x, out, "sample height width",
                           {.keep = config_.running, .eps = config_.eps, .moves = ahead});
    x = g_.op1("act", "relu", {x});
    return g_.op1("pool", "max_pool", {x},
                  {{"kernel", std::string("2")},
                   {"stride", std::string("2")},
                   {"padding", std::string("0")}});
  }

  TensorId logits(TensorId x) {
    x = mean_pool(g_, x, "height width");
    const Dim in = g_.tensor(x).dims.back();
    const LinearOptions head = {normal(1 / std::sqrt(static_cast<double>(in.size)))};
    x = linear(g_, "head", x, {in.name}, {{"classes", config_.classes}}, head);
    const DType dtype = g_.tensor(x).dtype;  // soft labels have float32 or more
    if (dtype_bytes(dtype) >= dtype_bytes(DType::kFloat32)) return x;
    return g_.op1("head.cast", "cast", {x}, {{"dtype", std::string("float32")}});
  }

  // Makes alpha (1 - (1 + cos(pi (step - 1) / steps)) / 2), and 0 in evaluations.
  TensorId share(DType dtype) {
    const TensorId step = g_.input("step", {}, dtype);
    if (!g_.ok()) return {};
    g_.graph().tensor(step).init.kind = Init::Kind::kStep;
    const auto constant = [&](const char* name, double value) {
      return g_.op1(name, "fill", {},
                    {{"value", value}, {"dims", ""}, {"dtype", std::string(dtype_name(dtype))}});
    };
    const auto scaled = [&](const char* name, TensorId x, double factor) {
      return g_.op1(name, "scale", {x}, {{"factor", factor}});
    };
    const TensorId one = constant("share.one", 1), zero = constant("share.zero", 0);
    const TensorId done = g_.op1("share.done", "sub", {step, one});
    const double turn = std::numbers::pi / static_cast<double>(config_.steps);
    const TensorId cosine = g_.op1("share.cos", "cos", {scaled("share.angle", done, turn)});
    const TensorId rise = g_.op1("share.rise", "sub", {one, cosine});
    return g_.op1("share.now", "in_evaluation", {scaled("share", rise, config_.alpha / 2), zero});
  }

  // Makes KL(softmax(q / tau) || softmax(z / tau)) for each sample, by log-sum-exps (lse). With p =
  // softmax(q / tau) it is the sum of p (q - z) / tau, minus lse(q / tau), plus lse(z / tau).
  TensorId divergence(TensorId q, TensorId z, TensorId targets) {
    const auto warm = [&](const char* name, TensorId x) {
      return g_.op1(name, "scale", {x}, {{"factor", 1 / config_.tau}});
    };
    const auto log_sum = [&](const char* name, TensorId x) {
      return g_.op(name, "cross_entropy", {x, targets})[0];
    };
    const TensorId soft = warm("loss.soft", q), own = warm("loss.own", z);
    const TensorId p =
        g_.op1("loss.soft_share", "softmax", {soft}, {{"dim", std::string("classes")}});
    const TensorId weighted =
        g_.op1("loss.weighted", "mul", {p, g_.op1("loss.apart", "sub", {soft, own})});
    const TensorId sum = g_.op1("loss.weighted_sum", "reduce_sum", {weighted},
                                {{"dims", std::string("classes")}, {"factor", 1.0}});
    const TensorId lse =
        g_.op1("loss.lse", "sub", {log_sum("loss.own_lse", own), log_sum("loss.soft_lse", soft)});
    return g_.op1("loss.divergence", "add", {sum, lse});
  }

  void loss(TensorId z, TensorId ahead, TensorId targets) {
    if (!g_.ok()) return;
    const std::vector<Dim> dims = g_.tensor(z).dims;
    const DType dtype = g_.tensor(z).dtype;
    const TensorId queue = g_.buffer("soft_labels", dims, {Init::Kind::kZeros}, dtype);
    const std::vector<TensorId> parts = g_.op("loss.cross_entropy", "cross_entropy", {z, targets});
    const TensorId hard = g_.op1("loss.hard", "sub", {parts[0], parts.back()});
    const TensorId apart =
        g_.op1("loss.soft_minus_hard", "sub", {divergence(queue, z, targets), hard});
    const TensorId token =
        g_.op1("loss.token", "add", {hard, g_.op1("loss.shared", "mul", {apart, share(dtype)})});
    if (!g_.ok()) return;
    const Tensor& each = g_.tensor(token);
    std::string all;
    for (const Dim& dim : each.dims) all += (all.empty() ? "" : " ") + dim.name;
    g_.graph().loss = g_.op1("loss.mean", "reduce_sum", {token},
                             {{"dims", all}, {"factor", 1 / static_cast<double>(each.elements())}});
    carry(g_, queue, ahead);
  }

 private:
  GraphBuilder& g_;
  const SmcConfig& config_;
};

}  // namespace

std::vector<ModelKey> model_keys(SmcConfig& config) {
  return {
      {"width", &config.width, "channels of the first of three convolutions"},
      {"image", &config.image, "height and width in pixels, at least 8"},
      {"channels", &config.channels, "of a pixel"},
      {"classes", &config.classes, "classes"},
      {"ghost", &config.ghost, "images whose batch norm statistics are taken together"},
      {"steps", &config.steps, "steps over which the share of soft labels rises to alpha"},
      {"alpha", &config.alpha, "share of soft labels in the last step; 0: they are not used"},
      {"tau", &config.tau, "temperature of soft labels"},
      {"running", &config.running, "share of the running statistics that a step keeps"},
      {"eps", &config.eps, "epsilon of the batch norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(SmcConfig& config) {
  constexpr int64_t kMaxWidth = int64_t{1} << 22;
  if (config.width > kMaxWidth) {
    return model_error("smc", fmt::format("width={} must be at most {}", config.width, kMaxWidth));
  }
  if (config.image < 8) {
    return model_error("smc", fmt::format("image={} must be at least 8", config.image));
  }
  if (config.alpha > 1)
    return model_error("smc", fmt::format("alpha={} must be at most 1", config.alpha));
  if (config.tau <= 0) return model_error("smc", fmt::format("tau={} must be above 0", config.tau));
  return check_running("smc", config.running);
}

Result<Graph> build_smc(const SmcConfig& config, int64_t batch) {
  GraphBuilder g("smc");
  SmcBuilder net(g, config);
  TESSERA_TRY(const ImageInputs inputs, image_inputs(g, "smc", batch, config.ghost, config.channels,
                                                     config.image, config.dtype));
  const std::vector<Dim> dims = g.tensor(inputs.images).dims;
  TensorId now = inputs.images, next = g.input("images_ahead", dims, config.dtype);
  // Applies a function to both passes, one after the other. The passes share parameters.
  const auto both = [&](const auto& layer) {
    g.push_shared("");
    now = layer(now, false);
    g.pop();
    g.push_shared(kAhead);
    next = layer(next, true);
    g.pop();
  };
  for (size_t i = 0; i < kSmcBlocks && g.ok(); ++i) {
    g.push(fmt::format("blocks.{}", i));
    both([&](TensorId x, bool ahead) { return net.block(x, i, ahead); });
    g.pop();
  }
  both([&](TensorId x, bool) { return net.logits(x); });
  net.loss(now, next, inputs.targets);
  return g.finish();
}

}  // namespace tessera
