#include "tessera/models/science/graph_network.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

using Kind = GraphNetworkConfig::Kind;

// A sparse matrix in compressed rows: where the edges of each row begin and end, their columns
// and values.
struct Rows {
  TensorId begin, end, columns, values;
};

Rows inputs(GraphBuilder& g, const std::string& scope, const Dim& nodes, const Dim& entries,
            bool valued, DType dtype) {
  Rows rows;
  rows.begin = g.input(scope + ".begin", {nodes}, DType::kInt64);
  rows.end = g.input(scope + ".end", {nodes}, DType::kInt64);
  rows.columns = g.input(scope + ".columns", {entries}, DType::kInt64);
  if (valued) rows.values = g.input(scope + ".values", {entries}, dtype);
  return rows;
}

TensorId product_of_rows(GraphBuilder& g, const std::string& name, const Rows& rows, TensorId x,
                         Attributes attributes = {}) {
  std::vector<TensorId> operands = {rows.begin, rows.end, rows.columns, x};
  if (rows.values.valid()) operands.push_back(rows.values);
  return g.op1(name, "spmm", operands, std::move(attributes));
}

class Network {
 public:
  explicit Network(const GraphNetworkConfig& config)
      : c_(config),
        g_(config.kind == Kind::kGcn ? "gcn" : "graphsage"),
        features_(inputs(g_, "features", nodes(), {"entries", c_.entries}, true, c_.dtype)),
        edges_(inputs(g_, "edges", nodes(), {"edges", c_.edges}, c_.kind == Kind::kGcn, c_.dtype)) {
  }

  Result<Graph> build() {
    const TensorId targets = g_.input("targets", {nodes()}, DType::kInt64);
    TensorId h;  // the input of a layer; the first layer has none, because it reads the features
    for (int64_t layer = 0; layer < c_.layers && g_.ok(); ++layer) {
      g_.push(fmt::format("layers.{}", layer));
      const bool last = layer + 1 == c_.layers;
      // Widths are called hidden and ffn in turn, because a weight cannot have the same dim twice.
      const Dim width =
          last ? Dim{"classes", c_.classes} : Dim{layer % 2 == 0 ? "hidden" : "ffn", c_.hidden};
      h = this->layer(layer, h, width);
      if (!last) h = g_.op1("act", "relu", {h});
      g_.pop();
    }
    g_.graph().loss = regularised(mean_of_known(h, targets));
    return g_.finish();
  }

 private:
  Dim nodes() const { return {"nodes", c_.nodes}; }

  // Makes the layer's output, by a last op `out`.
  TensorId layer(int64_t layer, TensorId h, const Dim& width) {
    const std::string key = fmt::format("layers.{}", layer);
    Rows features = features_;
    if (layer == 0) {
      features.values = dropout(g_, "dropout", features.values, c_.dropout, key);
    } else {
      h = dropout(g_, "dropout", h, c_.dropout, key);
    }
    const auto transformed = [&](const std::string& name) {
      const Dim in = layer == 0 ? Dim{"features", c_.features} : g_.tensor(h).dims.back();
      const Init init = normal(std::sqrt(2.0 / static_cast<double>(in.size + width.size)));
      if (layer > 0) return linear(g_, name, h, {in.name}, {width}, {init, false});
      const TensorId weight = g_.parameter(name + ".weight", {in, width}, init, c_.dtype);
      g_.publish(weight, fmt::format("{} {}", width.name, in.name));
      first_weights_.push_back(weight);
      return product_of_rows(g_, name, features, weight);
    };
    if (c_.kind == Kind::kGcn)
      return product_of_rows(g_, "out", edges_, transformed("linear"), aggregation(layer));
    const TensorId own = transformed("self");
    Attributes mean = aggregation(layer);
    mean["reduce"] = std::string("mean");
    const TensorId neighbours =
        product_of_rows(g_, "mean", edges_, transformed("neighbours"), std::move(mean));
    return g_.op1("out", "add", {own, neighbours});
  }

  Attributes aggregation(int64_t layer) const {
    if (c_.sampler == "none") return {};
    return {{"sampler", c_.sampler},
            {"width", c_.widths[static_cast<size_t>(layer)]},
            {"seed", layer},
            // A sum over a sample of the edges is too low by the share of the edges that are taken,
            // so it is rescaled.
            {"rescale", int64_t{c_.kind == Kind::kGcn ? 1 : 0}},
            {"each_step", int64_t{c_.each_step ? 1 : 0}}};
  }

