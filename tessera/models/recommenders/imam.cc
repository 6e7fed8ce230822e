#include "tessera/models/recommenders/imam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/models/nn.h"
#include "tessera/models/vision/images.h"

namespace tessera {
namespace {

constexpr int64_t kPlanes = 3;  // the planes xz, xy and yz
// Blocks over points in the encoder, and as many in the decoder.
constexpr int64_t kPointBlocks = 5;

Init fan_in(int64_t size) { return normal(1 / std::sqrt(static_cast<double>(size))); }

std::string sizes_text(const std::vector<Dim>& dims) {
  std::string text;
  for (const Dim& dim : dims)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", dim.name, dim.size);
  return text;
}

// Layers that work on points, whose features are the last dim, and layers that work on maps [..,
// channels, height, width].
class Layers {
 public:
  Layers(GraphBuilder& g, const ImamConfig& config) : g_(g), config_(config) {}

 protected:
  // Adds a dense layer over the last dim of x.
  TensorId dense(const std::string& name, TensorId x, const Dim& out, bool bias = true) {
    if (!g_.ok()) return {};
    const Dim in = g_.tensor(x).dims.back();
    LinearOptions options = {fan_in(in.size)};
    options.bias = bias;
    return linear(g_, name, x, {in.name}, {out}, options);
  }
  TensorId relu(const std::string& name, TensorId x) { return g_.op1(name, "relu", {x}); }

  // Makes x, or with `narrows` a product of x without bias, plus two dense layers of x. A rectifier
  // is applied before each of the two. The weights of the second are zero at first.
  TensorId residual(const std::string& name, TensorId x, bool narrows) {
    const Dim hidden{"hidden", config_.features};
    g_.push(name);
    TensorId h = dense("dense_1", relu("act_1", x), {"inner", config_.features});
    h = linear(g_, "dense_2", relu("act_2", h), {"inner"}, {hidden}, {{Init::Kind::kZeros}});
    const TensorId kept = narrows ? dense("shortcut", x, hidden, false) : x;
    h = g_.op1("residual", "add", {kept, h});
    g_.pop();
    return h;
  }

  TensorId conv(const std::string& name, TensorId x, int64_t channels, int64_t kernel = 3,
                int64_t stride = 1) {
    ConvolutionOptions options;
    options.kernel = kernel;
    options.stride = stride;
    options.padding = kernel % 2 == 1 ? kernel / 2 : 0;
    options.bias = true;
    return image_convolution(g_, name, x, {"source", size_of(g_, x, "channels")},
                             {"channels", channels}, options);
  }
  TensorId conv_relu(const std::string& name, TensorId x, int64_t channels, int64_t kernel = 3,
                     int64_t stride = 1) {
    return relu(name + ".act", conv(name, x, channels, kernel, stride));
  }

  // Makes maps of twice the side, with `channels` channels, by a transposed convolution with
  // windows of 2 x 2 that do not overlap.
  TensorId widened(const std::string& name, TensorId x, int64_t channels) {
    const int64_t in = size_of(g_, x, "channels");
    const TensorId w = g_.parameter(
        name + ".weight",
        {{"channels", in}, {"wider", channels}, {"kernel_height", 2}, {"kernel_width", 2}},
        normal(std::sqrt(2 / static_cast<double>(in))), config_.dtype);
    const int64_t height = 2 * size_of(g_, x, "height"), width = 2 * size_of(g_, x, "width");
    x = g_.op1(name, "conv_transpose", {x, w},
               {{"dims", sizes_text({{"height", height}, {"width", width}})},
                {"channels", std::string("channels")},
                {"stride", std::string("2")},
                {"padding", std::string("0")}});
    return with_bias(g_, name, x, {"channels", channels});
  }

  // Makes a map with the dims of x by a U-Net of `levels` levels. Each next level has maps of half
  // the side and twice the channels.
  TensorId u_net(const std::string& name, TensorId x, int64_t levels) {
    const int64_t channels = size_of(g_, x, "channels");
    std::vector<TensorId> kept;
    const auto pair = [&](const std::string& level, TensorId y, int64_t width) {
      return conv_relu(level + ".conv_2", conv_relu(level + ".conv_1", y, width), width);
    };
    g_.push(name);
    for (int64_t level = 0; level < levels; ++level) {
      const std::string path = fmt::format("down_{}", level);
      if (level > 0) x = image_max_pool(g_, path + ".pool", x, 2, 2);
      x = pair(path, x, channels << level);
      kept.push_back(x);
    }
    for (int64_t level = levels - 1; level-- > 0;) {
      const std::string path = fmt::format("up_{}", level);
      x = widened(path + ".wider", x, channels << level);
      x = g_.op1(path + ".join", "concat", {kept[static_cast<size_t>(level)], x},
                 {{"dim", std::string("channels")}});
      x = pair(path, x, channels << level);
    }
    x = conv("out", x, channels, 1);
    g_.pop();
    return x;
  }

