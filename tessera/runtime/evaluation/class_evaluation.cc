#include "tessera/runtime/evaluation/class_evaluation.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/program/program.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/step/ranks.h"

namespace tessera {
namespace {

constexpr int64_t kMostTargets = int64_t{1} << 20;  // most targets of a batch; each is sent to
                                                    // rank 0

// Returns which of the op's two inputs has the targets, if the other input has logits: the dims of
// the targets followed by a dim of classes. Otherwise returns nothing.
std::optional<size_t> targets_of(const Graph& graph, const Op& op) {
  if (op.phase != Phase::kForward || op.inputs.size() != 2) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Tensor& targets = graph.tensor(op.inputs[i]);
    const Tensor& logits = graph.tensor(op.inputs[1 - i]);
    if (targets.role != Role::kInput || !is_target(targets.name) || is_floating(targets.dtype) ||
        targets.elements() > kMostTargets) {
      continue;
    }
    const bool compares = is_floating(logits.dtype) &&
                          logits.dims.size() == targets.dims.size() + 1 &&
                          std::equal(targets.dims.begin(), targets.dims.end(), logits.dims.begin());
    if (compares) return i;
  }
  return std::nullopt;
}

}  // namespace

// Skips ops one of whose outputs nobody reads. Such an op does not compare: only its log-sum-exp
// is used.
OpId ClassEvaluation::op_of(const Model& model, const Graph& graph) {
  OpId found;
  if (model.text > 0) return found;
  const auto readers = graph.consumers();
  const auto is_read = [&](TensorId id) { return !readers[id.index()].empty(); };
  for (const Op& op : graph.ops()) {
    if (!targets_of(graph, op) || !std::all_of(op.outputs.begin(), op.outputs.end(), is_read)) {
      continue;
    }
    if (found.valid()) return {};
    found = op.id;
  }
  return found;
}

ClassEvaluation::ClassEvaluation(const Graph& graph, OpId op) : graph_(graph) {
  observation_.ops = {op};
  targets_ = targets_of(graph, graph.op(op)).value();
  logits_ = 1 - targets_;
  observation_.see = [this](const Op& seen, const Box& box,
                            std::span<const kernels::Array> inputs) {
    const auto region = [&](size_t input) {
      return project(seen.annotation, seen.annotation.inputs[input], box);
    };
    std::map<int64_t, int64_t> targets;
    each_element(graph_.tensor(seen.inputs[targets_]), region(targets_), inputs[targets_],
                 [&](int64_t offset, int64_t sample) {
                   int64_t target = 0;
                   std::memcpy(&target, inputs[targets_].data + offset * dtype_bytes(DType::kInt64),
                               sizeof target);
                   targets[sample] = target;
                 });
    const Tensor& logits = graph_.tensor(seen.inputs[logits_]);
    const int64_t classes = logits.dims.back().size;
    const kernels::Array& array = inputs[logits_];
    each_element(logits, region(logits_), array, [&](int64_t offset, int64_t index) {
      const int64_t target = targets.at(index / classes);
      if (target < 0) return;
      const double logit = kernels::load_element<double>(
          array.data + offset * dtype_bytes(array.dtype), array.dtype);
      see(index / classes, static_cast<double>(target), logit, index % classes);
    });
  };
}

// Keeps the largest logit of a sample. Among equal logits the one of the lowest class counts as
// the largest.
void ClassEvaluation::see(int64_t sample, double target, double logit, int64_t at) {
  const auto [found, fresh] = seen_.try_emplace(sample, Seen{target, logit, at});
  Seen& best = found->second;
  if (fresh || logit < best.logit || (logit == best.logit && at >= best.at)) return;
  best = {target, logit, at};
}

void ClassEvaluation::gather(comm::Communicator& world, const SamplePasses* passes, int64_t step) {
  std::vector<SeenOf> mine;
  for (const auto& [sample, seen] : std::exchange(seen_, {})) mine.push_back({sample, seen});
  for (const std::vector<SeenOf>& list : comm::gather_lists_at(world, 0, mine)) {
    // Ranks have different samples, or different classes of a sample.
    for (const SeenOf& one : list) see(one.sample, one.seen.target, one.seen.logit, one.seen.at);
  }
  if (world.rank() != 0) return;
  const Op& op = graph_.op(observation_.ops.front());
  int64_t fresh = graph_.tensor(op.inputs[targets_]).elements();  // targets of the batch; a sample
                                                                  // may have several
  if (passes != nullptr) fresh = fresh / passes->batch() * passes->fresh(step);
  for (const auto& [sample, seen] : std::exchange(seen_, {})) {
    if (sample >= fresh) continue;
    ++count_;
    if (seen.target == static_cast<double>(seen.at)) ++right_;
  }
}

double ClassEvaluation::accuracy() const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(right_) / static_cast<double>(count_);
}

}  // namespace tessera
