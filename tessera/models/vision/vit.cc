#include "tessera/models/vision/vit.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

// Adds a learned class token before the first patch of x [batch, seq, hidden].
TensorId add_class_token(GraphBuilder& g, TensorId x, const VitConfig& config, int64_t batch) {
  const TensorId token = g.parameter("embed.class.weight", {{"seq", 1}, {"hidden", config.hidden}},
                                     {Init::Kind::kZeros}, config.dtype);
  g.publish(token, "() seq hidden");
  const TensorId rows =
      g.op1("embed.class", "broadcast_to", {token},
            {{"dims", fmt::format("batch={} seq=1 hidden={}", batch, config.hidden)}});
  return g.op1("embed.concat", "concat", {rows, x}, {{"dim", std::string("seq")}});
}

TensorId class_token(GraphBuilder& g, TensorId x) {
  x = g.op1("final.class", "slice", {x},
            {{"dim", std::string("seq")}, {"begin", int64_t{0}}, {"size", int64_t{1}}});
  return mean_pool(g, x, "seq");
}

}  // namespace

std::vector<ModelKey> model_keys(VitConfig& config) {
  return {
      {"layers", &config.layers, "number of blocks"},
      {"hidden", &config.hidden, "width; a multiple of heads"},
      {"heads", &config.heads, "attention heads"},
      {"image", &config.image, "height and width in pixels; a multiple of patch"},
      {"patch", &config.patch, "height and width of a patch"},
      {"channels", &config.channels, "of a pixel"},
      {"classes", &config.classes, "classes"},
      {"ffn", &config.ffn, "width of the MLP", "4 * hidden"},
      {"pool", &config.pool, "what is classified", {}, {"class", "mean"}},
      {"eps", &config.eps, "epsilon of the layer norms"},
      {"activation", &config.activation, "of the MLP", {}, {"gelu", "gelu_erf", "relu", "silu"}},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(VitConfig& config) {
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  if (config.hidden % config.heads != 0) {
    return model_error("vit", fmt::format("hidden={} must be a multiple of heads={}", config.hidden,
                                          config.heads));
  }
  if (config.image % config.patch != 0) {
    return model_error(
        "vit", fmt::format("image={} must be a multiple of patch={}", config.image, config.patch));
  }
  return {};
}

Result<Graph> build_vit(const VitConfig& config, int64_t batch) {
  const LinearOptions in = {normal(kDeviation)};
  const LinearOptions out = {
      normal(kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers)))};
  GraphBuilder g("vit");
  const TensorId images = g.input("images",
                                  {{"batch", batch},
                                   {"height", config.image},
                                   {"width", config.image},
                                   {"channels", config.channels}},
                                  config.dtype);
  const TensorId targets = g.input("targets", {{"batch", batch}}, DType::kInt64);
  TensorId x = patch_embedding(g, images, config.patch, config.hidden, in);
  x = g.op1("embed.sequence", "group", {x},
            {{"first", int64_t{1}}, {"count", int64_t{2}}, {"name", std::string("seq")}});
  const bool with_class = config.pool == "class";
  if (with_class) x = add_class_token(g, x, config, batch);
  const TensorId position = g.parameter("embed.position.weight",
                                        {{"seq", size_of(g, x, "seq")}, {"hidden", config.hidden}},
                                        normal(kDeviation), config.dtype);
  g.publish(position, "() seq hidden");
  x = g.op1("embed.add", "add", {x, position});
  AttentionOptions heads;
  heads.heads = config.heads;
  heads.head_dim = config.hidden / config.heads;
  heads.causal = false;
  heads.in = in;
  heads.out = out;
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer) {
    g.push(fmt::format("blocks.{}", layer));
    x = pre_norm_block(g, x, config.eps, heads, {config.ffn, config.activation, in, out});
    g.pop();
  }
  x = layer_norm(g, "final.ln", x, config.eps);
  x = with_class ? class_token(g, x) : mean_pool(g, x, "seq");
  x = linear(g, "head", x, {"hidden"}, {{"classes", config.classes}}, in);
  cross_entropy_loss(g, x, targets);
  return g.finish();
}

}  // namespace tessera