  // The coordinates of points x [batch, .., coordinate] in the planes xz, xy and yz, each [batch,
  // plane, ..]: the first coordinate in the plane (rows) and the second (columns).
  struct OnPlanes {
    TensorId rows, columns;
  };
  OnPlanes on_planes(const std::string& name, TensorId x, const std::string& along) {
    x = g_.op1(name + ".axes", "transpose", {x}, {{"dims", "batch coordinate " + along}});
    std::vector<TensorId> axes;
    for (int64_t axis = 0; axis < 3; ++axis) {
      axes.push_back(
          g_.op1(fmt::format("{}.axis_{}", name, axis), "slice", {x},
                 {{"dim", std::string("coordinate")}, {"begin", axis}, {"size", int64_t{1}}}));
    }
    const auto chosen = [&](const char* which, size_t xz, size_t xy, size_t yz) {
      const TensorId together =
          g_.op1(fmt::format("{}.{}_together", name, which), "concat",
                 {axes[xz], axes[xy], axes[yz]}, {{"dim", std::string("coordinate")}});
      return g_.op1(fmt::format("{}.{}", name, which), "rename", {together},
                    {{"from", std::string("coordinate")}, {"to", std::string("plane")}});
    };
    return {chosen("rows", 0, 0, 1), chosen("columns", 2, 1, 2)};
  }

  GraphBuilder& g_;
  const ImamConfig& config_;
};

class Encoder : public Layers {
 public:
  using Layers::Layers;

  // points -> the vectors to be quantised, [batch, height, width, code], or if the planes are not
  // coupled [batch, plane, height, width, code]
  TensorId encoded(TensorId points) {
    g_.push("encoder");
    cells_ = cells(points);
    const int64_t width = config_.features, wide = width << (config_.downs + 1);
    TensorId x = dense("points", points, {"both", 2 * width});
    x = residual("points_0", x, true);
    for (int64_t i = 1; i < kPointBlocks; ++i) {
      const TensorId largest = of_cells(fmt::format("pool_{}", i), x);
      x = g_.op1(fmt::format("join_{}", i), "concat", {x, largest},
                 {{"dim", std::string("hidden")}});
      x = g_.op1(fmt::format("both_{}", i), "rename", {x},
                 {{"from", std::string("hidden")}, {"to", std::string("both")}});
      x = residual(fmt::format("points_{}", i), x, true);
    }
    x = map_of(dense("features", x, {"channels", width}));
    x = conv_relu("conv_1", x, size_of(g_, x, "channels"));
    x = conv_relu("conv_2", x, width);
    for (int64_t i = 1; i <= config_.downs; ++i)
      x = conv_relu(fmt::format("down_{}", i), x, width << i, 2, 2);
    x = conv_relu("wide", x, wide, 1);
    // The standard deviation is a quarter of the usual one, so that no vector is far from all codes
    // at first.
    x = linear(g_, "code", x, {"channels"}, {{"code", config_.code_width}}, {fan_in(16 * wide)});
    g_.pop();
    return x;
  }

 private:
  // Returns the number of each point's cell in each plane, int64 [batch, plane, points]. Along
  // each coordinate, which is cut into `plane` intervals, it is the cell whose middle is nearest
  // to the point.
  TensorId cells(TensorId points) {
    const auto size = static_cast<double>(config_.plane);
    const auto constant = [&](const char* name, double value) {
      return g_.op1(name, "fill", {},
                    {{"value", value},
                     {"dims", sizes_text({{"places", config_.plane}, {"one", 1}})},
                     {"dtype", std::string(dtype_name(config_.dtype))}});
    };
    const TensorId walked = g_.op1("cells.walked", "cumsum", {constant("cells.step", 2 / size)},
                                   {{"dim", std::string("places")}});
    const TensorId middles =
        g_.op1("cells.middles", "add", {walked, constant("cells.first", -1 - 1 / size)});
    const TensorId apart =
        g_.op1("cells.apart", "ungroup", {points},
               {{"dim", std::string("coordinate")}, {"names", std::string("coordinate=3 one=1")}});
    const TensorId score = g_.op1("cells.score", "code_score", {apart, middles});
    const TensorId place = g_.op1("cells.place", "code_place", {apart, middles, score});
    const OnPlanes at = on_planes("cells", place, "points");
    const TensorId rows = g_.op1("cells.scaled", "scale", {at.rows}, {{"factor", size}});
    return g_.op1("cells.ids", "code_ids", {g_.op1("cells.number", "add", {rows, at.columns})});
  }

