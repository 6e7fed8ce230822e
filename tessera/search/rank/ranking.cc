#include "tessera/search/rank/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "tessera/base/infinity.h"
#include "tessera/base/text.h"
#include "tessera/search/choices/halo_choices.h"
#include "tessera/search/constants.h"
#include "tessera/search/edits/transfer_choices.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/partition.h"

namespace tessera {
namespace {

// Chunks that are tried with a fixed schedule that the space lacks.
const std::vector<int64_t> kChunks = {1, 2, 3, 4, 6, 8};

bool surely_fits(const Estimate& estimate) {
  return estimate.capacity_bytes <= 0 ||
         estimate.memory_bytes <= (1 - kLittle) * estimate.capacity_bytes;
}

// Returns edits of a list: with one dim more, one dim less, or one dim at another position.
std::vector<DimList> edited(const DimList& list, const std::vector<std::string>& dims) {
  std::vector<DimList> out;
  const auto insert_at = [](DimList from, size_t at, const std::string& dim) {
    from.insert(from.begin() + static_cast<std::ptrdiff_t>(at), dim);
    return from;
  };
  for (const std::string& dim : dims) {
    DimList without = list;
    std::erase(without, dim);
    if (without.size() < list.size() && !without.empty()) out.push_back(without);
    for (size_t at = 0; at <= without.size(); ++at) out.push_back(insert_at(without, at, dim));
  }
  std::erase(out, list);
  return out;
}

// Returns pairs whose outer lists are the rings of `pairs` and whose inner lists are `lists`.
// Leaves out pairs that exist already, and inner lists that cut the batch or have rings.
std::vector<DimPair> around(const std::vector<DimPair>& pairs, const std::vector<DimList>& lists) {
  std::vector<DimPair> out;
  for (const DimPair& pair : pairs) {
    if (!has_rings(pair.outer)) continue;
    for (const DimList& inner : lists) {
      const DimPair other{pair.outer, inner};
      const bool is_new = std::find(pairs.begin(), pairs.end(), other) == pairs.end() &&
                          std::find(out.begin(), out.end(), other) == out.end();
      if (is_new && !has(inner, "batch") && !has_rings(inner)) out.push_back(other);
    }
  }
  return out;
}

}  // namespace

Ranking::Ranking(const PlanQuestion& question, const Fold& fold, UnitPricer& pricer)
    : question_(question),
      fold_(fold),
      is_small_(is_small(question, fold)),
      counts_(fold.counts()),
      device_counts_(device_counts(question)),
      pricer_(pricer),
      estimator_(*question.cluster, question.options.style, fold.units,
                 question.memory_limit_bytes),
      limit_(memory_limit(question)),
      halos_(fixed_halos(question)) {}

const std::vector<Ranking::Inside>& Ranking::priced(int64_t inner, const Space& space,
                                                    const std::string& recompute, bool is_least) {
  auto to_price = axes_inside(inner, space);
  std::string key = fmt::format("{} {}", inner, recompute);
  for (const auto& axes : to_price) {
    for (const ChoiceAxis& axis : axes)
      key += fmt::format(" {}[{}]", axis.size, join(axis.dims, ","));
  }
  const auto [it, is_new] = priced_.try_emplace(key);
  if (!is_new) return it->second;
  const bool is_plain = recompute == "none";
  if (inner > 1 && cuts_save_nothing_ && best_) return it->second;
  struct Growing {
    std::vector<ChoiceAxis> axes;
    int64_t least = 1;  // sequences
    double each_s = 0;  // least time of a sequence with the numbers of sequences kept so far
    // Time of a sequence, by each priced number of sequences.
    std::map<int64_t, double> each_by_count = {};
    // The passes' time with the number of sequences that was kept last, and this number.
    double before_s = 0;
    int64_t before = 0;
    bool sums_slow = false;  // whether sums of gradients cost time with the number kept last
    bool is_done = false;
    // With this turn's number of sequences.
    double time_s = 0, activation_bytes = 0, held_bytes = 0;
    const UnitPrices* prices = nullptr;
  };
  std::vector<Growing> all;
  for (auto& axes : to_price) {
    // Only small models try micro-batches that the axes cut into unequal pieces, because these are
    // rarely of use.
    const int64_t least = is_small_ ? 1 : over_batch(axes);
    all.push_back({std::move(axes), least});
  }
  std::set<int64_t> rounds;
  for (const int64_t divisor : divisors_of(question_.batch)) {
    if (std::any_of(all.begin(), all.end(),
                    [&](const Growing& one) { return divisor % one.least == 0; }))
      rounds.insert(divisor);
  }
  for (const int64_t sequences : rounds) {
    if (sequences > question_.batch) break;
    for (Growing& one : all) {
      one.prices = nullptr;
      const bool is_many = sequences > kTriedSequences * one.least;
      if (one.is_done || sequences % one.least != 0) continue;
      if (!is_least && !is_small_ && !may_win_smaller(one.axes, sequences)) continue;
      if (!may_win(inner, sequences)) continue;
      UnitQuestion asked{one.axes, sequences, recompute};
      asked.on = &estimator_.kinds().cluster(0);
      asked.halos = halos_;
      const auto prices = pricer_.price(asked);
      if (!prices) {
        refusal_ = prices.error().message;
        // Else there may be too few sequences for the cuts, and more may work.
        one.is_done = one.each_s > 0;
        continue;
      }
      one.time_s = passes_s(**prices, counts_);
      if (is_plain && one.axes.empty()) note_uncut(sequences, one.time_s);
      const double each = one.time_s / static_cast<double>(sequences);
      // If the number of micro-batches is fixed, larger micro-batches are priced even if smaller
      // ones were as fast.
      const bool may_end = !question_.fixed.contains("micro_batches");
      if (may_end && (!is_small_ || is_many) && one.each_s > 0 && each > kGain * one.each_s) {
        // Compares with the least time of at most half as many sequences, because a kernel's last
        // tiles may be almost empty with this number and full with a slightly larger one.
        double with_half = std::numeric_limits<double>::infinity();
        for (const auto& [count, seconds] : one.each_by_count) {
          if (2 * count <= sequences) with_half = std::min(with_half, seconds);
        }
        one.each_by_count[sequences] = each;
        if (!one.sums_slow) {
          one.is_done = each > kGain * with_half;
          continue;
        }
      }
      one.sums_slow = sums_slow_passes(inner, **prices);
      one.each_s = one.each_s > 0 ? std::min(one.each_s, each) : each;
      one.each_by_count[sequences] = each;
      if (may_end && one.before > 0 &&
          !may_win_with_more(inner, one.before, one.before_s, sequences, one.time_s))
        one.is_done = true;
      one.before = sequences;
      one.before_s = one.time_s;
      one.activation_bytes = activations_bytes(**prices, counts_);
      one.held_bytes = held_bytes(**prices, counts_);
      one.prices = *prices;
    }
    for (Growing& one : all) {
      if (one.prices == nullptr) continue;
      const bool is_beaten =
          !is_small_ && std::any_of(all.begin(), all.end(), [&](const Growing& other) {
            return other.prices != nullptr && other.time_s * (1 + kLittle) < one.time_s &&
                   other.activation_bytes <= one.activation_bytes &&
                   other.held_bytes <= one.held_bytes;
          });
      if (is_beaten) {
        one.is_done = true;
      } else {
        UnitQuestion on_all{one.axes, sequences, recompute};
        on_all.halos = halos_;
        auto by_kind = price_kinds(std::move(on_all));
        if (!by_kind.empty()) it->second.push_back({one.axes, sequences, std::move(by_kind)});
      }
    }
  }
  return it->second;
}

std::vector<const UnitPrices*> Ranking::price_kinds(UnitQuestion question) {
  std::vector<const UnitPrices*> out;
  for (size_t kind = 0; kind < estimator_.kinds().count(); ++kind) {
    question.on = &estimator_.kinds().cluster(kind);
    const auto prices = pricer_.price(question);
    if (!prices) return {};
    out.push_back(*prices);
  }
  return out;
}

std::vector<SpaceSchedule> Ranking::schedules_of(const Space& space) const {
  const auto fixed = question_.fixed.find("schedule");
  if (fixed == question_.fixed.end()) return space.schedules;
  for (const SpaceSchedule& own : space.schedules) {
    if (own.name == fixed->second) return {own};
  }
  return {{fixed->second, kChunks}};
}

// Adds candidates for each schedule, number of chunks, and kind of sharding.
void Ranking::rank_schedules(Choice choice, const Space& space, const Inside& inside,
                             std::vector<PlanCandidate>& out) {
  // least_s becomes a lower bound: without bubbles and with balanced stages. Hopelessly slow
  // choices are ranked with one schedule only, because they are of interest only if nothing
  // else fits.
  double least_s = std::numeric_limits<double>::infinity();
  for (const UnitPrices* prices : inside.by_kind)
    least_s = std::min(least_s, passes_s(*prices, counts_));
  least_s *= static_cast<double>(choice.micro_batches) / static_cast<double>(choice.stages);
  const bool is_hopeless = !is_small_ && !may_be_best(least_s, choice.ranks());
  const std::string& first = space.schedules.front().name;
  for (const SpaceSchedule& schedule : schedules_of(space)) {
    if ((is_hopeless || choice.stages == 1) && schedule.name != first) continue;
    for (const int64_t chunks : schedule.chunks) {
      if (!allows(question_, "chunks", chunks)) continue;
      if (chunks * choice.stages > static_cast<int64_t>(fold_.units.size())) continue;
      choice.schedule = schedule.name;
      choice.chunks = chunks;
      const ScheduleFacts* facts = estimator_.schedule_of(choice);
      if (facts == nullptr || (facts->splits_backward && choice.recompute != "none")) continue;
      rank_shards(choice, inside, is_hopeless, out);
    }
  }
}

bool Ranking::is_beaten(const PlanCandidate& candidate) const {
  const auto larger = unbeaten_.upper_bound(candidate.estimate.memory_bytes);
  return larger != unbeaten_.begin() &&
         std::prev(larger)->second <=
             question_.objective.merit(expected(question_, candidate.choice, candidate.estimate));
}

void Ranking::note(const PlanCandidate& candidate) {
  if (is_beaten(candidate)) return;
  const Merit merit =
      question_.objective.merit(expected(question_, candidate.choice, candidate.estimate));
  const auto at = unbeaten_.insert_or_assign(candidate.estimate.memory_bytes, merit).first;
  auto next = std::next(at);
  while (next != unbeaten_.end() && next->second >= merit) next = unbeaten_.erase(next);
}

void Ranking::note_best(const PlanCandidate& candidate) {
  if (!surely_fits(candidate.estimate)) return;
  const Merit merit = expected_merit(question_, candidate);
  if (is_best(merit)) best_ = merit;
}

void Ranking::rank_shards(Choice choice, const Inside& inside, bool is_hopeless,
                          std::vector<PlanCandidate>& out) {
  // The order of stages and replicas matters only on several nodes.
  const bool may_turn = choice.stages > 1 && choice.axes.front().size > 1 &&
                        choice.ranks() > question_.cluster->type_of(0).devices;
  // Tensors may also rest in shards without replicas, if ranks inside a stage hold
  // equal parameters.
  const bool is_divided =
      choice.axes.front().size > 1 ||
      std::ranges::any_of(inside.by_kind.front()->units,
                          [](const UnitPrice& unit) { return unit.alike_bytes > 0; });
  for (int64_t sharded = 0; sharded <= (is_divided ? 3 : 0); ++sharded) {
    if (!allows(question_, "zero", sharded)) continue;
    choice.sharded = sharded;
    for (const bool apart : {false, true}) {
      if ((apart && (!may_turn || is_hopeless)) ||
          !allows(question_, "replicas_apart", apart ? 1 : 0))
        continue;
      choice.replicas_apart = apart;
      PlanCandidate candidate;
      candidate.estimate = estimator_.estimate(choice, inside.by_kind, inside.sequences);
      candidate.choice = choice;
      // Not with several kinds of nodes, whose memories cannot be compared.
      if (is_hopeless && estimator_.kinds().count() == 1 && is_beaten(candidate)) {
        ++left_out_;
        continue;
      }
      note_best(candidate);
      out.push_back(std::move(candidate));
      if (is_small_) rank_borders(choice, out);
    }
  }
}

void Ranking::rank_borders(const Choice& choice, std::vector<PlanCandidate>& out) {
  for (std::vector<size_t>& cuts :
       all_cuts(fold_.units.size(), choice.cuts.size(), kMostPrograms / 4)) {
    if (cuts == choice.cuts) continue;
    PlanCandidate candidate;
    candidate.choice = choice;
    candidate.choice.cuts = std::move(cuts);
    if (estimate_own(candidate)) out.push_back(std::move(candidate));
  }
}

void Ranking::rank_shape(const Shape& shape, const Space& space, const std::string& recompute,
                         bool is_least, std::vector<PlanCandidate>& out) {
  for (const Inside& inside : priced(shape.inner, space, recompute, is_least)) {
    const int64_t micro_batch = inside.sequences * shape.replicas;
    if (question_.batch % micro_batch != 0) continue;
    std::optional<Merit>& least = at_no_memory_[axes_key(inside.axes, inside.sequences)][shape];
    if (!is_least && !is_small_ && !(least && is_best(*least))) continue;
    const Choice choice = choice_of(shape, inside, recompute);
    if (!allows(question_, "micro_batches", choice.micro_batches)) continue;
    const size_t before = out.size();
    rank_schedules(choice, space, inside, out);
    for (size_t i = before; i < out.size(); ++i) {
      note(out[i]);
      const Merit merit = at_no_memory(out[i]);
      if (!least || merit < *least) least = merit;
    }
  }
}

std::vector<PlanCandidate> Ranking::rank(Space& space) {
  std::vector<PlanCandidate> out;
  std::vector<std::string> levels;
  for (const std::string& level : space.recompute) {
    if (allows(question_, "recompute", level)) levels.push_back(level);
  }
  // The user may fix `recompute` to a value that is no level of the space.
  if (levels.empty()) levels = texts_of(question_, "recompute", {});
  // For small models all choices are ranked before any list is edited.
  const bool improves_early = space.own_lists && !is_small_;
  rank_shapes(space, levels, out, improves_early);
  if (space.own_lists && (!improves_early || levels.size() > 1)) improve_lists(space, levels, out);
  recompute_units(space, out);
  if (space.own_units) rank_halos(out);
  return out;
}

void Ranking::rank_halos(std::vector<PlanCandidate>& out) {
  if (!may_choose_halos(fold_.graph, question_)) return;
  // The ways to cut a stage that have halos, with micro-batches and recomputation.
  std::set<std::string> known;
  std::vector<PlanCandidate> found;
  std::optional<Merit> best;
  for (const PlanCandidate* candidate : in_order(question_, out)) {
    const Choice& from = candidate->choice;
    const PlanFacts facts = expected(question_, from, candidate->estimate);
    if (best && question_.objective.merit(facts.scaled(1 / kFormulaErrs)) > *best) continue;
    if (!best) best = question_.objective.merit(facts);
    std::string key = fmt::format("{} {}", from.micro_batches, from.recompute);
    for (const ChoiceAxis& axis : from.axes)
      key += fmt::format(" {}[{}]", axis.size, join(axis.dims, ","));
    if (!known.contains(key) && known.size() == kFew) continue;
    const std::vector<Choice> edits = halo_edits(from, fold_.graph, 0, question_);
    if (edits.empty()) continue;
    known.insert(key);
    for (const Choice& edit : edits) {
      PlanCandidate one;
      one.choice = edit;
      if (estimate_own(one)) found.push_back(std::move(one));
    }
  }
  std::move(found.begin(), found.end(), std::back_inserter(out));
}

// Returns the best candidate of each of the best shapes, the best first. A candidate need only
// nearly fit, because edits of its list may make it smaller. If the best candidate of a shape has a
// list of one dim, also returns the best one with a longer list, because a list
// {"batch"}, for example, is only another form of replicas.
std::vector<PlanCandidate> Ranking::best_of_shapes(const std::vector<PlanCandidate>& ranked) const {
  using Ranked = std::pair<Merit, const PlanCandidate*>;
  std::map<std::tuple<int64_t, int64_t, bool>, Ranked> best;
  for (const PlanCandidate& one : ranked) {
    const Estimate& estimate = one.estimate;
    const bool is_near =
        estimate.fits() || estimate.memory_bytes < kFormulaErrs * estimate.capacity_bytes;
    if (one.choice.axes.size() != 2 || one.choice.axes[1].size == 1 || !is_near) continue;
    const ChoiceAxis& inner = one.choice.axes[1];
    const Merit merit = question_.objective.merit(expected(question_, one.choice, estimate));
    Ranked& now = best[{one.choice.stages, inner.size, inner.dims.size() == 1}];
    if (now.second == nullptr || merit < now.first) now = {merit, &one};
  }
  std::vector<Ranked> order;
  for (const auto& [key, one] : best) {
    const auto& [stages, inner, cuts_one] = key;
    const auto other = best.find({stages, inner, !cuts_one});
    const bool is_needless = cuts_one && other != best.end() && other->second.first <= one.first;
    if (!is_needless) order.push_back(one);
  }
  std::ranges::stable_sort(order, {}, &Ranked::first);
  std::vector<PlanCandidate> out;
  for (const Ranked& one : order) {
    if (out.size() < kFew) out.push_back(*one.second);
  }
  return out;
}

void Ranking::improve_lists(Space& space, const std::vector<std::string>& levels,
                            std::vector<PlanCandidate>& out) {
  if (!question_.uses(Mechanism::kEditedLists)) return;
  std::vector<DimList> found;
  // Whether with_scopes() was called, which is done for one choice only.
  bool are_parts_tried = false;
  for (const PlanCandidate& best : best_of_shapes(out)) {
    if (!is_small_ && !may_be_best(best.estimate.step_s, best.choice.ranks())) continue;
    const ChoiceAxis& inner = best.choice.axes[1];
    const auto is_new = [&](const DimList& dims) {
      const std::string cuts = cuts_of(fold_.graph, inner_axes(inner.size, dims));
      return edited_.insert(fmt::format("{} {}", inner.size, cuts)).second;
    };
    if (!is_new(inner.dims) && !is_small_) continue;
    auto list = improved_list(best, space, levels);
    if (question_.uses(Mechanism::kScopes) && !are_parts_tried &&
        best.choice.axes[1].dims.size() > 1) {
      list = with_scopes(best, std::move(list), space);
      are_parts_tried = true;
    }
    const auto is_known = [&](const std::vector<DimList>& lists) {
      return list && std::find(lists.begin(), lists.end(), *list) != lists.end();
    };
    if (list) is_new(*list);
    if (list && !is_known(found) && !is_known(space.lists)) found.push_back(*list);
  }
  if (found.empty()) return;
  Space one = space;
  one.pairs = around(space.pairs, found);
  one.lists = found;
  space.lists.insert(space.lists.end(), found.begin(), found.end());
  space.pairs.insert(space.pairs.end(), one.pairs.begin(), one.pairs.end());
  rank_shapes(one, levels, out, false);
}

std::optional<DimList> Ranking::improved_list(const PlanCandidate& start, const Space& space,
                                              const std::vector<std::string>& levels) {
  const std::vector<std::string> dims = dims_offered();
  PlanCandidate best = start;
  for (bool is_new = true; is_new;) {
    is_new = false;
    const PlanCandidate from = best;
    const DimList& before = from.choice.axes[1].dims;
    if (question_.progress)
      question_.progress(fmt::format("which dims to cut: edits of [{}]", join(before, ",")));
    std::set<std::string> known = {cuts_of(fold_.graph, {from.choice.axes[1]})};
    for (const DimList& list : edited(before, dims)) {
      if (question_.stop && question_.stop()) break;
      Inside inside;
      inside.axes = inner_axes(from.choice.axes[1].size, list);
      if (!known.insert(cuts_of(fold_.graph, inside.axes)).second) continue;
      inside.sequences =
          question_.batch / from.choice.micro_batches / from.choice.axes.front().size;
      std::vector<PlanCandidate> ranked;
      for (const std::string& level : levels) {
        UnitQuestion asked{inside.axes, inside.sequences, level};
        asked.halos = halos_;
        inside.by_kind = price_kinds(std::move(asked));
        if (inside.by_kind.empty()) break;
        Choice choice = from.choice;
        choice.axes.own()[1].dims = list;
        choice.recompute = level;
        const size_t ranked_before = ranked.size();
        rank_schedules(choice, space, inside, ranked);
        if (level == from.choice.recompute) break;
        // More recomputation saves memory and never time.
        const bool may_win = std::any_of(
            ranked.begin() + static_cast<std::ptrdiff_t>(ranked_before), ranked.end(),
            [&](const auto& one) { return at_no_memory(one) < expected_merit(question_, best); });
        if (best.estimate.fits() && !may_win) break;
      }
      for (const PlanCandidate& one : ranked) {
        if (expected_merit(question_, one) >= expected_merit(question_, best)) continue;
        best = one;
        is_new = best.estimate.fits() != from.estimate.fits() ||
                 question_.objective.merit(expected(question_, best.choice, best.estimate)) <
                     question_.objective.merit(
                         expected(question_, from.choice, from.estimate).scaled(kGain));
      }
    }
  }
  if (best.choice.axes[1].dims == start.choice.axes[1].dims) return {};
  return best.choice.axes[1].dims;
}

bool Ranking::estimate_own(PlanCandidate& candidate) {
  const Choice& choice = candidate.choice;
  const UnitQuestion asked = unit_question(choice, question_.batch);
  // Prices by recomputation and halo layers, in which units may differ.
  std::map<std::pair<std::string, int64_t>, std::vector<const UnitPrices*>> known;
  std::vector<const UnitPrices*> prices;
  int64_t stage = 0;
  for (size_t u = 0; u < fold_.units.size(); ++u) {
    const auto next = static_cast<size_t>(stage) + 1;
    if (next < choice.cuts.size() && choice.cuts[next] == u) ++stage;
    const UnitChoice own = choice.units.empty() ? UnitChoice{} : choice.units[u];
    UnitQuestion question = asked;
    question.recompute = own.recompute.value_or(choice.recompute);
    question.halos.layers = own.halo_layers.value_or(choice.halos.layers);
    auto& by_kind = known[{question.recompute, question.halos.layers}];
    if (by_kind.empty()) by_kind = price_kinds(std::move(question));
    if (by_kind.empty()) return false;
    prices.push_back(estimator_.slowest_at(choice, stage % choice.stages, by_kind));
  }
  candidate.estimate =
      estimator_.estimate_units(choice, prices, question_.batch / choice.micro_batches);
  return true;
}

void Ranking::refine(PlanCandidate& candidate) {
  const Choice& choice = candidate.choice;
  const bool plays = plays_ && choice.stages > 1;
  if (!plays && choice.offload.empty()) return;
  estimator_.play_schedules(plays);
  PlanCandidate refined = candidate;
  if (estimate_own(refined)) {
    candidate.estimate.step_s = refined.estimate.step_s;
    if (!choice.offload.empty()) candidate.estimate = refined.estimate;
  }
  estimator_.play_schedules(false);
}

}  // namespace tessera
