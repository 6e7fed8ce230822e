#include "tessera/runtime/click_evaluation.h"

#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/models/families.h"
#include "tessera/program/program.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/ranks.h"

namespace tessera {
namespace {

double load_number(const std::byte* at, DType dtype) {
  if (is_floating(dtype)) return kernels::load_element<double>(at, dtype);
  int64_t integer = 0;
  std::memcpy(&integer, at, sizeof integer);
  return static_cast<double>(integer);
}

}  // namespace

bool ClickEvaluation::applies(const Model& model) { return predicts_clicks(model); }

ClickEvaluation::ClickEvaluation(const Graph& graph) : graph_(graph) {
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || op.inputs.size() != 2) continue;
    for (size_t i = 0; i < 2; ++i) {
      const Tensor& tensor = graph.tensor(op.inputs[i]);
      if (tensor.role != Role::kInput || !is_target(tensor.name)) continue;
      observation_.op = op.id;
      targets_ = i;
      logits_ = 1 - i;
    }
  }
  TESSERA_CHECK(observation_.op.valid(), "no op of '{}' reads targets and logits", graph.name);
  observation_.see = [this](const Op& op, const Box& box, std::span<const kernels::Array> inputs) {
    // By global element, which is the sample: there is one logit for each.
    const auto each = [&](size_t input, auto&& see) {
      const Tensor& tensor = graph_.tensor(op.inputs[input]);
      const Box region = project(op.annotation, op.annotation.inputs[input], box);
      each_element(tensor, region, inputs[input], [&](int64_t offset, int64_t sample) {
        const kernels::Array& array = inputs[input];
        see(sample, load_number(array.data + offset * dtype_bytes(array.dtype), array.dtype));
      });
    };
    std::map<int64_t, double> targets;
    each(targets_, [&](int64_t sample, double target) { targets[sample] = target; });
    each(logits_, [&](int64_t sample, double logit) {
      seen_.insert(seen_.end(), {static_cast<double>(first_ + sample), targets.at(sample), logit});
    });
  };
}

const Observation* ClickEvaluation::observation(int64_t batch) {
  const Op& op = graph_.op(observation_.op);
  const int64_t samples = Box::whole(graph_.tensor(op.inputs[targets_]).shape()).volume();
  first_ = (batch - 1) * samples;
  return &observation_;
}

ClickQuality ClickEvaluation::gather(comm::Communicator& world) {
  constexpr size_t kNumbers = 3;
  const auto lists = gather_lists(world, std::exchange(seen_, {}));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (world.rank() != 0) return {kNone, kNone};
  std::map<double, std::pair<double, double>> samples;  // replicas saw the same ones
  for (const std::vector<double>& list : lists) {
    for (size_t i = 0; i < list.size(); i += kNumbers) {
      samples.emplace(list[i], std::pair(list[i + 1], list[i + 2]));
    }
  }
  std::vector<float> labels;
  std::vector<double> logits;
  for (const auto& [number, sample] : samples) {
    labels.push_back(static_cast<float>(sample.first));
    logits.push_back(sample.second);
  }
  return click_quality(labels, logits);
}

}  // namespace tessera
