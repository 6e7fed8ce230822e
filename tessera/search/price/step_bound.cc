#include "tessera/search/price/step_bound.h"

#include <algorithm>

#include "tessera/compile/compile.h"
#include "tessera/cost/op_cost.h"
#include "tessera/graph/optimizers.h"
#include "tessera/search/choices/choice.h"
#include "tessera/search/question/op_units.h"

namespace tessera {
namespace {

// The uncut ops of a step of the folded model, and for each one how often the model has it.
struct WholeOps {
  std::vector<OpWork> works;
  std::vector<double> times;
};

std::optional<WholeOps> whole_ops(const PlanQuestion& question, const Fold& fold) {
  Choice serial;
  serial.compute = question.compute;
  const auto text = write_plan(serial, fold.graph, {}, "bound");
  if (!text) return {};
  const auto plan = parse_plan(*text, "bound");
  if (!plan) return {};
  Compiler compiler;
  CompileOptions options;
  options.optimizer = without_idle_groups(question.optimizer, fold.graph);
  // Not owned: the fold outlives the session.
  const std::shared_ptr<const Graph> graph(std::shared_ptr<const Graph>(), &fold.graph);
  const auto lowering = compiler.lower(graph, *plan, options);
  if (!lowering) return {};
  const auto program = (*lowering)->lower(0, false);
  if (!program) return {};
  const OpUnits units((*lowering)->graph(), fold);
  const std::vector<int64_t> counts = fold.counts();
  WholeOps out;
  for (const auto& [ref, block] : program->blocks) {
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute == nullptr) continue;
      out.works.push_back(work_of((*lowering)->graph(), *program, *compute));
      out.times.push_back(static_cast<double>(counts[units.of(instruction.cause)]));
    }
  }
  return out;
}

}  // namespace

std::optional<double> least_step_s(const PlanQuestion& question, const Fold& fold) {
  const Cluster& cluster = *question.cluster;
  if (cluster.profile != nullptr || question.part) return {};
  const auto ops = whole_ops(question, fold);
  if (!ops) return {};
  double first_s = 0;  // seconds of all ops on one device of the first part
  // Number of devices of the first part that would be at least as fast as the cluster.
  double devices = 0;
  std::vector<double> of_first;
  for (const ClusterPart& part : cluster.parts) {
    const OpCosts costs(part.type.device, question.options.style, nullptr);
    const bool is_first = &part == &cluster.parts.front();
    // The largest ratio of a device's speed to that of a device of the first part.
    double fastest = is_first ? 1 : 0;
    for (size_t i = 0; i < ops->works.size(); ++i) {
      const double least = costs.least_s(ops->works[i]).value_or(0);
      if (is_first) {
        of_first.push_back(least);
        first_s += least * ops->times[i];
      } else if (of_first[i] > 0) {
        fastest = std::max(fastest, of_first[i] / std::max(least, 1e-30));
      }
    }
    devices += static_cast<double>(part.nodes * part.type.devices) * fastest;
  }
  return first_s / devices;
}

}  // namespace tessera
