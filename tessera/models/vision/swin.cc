#include "tessera/models/vision/swin.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

struct Block {
  int64_t index = 0;
  int64_t side = 0;  // number of rows of the map, and of columns
  int64_t window = 0;
  // How far the map is rolled before it is cut into windows; 0: it is not rolled.
  int64_t shift = 0;
  // [seq, kv]: for each pair of tokens the number of their difference of places in a window
  TensorId pairs;
  // [seq, heads]: for shifted windows; tokens that were neighbours before the roll have the
  // same number
  TensorId regions;
};

// Rolls rows and columns of x [batch, rows, columns, hidden] by `shift`.
TensorId roll(GraphBuilder& g, const std::string& name, TensorId x, int64_t shift) {
  if (shift == 0) return x;
  x = g.op1(name + "_rows", "roll", {x}, {{"dim", std::string("rows")}, {"shift", shift}});
  return g.op1(name + "_columns", "roll", {x}, {{"dim", std::string("columns")}, {"shift", shift}});
}

// The windows are joined with the heads to one dim, because attention treats each head by itself,
// as it must treat each window. So batch remains a dim of its own, and heads, which is first in its
// bracket, can be split.
constexpr const char* kMap = "batch (window_row y) (window_column x) heads";
constexpr const char* kWindows = "batch (y x) (heads window_row window_column)";

// Rearranges x [batch, rows, columns, heads, ..] into windows [batch, seq, heads, ..]. `rest` are
// the dims after heads.
TensorId partition(GraphBuilder& g, const std::string& name, TensorId x, const Block& block,
                   const std::string& rest) {
  return g.op1(name, "rearrange", {x},
               {{"spec", fmt::format("{0} {2} -> {1} {2}", kMap, kWindows, rest)},
                {"sizes", fmt::format("y={0} x={0}", block.window)},
                {"dims", "batch seq heads " + rest}});
}

TensorId assemble(GraphBuilder& g, TensorId x, const Block& block, const std::string& rest) {
  return g.op1("assemble", "rearrange", {x},
               {{"spec", fmt::format("{1} {2} -> {0} {2}", kMap, kWindows, rest)},
                {"sizes", fmt::format("window_row={0} window_column={0} y={1}",
                                      block.side / block.window, block.window)},
                {"dims", "batch rows columns heads " + rest}});
}

// Makes the bias [seq, kv, heads]. It depends on the head and on the difference of places, and is
// equal in all windows.
TensorId relative_bias(GraphBuilder& g, const Block& block, int64_t heads, DType dtype) {
  const int64_t side = 2 * block.window - 1, windows = block.side / block.window;
  const TensorId table =
      g.parameter("relative.weight", {{"differences", side * side}, {"heads", heads}},
                  normal(kDeviation), dtype);
  const TensorId bias = g.op1("bias", "embedding", {block.pairs, table});
  if (windows == 1) return bias;
  const int64_t tokens = block.window * block.window;
  const TensorId repeated = g.op1("bias_repeated", "broadcast_to", {bias},
                                  {{"dims", fmt::format("seq={0} kv={0} heads={1} window={2}",
                                                        tokens, heads, windows * windows)}});
  return g.op1("bias_windows", "rearrange", {repeated},
               {{"spec", std::string("seq kv heads window -> seq kv (heads window)")},
                {"sizes", std::string()},
                {"dims", std::string("seq kv heads")}});
}

// Adds attention within windows to x [batch, rows, columns, hidden].
TensorId window_attention(GraphBuilder& g, TensorId x, const Block& block,
                          const AttentionOptions& options) {
  const Dim heads = {"heads", options.heads}, group = {"group", 1},
            head_dim = {"head_dim", options.head_dim}, hidden = {"hidden", size_of(g, x, "hidden")};
  g.push("attn");
  const TensorId q = linear(g, "q", x, {"hidden"}, {heads, group, head_dim}, options.in);
  const TensorId k = linear(g, "k", x, {"hidden"}, {heads, head_dim}, options.in);
  const TensorId v = linear(g, "v", x, {"hidden"}, {heads, head_dim}, options.in);
  const TensorId bias = relative_bias(g, block, options.heads, g.tensor(x).dtype);
  std::vector<TensorId> operands = {partition(g, "q_windows", q, block, "group head_dim"),
                                    partition(g, "k_windows", k, block, "head_dim"),
                                    partition(g, "v_windows", v, block, "head_dim"), bias};
  if (block.shift > 0) operands.insert(operands.end(), 2, block.regions);
  const std::vector<TensorId> core = g.op("core", "attention", operands);
  if (core.empty()) return {};
  const TensorId map = assemble(g, core[0], block, "group head_dim");
  const TensorId y = linear(g, "out", map, {"heads", "group", "head_dim"}, {hidden}, options.out);
  g.pop();
  return y;
}

TensorId add_block(GraphBuilder& g, TensorId x, const Block& block, double eps,
                   const AttentionOptions& heads, const MlpOptions& mlp) {
  g.push(fmt::format("blocks.{}", block.index));
  TensorId h = layer_norm(g, "ln_1", x, eps);
  h = roll(g, "attn.roll", h, -block.shift);
  h = window_attention(g, h, block, heads);
  h = roll(g, "attn.roll_back", h, block.shift);
  x = g.op1("attn.residual", "add", {x, h});
  h = layer_norm(g, "ln_2", x, eps);
  h = feed_forward(g, "mlp", h, mlp);
  x = g.op1("mlp.residual", "add", {x, h});
  g.pop();
  return x;
}