  // Repeats x [batch, points, ..] for each plane: [batch, plane, points, ..].
  TensorId each_plane(const std::string& name, TensorId x) {
    std::vector<Dim> dims = g_.tensor(x).dims;
    if (dims.empty()) return {};
    dims.insert(dims.begin() + 1, {"plane", kPlanes});
    return g_.op1(name, "broadcast_to", {x}, {{"dims", sizes_text(dims)}});
  }
  std::string cell_dims(const Dim& features) {
    return sizes_text({{"batch", size_of(g_, cells_, "batch")},
                       {"plane", kPlanes},
                       {"cells", config_.plane * config_.plane},
                       features});
  }

  // Returns for each point the maximum of the features in its cell, summed over the planes.
  TensorId of_cells(const std::string& name, TensorId x) {
    const std::string cell = "cells";
    const TensorId most =
        g_.op1(name + ".most", "scatter_max", {each_plane(name + ".each", x), cells_},
               {{"dim", cell}, {"dims", cell_dims({"hidden", config_.features})}});
    const TensorId there = g_.op1(name + ".there", "gather", {most, cells_}, {{"dim", cell}});
    return g_.op1(name, "reduce_sum", {there}, {{"dims", std::string("plane")}});
  }

  // Returns the means of x in the cells: one map with the channels of all planes if the planes are
  // coupled, else a map for each plane.
  TensorId map_of(TensorId x) {
    x = scatter_mean(g_, "map.mean", each_plane("map.each", x), cells_, "cells",
                     cell_dims({"channels", config_.features}));
    x = g_.op1("map.channels", "transpose", {x},
               {{"dims", std::string("batch plane channels cells")}});
    x = g_.op1("map.square", "ungroup", {x},
               {{"dim", std::string("cells")},
                {"names", sizes_text({{"height", config_.plane}, {"width", config_.plane}})}});
    if (!config_.coupled) return x;
    return g_.op1(
        "map", "group", {x},
        {{"first", int64_t{1}}, {"count", int64_t{2}}, {"name", std::string("channels")}});
  }

  TensorId cells_;
};

class Decoder : public Layers {
 public:
  using Layers::Layers;

  // codes [batch, height, width, code], or if the planes are not coupled [batch, plane, height,
  // width, code], and queries -> logits [batch, queries]
  TensorId decoded(TensorId codes, TensorId queries) {
    const int64_t width = config_.features;
    g_.push("decoder");
    TensorId x = linear(g_, "wide", codes, {"code"}, {{"channels", width << (config_.downs + 1)}},
                        {fan_in(config_.code_width)});
    const std::string outer = config_.coupled ? "batch" : "batch plane";
    x = g_.op1("map", "transpose", {x}, {{"dims", outer + " channels height width"}});
    x = u_net("middle", x, config_.middle);
    for (int64_t i = config_.downs; i-- > 0;) {
      const std::string path = fmt::format("up_{}", i);
      x = relu(path + ".act", widened(path, x, width << i));
    }
    const int64_t joined = config_.coupled ? kPlanes * width : width;
    x = conv_relu("conv_1", x, joined);
    x = conv("conv_2", x, joined);
    if (config_.coupled) {
      x = g_.op1("planes", "ungroup", {x},
                 {{"dim", std::string("channels")},
                  {"names", sizes_text({{"plane", kPlanes}, {"channels", width}})}});
    }
    x = occupancy(at_queries(u_net("plane", x, config_.depth), queries), queries);
    g_.pop();
    return x;
  }