  // Returns the mean cross entropy over the targets that are not -1. Their number may differ from
  // step to step.
  TensorId mean_of_known(TensorId logits, TensorId targets) {
    const std::vector<TensorId> parts =
        g_.op("loss.cross_entropy", "cross_entropy", {logits, targets});
    if (parts.size() != 2) return {};
    const TensorId each = g_.op1("loss.node", "sub", parts);  // 0 where the target is -1
    const DType dtype = g_.tensor(each).dtype;
    const Attributes all = {{"dims", std::string("nodes")}};
    const TensorId sum = g_.op1("loss.sum", "reduce_sum", {each}, all);
    const TensorId ones = g_.op1("loss.ones", "fill", {},
                                 {{"value", 1.0},
                                  {"dims", fmt::format("class={}", c_.classes)},
                                  {"dtype", std::string(dtype_name(dtype))}});
    const TensorId known =
        g_.op1("loss.known", "gather", {ones, targets}, {{"dim", std::string("class")}});
    const TensorId count = g_.op1("loss.count", "reduce_sum", {known}, all);
    return g_.op1("loss.mean", "div", {sum, count});
  }

  TensorId regularised(TensorId loss) {
    if (c_.l2 == 0) return loss;
    std::vector<TensorId> terms = {loss};
    for (const TensorId weight : first_weights_) {
      const std::string name = fmt::format("loss.l2_{}", terms.size() - 1);
      const TensorId squares = g_.op1(name + ".squares", "mul", {weight, weight});
      terms.push_back(g_.op1(name, "reduce_sum", {squares},
                             {{"dims", std::string("features hidden")}, {"factor", c_.l2 / 2}}));
    }
    return g_.op1("loss.regularised", "add_n", terms);
  }

  const GraphNetworkConfig& c_;
  GraphBuilder g_;
  Rows features_, edges_;
  std::vector<TensorId> first_weights_;
};

}  // namespace

Result<Graph> build_graph_network(const GraphNetworkConfig& config) {
  for (const auto& [name, size] : {std::pair<const char*, int64_t>{"nodes", config.nodes},
                                   {"edges", config.edges},
                                   {"features", config.features},
                                   {"entries", config.entries},
                                   {"classes", config.classes},
                                   {"hidden", config.hidden}}) {
    if (size < 1) {
      return invalid_input(fmt::format("graph network: expected {} above 0, found {}", name, size));
    }
  }
  if (config.layers < 2) {
    return invalid_input(
        fmt::format("graph network: expected at least 2 layers, found {}", config.layers));
  }
  if (config.sampler != "none" && static_cast<int64_t>(config.widths.size()) != config.layers) {
    return invalid_input(
        fmt::format("graph network: expected a width for each of {} layers, found {}",
                    config.layers, config.widths.size()));
  }
  return Network(config).build();
}

std::vector<OpId> sums_over_edges(const Graph& network) {
  std::vector<OpId> out;
  const TensorId begin = network.find_tensor("edges.begin");
  for (const Op& op : network.ops()) {
    if (begin.valid() && op.phase == Phase::kForward && !op.inputs.empty() &&
        op.inputs[0] == begin && op.attributes.contains("sampler"))
      out.push_back(op.id);
  }
  return out;
}

Graph with_samples(Graph network, const std::string& sampler, const std::vector<int64_t>& widths) {
  const std::vector<OpId> sums = sums_over_edges(network);
  for (size_t layer = 0; layer < sums.size(); ++layer) {
    Op& op = network.op(sums[layer]);
    const bool samples = sampler != "none";
    op.attributes["sampler"] = sampler;
    op.attributes["width"] = samples ? widths[layer] : int64_t{0};
    op.attributes["seed"] = static_cast<int64_t>(layer);
    // A sum over a sample of the edges is too low by the share of the edges that are taken, so it
    // is rescaled.
    op.attributes["rescale"] = int64_t{samples && op.text("reduce") == "sum" ? 1 : 0};
  }
  return network;
}

}  // namespace tessera
