#include "tessera/runtime/evaluation/click_evaluation.h"

#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/families.h"
#include "tessera/program/program.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/step/ranks.h"

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

ClickEvaluation::ClickEvaluation(const Graph& graph, const SamplePasses* passes)
    : graph_(graph), passes_(passes) {
  for (const Op& op : graph.ops()) {
    const auto found = comparison(op);
    if (!found) continue;
    compares_[op.id] = *found;
    observation_.ops.push_back(op.id);
  }
  TESSERA_CHECK(!observation_.ops.empty(), "no op of '{}' reads targets and logits", graph.name);
  observation_.see = [this](const Op& op, const Box& box, std::span<const kernels::Array> inputs) {
    see(op, box, inputs);
  };
}

// Returns the number, in the batch, of the sample to which an element of the targets belongs. As
// there is one logit for each sample, this is the element's index in the whole batch.
int64_t ClickEvaluation::Comparison::sample(int64_t element) const {
  if (!part) return element;
  return part->index(element / inner, size) * inner + element % inner;
}

std::optional<ClickEvaluation::Comparison> ClickEvaluation::comparison(const Op& op) const {
  if (op.phase != Phase::kForward || op.inputs.size() != 2) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const Tensor& read = graph_.tensor(op.inputs[i]);
    Comparison found{i, 1 - i, {}, 0, 1};
    TensorId input = read.id;
    if (read.producer.valid()) {  // a part of an input, as a loop over the batch cuts
                                  // it (graph/transform.h)
      const Op& cut = graph_.op(read.producer);
      if (info_of(cut).bytes != ByteRule::kPart || !cut.attributes.contains("blocks")) continue;
      input = cut.inputs[0];
      const std::string& dim = cut.text("dim");
      const Tensor& whole = graph_.tensor(input);
      size_t at = 0;
      while (at < whole.dims.size() && whole.dims[at].name != dim) ++at;
      if (at > 0) continue;
      found.part = Within{dim, cut.integer("begin"), whole.dims[0].size, cut.integer("blocks")};
      found.size = read.dims[0].size;
      found.inner = whole.elements() / whole.dims[0].size;
    }
    const Tensor& tensor = graph_.tensor(input);
    if (tensor.role == Role::kInput && is_target(tensor.name)) return found;
  }
  return std::nullopt;
}

void ClickEvaluation::see(const Op& op, const Box& box, std::span<const kernels::Array> inputs) {
  const Comparison& how = compares_.at(op.id);
  const auto each = [&](size_t input, auto&& visit) {
    const Tensor& tensor = graph_.tensor(op.inputs[input]);
    const Box region = project(op.annotation, op.annotation.inputs[input], box);
    each_element(tensor, region, inputs[input], [&](int64_t offset, int64_t element) {
      const kernels::Array& array = inputs[input];
      visit(how.sample(element),
            load_number(array.data + offset * dtype_bytes(array.dtype), array.dtype));
    });
  };
  std::map<int64_t, double> targets;
  each(how.targets, [&](int64_t sample, double target) { targets[sample] = target; });
  each(how.logits, [&](int64_t sample, double logit) {
    const int64_t place = first_ + sample;
    const int64_t number = passes_ == nullptr ? place : passes_->sample(place);
    seen_.push_back({number, targets.at(sample), logit});
  });
}

const Observation* ClickEvaluation::observation(int64_t batch) {
  int64_t samples = 0;
  for (const auto& [op, how] : compares_)
    samples += graph_.tensor(graph_.op(op).inputs[how.targets]).elements();
  first_ = (batch - 1) * samples;
  return &observation_;
}

ClickQuality ClickEvaluation::gather(comm::Communicator& world) {
  const auto lists = comm::gather_lists_at(world, 0, std::exchange(seen_, {}));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (world.rank() != 0) return {kNone, kNone};
  std::map<int64_t, std::pair<double, double>> samples;  // by number, because replicas saw the
                                                         // same samples
  for (const std::vector<Seen>& list : lists) {
    for (const Seen& one : list) samples.emplace(one.number, std::pair(one.target, one.logit));
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
