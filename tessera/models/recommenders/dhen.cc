#include "tessera/models/recommenders/dhen.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// The embeddings that a module reads, and the number of embeddings that it makes.
struct Interaction {
  TensorId x;           // number of embeddings that the module makes
  int64_t outputs = 0;  // embeddings that the module makes
};

// Makes X W by an op `<scope>.mix`, and gives the result the dim names of X by an op
// `<scope>.mixed`. Dims of x in `contracted` (seq is one of them) are summed over.
TensorId mix(GraphBuilder& g, const std::string& scope, TensorId x, const Names& contracted,
             int64_t outputs) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  Names of_x;
  std::vector<Dim> weight;
  double in = 1;
  for (const Dim& dim : input.dims) {
    const bool sums = std::find(contracted.begin(), contracted.end(), dim.name) != contracted.end();
    of_x.push_back(dim.name + (sums ? "+" : ""));
    if (!sums) continue;
    weight.push_back(dim);
    in *= static_cast<double>(dim.size);
  }
  Names summed;
  for (const Dim& dim : weight) summed.push_back(dim.name);
  weight.push_back({"mixed", outputs});
  const TensorId w =
      g.parameter(scope + ".mix.weight", weight,
                  normal(std::sqrt(2 / (in + static_cast<double>(outputs)))), input.dtype);
  g.publish(w, fmt::format("mixed ({})", join(summed, " ")));
  Names of_w;
  for (const Dim& dim : weight) of_w.push_back(dim.name);
  const TensorId y = g.op1(
      scope + ".mix", "einsum", {x, w},
      {{"spec", fmt::format("{}, {} -> batch mixed hidden", join(of_x, " "), join(of_w, " "))}});
  return g.op1(scope + ".mixed", "rename", {y},
               {{"from", std::string("mixed")}, {"to", std::string("seq")}});
}

// Multiplies `numbers` [batch, seq, others] by a weight [seq, others, outputs, hidden], by ops
// `mix` and `mixed`.
TensorId project(GraphBuilder& g, TensorId numbers, const Interaction& in, bool bias) {
  const int64_t hidden = size_of(g, in.x, "hidden");
  const auto count =
      static_cast<double>(size_of(g, numbers, "seq") * size_of(g, numbers, "others"));
  LinearOptions options = glorot(count, static_cast<double>(in.outputs * hidden));
  options.bias = bias;
  const TensorId y = linear(g, "mix", numbers, {"seq", "others"},
                            {{"mixed", in.outputs}, {"hidden", hidden}}, options);
  return g.op1("mixed", "rename", {y},
               {{"from", std::string("mixed")}, {"to", std::string("seq")}});
}

TensorId join_numbers(GraphBuilder& g, const std::vector<TensorId>& parts) {
  if (parts.size() == 1) return parts[0];
  return g.op1("join", "concat", parts, {{"dim", std::string("others")}});
}

TensorId linear_module(GraphBuilder& g, const Interaction& in, const DhenConfig&) {
  return mix(g, "linear", in.x, {"seq"}, in.outputs);
}

TensorId attention_module(GraphBuilder& g, const Interaction& in, const DhenConfig& config) {
  const auto hidden = static_cast<double>(config.width), ffn = static_cast<double>(config.ffn);
  AttentionOptions options;
  options.heads = config.heads;
  options.head_dim = config.width / config.heads;
  options.causal = false;
  options.in = options.out = glorot(hidden, hidden);
  TensorId h = attention(g, "attn", in.x, options);
  h = g.op1("attn.residual", "add", {in.x, h});
  const TensorId x = layer_norm(g, "ln_1", h, config.eps);
  h = feed_forward(g, "mlp", x, {config.ffn, "relu", glorot(hidden, ffn), glorot(ffn, hidden)});
  h = g.op1("mlp.residual", "add", {x, h});
  return mix(g, "attn", layer_norm(g, "ln_2", h, config.eps), {"seq"}, in.outputs);
}

TensorId convolution_module(GraphBuilder& g, const Interaction& in, const DhenConfig& config) {
  const TensorId image =
      g.op1("conv.image", "rearrange", {in.x},
            {{"spec", std::string("batch (channels seq) hidden -> batch channels seq hidden")},
             {"sizes", std::string("channels=1")},
             {"dims", std::string("batch channels seq hidden")}});
  const TensorId maps = convolution(g, "conv.maps", image, {"channels", 1},
                                    {"filters", config.filters}, {"seq", "hidden"}, config.kernel,
                                    /*stride=*/1);
  return mix(g, "conv", maps, {"filters", "seq"}, in.outputs);
}

TensorId cross_module(GraphBuilder& g, const Interaction& in, const DhenConfig&) {
  g.push("cross");
  const TensorId y = project(g, inner_products(g, in.x, "seq", "hidden"), in, /*bias=*/true);
  g.pop();
  return y;
}

