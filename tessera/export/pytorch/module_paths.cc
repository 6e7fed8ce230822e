#include "tessera/export/pytorch/module_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"

namespace tessera::pytorch {
namespace {

constexpr std::string_view kConstants = "constants.";

// Returns the path, and the path without each of the scopes that an import may have put before it.
std::vector<std::string> without_scopes(const std::string& path,
                                        const std::vector<std::string_view>& scopes) {
  std::vector<std::string> out{path};
  for (const std::string_view scope : scopes) {
    if (path.size() > scope.size() && path.starts_with(scope) && path[scope.size()] == '.')
      out.push_back(path.substr(scope.size() + 1));
  }
  return out;
}

// Returns the paths of a block's op inside the block; the first one has the import's scope.
std::vector<std::string> paths_in_block(const Op& op) {
  const size_t number = op.path.find('.');
  const size_t rest = number == std::string::npos ? number : op.path.find('.', number + 1);
  if (rest == std::string::npos) return {""};
  return without_scopes(op.path.substr(rest + 1), {"attn.core", "attn", "mlp"});
}

}  // namespace

std::string parent_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return std::string(dot == std::string_view::npos ? "" : path.substr(0, dot));
}

bool inside(std::string_view path, std::string_view module) {
  return module.empty() || path == module ||
         (path.starts_with(module) && path[module.size()] == '.');
}

bool is_constant(const Tensor& parameter) {
  return parameter.role == Role::kBuffer || parameter.name.starts_with(kConstants);
}

const Tensor* parameter_read(const Graph& graph, TensorId id) {
  const TensorId parameter = graph.parameter_of(id);
  if (!parameter.valid()) return nullptr;
  const Tensor& tensor = graph.tensor(parameter);
  return tensor.role == Role::kParameter && !is_constant(tensor) ? &tensor : nullptr;
}

ModulePaths::ModulePaths(const Graph& forward) {
  known_.insert("");
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role != Role::kParameter || is_constant(tensor)) continue;
    owners_.insert(parent_of(tensor.name));
    for (std::string path = parent_of(tensor.name); !path.empty(); path = parent_of(path))
      known_.insert(path);
  }
  // The list of blocks is the module before the number of the block in the names of most parameters
  // that ops of blocks read.
  std::map<std::string, size_t> votes;
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward || op.block < 0) continue;
    blocks_ = std::max<int64_t>(blocks_, op.block + 1);
    for (const TensorId id : op.inputs) {
      const Tensor* tensor = parameter_read(forward, id);
      if (tensor == nullptr) continue;
      const std::vector<std::string> parts = split_text(tensor->name, '.');
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        if (parts[i] != std::to_string(op.block)) continue;
        ++votes[join({parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i)}, ".")];
        break;
      }
    }
  }
  size_t most = 0;
  for (const auto& [list, count] : votes) {
    if (count > most) list_ = list;
    most = std::max(most, count);
  }
  if (most == 0) blocks_ = 0;
  of_.reserve(forward.ops().size());
  for (const Op& op : forward.ops())
    of_.push_back(op.phase == Phase::kForward ? find(forward, op) : "");
}

std::string ModulePaths::block(int number) const {
  if (blocks_ == 0) return "";
  const std::string path = (list_.empty() ? "" : list_ + ".") + std::to_string(number);
  return known_.contains(path) ? path : "";
}

std::string ModulePaths::deepest(const std::string& path) const {
  std::string module = path;
  while (!known_.contains(module)) module = parent_of(module);
  return module;
}

std::string ModulePaths::find(const Graph& forward, const Op& op) const {
  const std::string around = op.block < 0 ? "" : block(op.block);
  std::vector<std::string> paths;
  if (around.empty()) {
    paths = without_scopes(op.path, {"embed", "head"});
  } else {
    for (const std::string& rest : paths_in_block(op))
      paths.push_back(rest.empty() ? around : fmt::format("{}.{}", around, rest));
  }
  // A tied parameter has the name that one of its modules gives it. A product of another module has
  // the path of that module.
  const bool product = info_of(op).work == WorkClass::kMatmul;
  std::string best = around;
  for (const std::string& path : paths) {
    const std::string module = deepest(path);
    if (module.size() > best.size()) best = module;
  }
  for (const TensorId id : op.inputs) {
    const Tensor* tensor = parameter_read(forward, id);
    if (tensor == nullptr) continue;
    std::string owner = parent_of(tensor->name);
    const bool own = std::any_of(paths.begin(), paths.end(),
                                 [&](const std::string& path) { return inside(path, owner); });
    if (own) return owner;
    if (product && paths.size() > 1) return paths.back();
  }
  return best;
}

}  // namespace tessera::pytorch
