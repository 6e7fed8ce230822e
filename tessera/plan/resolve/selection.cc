#include "tessera/plan/resolve/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// Adds to `prefixes` the whole path and all its prefixes that end before a '.', '@' or '#'.
void add_prefixes(std::string_view path, std::set<std::string>& prefixes) {
  for (size_t end = 0; end < path.size();) {
    end = std::min(path.find_first_of(".@#", end + 1), path.size());
    prefixes.emplace(path.substr(0, end));
  }
}

std::vector<std::string_view> op_paths(const Graph& graph) {
  std::vector<std::string_view> paths;
  for (const Op& op : graph.ops()) paths.push_back(op.path);
  return paths;
}

std::vector<std::string_view> tensor_names(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const Tensor& tensor : graph.tensors()) names.push_back(tensor.name);
  return names;
}

}  // namespace

tl::unexpected<Error> plan_error(const Plan& plan, int line, const std::string& message) {
  return invalid_input(line > 0 ? fmt::format("{}:{}: {}", plan.file, line, message)
                                : fmt::format("{}: {}", plan.file, message));
}

std::string suggestion(const std::string& best) {
  return best.empty() ? "" : fmt::format(", did you mean '{}'?", best);
}

GraphNames::GraphNames(const Graph& graph) : ops(op_paths(graph)), tensors(tensor_names(graph)) {}

Selection::Selection(const Plan& plan, const Graph& graph, GraphNames& names)
    : plan_(plan), graph_(graph), names_(names) {}

Result<std::vector<OpId>> Selection::ops(const std::string& pattern, Phase phase, int line) {
  const std::vector<bool>& hit = names_.ops.select(pattern);
  std::vector<OpId> selected;
  for (const Op& op : graph_.ops()) {
    if (op.phase == phase && hit[op.id.index()]) selected.push_back(op.id);
  }
  if (!selected.empty()) return selected;
  std::set<std::string> known;
  for (const Op& op : graph_.ops()) {
    if (op.phase == phase) add_prefixes(op.path, known);
  }
  return plan_error(plan_, line,
                    fmt::format("ops = \"{}\" selects no {} op{}", pattern, phase_name(phase),
                                suggestion(nearest(pattern, Names(known.begin(), known.end())))));
}

Result<std::vector<TensorId>> Selection::tensors(const StoreEntry& entry) {
  std::vector<TensorId> selected;
  if (entry.tensors.starts_with("role:")) {
    TESSERA_TRY(const Role role, parse_role(entry));
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.role != role || tensor.update_of.valid()) continue;
      // The role selects only gradients of parameters, which are at rest. Other gradients are
      // activations of the backward pass.
      if (role == Role::kGradient && !graph_.is_parameter_gradient(tensor.id)) continue;
      selected.push_back(tensor.id);
    }
    if (!selected.empty()) return selected;
    return plan_error(plan_, entry.line,
                      fmt::format("tensors = \"{}\" selects no tensor", entry.tensors));
  }
  const std::vector<bool>& hit = names_.tensors.select(entry.tensors);
  for (const Tensor& tensor : graph_.tensors()) {
    if (hit[tensor.id.index()]) selected.push_back(tensor.id);
  }
  if (!selected.empty()) return selected;
  std::set<std::string> known;
  for (const Tensor& tensor : graph_.tensors()) add_prefixes(tensor.name, known);
  return plan_error(
      plan_, entry.line,
      fmt::format("tensors = \"{}\" selects no tensor{}", entry.tensors,
                  suggestion(nearest(entry.tensors, Names(known.begin(), known.end())))));
}

Result<Role> Selection::parse_role(const StoreEntry& entry) const {
  const std::string name = entry.tensors.substr(5);
  Names names;
  for (Role role : {Role::kInput, Role::kParameter, Role::kBuffer, Role::kActivation,
                    Role::kGradient, Role::kOptimizerState}) {
    names.emplace_back(role_name(role));
    if (names.back() == name) return role;
  }
  return plan_error(plan_, entry.line,
                    fmt::format("unknown role '{}' in tensors = \"{}\"{}", name, entry.tensors,
                                suggestion(nearest(name, names))));
}

}  // namespace tessera