 private:
  // Returns the features of the planes at the queries, summed over the planes: [batch,
  // queries, channels].
  TensorId at_queries(TensorId planes, TensorId queries) {
    const OnPlanes at = on_planes("at", queries, "queries");
    const auto with_axis = [&](const char* name, TensorId x) {
      return g_.op1(name, "ungroup", {x},
                    {{"dim", std::string("queries")},
                     {"names", sizes_text({{"queries", config_.queries}, {"axis", 1}})}});
    };
    const TensorId places = g_.op1(
        "at.places", "concat", {with_axis("at.row", at.rows), with_axis("at.column", at.columns)},
        {{"dim", std::string("axis")}});
    const TensorId features = g_.op1("at.features", "grid_sample", {planes, places},
                                     {{"dims", std::string("height width")}});
    return g_.op1("at.sum", "reduce_sum", {features}, {{"dims", std::string("plane")}});
  }

  TensorId occupancy(TensorId features, TensorId queries) {
    const Dim hidden{"hidden", config_.features};
    TensorId x = dense("queries", queries, hidden);
    for (int64_t i = 0; i < kPointBlocks; ++i) {
      const std::string path = fmt::format("queries_{}", i);
      x = g_.op1(path + ".add", "add", {x, dense(path + ".features", features, hidden)});
      x = residual(path, x, false);
    }
    return linear(g_, "out", relu("act", x), {"hidden"}, {}, {fan_in(config_.features)});
  }
};

DType loss_dtype(const ImamConfig& config) {
  return dtype_bytes(config.dtype) < dtype_bytes(DType::kFloat32) ? DType::kFloat32 : config.dtype;
}

// Makes the loss of the occupancy, which is summed over the queries of a shape.
TensorId shape_loss(GraphBuilder& g, const ImamConfig& config, TensorId logits, TensorId targets) {
  if (!g.ok()) return {};
  const DType wide = loss_dtype(config);
  if (wide != config.dtype) {
    logits = g.op1("loss.cast", "cast", {logits}, {{"dtype", std::string(dtype_name(wide))}});
  }
  return g.op1("loss.shape", "scale", {binary_cross_entropy(g, "loss", logits, targets)},
               {{"factor", static_cast<double>(config.queries)}});
}

TensorId code_loss(GraphBuilder& g, const ImamConfig& config, TensorId z,
                   const Quantised& nearest) {
  const auto constant = [&](const char* name, TensorId x) {
    return g.op1(name, "stop_gradient", {x});
  };
  const TensorId points =
                     mean_square_error(g, "loss.points", z, constant("loss.code", nearest.codes)),
                 codes =
                     mean_square_error(g, "loss.codes", nearest.codes, constant("loss.point", z));
  const auto part = [&](const char* name, TensorId x, double weight) {
    return g.op1(name, "scale", {x}, {{"factor", config.quantiser * weight}});
  };
  const TensorId sum = g.op1(
      "loss.quantised", "add",
      {part("loss.towards_code", points, 1), part("loss.towards_point", codes, config.codebook)});
  const DType wide = loss_dtype(config);
  if (wide == config.dtype) return sum;
  return g.op1("loss.quantised_cast", "cast", {sum}, {{"dtype", std::string(dtype_name(wide))}});
}

// Makes the transformer's pass over the classes and tokens of shapes.
class Transformer {
 public:
  Transformer(GraphBuilder& g, const ImamConfig& config) : g_(g), config_(config) {}

  // classes [batch] and tokens [batch, seq] -> logits of the tokens [batch, seq, vocab]. The logits
  // of token k depend on the class and on the tokens before k only.
  TensorId logits(TensorId classes, TensorId tokens) {
    const Dim hidden{"hidden", config_.hidden}, vocab{"vocab", config_.codes};
    const TensorId table =
        g_.parameter("embed.token.weight", {vocab, hidden}, normal(kDeviation), config_.dtype);
    TensorId x = sequence(classes, tokens, table, hidden);
    for (int64_t layer = 0; layer < config_.layers && g_.ok(); ++layer) {
      g_.push(fmt::format("blocks.{}", layer));
      x = block(x, layer);
      g_.pop();
    }
    x = g_.op1("final.tokens", "slice", {x},
               {{"dim", std::string("seq")}, {"begin", int64_t{1}}, {"size", config_.tokens()}});
    x = layer_norm(g_, "final.ln_1", x, config_.eps);
    x = linear(g_, "final.dense", x, {"hidden"}, {{"features", config_.hidden}},
               {normal(kDeviation)});
    x = g_.op1("final.act", "gelu_erf", {x});
    x = g_.op1("final.back", "rename", {x},
               {{"from", std::string("features")}, {"to", std::string("hidden")}});
    x = layer_norm(g_, "final.ln_2", x, config_.eps);
    x = output_head(g_, x, table, true, vocab, normal(kDeviation));
    const TensorId bias = g_.parameter("head.bias", {vocab}, {Init::Kind::kZeros}, config_.dtype);
    return g_.op1("head.biased", "add", {x, bias});
  }

