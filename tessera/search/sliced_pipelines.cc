#include "tessera/search/sliced_pipelines.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tessera/base/text.h"
#include "tessera/search/question.h"
#include "tessera/search/slicer.h"

namespace tessera {
namespace {

// A pipeline is sliced if with 1 / kSlices of its bubble it would take less than this share of the
// best time. The share is below 1 because the formula errs by a few percent, and because slices
// need more kernel launches.
constexpr double kSlicedPromise = .96;
constexpr double kSlices = 8;
constexpr size_t kTables = 4;  // most pipelines whose slices are priced
// Most pipelines that are tried, including those that cannot be sliced.
constexpr size_t kTried = 8;
// Number of pipelines that are priced again by a folded program with exactly their slices.
constexpr size_t kMeasured = 2;

struct Seed {
  double promised_s = 0;
  const PlanCandidate* from = nullptr;
};

// Returns the question that prices the units of a choice.
UnitQuestion question_of(const Choice& choice, const PlanQuestion& question,
                         const Estimator& estimator) {
  UnitQuestion out = unit_question(choice, question.batch);
  out.slice_dim = kSlicedDim;
  out.on = &estimator.kinds().cluster(0);
  return out;
}

std::vector<Seed> seeds(const PlanQuestion& question, Estimator& estimator,
                        const std::vector<PlanCandidate>& ranked, const std::string& schedule) {
  double best_s = std::numeric_limits<double>::infinity();
  for (const PlanCandidate& one : ranked) {
    if (one.estimate.fits()) best_s = std::min(best_s, one.estimate.step_s);
  }
  std::vector<Seed> order;
  for (const PlanCandidate& one : ranked) {
    const Choice& choice = one.choice;
    if (choice.stages == 1 || choice.chunks > 1 || !choice.units.empty() ||
        !choice.stage_axes.empty() || choice.schedule != schedule ||
        (!one.estimate.fits() && !asks_for_slices(question)))
      continue;
    const ScheduleFacts* facts = estimator.schedule_of(choice);
    const auto m = static_cast<double>(choice.micro_batches);
    const double promised_s = one.estimate.work_s * (m + facts->bubble / kSlices) / m;
    if (asks_for_slices(question) || promised_s < kSlicedPromise * best_s)
      order.push_back({promised_s, &one});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Seed& a, const Seed& b) { return a.promised_s < b.promised_s; });
  std::vector<Seed> out;
  // Choices without shards and order on the devices, which do not change the slices.
  std::set<std::string> known;
  for (const Seed& seed : order) {
    if (out.size() == kTried) break;
    Choice plain = seed.from->choice;
    plain.sharded = 0;
    plain.replicas_apart = false;
    if (known.insert(plain.str()).second) out.push_back(seed);
  }
  return out;
}

}  // namespace

bool asks_for_slices(const PlanQuestion& question) {
  const auto schedule = question.fixed.find("schedule");
  return fixed_number(question, "slices") > 1 ||
         (schedule != question.fixed.end() && slice_schedule(schedule->second) != nullptr);
}

std::vector<PlanCandidate> sliced_pipelines(PlanSearch& search, Ranking& ranking,
                                            const std::vector<PlanCandidate>& ranked,
                                            std::string& refusal) {
  const PlanQuestion& question = search.question();
  Estimator& estimator = ranking.estimator();
  if (fixed_number(question, "slices") == 1 || estimator.kinds().count() > 1) return {};
  const auto length = sliced_length(search.forward());
  if (!length) {
    refusal = length.error().message;
    return {};
  }
  Slicer slicer(search, estimator, *length);
  std::vector<PlanCandidate> out;
  size_t tables = 0;
  for (const Seed& seed : seeds(question, estimator, ranked, kWholeSchedule)) {
    if (tables == kTables || (question.stop && question.stop())) break;
    search.say("slices of sequences, " + seed.from->choice.str());
    const UnitQuestion asked = question_of(seed.from->choice, question, estimator);
    const auto whole = search.pricer().price(asked);
    if (!whole) continue;
    bool is_priced = false;
    for (const SliceSchedule& schedule : kSliceSchedules) {
      if (!allows(question, "schedule", schedule.of_slices)) continue;
      PlanCandidate candidate;
      const auto slice = [&](int64_t count) {
        candidate.choice = seed.from->choice;
        return slicer.slice(candidate.choice, candidate.estimate, asked, **whole, schedule, count);
      };
      bool is_sliced = slice(fixed_number(question, "slices"));
      // If a single slice is the fastest but the question asks for slices, takes two.
      if (is_sliced && !candidate.choice.sliced_stages && asks_for_slices(question))
        is_sliced = slice(2);
      is_priced = is_priced || is_sliced;
      if (is_sliced && candidate.choice.sliced_stages) out.push_back(std::move(candidate));
    }
    tables += is_priced ? 1 : 0;
  }
  if (out.empty()) refusal = slicer.last_refusal();
  std::stable_sort(out.begin(), out.end(), [](const PlanCandidate& a, const PlanCandidate& b) {
    return a.estimate.step_s < b.estimate.step_s;
  });
  for (size_t i = 0; i < std::min(out.size(), kMeasured); ++i) {
    Choice& choice = out[i].choice;
    slicer.measure(choice, out[i].estimate, question_of(choice, question, estimator));
  }
  return out;
}

}  // namespace tessera
