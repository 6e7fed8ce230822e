#include "tessera/planners/terapipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tessera/base/infinity.h"
#include "tessera/search/choices/dim_lists.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

constexpr int64_t kMostSequences = 32;  // most sequences of a micro-batch on one replica
// More sequences save nothing if a sequence then takes more than this share of its time.
constexpr double kSaturated = .995;
constexpr size_t kMostAnswers = 6;  // most candidates whose programs are simulated
const std::vector<std::string> kTensorDims = {"heads", "ffn", "vocab"};

// Returns the fixed schedule, or the first schedule of slices if none is fixed. Null if the fixed
// schedule is not one of slices.
const SliceSchedule* asked_schedule(const PlanQuestion& question) {
  return slice_schedule(texts_of(question, "schedule", {kSliceSchedules->of_slices}).front());
}

class SliceSearch {
 public:
  SliceSearch(PlanSearch& search, int64_t length)
      : search_(search),
        question_(search.question()),
        estimator_(*question_.cluster, question_.options.style, search.fold().units,
                   question_.memory_limit_bytes),
        slicer_(search, estimator_, length) {}

  std::vector<PlanCandidate> run() {
    std::vector<Ranked> ranked;
    const double limit = search_.limit_bytes();
    for (const std::string& level : texts_of(question_, "recompute", {"none", "full"})) {
      search_.say("slices of sequences, recompute " + level);
      const bool is_first = ranked.empty();
      for (const Shape& shape : shapes()) {
        if (question_.stop && question_.stop() && !ranked.empty()) break;
        // Recomputation is tried only for shapes of which some plan is fast enough but does not fit
        // without it.
        const bool helps =
            is_first || std::any_of(ranked.begin(), ranked.end(), [&](const Ranked& one) {
              return one.shape == shape && limit > 0 &&
                     one.candidate.estimate.memory_bytes > limit &&
                     one.candidate.estimate.step_s < best_s_;
            });
        if (helps) rank(shape, level, ranked);
      }
    }
    return with_measured_slices(ranked);
  }
  const std::string& last_refusal() const {
    return refusal_.empty() ? slicer_.last_refusal() : refusal_;
  }

 private:
  struct Shape {
    int64_t stages = 1, replicas = 1, tensor = 1;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct Ranked {
    Shape shape;
    PlanCandidate candidate;
    UnitQuestion asked;
  };

  std::vector<Shape> shapes() const {
    const int64_t fixed = fixed_number(question_, "devices");
    const int64_t used = fixed > 0 ? fixed : question_.cluster->devices();
    const int64_t most =
        std::max(2 * question_.cluster->type_of(0).devices, fixed_number(question_, "tp"));
    std::vector<Shape> out;
    if (used > question_.cluster->devices()) return out;
    for (const int64_t stages : divisors_of(used)) {
      if (stages > static_cast<int64_t>(search_.fold().units.size())) break;
      for (const int64_t tensor : divisors_of(used / stages)) {
        const Shape shape{stages, used / stages / tensor, tensor};
        // Only pipelines are sliced.
        const bool may_be = stages > 1 || fixed_number(question_, "slices") <= 1;
        if (may_be && tensor <= most && question_.batch % shape.replicas == 0 &&
            allows(question_, "pp", stages) && allows(question_, "tp", tensor) &&
            allows(question_, "dp", shape.replicas))
          out.push_back(shape);
      }
    }
    return out;
  }

