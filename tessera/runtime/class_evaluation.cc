#include "tessera/runtime/class_evaluation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/program/program.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/ranks.h"

namespace tessera {
namespace {

constexpr size_t kLogits = 0, kTargets = 1;  // inputs of a loss over classes

OpId loss_over_classes(const Model& model, const Graph& graph) {
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || info_of(op).work != WorkClass::kLoss) continue;
    if (op.inputs.size() != 2) continue;
    const Tensor& targets = graph.tensor(op.inputs[kTargets]);
    if (targets.role == Role::kInput && is_target(targets.name) &&
        targets.elements() == model.batch)
      return op.id;
  }
  return {};
}

}  // namespace

bool ClassEvaluation::applies(const Model& model, const Graph& graph) {
  return loss_over_classes(model, graph).valid();
}

ClassEvaluation::ClassEvaluation(const Model& model, const Graph& graph) : graph_(graph) {
  observation_.op = loss_over_classes(model, graph);
  TESSERA_CHECK(observation_.op.valid(), "no loss of '{}' compares a class a sample", graph.name);
  observation_.see = [this](const Op& op, const Box& box, std::span<const kernels::Array> inputs) {
    const auto each = [&](size_t input, auto&& see) {
      const Tensor& tensor = graph_.tensor(op.inputs[input]);
      const Box region = project(op.annotation, op.annotation.inputs[input], box);
      each_element(tensor, region, inputs[input], [&](int64_t offset, int64_t index) {
        const kernels::Array& array = inputs[input];
        see(index, array.data + offset * dtype_bytes(array.dtype));
      });
    };
    std::map<int64_t, int64_t> targets;
    each(kTargets, [&](int64_t sample, const std::byte* at) {
      int64_t target = 0;
      std::memcpy(&target, at, sizeof target);
      targets[sample] = target;
    });
    const int64_t classes = graph_.tensor(op.inputs[kLogits]).dims.back().size;
    struct Best {
      double logit = -std::numeric_limits<double>::infinity();
      int64_t at = 0;
    };
    std::map<int64_t, Best> best;
    each(kLogits, [&](int64_t index, const std::byte* at) {
      const double logit = kernels::load_element<double>(at, inputs[kLogits].dtype);
      const auto [found, fresh] = best.try_emplace(index / classes);
      if (fresh || logit > found->second.logit) found->second = {logit, index % classes};
    });
    for (const auto& [sample, one] : best) {
      const int64_t target = targets.at(sample);
      if (target < 0) continue;
      seen_.insert(seen_.end(), {static_cast<double>(first_ + sample), static_cast<double>(target),
                                 static_cast<double>(one.at), one.logit});
    }
  };
}

const Observation* ClassEvaluation::observation(int64_t batch) {
  const Op& op = graph_.op(observation_.op);
  first_ = (batch - 1) * graph_.tensor(op.inputs[kTargets]).elements();
  return &observation_;
}

std::vector<ClassEvaluation::Guess> ClassEvaluation::guesses(comm::Communicator& world) {
  constexpr size_t kNumbers = 4;
  const auto lists = gather_lists(world, std::exchange(seen_, {}));
  if (world.rank() != 0) return {};
  std::map<double, std::array<double, 3>> samples;  // target, class, logit
  for (const std::vector<double>& list : lists) {
    for (size_t i = 0; i < list.size(); i += kNumbers) {
      const std::array<double, 3> one = {list[i + 1], list[i + 2], list[i + 3]};
      const auto [found, fresh] = samples.try_emplace(list[i], one);
      std::array<double, 3>& known = found->second;
      const bool better = one[2] > known[2] || (one[2] == known[2] && one[1] < known[1]);
      if (!fresh && better) known = one;
    }
  }
  std::vector<Guess> guesses;
  guesses.reserve(samples.size());
  for (const auto& [sample, one] : samples) {
    guesses.push_back(
        {static_cast<int64_t>(sample), static_cast<int64_t>(one[0]), static_cast<int64_t>(one[1])});
  }
  return guesses;
}

double ClassEvaluation::gather(comm::Communicator& world) {
  const std::vector<Guess> all = guesses(world);
  if (all.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto right = std::count_if(all.begin(), all.end(),
                                   [](const Guess& one) { return one.guess == one.target; });
  return static_cast<double>(right) / static_cast<double>(all.size());
}

}  // namespace tessera