TensorId dot_module(GraphBuilder& g, const Interaction& in, const DhenConfig&) {
  g.push("dot");
  const std::vector<TensorId> pairs = pair_products(g, in.x, "seq", "hidden");
  const TensorId y = project(g, join_numbers(g, pairs), in, /*bias=*/false);
  g.pop();
  return y;
}

TensorId dlrm_module(GraphBuilder& g, const Interaction& in, const DhenConfig& config) {
  const auto width = static_cast<double>(config.width), ffn = static_cast<double>(config.ffn);
  const double flat = width * static_cast<double>(size_of(g, in.x, "seq"));
  TensorId h =
      linear(g, "mlp.dense.up", in.x, {"seq", "hidden"}, {{"ffn", config.ffn}}, glorot(flat, ffn));
  h = g.op1("mlp.dense.act", "relu", {h});
  h = linear(g, "mlp.dense.down", h, {"ffn"}, {{"seq", 1}, {"others", config.width}},
             glorot(ffn, width));
  g.push("dlrm");
  std::vector<TensorId> parts = {h};
  const std::vector<TensorId> pairs = pair_products(g, in.x, "seq", "hidden");
  parts.insert(parts.end(), pairs.begin(), pairs.end());
  const TensorId y = project(g, join_numbers(g, parts), in, /*bias=*/false);
  g.pop();
  return y;
}

struct Module {
  std::string name;
  TensorId (*build)(GraphBuilder&, const Interaction&, const DhenConfig&);
  bool pairs;  // whether it reads inner products of pairs
  bool heads;  // whether it has attention heads
  // Returns the number of elements of the module's largest weight if the module reads m embeddings.
  double (*largest)(const DhenConfig&, double m);
};

double wide(int64_t size) { return static_cast<double>(size); }
double projection(const DhenConfig& c, double numbers) {
  return numbers * wide(c.embeddings) * wide(c.width);
}

const std::vector<Module>& modules() {
  static const std::vector<Module> all = {
      {"linear", linear_module, false, false,
       [](const DhenConfig& c, double m) { return m * wide(c.embeddings); }},
      {"attention", attention_module, false, true,
       [](const DhenConfig& c, double m) {
         return std::max(m * wide(c.embeddings), wide(c.width) * wide(c.ffn));
       }},
      {"convolution", convolution_module, false, false,
       [](const DhenConfig& c, double m) {
         return wide(c.filters) * std::max(m * wide(c.embeddings), wide(c.kernel) * wide(c.kernel));
       }},
      {"cross", cross_module, false, false,
       [](const DhenConfig& c, double m) { return projection(c, m * m); }},
      {"dot", dot_module, true, false,
       [](const DhenConfig& c, double m) { return projection(c, m * m / 2); }},
      {"dlrm", dlrm_module, true, false,
       [](const DhenConfig& c, double m) {
         return std::max(projection(c, m * m / 2 + wide(c.width)), m * wide(c.width) * wide(c.ffn));
       }},
  };
  return all;
}

const Module* find_module(std::string_view name) {
  for (const Module& module : modules()) {
    if (module.name == name) return &module;
  }
  return nullptr;
}

using Ensemble = std::vector<const Module*>;

Result<std::vector<Ensemble>> read_modules(const std::string& text) {
  std::vector<Ensemble> ensembles;
  for (const std::string& list : split_text(text, '+')) {
    Ensemble ensemble;
    for (const std::string& name : split_text(list, '-')) {
      const Module* module = find_module(name);
      if (module == nullptr) {
        Names known;
        for (const Module& one : modules()) known.push_back(one.name);
        return model_error("dhen",
                           fmt::format("modules={} must be names of modules ({}) joined by '-', of "
                                       "several layers by '+', found '{}'",
                                       text, join(known, ", "), name));
      }
      if (std::find(ensemble.begin(), ensemble.end(), module) != ensemble.end()) {
        return model_error("dhen", fmt::format("modules={}: a layer has '{}' twice", text, name));
      }
      ensemble.push_back(module);
    }
    ensembles.push_back(std::move(ensemble));
  }
  return ensembles;
}

// Returns the number of embeddings that a layer makes.
int64_t made_by(const Ensemble& ensemble, const DhenConfig& config) {
  const bool joins = config.ensemble == "concat";
  return config.embeddings * (joins ? static_cast<int64_t>(ensemble.size()) : 1);
}

TensorId add_ensemble(GraphBuilder& g, const Ensemble& ensemble, std::vector<TensorId> outputs,
                      const DhenConfig& config) {
  g.push("ensemble");
  if (config.ensemble == "weighted") {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string& name = ensemble[i]->name;
      const TensorId weight = g.parameter(name + ".weight", {}, {Init::Kind::kOnes}, config.dtype);
      outputs[i] = g.op1(name, "mul", {outputs[i], weight});
    }
  }
  TensorId y = outputs[0];
  if (outputs.size() > 1) {
    y = config.ensemble == "concat"
            ? g.op1("join", "concat", outputs, {{"dim", std::string("seq")}})
            : g.op1("sum", "add_n", outputs);
  }
  g.pop();
  return y;
}