 private:
  // Makes the transformer's input sequence: the class, a learned start token, and all tokens except
  // the last.
  TensorId sequence(TensorId classes, TensorId tokens, TensorId table, const Dim& hidden) {
    if (!g_.ok()) return {};
    const Dim batch = g_.tensor(tokens).dims.front(), one{"seq", 1};
    const TensorId by_class =
        g_.parameter("embed.class.weight", {{"classes", config_.classes}, hidden},
                     normal(kDeviation), config_.dtype);
    const TensorId start =
        g_.parameter("embed.start.weight", {one, hidden}, normal(kDeviation), config_.dtype);
    const TensorId position =
        g_.parameter("embed.position.weight", {{"seq", config_.tokens() + 1}, hidden},
                     normal(kDeviation), config_.dtype);
    const auto spread = [&](const char* name, TensorId x) {
      return g_.op1(name, "broadcast_to", {x}, {{"dims", sizes_text({batch, one, hidden})}});
    };
    const TensorId first =
        spread("embed.first", g_.op1("embed.class", "embedding", {classes, by_class}));
    std::vector<TensorId> all = {first, spread("embed.start", start)};
    if (config_.tokens() > 1) {
      const TensorId embedded = g_.op1("embed.token", "embedding", {tokens, table});
      all.push_back(g_.op1(
          "embed.before", "slice", {embedded},
          {{"dim", std::string("seq")}, {"begin", int64_t{0}}, {"size", config_.tokens() - 1}}));
    }
    const TensorId x = g_.op1("embed.join", "concat", all, {{"dim", std::string("seq")}});
    return dropout(g_, "embed.dropout", g_.op1("embed.add", "add", {x, position}), config_.dropout,
                   "embed");
  }

  TensorId block(TensorId x, int64_t layer) {
    const std::string path = fmt::format("blocks.{}", layer);
    const LinearOptions in = {normal(kDeviation)};
    AttentionOptions heads;
    heads.heads = config_.heads;
    heads.head_dim = config_.hidden / config_.heads;
    heads.in = heads.out = in;
    heads.dropout = config_.dropout;
    heads.dropout_key = path + ".weights";
    return pre_norm_block(g_, x, config_.eps, heads, {4 * config_.hidden, "gelu_erf", in, in},
                          {config_.dropout, config_.mlp_dropout, path});
  }

