#include "tessera/cli/data_graph.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/models/graph_file.h"
#include "tessera/models/science/graph_network.h"
#include "tessera/sparse/graphs/read.h"
#include "tessera/sparse/graphs/sample.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

tl::unexpected<Error> graph_error(std::string_view message) {
  return invalid_input(fmt::format("data: graph: {}", message));
}

// Describes a matrix: its sizes, and which share of its edges samples of several widths use. Puts
// the numbers into `json`, too.
std::string describe(const sparse::CsrGraph& graph, Json& json) {
  json["rows"] = graph.rows();
  json["columns"] = graph.column_count;
  json["edges"] = graph.edges();
  json["largest_degree"] = graph.max_degree();
  json["symmetric"] = sparse::check(graph, {.symmetric = true}).has_value();
  Table table({"width of samples", "edges", "share"});
  for (int64_t width = 2; width <= 128; width *= 2) {
    const int64_t edges =
        sparse::sampled_edges(graph, {sparse::Sampler::kBucket, width, /*seed=*/0});
    const double share =
        graph.edges() == 0 ? 1 : static_cast<double>(edges) / static_cast<double>(graph.edges());
    json["coverage"][std::to_string(width)] = share;
    table.add({std::to_string(width), grouped(edges), percent(share)});
  }
  return fmt::format(
      "{} rows, {} columns, {}, largest degree {}, {}\n{}", grouped(graph.rows()),
      grouped(graph.column_count), plural(graph.edges(), "edge"), grouped(graph.max_degree()),
      json["symmetric"].get<bool>() ? "symmetric" : "not symmetric", table.to_string());
}

Result<std::string> network_for(const GraphJob& job, const sparse::NodeData& data) {
  GraphNetworkConfig config;
  const bool gcn = job.network == "gcn";
  config.kind = gcn ? GraphNetworkConfig::Kind::kGcn : GraphNetworkConfig::Kind::kGraphsage;
  config.nodes = data.nodes();
  config.edges = gcn ? sparse::with_self_loops(data.graph).edges() : data.graph.edges();
  config.features = data.features.column_count;
  config.entries = data.features.edges();
  config.classes = data.classes;
  config.hidden = job.hidden;
  config.layers = job.layers;
  config.dropout = job.dropout;
  config.sampler = job.sampler;
  config.widths = job.widths;
  if (config.widths.size() == 1)
    config.widths.assign(static_cast<size_t>(job.layers), job.widths[0]);
  TESSERA_TRY(const Graph graph, build_graph_network(config));
  return fmt::format("# {} of {}: written by tessera data graph\n{}", job.network, job.file,
                     to_text(graph));
}

Result<int> of_nodes(const GraphJob& job) {
  const fs::path path(job.file);
  const std::string folder = path.parent_path().empty() ? "." : path.parent_path().string();
  TESSERA_TRY(const sparse::NodeData data,
              sparse::read_node_data(folder, path.filename().string()));
  Json json{{"file", job.file}};
  std::string text = fmt::format("{}: ", job.file) + describe(data.graph, json);
  json["nodes"] = {{"features", data.features.column_count},
                   {"entries", data.features.edges()},
                   {"classes", data.classes},
                   {"train", data.train.size()},
                   {"val", data.validation.size()},
                   {"test", data.test.size()}};
  text += fmt::format(
      "{} features with {} entries, {} classes; {} nodes to train on, {} to validate, {} "
      "to test\n",
      grouped(data.features.column_count), grouped(data.features.edges()), data.classes,
      grouped(static_cast<int64_t>(data.train.size())),
      grouped(static_cast<int64_t>(data.validation.size())),
      grouped(static_cast<int64_t>(data.test.size())));
  if (job.out) {
    TESSERA_TRY(const std::string network, network_for(job, data));
    TESSERA_TRY_VOID(write_file(*job.out, network));
    json["out"] = *job.out;
    text += fmt::format("{}: {} for them, a MODEL for train with data = {{ nodes = \"{}\" }}\n",
                        *job.out, job.network, job.file);
  }
  return print(job.json ? dumped(json, 2) + "\n" : text);
}

Status check_job(const GraphJob& job, bool nodes) {
  if (job.out.has_value() == job.network.empty()) {
    return graph_error("expected --network and --out together, found one of them");
  }
  if (job.out && !nodes) {
    return graph_error(fmt::format(
        "expected files {0}_labels.tsv and so on for a network of nodes, found no '{0}_labels.tsv'",
        job.file));
  }
  if (job.out && !job.out->ends_with(kGraphSuffix)) {
    return graph_error(fmt::format("expected --out NAME{}, found '{}'", kGraphSuffix, *job.out));
  }
  return {};
}

}  // namespace

Result<int> run_data_graph(const GraphJob& job) {
  const bool nodes = fs::exists(job.file + "_labels.tsv");
  TESSERA_TRY_VOID(check_job(job, nodes));
  if (nodes) return of_nodes(job);
  sparse::EdgeListOptions options;
  options.sort = job.any_order;
  options.symmetric = job.symmetric;
  options.mirror = job.mirror;
  TESSERA_TRY(const sparse::CsrGraph graph, job.file.ends_with(".mtx")
                                                ? sparse::read_matrix_market(job.file, options)
                                                : sparse::read_edge_list(job.file, options));
  Json json{{"file", job.file}};
  const std::string text = fmt::format("{}: ", job.file) + describe(graph, json);
  return print(job.json ? dumped(json, 2) + "\n" : text);
}

}  // namespace tessera::cli
