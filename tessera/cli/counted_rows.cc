#include "tessera/cli/counted_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "tessera/data/data_config.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/sparse/graphs/named_rows.h"
#include "tessera/sparse/graphs/node_inputs.h"

namespace tessera::cli {
namespace {

Result<DataConfig> read_data(const std::string& text) {
  TESSERA_TRY(const toml::table table, parse_toml("data = " + text, "--data"));
  const toml::node* node = table.get("data");
  if (node == nullptr || table.size() != 1)
    return invalid_input(fmt::format("--data: expected one value of TOML, found '{}'", text));
  auto config = read_data_config(*node);
  if (!config) return invalid_input("--data: " + config.error().message);
  return config;
}

}  // namespace

Result<std::function<void(Program&)>> counted_rows(const std::string& data, const Graph& graph) {
  TESSERA_TRY(const DataConfig config, read_data(data));
  if (config.nodes.empty()) {
    return invalid_input(fmt::format(
        "--data: expected the nodes of a graph (\"{{ nodes = 'data/graphs/cora' }}\"), found {}",
        data));
  }
  const auto names = [](const Op& op) { return naming_of(op) != nullptr; };
  if (std::ranges::none_of(graph.ops(), names))
    return invalid_input("--data: expected a model with sparse products, found none");
  const std::filesystem::path prefix(config.nodes);
  const std::string folder = prefix.parent_path().empty() ? "." : prefix.parent_path().string();
  auto read = sparse::read_node_data(folder, prefix.filename().string());
  if (!read) return invalid_input("--data: " + read.error().message);
  const bool weighted = graph.find_tensor("edges.values").valid();
  const auto inputs =
      std::make_shared<const sparse::NodeInputs>(sparse::node_inputs(*read, weighted));
  for (const Op& op : graph.ops()) {
    if (!names(op)) continue;
    for (const size_t input : ids_of_naming(op)) {
      const Tensor& ids = graph.tensor(op.inputs[input]);
      const auto found = inputs->integers.find(ids.name);
      const auto size = found == inputs->integers.end() ? 0 : found->second.size();
      if (ids.role != Role::kInput || ids.shape()[0] == static_cast<int64_t>(size)) continue;
      return invalid_input(
          fmt::format("--data: '{}': expected {} numbers for the model's input "
                      "'{}', found {}",
                      config.nodes, ids.shape()[0], ids.name, size));
    }
  }
  return std::function<void(Program&)>([inputs, &graph](Program& program) {
    sparse::count_named_rows(
        program, graph,
        [&](TensorId input) { return inputs->integers.at(graph.tensor(input).name); }, 1);
  });
}

}  // namespace tessera::cli