  GraphBuilder& g_;
  const ImamConfig& config_;
};

// The inputs that the model reads. They differ for each of the four values of `part`.
struct Reads {
  bool points, tokens, queries, classes;
};
Reads reads_of(const ImamConfig& config) {
  const bool shapes = config.part == "autoencoder" || config.part == "decoder";
  const bool points = config.part == "autoencoder" || config.part == "transformer";
  return {points, !points, shapes, !shapes};
}

}  // namespace

int64_t ImamConfig::maps() const { return coupled ? 1 : kPlanes; }

std::vector<ModelKey> model_keys(ImamConfig& config) {
  return {
      {"part",
       &config.part,
       "what is trained",
       "",
       {"autoencoder", "transformer", "sequence", "decoder"}},
      {"points", &config.points, "of a surface"},
      {"queries", &config.queries, "places of a shape whose occupancy is asked"},
      {"plane", &config.plane, "cells of a plane along each side"},
      {"features", &config.features, "channels of a plane, and width of layers over points"},
      {"downs", &config.downs, "how often the map's side is halved"},
      {"middle", &config.middle, "levels of the U-Net between codes and planes"},
      {"depth", &config.depth, "levels of the U-Net over each plane"},
      {"coupled", &config.coupled, "planes share a map of codes; 0: each has its own"},
      {"codes", &config.codes, "of the codebook"},
      {"code_width", &config.code_width, "numbers of a code"},
      {"code_init", &config.code_init, "half-width of the codes at the beginning; 0: 1 / codes"},
      {"quantiser", &config.quantiser, "weight of the loss of the quantiser"},
      {"codebook", &config.codebook, "in it, weight of the part that moves the codes"},
      {"layers", &config.layers, "blocks of the transformer"},
      {"hidden", &config.hidden, "its width; a multiple of heads"},
      {"heads", &config.heads, "of its attention"},
      {"classes", &config.classes, "of shapes"},
      {"dropout", &config.dropout,
       "probability, below 1; on its embedding, attention and the weights of attention"},
      {"mlp_dropout", &config.mlp_dropout, "probability, below 1; behind its MLPs"},
      {"eps", &config.eps, "epsilon of its layer norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(ImamConfig& config) {
  const auto error = [](std::string message) { return model_error("imam", message); };
  constexpr int64_t kMaxLevels = 12;
  for (const auto& [name, levels] :
       {std::pair{"downs", config.downs}, {"middle", config.middle}, {"depth", config.depth}}) {
    if (levels > kMaxLevels) return error(fmt::format("{}={} must be at most 12", name, levels));
  }
  const int64_t finest = int64_t{1} << std::max(config.downs + config.middle - 1, config.depth - 1);
  if (config.plane % finest != 0) {
    return error(
        fmt::format("plane={} must be a multiple of {}, which downs={}, middle={} and "
                    "depth={} ask for",
                    config.plane, finest, config.downs, config.middle, config.depth));
  }
  constexpr int64_t kMaxFeatures = int64_t{1} << 20, kMaxPlane = 1 << 12;
  if (config.plane > kMaxPlane)
    return error(fmt::format("plane={} must be at most {}", config.plane, kMaxPlane));
  if (config.features > kMaxFeatures)
    return error(fmt::format("features={} must be at most {}", config.features, kMaxFeatures));
  if (config.hidden % config.heads != 0) {
    return error(
        fmt::format("hidden={} must be a multiple of heads={}", config.hidden, config.heads));
  }
  if (config.dropout >= 1) return error(fmt::format("dropout={} must be below 1", config.dropout));
  if (config.mlp_dropout >= 1)
    return error(fmt::format("mlp_dropout={} must be below 1", config.mlp_dropout));
  if (config.code_init == 0) config.code_init = 1 / static_cast<double>(config.codes);
  return {};
}

Result<Graph> build_imam(const ImamConfig& config, int64_t batch) {
  GraphBuilder g("imam");
  const Reads reads = reads_of(config);
  const Dim shapes{"batch", batch}, coordinate{"coordinate", 3}, seq{"seq", config.tokens()},
      queries{"queries", config.queries};
  std::vector<Dim> maps = {{"height", config.side()}, {"width", config.side()}};
  if (!config.coupled) maps.insert(maps.begin(), {"plane", kPlanes});
  TensorId points, tokens, classes, asked, targets;
  if (reads.points)
    points = g.input("points", {shapes, {"points", config.points}, coordinate}, config.dtype);
  if (reads.tokens) tokens = g.input("tokens", {shapes, seq}, DType::kInt64);
  if (reads.classes) classes = g.input("classes", {shapes}, DType::kInt64);
  if (reads.queries) {
    asked = g.input("queries", {shapes, queries, coordinate}, config.dtype);
    targets = g.input("targets", {shapes, queries}, loss_dtype(config));
  } else if (reads.tokens) {
    targets = g.input("targets", {shapes, seq}, DType::kInt64);
  }
  g.set_trains(config.part == "autoencoder");
  TensorId codebook;
  if (reads.points || reads.queries) {
    codebook =
        g.parameter("codebook.weight", {{"codes", config.codes}, {"code", config.code_width}},
                    {Init::Kind::kUniform, config.code_init}, config.dtype);
  }
  TensorId z;
  Quantised nearest;
  if (reads.points) {
    z = Encoder(g, config).encoded(points);
    nearest = vector_quantised(g, "quantise", z, codebook);
  }
  g.set_trains(true);
  if (reads.queries) {
    TensorId codes = nearest.straight;
    if (reads.tokens) {
      codes = g.op1("quantise.square", "ungroup",
                    {g.op1("quantise.code", "embedding", {tokens, codebook})},
                    {{"dim", std::string("seq")}, {"names", sizes_text(maps)}});
    }
    const TensorId loss = shape_loss(g, config, Decoder(g, config).decoded(codes, asked), targets);
    g.graph().loss =
        reads.tokens ? loss : g.op1("loss.total", "add", {loss, code_loss(g, config, z, nearest)});
    return g.finish();
  }
  if (reads.points) {
    tokens = targets = g.op1("quantise.tokens", "group", {nearest.ids},
                             {{"first", int64_t{1}},
                              {"count", static_cast<int64_t>(maps.size())},
                              {"name", std::string("seq")}});
  }
  cross_entropy_loss(g, Transformer(g, config).logits(classes, tokens), targets);
  return g.finish();
}

}  // namespace tessera