  void rank(const Shape& shape, const std::string& recompute, std::vector<Ranked>& out) {
    double each_s = kInfinity;  // seconds of a sequence with the number of sequences before
    const int64_t own = question_.batch / shape.replicas;
    for (int64_t sequences = 1; sequences <= std::min(own, kMostSequences); sequences *= 2) {
      if (own % sequences != 0) break;
      UnitQuestion asked;
      if (shape.tensor > 1) asked.axes = {{"tp", shape.tensor, kTensorDims}};
      asked.sequences = sequences;
      asked.recompute = recompute;
      asked.slice_dim = kSlicedDim;
      const auto prices = search_.pricer().price(asked);
      if (!prices) {
        refusal_ = prices.error().message;
        continue;
      }
      const double now_s =
          passes_s(**prices, search_.fold().counts()) / static_cast<double>(sequences);
      if (now_s > kSaturated * each_s) break;
      each_s = now_s;
      if (!allows(question_, "micro_batches", own / sequences)) continue;
      for (const int64_t sharded : numbers_of(question_, "zero", {0})) {
        if (sharded > 0 && shape.replicas == 1) continue;
        Ranked one{shape, {}, asked};
        one.candidate.choice = choice_of(shape, asked, sharded);
        const SliceSchedule& schedule = *asked_schedule(question_);
        if (!slicer_.slice(one.candidate.choice, one.candidate.estimate, asked, **prices, schedule,
                           fixed_number(question_, "slices")))
          continue;
        const Estimate& estimate = one.candidate.estimate;
        if (search_.limit_bytes() <= 0 || estimate.memory_bytes <= search_.limit_bytes())
          best_s_ = std::min(best_s_, estimate.step_s);
        out.push_back(std::move(one));
      }
    }
  }

  Choice choice_of(const Shape& shape, const UnitQuestion& asked, int64_t sharded) const {
    Choice out;
    out.axes = {{"dp", shape.replicas, {"batch"}}};
    for (const ChoiceAxis& axis : asked.axes) out.axes.push_back(axis);
    out.stages = shape.stages;
    out.micro_batches = question_.batch / shape.replicas / asked.sequences;
    out.sharded = sharded;
    out.recompute = asked.recompute;
    out.compute = question_.compute;
    out.slice_dim = kSlicedDim;
    return out;
  }

  // Returns the best candidates by formula, each estimated once more with a folded program that has
  // its slices.
  std::vector<PlanCandidate> with_measured_slices(const std::vector<Ranked>& ranked) {
    std::vector<PlanCandidate> all;
    for (const Ranked& one : ranked) all.push_back(one.candidate);
    const auto order = in_order(question_, all);
    std::vector<PlanCandidate> out;
    for (const PlanCandidate* next : order) {
      if (out.size() == kMostAnswers) break;
      PlanCandidate candidate = *next;
      const Ranked& one = ranked[static_cast<size_t>(next - all.data())];
      const bool stopped = question_.stop && question_.stop();
      if (!candidate.choice.slices.empty() && !stopped)
        slicer_.measure(candidate.choice, candidate.estimate, one.asked);
      out.push_back(std::move(candidate));
    }
    return out;
  }

  PlanSearch& search_;
  const PlanQuestion& question_;
  Estimator estimator_;
  Slicer slicer_;
  double best_s_ = kInfinity;  // least time of the choices that fit by formula
  std::string refusal_;
};

}  // namespace

Result<PlanAnswer> find_by_terapipe(const PlanQuestion& question) {
  if (asked_schedule(question) == nullptr) {
    return invalid_input(
        fmt::format("planner terapipe: expected the schedule token or token_1f1b, found '{}'",
                    question.fixed.at("schedule")));
  }
  if (!allows(question, "chunks", 1))
    return invalid_input("planner terapipe: expected one chunk, its pipelines have no more");
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  const auto length = sliced_length(search->forward());
  if (!length) return invalid_input("planner terapipe: " + length.error().message);
  const int64_t count = fixed_number(question, "slices");
  if (count > 0 && *length % count != 0) {
    return invalid_input(fmt::format(
        "planner terapipe: --fix slices={}: expected a number of equal slices of {} tokens", count,
        *length));
  }
  SliceSearch slices(*search, *length);
  auto ranked = slices.run();
  return search->answer(ranked, slices.last_refusal());
}

}  // namespace tessera
