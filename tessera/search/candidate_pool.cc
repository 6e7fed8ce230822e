#include "tessera/search/candidate_pool.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "tessera/search/constants.h"

namespace tessera {
namespace {

constexpr int kRespects = 8;  // number of respects in which two choices are compared
// Choices that are alike in at most so many respects teach nothing about one another.
constexpr int kStrangers = kRespects / 2;
constexpr double kEqualSteps = 1e-6;  // estimates whose ratio differs from 1 by less count as equal

// Returns how far the error of a simulated choice is believed for a choice that is like it in so
// many respects, from 0 (not at all) to 1 (wholly).
double trust(int alike) {
  return std::max(0.0, alike - kStrangers + 0.0) / (kRespects - kStrangers);
}

bool have_same_replicas(const Choice& a, const Choice& b) {
  const auto replicas = [](const Choice& choice) {
    return choice.axes.empty() ? 1 : choice.axes.front().size;
  };
  return replicas(a) == replicas(b) && a.replicas_apart == b.replicas_apart;
}

bool have_same_stage(const Choice& a, const Choice& b) {
  const auto inner = [](const Choice& choice) {
    return std::span(choice.axes).subspan(std::min<size_t>(1, choice.axes.size()));
  };
  const auto x = inner(a), y = inner(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end()) && a.stage_axes == b.stage_axes;
}

// Returns in how many of the kRespects respects the choices are alike, or nothing if the number is
// less than `at_least`. This function is called for each candidate after each program, so members
// that are slow to compare are compared last.
std::optional<int> alike(const Choice& a, const Choice& b, int at_least) {
  // Choices with different shards, or other tensors on the host, count as strangers, because the
  // formula errs most in the cost of these.
  const int most = a.sharded == b.sharded && a.offload == b.offload ? kRespects : kStrangers;
  if (most < at_least) return {};
  int unlike = 0;
  const auto may_go_on = [&](bool is_equal) {
    unlike += is_equal ? 0 : 1;
    return kRespects - unlike >= at_least;
  };
  const bool is_enough =
      may_go_on(a.stages == b.stages) &&
      may_go_on(a.micro_batches == b.micro_batches && a.slices == b.slices) &&
      may_go_on(have_same_replicas(a, b)) &&
      may_go_on(a.sharded == b.sharded && a.transfers == b.transfers) &&
      may_go_on(a.schedule == b.schedule) && may_go_on(a.chunks == b.chunks && a.cuts == b.cuts) &&
      may_go_on(a.recompute == b.recompute && a.units == b.units && a.halos == b.halos) &&
      may_go_on(have_same_stage(a, b));
  if (!is_enough) return {};
  return std::min(kRespects - unlike, most);
}

// Returns whether the choices differ in this member and in nothing else.
template <class T>
bool differ_only_in(T Choice::*member, const Choice& a, const Choice& b) {
  if (a.*member == b.*member) return false;
  Choice changed = a;
  changed.*member = b.*member;
  return changed == b;
}

}  // namespace

void CandidatePool::Waiting::learn(const Lesson& lesson) {
  const auto now = is_turned(lesson) ? kRespects : alike(*choice, lesson.choice, alike_most);
  if (!now) return;
  if (*now > alike_most) {
    lessons = 0;
    time_log = memory_log = 0;
  }
  alike_most = *now;
  ++lessons;
  time_log += lesson.time_log;
  memory_log += lesson.memory_log;
  time_ratio = std::exp(trust(alike_most) * time_log / lessons);
  memory_ratio = std::exp(trust(alike_most) * memory_log / lessons);
}

bool CandidatePool::Waiting::is_turned(const Lesson& lesson) const {
  return std::abs(estimate.step_s / lesson.estimated_s - 1) <= 1 - kGain &&
         differ_only_in(&Choice::replicas_apart, *choice, lesson.choice);
}

bool CandidatePool::Waiting::is_faster_in_shards(const Lesson& lesson) const {
  return estimate.step_s < lesson.estimated_s &&
         differ_only_in(&Choice::sharded, *choice, lesson.choice);
}

void CandidatePool::append(PlanCandidate candidate) {
  const UsedDevices used = expected(question_, candidate.choice, candidate.estimate).used;
  Waiting waiting{std::make_unique<Choice>(std::move(candidate.choice)), candidate.estimate, used};
  waiting.work = candidate.work;
  for (const Lesson& lesson : lessons_) waiting.learn(lesson);
  waiting_.push_back(all_.size());
  all_.push_back(std::move(waiting));
}

void CandidatePool::add(PlanCandidate candidate) {
  std::vector<size_t>& equal_steps = by_step_[candidate.estimate.step_s];
  for (const size_t known : equal_steps) {
    const Waiting& other = all_[known];
    if (!is_small_ && other.estimate.memory_bytes == candidate.estimate.memory_bytes &&
        other.choice->stages == candidate.choice.stages &&
        other.choice->units == candidate.choice.units &&
        other.choice->cuts == candidate.choice.cuts)
      return;
  }
  equal_steps.push_back(all_.size());
  append(std::move(candidate));
}

void CandidatePool::add_if_unlike(PlanCandidate candidate) {
  const auto merit = [&](const Choice& choice, const Estimate& estimate) {
    return question_.objective.merit(expected(question_, choice, estimate));
  };
  const Merit own = merit(candidate.choice, candidate.estimate);
  const auto is_equal = [&](const Waiting& other) {
    return ties(merit(*other.choice, other.estimate), own, kEqualSteps);
  };
  if (std::none_of(all_.begin(), all_.end(), is_equal)) add(std::move(candidate));
}

void CandidatePool::learn(const PlanCandidate& simulated) {
  if (!simulated.step_s || simulated.estimate.step_s <= 0) return;
  most_too_slow_ = std::max(most_too_slow_, simulated.estimate.step_s / *simulated.step_s);
  lessons_.push_back({simulated.choice, *simulated.step_s, simulated.estimate.step_s,
                      std::log(*simulated.step_s / simulated.estimate.step_s),
                      simulated.estimate.memory_bytes > 0
                          ? std::log(simulated.need_bytes / simulated.estimate.memory_bytes)
                          : 0});
  for (const size_t w : waiting_) all_[w].learn(lessons_.back());
  double sum = 0, squares = 0;
  for (const Lesson& lesson : lessons_) {
    sum += lesson.time_log;
    squares += lesson.time_log * lesson.time_log;
  }
  const auto n = static_cast<double>(lessons_.size());
  const double mean = sum / n;
  const double variance = std::max(0.0, squares - sum * mean) / std::max(1.0, n - 1);
  spread_ = std::sqrt(variance);
  const double agreement = mean != 0 ? mean * mean / (mean * mean + variance) : 0;
  // The simulated choices are those that the formula favours, and may all be similar; not so those
  // of small models, of which programs of many kinds are simulated.
  usual_log_ = agreement * mean;
  if (!is_small_) usual_log_ = std::clamp(usual_log_, -kLittle, kLittle);
}

std::optional<PlanCandidate> CandidatePool::take(const PlanCandidate* best, Care care,
                                                 double most_work) {
  auto out = take_of(best, care, 0);
  return out || most_work <= 0 ? std::move(out) : take_of(best, care, most_work);
}

std::optional<PlanCandidate> CandidatePool::take_of(const PlanCandidate* best, Care care,
                                                    double most_work) {
  Waiting* next = expected_next(best, care, most_work);
  while (next != nullptr && refine_ && !next->is_refined) {
    PlanCandidate one;
    one.choice = *next->choice;
    one.estimate = next->estimate;
    refine_(one);
    next->estimate = one.estimate;
    next->is_refined = true;
    next = expected_next(best, care, most_work);
  }
  if (next == nullptr || (!next->fits && ++too_large_ > most_too_large_)) return {};
  std::erase(waiting_, static_cast<size_t>(next - all_.data()));
  PlanCandidate out;
  out.choice = *next->choice;
  out.estimate = next->estimate;
  out.work = next->work;
  return out;
}

CandidatePool::Waiting* CandidatePool::expected_next(const PlanCandidate* best, Care care,
                                                     double most_work) {
  Waiting* next = nullptr;
  const Merit best_merit = best != nullptr ? merit_of(question_, *best) : Merit{};
  const auto of_best = std::find_if(lessons_.begin(), lessons_.end(), [&](const Lesson& lesson) {
    return best != nullptr && lesson.step_s == best->step_s;
  });
  // Both arrays are indexed by the number of respects in which a candidate is like the most similar
  // simulated choices. usual: the factor for the part of the error that these choices do not teach.
  // errs: a further factor by which the candidate may be slower. Where the formula was seen to
  // overestimate, it may overestimate as much for candidates that are like no simulated choice. For
  // small models, whose programs cost little, it may also err by kFew deviations from its usual
  // error.
  std::array<double, kRespects + 1> usual, errs;
  const bool is_usual_known = lessons_.size() >= kFew;
  const double most_errs = care == Care::kAll && is_usual_known
                               ? std::max(most_too_slow_, std::exp(kFew * spread_))
                               : most_too_slow_;
  for (int alike = 0; alike <= kRespects; ++alike) {
    const auto at = static_cast<size_t>(alike);
    const double doubt = 1 - trust(alike);
    usual[at] = is_usual_known ? std::exp(doubt * usual_log_) : 1;
    errs[at] = std::pow(most_errs, std::min(1.0, 2 * doubt));
  }
  for (const size_t w : waiting_) {
    Waiting& waiting = all_[w];
    if (waiting.work > most_work) continue;
    const auto at = static_cast<size_t>(waiting.alike_most);
    const double unlike = care == Care::kWide ? kRespects : kRespects - waiting.alike_most;
    const double allowed = care == Care::kAll ? std::max(margin_, kFormulaErrs)
                                              : 1 + (margin(care) - 1) * unlike / kRespects;
    const double has = waiting.estimate.capacity_bytes;
    // The margin for memory is not narrowed when the formula's errors in time are nearly equal,
    // because these say nothing about its errors in memory.
    const double larger = care == Care::kAll ? allowed : 1 + (margin_ - 1) * unlike / kRespects;
    const bool fits = care != Care::kSmallest &&
                      (care == Care::kEvery || has <= 0 || waiting.memory_bytes() <= larger * has);
    const double step_s = waiting.estimate.step_s * waiting.time_ratio * usual[at];
    // The merit if the formula errs by as much as is allowed.
    const Merit at_best = question_.objective.merit(
        {step_s / (allowed * errs[at]), waiting.memory_bytes() / larger, waiting.used});
    const bool is_worse = care != Care::kEvery && best != nullptr && at_best > best_merit &&
                          (of_best == lessons_.end() || !waiting.is_faster_in_shards(*of_best));
    if (best != nullptr && (!fits || is_worse)) continue;
    waiting.fits = fits;
    waiting.order = question_.objective.merit({step_s, waiting.memory_bytes(), waiting.used});
    // For small models, candidates that are expected to be too large are not left out, because they
    // may fit after all. They are taken later, the larger they are.
    if (is_small_ && has > 0 && waiting.memory_bytes() > has)
      waiting.order.cost *= std::pow(waiting.memory_bytes() / has, kRespects);
    if (next == nullptr || waiting.comes_before(*next)) next = &waiting;
  }
  return next;
}

double CandidatePool::margin(Care care) const {
  if (care != Care::kNarrow || lessons_.size() < kFew) return margin_;
  return std::min(margin_, 1 + static_cast<double>(kFew) * std::max(spread_, 1 - kGain));
}

}  // namespace tessera