TensorId add_layer(GraphBuilder& g, TensorId x, const Ensemble& ensemble,
                   const DhenConfig& config) {
  std::vector<TensorId> outputs;
  for (const Module* module : ensemble)
    outputs.push_back(module->build(g, {x, config.embeddings}, config));
  const TensorId y = add_ensemble(g, ensemble, std::move(outputs), config);
  const int64_t made = made_by(ensemble, config);
  const TensorId shortcut = made == size_of(g, x, "seq") ? x : mix(g, "shortcut", x, {"seq"}, made);
  return layer_norm(g, "ln_out", g.op1("residual", "add", {y, shortcut}), config.eps);
}

}  // namespace

std::vector<ModelKey> model_keys(DhenConfig& config) {
  std::vector<ModelKey> keys = sample_keys(config);
  Names names;
  for (const Module& module : modules()) names.push_back(module.name);
  const std::vector<ModelKey> own = {
      {"layers", &config.layers, "ensembles of modules, one after the other"},
      {"modules", &config.modules,
       "of a layer, joined by '-', among " + join(names, ", ") +
           "; lists of several layers, taken in turn, are joined by '+'"},
      {"ensemble", &config.ensemble, "of a layer's modules", {}, {"concat", "sum", "weighted"}},
      {"embeddings", &config.embeddings, "that each module makes"},
      {"heads", &config.heads, "of the module attention"},
      {"ffn", &config.ffn, "width of the MLPs of the modules attention and dlrm", "4 * width"},
      {"filters", &config.filters, "of the module convolution"},
      {"kernel", &config.kernel, "of the module convolution; odd"},
      {"eps", &config.eps, "epsilon of the layer norms"},
  };
  keys.insert(keys.end(), own.begin(), own.end());
  for (const ModelKey& key : storage_keys(config)) keys.push_back(key);
  return keys;
}

Status complete(DhenConfig& config) {
  constexpr double kMaxElements = 0x1p56;
  constexpr int64_t kMaxPairs = 1024;  // embeddings whose pairs are taken, of which each makes ops
  const auto failed = [](const std::string& message) { return model_error("dhen", message); };
  TESSERA_TRY_VOID(complete_recommender("dhen", config));
  if (config.ffn == 0) config.ffn = 4 * config.width;
  TESSERA_TRY(const std::vector<Ensemble> ensembles, read_modules(config.modules));
  if (config.kernel % 2 == 0) return failed(fmt::format("kernel={} must be odd", config.kernel));
  auto count = static_cast<int64_t>(config.rows.size()) + 1;
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    // The lists of modules repeat, so after one turn no new combination of a list and a number of
    // embeddings occurs.
    if (layer > ensembles.size()) break;
    const Ensemble& ensemble = ensembles[layer % ensembles.size()];
    for (const Module* module : ensemble) {
      if (module->pairs && (count < 2 || count > kMaxPairs)) {
        return failed(fmt::format("module {} of layer {} needs 2 to {} embeddings, found {}",
                                  module->name, layer, kMaxPairs, count));
      }
      if (module->largest(config, wide(count)) > kMaxElements) {
        return failed(
            fmt::format("module {} of layer {} is too large: it reads {} embeddings and "
                        "has a weight of more than 2^56 elements",
                        module->name, layer, count));
      }
      if (module->heads && config.width % config.heads != 0) {
        return failed(
            fmt::format("width={} must be a multiple of heads={}", config.width, config.heads));
      }
    }
    const int64_t made = made_by(ensemble, config);
    if (wide(count) * wide(made) > kMaxElements) {
      return failed(fmt::format("layer {} has too many embeddings: {} of {}", layer, made, count));
    }
    count = made;
  }
  return {};
}

Result<Graph> build_dhen(const DhenConfig& config, int64_t batch) {
  TESSERA_TRY(const std::vector<Ensemble> ensembles, read_modules(config.modules));
  GraphBuilder g("dhen");
  const RecommenderInputs inputs = recommender_inputs(g, config, batch);
  const std::vector<TensorId> fields = field_vectors(g, config, inputs);
  // The embeddings get the dim names of tokens in other models (seq, hidden), by which recipes
  // find them.
  g.push("embed");
  TensorId x = g.op1("fields", "concat", fields, {{"dim", std::string("fields")}});
  for (const auto& [from, to] : {std::pair{"fields", "seq"}, {"width", "hidden"}})
    x = g.op1(to, "rename", {x}, {{"from", std::string(from)}, {"to", std::string(to)}});
  g.pop();
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer) {
    g.push(fmt::format("blocks.{}", layer));
    x = add_layer(g, x, ensembles[static_cast<size_t>(layer) % ensembles.size()], config);
    g.pop();
  }
  click_loss(g, config, x, {"seq", "hidden"}, inputs.targets);
  return g.finish();
}

}  // namespace tessera