// Concatenates the features of 2 x 2 neighbours, and applies a norm and a linear layer to twice the
// width of x.
TensorId merge(GraphBuilder& g, TensorId x, int64_t stage, double eps) {
  const int64_t hidden = size_of(g, x, "hidden");
  g.push(fmt::format("merge.{}", stage));
  x = g.op1("gather", "rearrange", {x},
            {{"spec", std::string("batch (rows y) (columns x) hidden -> batch rows columns (y x "
                                  "hidden)")},
             {"sizes", std::string("y=2 x=2")},
             {"dims", std::string("batch rows columns neighbours")}});
  x = layer_norm(g, "ln", x, eps);
  x = linear(g, "linear", x, {"neighbours"}, {{"hidden", 2 * hidden}},
             {normal(kDeviation), /*bias=*/false});
  g.pop();
  return x;
}

}  // namespace

std::vector<ModelKey> model_keys(SwinConfig& config) {
  return {
      {"depths", &config.depths, "blocks of each stage"},
      {"hidden", &config.hidden, "width of the first stage; a multiple of heads"},
      {"heads", &config.heads, "attention heads of the first stage"},
      {"image", &config.image, "height and width in pixels"},
      {"patch", &config.patch, "height and width of a patch"},
      {"window", &config.window, "height and width of a window, in patches"},
      {"channels", &config.channels, "of a pixel"},
      {"classes", &config.classes, "classes"},
      {"ratio", &config.ratio, "width of the MLP by that of the stage"},
      {"eps", &config.eps, "epsilon of the layer norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(SwinConfig& config) {
  constexpr size_t kMaxStages = 7;
  constexpr int64_t kMaxBlocks = 10'000, kMaxWidth = int64_t{1} << 28;
  if (config.depths.size() > kMaxStages) {
    return model_error("swin", fmt::format("depths must have at most {} stages, found {}",
                                           kMaxStages, config.depths.size()));
  }
  for (const int64_t depth : config.depths) {
    if (depth > kMaxBlocks) {
      return model_error("swin",
                         fmt::format("depths={} must be at most {} each", depth, kMaxBlocks));
    }
  }
  if (config.hidden > (kMaxWidth >> config.depths.size()) / config.ratio) {
    return model_error("swin", fmt::format("hidden={} with ratio={} is too wide for {} stages",
                                           config.hidden, config.ratio, config.depths.size()));
  }
  if (config.hidden % config.heads != 0) {
    return model_error("swin", fmt::format("hidden={} must be a multiple of heads={}",
                                           config.hidden, config.heads));
  }
  const int64_t unit = config.patch * config.window << (config.depths.size() - 1);
  if (config.image % unit != 0) {
    return model_error(
        "swin", fmt::format("image={} must be a multiple of patch * window * 2^(stages - 1) = {}",
                            config.image, unit));
  }
  return {};
}

Result<Graph> build_swin(const SwinConfig& config, int64_t batch) {
  const int64_t blocks = std::accumulate(config.depths.begin(), config.depths.end(), int64_t{0});
  const LinearOptions in = {normal(kDeviation)};
  const LinearOptions out = {normal(kDeviation / std::sqrt(2.0 * static_cast<double>(blocks)))};
  GraphBuilder g("swin");
  const TensorId images = g.input("images",
                                  {{"batch", batch},
                                   {"height", config.image},
                                   {"width", config.image},
                                   {"channels", config.channels}},
                                  config.dtype);
  const TensorId targets = g.input("targets", {{"batch", batch}}, DType::kInt64);
  TensorId x = patch_embedding(g, images, config.patch, config.hidden, in);
  x = layer_norm(g, "embed.ln", x, config.eps);
  Block block{0, config.image / config.patch, config.window, 0, {}, {}};
  const int64_t tokens = config.window * config.window;
  block.pairs = g.buffer("window.pairs", {{"seq", tokens}, {"kv", tokens}},
                         {Init::Kind::kWindowPairs, 0, {config.window}}, DType::kInt64);
  AttentionOptions heads;
  heads.heads = config.heads;
  heads.head_dim = config.hidden / config.heads;
  heads.causal = false;
  heads.in = in;
  heads.out = out;
  int64_t hidden = config.hidden;
  for (size_t stage = 0; stage < config.depths.size(); ++stage) {
    if (stage > 0) {
      x = merge(g, x, static_cast<int64_t>(stage), config.eps);
      hidden *= 2;
      heads.heads *= 2;
      block.side /= 2;
    }
    for (int64_t i = 0; i < config.depths[stage] && g.ok(); ++i, ++block.index) {
      // A roll has no effect if one window is the whole map.
      const int64_t windows = block.side / block.window;
      block.shift = i % 2 == 1 && windows > 1 ? block.window / 2 : 0;
      if (block.shift > 0 && i == 1) {
        block.regions = g.buffer(
            fmt::format("window.regions_{}", stage),
            {{"seq", tokens}, {"heads", heads.heads * windows * windows}},
            {Init::Kind::kWindowRegions, 0, {block.window, block.shift, windows}}, DType::kInt64);
      }
      x = add_block(g, x, block, config.eps, heads, {config.ratio * hidden, "gelu", in, out});
    }
  }
  x = layer_norm(g, "final.ln", x, config.eps);
  x = mean_pool(g, x, "rows columns");
  x = linear(g, "head", x, {"hidden"}, {{"classes", config.classes}}, in);
  cross_entropy_loss(g, x, targets);
  return g.finish();
}

}  // namespace tessera
