#include "tessera/import/pt2/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tessera/base/text.h"
#include "tessera/models/contract.h"

namespace tessera::pt2 {
namespace {

constexpr std::string_view kBlocks = "blocks";

struct Place {
  std::string list;    // "transformer.h"
  int64_t number = 0;  // 3
  std::string rest;    // "attn.c_attn"
};

// Returns, for each number in a path, the list that comes before it, the number, and the rest of
// the path.
std::vector<Place> places_of(const std::string& path) {
  std::vector<Place> out;
  const std::vector<std::string> parts = split_text(path, '.');
  for (size_t i = 1; i < parts.size(); ++i) {
    const Result<int64_t> number = parse_int(parts[i]);
    if (!number || *number < 0) continue;
    const auto at = parts.begin() + static_cast<std::ptrdiff_t>(i);
    out.push_back({join({parts.begin(), at}, "."), *number, join({at + 1, parts.end()}, ".")});
  }
  return out;
}

std::optional<Place> place_in(const std::string& path, const std::string& list) {
  for (Place& place : places_of(path)) {
    if (place.list == list) return std::move(place);
  }
  return std::nullopt;
}

// Returns the list of modules that has the most ops, among lists whose modules 0, 1, ... are called
// in this order. Returns "" if no such list has two modules or more and more than half of all ops.
std::string list_of_blocks(const Graph& graph) {
  struct Found {
    size_t ops = 0;
    int64_t last = -1;
    bool in_order = true;
  };
  std::map<std::string, Found> lists;
  for (const Op& op : graph.ops()) {
    for (const Place& place : places_of(op.path)) {
      Found& found = lists[place.list];
      ++found.ops;
      found.in_order =
          found.in_order && (place.number == found.last || place.number == found.last + 1);
      found.last = place.number;
    }
  }
  std::string best;
  size_t most = graph.ops().size() / 2;
  for (const auto& [list, found] : lists) {
    if (!found.in_order || found.last < 1 || found.ops <= most) continue;
    best = list;
    most = found.ops;
  }
  return best;
}

bool has(const Op& op, std::string_view dim) { return op.annotation.find(dim) >= 0; }

std::string scoped(const std::string& scope, const std::string& rest) {
  if (rest.empty() || rest == scope) return scope;
  return rest.starts_with(scope + ".") ? rest : scope + "." + rest;
}

std::string path_in_block(const Op& op, const std::string& rest) {
  if (has(op, "kv")) {
    // A fused attention is one op with the path attn.core, without a further name.
    const bool core = rest == "core" || rest.ends_with(".core");
    return core ? "attn.core" : scoped("attn.core", rest);
  }
  if (has(op, "heads")) return scoped("attn", rest);
  if (has(op, "ffn")) return scoped("mlp", rest);
  return rest;
}

// Returns the path of an op outside the blocks. An op with dim vocab gets the scope embed if it
// looks up rows by ids, else head. Other ops, and ops of the loss, keep their paths.
std::string path_outside(const Graph& graph, const Op& op) {
  const std::string_view path = op.path;
  if (!has(op, "vocab") || path.starts_with("loss.")) return op.path;
  const bool lookup = !is_floating(graph.tensor(op.inputs.at(0)).dtype);
  return scoped(lookup ? "embed" : "head", op.path);
}

// Gives each op the path that `rename` returns for it. Equal paths are made distinct by numbers.
template <class Rename>
Graph renamed(Graph graph, Rename rename) {
  std::set<std::string> taken;
  for (const Tensor& tensor : graph.tensors()) {
    if (!tensor.producer.valid()) taken.insert(tensor.name);
  }
  for (const Op& known : graph.ops()) {
    Op& op = graph.op(known.id);
    const std::string old = op.path, wanted = rename(op);
    op.path = wanted;
    for (int i = 2; !taken.insert(op.path).second; ++i) op.path = fmt::format("{}_{}", wanted, i);
    for (const TensorId id : op.outputs) {
      Tensor& tensor = graph.tensor(id);
      if (tensor.name.starts_with(old)) tensor.name = op.path + tensor.name.substr(old.size());
    }
  }
  return graph;
}

std::set<std::string> breaches(const Graph& graph) {
  std::set<std::string> out;
  for (const ContractClause& clause : contract()) {
    if (!clause.breach(graph).empty()) out.insert(clause.expected);
  }
  return out;
}

// Writes the graph as text and reads it again, because the reader sets the numbers of blocks from
// the paths. Returns nothing if the text is not a valid graph.
std::optional<Graph> read_again(const Graph& graph) {
  Result<Graph> again = parse_graph(to_text(graph));
  if (!again) return std::nullopt;
  return std::move(*again);
}

}  // namespace

Graph with_block_paths(Graph graph) {
  Graph plain = renamed(graph, [](const Op& op) {
    const std::vector<Place> places = places_of(op.path);
    const bool taken = !places.empty() && places[0].list == kBlocks;
    return taken ? "layers" + op.path.substr(kBlocks.size()) : op.path;
  });
  const std::string list = list_of_blocks(graph);
  if (list.empty()) return plain;
  const std::optional<Graph> found = read_again(renamed(graph, [&](const Op& op) {
    const auto place = place_in(op.path, list);
    if (!place) return path_outside(graph, op);
    return fmt::format("{}.{}.{}", kBlocks, place->number, path_in_block(op, place->rest));
  }));
  const std::set<std::string> before = breaches(plain);
  const std::set<std::string> after = found ? breaches(*found) : std::set<std::string>{""};
  const bool kept = std::includes(before.begin(), before.end(), after.begin(), after.end());
  return kept ? *found : plain;
}

}  // namespace tessera::pt2
