#include "tessera/runtime/cached_rows/choosing_widths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "tessera/models/model.h"
#include "tessera/models/science/graph_network.h"
#include "tessera/sparse/graphs/read.h"
#include "tessera/sparse/graphs/sample.h"
#include "tessera/sparse/graphs/widths.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> widths_error(std::string_view message) {
  return invalid_input(fmt::format("evaluate: {}", message));
}

// Reads the data of nodes. Returns the edges that the network sums over: those of the graph, with
// self-loops if the network has `edges.values`.
Result<sparse::CsrGraph> edges_of(const std::string& prefix, const Graph& network) {
  const fs::path path(prefix);
  auto data = sparse::read_node_data(path.parent_path().empty() ? "." : path.parent_path().string(),
                                     path.filename().string());
  if (!data) return invalid_input("data: " + data.error().message);
  const bool loops = network.find_tensor("edges.values").valid();
  return loops ? sparse::with_self_loops(data->graph) : data->graph;
}

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> widths = {1};
  while (widths.back() < most) widths.push_back(2 * widths.back());
  return widths;
}

}  // namespace

Result<ChosenWidths> choose_sample_widths(const WidthsConfig& config) {
  if (config.predict.data.nodes.empty()) {
    return widths_error("expected data of the nodes of a graph with --budget, found other data");
  }
  if (!(config.budget >= 0)) {
    return widths_error(fmt::format("expected a budget of at least 0, found {}", config.budget));
  }
  TESSERA_TRY(const sparse::Sampler sampler, sparse::parse_sampler(config.sampler));
  if (sampler == sparse::Sampler::kNone)
    return widths_error("expected a sampler that takes some edges, found 'none'");
  TESSERA_TRY(const Model model, build_model(config.predict.model, 1, std::nullopt));
  const std::vector<OpId> sums = sums_over_edges(model.graph);
  if (sums.empty()) {
    return widths_error(
        fmt::format("expected a network of nodes ('tessera data graph' writes one) "
                    "with --budget, found '{}'",
                    config.predict.model));
  }
  TESSERA_TRY(const sparse::CsrGraph edges, edges_of(config.predict.data.nodes, model.graph));
  const auto with = [&](const std::string& by, const std::vector<int64_t>& widths) {
    Model sampled = model;
    sampled.graph = with_samples(std::move(sampled.graph), by, widths);
    return sampled;
  };
  ChosenWidths chosen;
  TESSERA_TRY(const Predictions full, predict(config.predict, with("none", {})));
  chosen.full_accuracy = full.accuracy.value_or(std::numeric_limits<double>::quiet_NaN());
  Status status;
  std::map<std::vector<int64_t>, double> known;
  const auto quality = [&](const std::vector<int64_t>& widths) {
    const auto [found, fresh] = known.try_emplace(widths, 0);
    if (!fresh || !status) return found->second;
    const auto made = predict(config.predict, with(config.sampler, widths));
    if (made) {
      found->second = made->accuracy.value_or(0);
    } else {
      status = tl::unexpected(made.error());
    }
    return found->second;
  };
  const auto taken = [&](size_t layer, int64_t width) {
    return sparse::sampled_edges(edges, {sampler, width, static_cast<uint64_t>(layer)});
  };
  // Returns the number of additions of a layer: one for each sampled edge and each feature.
  const auto cost = [&](int64_t layer, int64_t width) {
    const Op& op = model.graph.op(sums[static_cast<size_t>(layer)]);
    const int64_t features = model.graph.tensor(op.outputs[0]).dims.back().size;
    return static_cast<double>(taken(static_cast<size_t>(layer), width) * features);
  };
  const std::vector<int64_t> candidates =
      config.widths.empty() ? powers_of_two(edges.max_degree()) : config.widths;
  const double least = chosen.full_accuracy - config.budget;
  auto choice =
      sparse::choose_widths(static_cast<int64_t>(sums.size()), candidates, quality, cost, least);
  TESSERA_TRY_VOID(std::move(status));
  if (!choice) {
    if (choice.error().code == ErrorCode::kInvalidInput) {
      return widths_error(
          fmt::format("expected widths above 0 that ascend, found {}", fmt::join(candidates, ",")));
    }
    return check_failed(fmt::format(
        "evaluate: expected an accuracy of at least {:.4f} ({:.4f} with all edges, a budget of "
        "{:.4g}) at width {}, found {:.4f}",
        least, chosen.full_accuracy, config.budget, candidates.back(),
        known[std::vector<int64_t>(sums.size(), candidates.back())]));
  }
  chosen.accuracy = choice->quality;
  chosen.asked = static_cast<int64_t>(known.size()) + 1;
  for (size_t layer = 0; layer < sums.size(); ++layer) {
    chosen.layers.push_back({model.graph.op(sums[layer]).path, choice->widths[layer],
                             taken(layer, choice->widths[layer]), edges.edges()});
  }
  chosen.network = with(config.sampler, choice->widths).graph;
  return chosen;
}

}  // namespace tessera
