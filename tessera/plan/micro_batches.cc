#include "tessera/plan/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/plan/resolve/selection.h"

namespace tessera {
namespace {

// Returns all dims of the tensor as a text for the error, or "" if it has only one. The sizes help
// the user where the batch is cut into two dims, as a few groups of many samples are.
std::string sizes_beside(const Tensor& tensor) {
  if (tensor.dims.size() < 2) return "";
  std::vector<std::string> sizes;
  for (const Dim& dim : tensor.dims) sizes.push_back(fmt::format("{}={}", dim.name, dim.size));
  return fmt::format(" ({})", join(sizes, " "));
}

// Checks that no tensor at rest has the dim that micro-batches cut, because a tensor at rest is
// kept as a whole from step to step.
Status check_at_rest(const Plan& plan, const Graph& graph) {
  for (const Tensor& tensor : graph.tensors()) {
    const bool rests = tensor.role == Role::kParameter || tensor.role == Role::kBuffer ||
                       tensor.role == Role::kOptimizerState;
    if (!rests || tensor.update_of.valid()) continue;
    if (std::none_of(tensor.dims.begin(), tensor.dims.end(),
                     [&](const Dim& dim) { return dim.name == plan.micro_batch_dim; })) {
      continue;
    }
    return plan_error(plan, plan.micro_batches_line,
                      fmt::format("expected micro_batches = 1, found {}: tensor '{}' keeps values "
                                  "for the whole '{}' from one step to the next",
                                  plan.micro_batches, tensor.name, plan.micro_batch_dim));
  }
  return {};
}

}  // namespace

Status check_micro_batches(const Plan& plan, const Graph& graph) {
  const int64_t count = plan.micro_batches;
  if (count == 1) return {};
  TESSERA_TRY_VOID(check_at_rest(plan, graph));
  const std::string& dim_name = plan.micro_batch_dim;
  const Dim* found = nullptr;
  for (const Tensor& tensor : graph.tensors()) {
    for (const Dim& dim : tensor.dims) {
      if (dim.name != dim_name) continue;
      const bool uneven = dim.size % count != 0;
      if (dim.size < count || (uneven && found != nullptr && found->size != dim.size)) {
        return plan_error(
            plan, plan.micro_batches_line,
            fmt::format("micro_batches = {} {} dim '{}' of tensor '{}', whose size is {}{}", count,
                        dim.size < count ? "is more than" : "does not divide", dim_name,
                        tensor.name, dim.size, sizes_beside(tensor)));
      }
      found = &dim;
    }
  }
  if (found != nullptr) return {};
  std::set<std::string> names;
  for (const Tensor& tensor : graph.tensors()) {
    for (const Dim& dim : tensor.dims) names.insert(dim.name);
  }
  return plan_error(
      plan, plan.micro_batches_line,
      fmt::format("micro_batches = {} needs tensors with the dim '{}', but none has it{}", count,
                  dim_name, suggestion(nearest(dim_name, {names.begin(), names.end()}))));
}

}  // namespace tessera
