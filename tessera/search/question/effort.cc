#include "tessera/search/question/effort.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "tessera/program/place_text.h"
#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

constexpr double kMeasuredTie = .002, kRoundingTie = 1e-9;

bool begins_a_transfer(const TextInstruction& instruction) {
  return std::holds_alternative<TextIssue>(instruction.body) ||
         std::holds_alternative<TextCross>(instruction.body) ||
         std::holds_alternative<TextCopy>(instruction.body);
}

int64_t entries_of(const Plan& plan) {
  return static_cast<int64_t>(plan.splits.size() + plan.pins.size() + plan.stages.size() +
                              plan.stores.size() + plan.loops.size() + plan.reorders.size() +
                              plan.expand.size());
}

}  // namespace

PlanEffort effort_of(const Lowering& lowering) {
  const Plan& plan = lowering.plan().plan;
  PlanEffort out;
  out.entries = entries_of(plan);
  for (const PlaceText& text : lowering.texts()) {
    for (const auto& [block, instructions] : text.blocks) {
      const int64_t runs = block.once() ? 1 : plan.micro_batches;
      out.instructions += runs * static_cast<int64_t>(instructions.size());
      for (const TextInstruction& one : instructions) {
        if (begins_a_transfer(one)) out.transfers += runs;
      }
    }
  }
  return out;
}

double work_of_programs(const Lowering& lowering) {
  std::vector<size_t> of_place;
  for (const PlaceText& text : lowering.texts()) {
    size_t& count = of_place.emplace_back(0);
    for (const auto& [block, instructions] : text.blocks) count += instructions.size();
  }
  size_t out = lowering.graph().ops().size();
  for (const RankClass& role : lowering.roles()) {
    for (const PlaceId place : lowering.plan().places_of(role.representative))
      out += of_place[place.index()];
  }
  return static_cast<double>(out);
}

double tie_share(const Cluster& cluster) {
  return cluster.profile != nullptr ? kMeasuredTie : kRoundingTie;
}

bool is_simpler(const PlanCandidate& a, const PlanCandidate& b) {
  return std::pair(a.effort, *a.step_s) < std::pair(b.effort, *b.step_s);
}

bool wins(const Objective& objective, const PlanCandidate& a, const PlanCandidate& b,
          double share) {
  const Merit x = objective.merit(facts_of(a)), y = objective.merit(facts_of(b));
  return ties(x, y, share) ? is_simpler(a, b) : x < y;
}

size_t simplest_of_ties(const Objective& objective, const std::vector<PlanCandidate>& candidates,
                        size_t best, double share) {
  size_t out = best;
  const Merit merit = objective.merit(facts_of(candidates[best]));
  for (size_t i = 0; i < candidates.size(); ++i) {
    const PlanCandidate& one = candidates[i];
    if (!one.step_s || !one.fits || !ties(objective.merit(facts_of(one)), merit, share)) continue;
    if (is_simpler(one, candidates[out])) out = i;
  }
  return out;
}

}  // namespace tessera
