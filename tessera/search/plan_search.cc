#include "tessera/search/plan_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <unordered_map>

#include "tessera/graph/optimizers.h"
#include "tessera/search/constants.h"
#include "tessera/search/edits/transfer_choices.h"
#include "tessera/search/explain.h"
#include "tessera/search/price/step_bound.h"
#include "tessera/search/question/plan_key.h"
#include "tessera/search/question/question.h"
#include "tessera/search/question/with_part.h"

namespace tessera {

Result<std::unique_ptr<PlanSearch>> PlanSearch::begin(const PlanQuestion& question) {
  auto out = std::unique_ptr<PlanSearch>(new PlanSearch(question));
  TESSERA_TRY(const auto model, out->compiler_.model(question.model, question.batch,
                                                     storage_dtype(question.compute)));
  out->forward_ = forward_of(model);
  TESSERA_TRY_VOID(check_groups(question.optimizer, model->graph));
  if (question.part) {
    TESSERA_TRY_VOID(question.broken->run([&] {
      return check_part(*question.part, out->forward_, out->compiler_, question.optimizer);
    }));
  }
  out->say("folding the model");
  TESSERA_TRY(out->fold_, fold_layers(model->graph));
  out->is_small_ = is_small(question, out->fold_);
  const int64_t fixed_batch = names_graph_file(question.model) ? question.batch : 0;
  out->pricer_ = std::make_unique<UnitPricer>(
      PricedModel{question.model, question.compute, question.cluster, question.options, fixed_batch,
                  question.part, question.optimizer, question.broken});
  out->limit_ = memory_limit(question);
  return out;
}

void PlanSearch::say(const std::string& what) const {
  if (question_.progress) question_.progress(what);
}

void PlanSearch::tell_found(const PlanCandidate& best) const {
  if (!question_.found) return;
  if (const auto text = text_of(best.choice)) question_.found(best, *text);
}

Result<Plan> PlanSearch::plan_of(const Choice& choice) const {
  TESSERA_TRY(const std::string text, write_plan(choice, *forward_, fold_.units, choice.str()));
  TESSERA_TRY(Plan plan, parse_plan(text, choice.str()));
  return question_.part ? add_part(std::move(plan), *question_.part) : plan;
}

Result<std::string> PlanSearch::text_of(const Choice& choice) const {
  if (!question_.part) return write_plan(choice, *forward_, fold_.units, choice.str());
  TESSERA_TRY(const Plan plan, plan_of(choice));
  return fmt::format("# {} with {}\n{}", choice.str(), question_.part->plan.file, to_toml(plan));
}

Result<Simulation> PlanSearch::simulate_quickly(const Lowering& lowering,
                                                std::function<bool(int64_t)> may_play) const {
  SimulateOptions options = question_.options;
  options.may_play = std::move(may_play);
  options.memory_details = options.critical_path = options.events = false;
  return play(lowering, options);
}

// Simulates with all details. If computing the details breaks an internal invariant, returns a
// simulation without details.
Result<Simulation> PlanSearch::simulate_in_full(const Lowering& lowering) const {
  const int64_t broken = question_.broken->count;
  auto out = play(lowering, question_.options);
  return out || question_.broken->count == broken ? std::move(out) : simulate_quickly(lowering);
}

Result<std::unique_ptr<Lowering>> PlanSearch::lower(const Plan& plan) {
  return question_.broken->run(
      [&] { return compiler_.lower(forward_, plan, for_price(question_.optimizer)); });
}

Result<Simulation> PlanSearch::play(const Lowering& lowering,
                                    const SimulateOptions& options) const {
  return question_.broken->run([&] { return simulate(lowering, *question_.cluster, options); });
}

namespace {

// Returns the sizes of the meshes. The work of a simulation depends on them: if meshes of 3
// devices are on nodes of 8, for example, meshes are on the nodes in many different ways, and each
// way is simulated.
std::vector<int64_t> shape_of(const Choice& choice) {
  std::vector<int64_t> out = {choice.stages, choice.replicas_apart ? 1 : 0};
  for (size_t stage = 0; stage < (choice.stage_axes.empty() ? 1 : choice.stage_axes.size());
       ++stage) {
    int64_t inner = 1;
    const std::vector<ChoiceAxis>& axes = choice.axes_of_stage(stage);
    for (size_t a = 1; a < axes.size(); ++a) inner *= axes[a].size;
    out.push_back(axes.front().size);
    out.push_back(inner);
  }
  return out;
}

}  // namespace

PlanSearch::Judged PlanSearch::judge(PlanCandidate& candidate,
                                     const std::vector<PlanCandidate>& before) {
  // Estimates are compared first because that is fast. An equal choice with another estimate is
  // found below, by the key of its plan.
  const auto is_same = [&](const PlanCandidate& other) {
    return other.estimate.step_s == candidate.estimate.step_s && other.choice == candidate.choice;
  };
  if (std::any_of(before.begin(), before.end(), is_same)) return Judged::kNothingNew;
  const bool was_put_aside = candidate.work > 0;
  if (const auto dear = dear_.find(shape_of(candidate.choice));
      dear != dear_.end() && !was_put_aside) {
    candidate.work = dear->second;
    return Judged::kPutAside;
  }
  const auto plan = question_.broken->run([&] { return plan_of(candidate.choice); });
  const std::string key = plan ? plan_key(*plan, *forward_) : "";
  if (plan && !judged_.insert(key).second) return Judged::kNothingNew;
  judged_last_.reset();
  auto lowering = plan ? lower(*plan) : tl::unexpected(plan.error());
  bool is_dear = false;
  const auto may_play = [&](int64_t instructions) {
    candidate.work = static_cast<double>(instructions);
    is_dear = !is_small_ && !was_put_aside && least_work_ > 0 &&
              candidate.work > static_cast<double>(kFew) * least_work_;
    return !is_dear;
  };
  const auto simulation =
      lowering ? simulate_quickly(**lowering, may_play) : tl::unexpected(lowering.error());
  if (is_dear) {
    judged_.erase(key);
    dear_.emplace(shape_of(candidate.choice), candidate.work);
    return Judged::kPutAside;
  }
  if (candidate.work > 0) {
    least_work_ = least_work_ > 0 ? std::min(least_work_, candidate.work) : candidate.work;
    (was_put_aside ? dear_work_ : usual_work_) += candidate.work;
  }
  if (!simulation) {
    candidate.refused = simulation.error().message;
    if (question_.part && !without_part_) without_part_ = candidate.choice;
    return question_.part ? Judged::kNothingNew : Judged::kSimulated;
  }
  if (!note(**lowering, *simulation, candidate)) return Judged::kSimulated;
  judged_last_ = *std::move(lowering);
  return Judged::kSimulated;
}

bool PlanSearch::note(const Lowering& lowering, const Simulation& simulation,
                      PlanCandidate& candidate) const {
  const auto effort =
      question_.broken->run([&]() -> Result<PlanEffort> { return effort_of(lowering); });
  if (!effort) {
    candidate.refused = effort.error().message;
    return false;
  }
  candidate.step_s = simulation.step_time_s;
  candidate.used =
      question_.objective.used(*question_.cluster, lowering.plan().ranks, lowering.plan().devices);
  candidate.fits = true;
  candidate.effort = *effort;
  const auto asked = static_cast<double>(question_.memory_limit_bytes);
  candidate.exposed_s = exposed_between_replicas(simulation, lowering.plan().plan);
  for (const RankResult& role : simulation.roles) {
    candidate.need_bytes = std::max(candidate.need_bytes, role.memory.high);
    const auto device =
        static_cast<double>(question_.cluster->type_of(role.device).device.memory_bytes);
    const double capacity =
        asked > 0 && device > 0 ? std::min(asked, device) : std::max(asked, device);
    if (capacity > 0 && role.memory.high > capacity) candidate.fits = false;
    // Assumes that all devices of a node use as much host memory as this one.
    const NodeType& node = question_.cluster->type_of(role.device);
    const int64_t on_host = role.memory.arena_bytes[static_cast<size_t>(Tier::kHost)];
    const int64_t sharing = std::min(lowering.plan().ranks, node.devices);
    if (node.host_bytes > 0 && on_host * sharing > node.host_bytes) candidate.fits = false;
  }
  return true;
}

void PlanSearch::judge_plan(const Plan& plan, PlanCandidate& candidate, double most_work) {
  const auto lowering = lower(plan);
  const auto work = question_.broken->run([&]() -> Result<double> {
    return lowering ? Result<double>(work_of_programs(**lowering))
                    : tl::unexpected(lowering.error());
  });
  candidate.work = work.value_or(0);
  if (candidate.work > most_work) {
    candidate.refused =
        fmt::format("its programs have {:.0f} ops and instructions, more than {:.0f}",
                    candidate.work, most_work);
    return;
  }
  const auto simulation = work ? simulate_quickly(**lowering) : tl::unexpected(work.error());
  if (!simulation) {
    candidate.refused = simulation.error().message;
    return;
  }
  if (!note(**lowering, *simulation, candidate)) return;
  candidate.estimate.step_s = *candidate.step_s;
  candidate.estimate.memory_bytes = candidate.need_bytes;
}

Result<PlanAnswer> PlanSearch::answer_with(PlanAnswer answer, const Plan& plan) {
  PlanCandidate& best = answer.simulated[*answer.best];
  TESSERA_TRY(const auto lowering, lower(plan));
  TESSERA_TRY(answer.simulation, simulate_in_full(*lowering));
  best.step_s = answer.simulation->step_time_s;
  set_bound(answer);
  return answer;
}

Error PlanSearch::why_not(const Choice& choice) {
  const PlanPart& part = *question_.part;
  if (const Status status = goes_with(part, choice); !status) return status.error();
  const auto text = write_plan(choice, *forward_, fold_.units, choice.str());
  const auto own = text ? parse_plan(*text, choice.str()) : tl::unexpected(text.error());
  if (!own) return own.error();
  for (const auto& [line, grown] : growing_parts(part)) {
    const auto plan = add_part(*own, grown);
    const auto lowering = question_.broken->run([&]() -> Result<std::unique_ptr<Lowering>> {
      if (!plan) return tl::unexpected(plan.error());
      return compiler_.lower(forward_, *plan, {question_.optimizer});
    });
    if (lowering) continue;
    return {ErrorCode::kInvalidInput, fmt::format("{}:{}: no plan contains it: {}", part.plan.file,
                                                  line, lowering.error().message)};
  }
  return {};
}

void PlanSearch::judge_pool(CandidatePool& pool, size_t most, PlanAnswer& answer, Until until) {
  const size_t all = programs_allowed();
  const auto best = [&] { return answer.best ? &answer.simulated[*answer.best] : nullptr; };
  const bool has_room = is_small_ && question_.evaluations >= answer.simulated.size() + pool.size();
  while (true) {
    if (question_.stop && question_.stop() && (answer.best || answer.simulated.size() >= kFew)) {
      answer.ended = "stopped";
      return;
    }
    if (until == Until::kOneFits && answer.best) {
      answer.ended = "one of the smallest choices fits";
      return;
    }
    if (answer.simulated.size() >= most) {
      answer.ended = fmt::format("{} programs were simulated (--evaluations)", most);
      return;
    }
    const bool is_early = answer.simulated.size() < all / kFew;
    auto next = pool.take(best(),
                          until == Until::kOneFits ? Care::kSmallest
                          : has_room               ? Care::kEvery
                          : is_small_              ? Care::kAll
                          : is_early               ? Care::kWide
                                                   : Care::kNarrow,
                          answer.best ? usual_work_ - dear_work_ : kInfinity);
    if (!next) {
      answer.ended = has_room      ? "all choices were simulated"
                     : answer.best ? "no other choice is expected to be better"
                                   : "no other choice is expected to fit";
      return;
    }
    say(fmt::format("simulating {} of at most {}: {}", answer.simulated.size() + 1, most,
                    next->choice.str()));
    const Judged judged = judge(*next, answer.simulated);
    if (judged == Judged::kPutAside) {
      pool.put_aside(*std::move(next));
      continue;
    }
    if (judged == Judged::kNothingNew) {
      if (!question_.part) continue;
      if (++answer.left_out_for_part < static_cast<int64_t>(kMostPrograms)) continue;
      answer.ended = "the part rules out too many plans";
      return;
    }
    if (question_.uses(Mechanism::kCorrections)) pool.learn(*next);
    const bool better =
        next->fits && (!answer.best || merit_of(question_, *next) < merit_of(question_, *best()));
    if (better) {
      answer.best = answer.simulated.size();
      judged_best_ = std::move(judged_last_);
      tell_found(*next);
    }
    answer.simulated.push_back(*std::move(next));
  }
}

void PlanSearch::judge_best(std::vector<PlanCandidate> ranked, const EditsOf& edits_of,
                            const Refine& refine, PlanAnswer& answer) {
  size_t most = programs_allowed();
  const size_t too_large = is_small_ ? ranked.size() : std::max(kFew, most / kFew);
  CandidatePool pool(question_, question_.margin, too_large, is_small_, refine);
  for (PlanCandidate& candidate : ranked) pool.add(std::move(candidate));
  ranked = {};
  // Keeps a third of the programs for edits of the best, so that choices that look better only
  // because the formula errs do not use up all programs.
  judge_pool(pool, edits_of ? most - most / 3 : most, answer);
  // If programs are dear, allows only a third more for edits, and leaves the rest unused, because
  // edits gain ever less.
  if (!has_cheap_programs() && !is_small_)
    most = std::min(most, answer.simulated.size() + most / 3);
  std::set<size_t> edited;
  edit_best(edits_of, most, too_large, edited, answer);
  if (!goes_on(answer)) return;
  judge_pool(pool, answer.simulated.size() + programs_allowed(), answer, Until::kOneFits);
  edit_best(edits_of, answer.simulated.size() + most / 3, too_large, edited, answer);
}

bool PlanSearch::goes_on(const PlanAnswer& answer) const {
  return is_small_ && question_.evaluations == 0 && !answer.best;
}

void PlanSearch::edit_best(const EditsOf& edits_of, size_t most, size_t too_large,
                           std::set<size_t>& edited, PlanAnswer& answer) {
  const auto order = [&](const PlanCandidate& one) {
    return question_.objective.merit(facts_of(one));
  };
  // If programs are cheap, edits are tried even if the formula promises no gain, because it errs by
  // more than an edit changes.
  const bool is_cheap = has_cheap_programs();
  const size_t tries = std::max(kFew, std::min(most, programs_allowed()) / kFew / 2);
  while (
      edits_of && answer.ended != "stopped" &&
      (answer.simulated.size() < most || (goes_on(answer) && edited.size() < 2 * kLeastPrograms))) {
    const auto source = worth_an_edit(answer, edited);
    if (!source) return;
    edited.insert(*source);
    const PlanCandidate from = answer.simulated[*source];
    CandidatePool edits(question_, is_cheap ? question_.margin : 1, too_large, is_small_);
    edits.learn(from);
    const Merit to_gain =
        question_.objective.merit(expected(question_, from.choice, from.estimate).scaled(kGain));
    for (PlanCandidate& edit : edits_of(from)) {
      const bool gains =
          question_.objective.merit(expected(question_, edit.choice, edit.estimate)) <= to_gain ||
          (!from.fits && edit.estimate.memory_bytes < from.estimate.memory_bytes);
      if (is_cheap) {
        edits.add(std::move(edit));
      } else if (gains) {
        edits.add_if_unlike(std::move(edit));
      }
    }
    const size_t last = answer.simulated.size() + tries;
    const size_t end = goes_on(answer) ? last : std::min(most, last);
    // The first edit that gains is edited next.
    for (bool gains = false; !gains && answer.simulated.size() < end;) {
      const size_t before = answer.simulated.size();
      judge_pool(edits, before + 1, answer);
      if (answer.simulated.size() == before) break;
      const PlanCandidate& last_one = answer.simulated.back();
      gains = last_one.step_s && last_one.fits >= from.fits && order(last_one) < order(from);
    }
  }
}

// Returns the index of the next program to edit: the best one or, after that, the best of those that
// would be better if they fitted. Where programs are cheap it may also be one that is a little worse
// than the best, but the best of its shape. Programs in `edited` are left out. Returns nothing
// if no program is left.
std::optional<size_t> PlanSearch::worth_an_edit(const PlanAnswer& answer,
                                                const std::set<size_t>& edited) const {
  std::optional<size_t> out = answer.best;
  if (out && edited.contains(*out)) out.reset();
  if (out) return out;
  const auto merit = [&](const PlanCandidate& one, double times = 1) {
    return question_.objective.merit(facts_of(one).scaled(times));
  };
  // Edits of one plan after the other would be spent on neighbours of the same plan.
  const auto is_best_of_shape = [&](const PlanCandidate& one) {
    return std::ranges::none_of(answer.simulated, [&](const PlanCandidate& other) {
      return other.step_s && other.fits == one.fits &&
             std::pair(merit(other), &other) < std::pair(merit(one), &one) &&
             shape_of(other.choice) == shape_of(one.choice);
    });
  };
  const Merit best = answer.best ? merit(answer.simulated[*answer.best]) : Merit{};
  for (size_t i = 0; i < answer.simulated.size(); ++i) {
    const PlanCandidate& one = answer.simulated[i];
    if (!one.step_s || edited.contains(i)) continue;
    // Edits reduce the memory by at most kFormulaErrs.
    if (!one.fits && one.need_bytes > kFormulaErrs * limit_) continue;
    const bool may_win = has_cheap_programs() && edited.size() < 2 * kLeastPrograms
                             ? merit(one, 1 / question_.margin) < best && is_best_of_shape(one)
                             : !one.fits && merit(one) < best;
    if (answer.best && !may_win) continue;
    if (!out || merit(one) < merit(answer.simulated[*out])) out = i;
  }
  return out;
}

Error PlanSearch::no_choice(const std::string& refusal) const {
  std::vector<std::string> fixed;
  for (const auto& [key, value] : question_.fixed)
    fixed.push_back(fmt::format("{}={}", key, value));
  const int64_t pieces = std::max<int64_t>(1, fixed_number(question_, "dp")) *
                         std::max<int64_t>(1, fixed_number(question_, "micro_batches"));
  std::string reason = refusal;
  if (question_.batch % pieces != 0) {
    reason = fmt::format("expected a batch that is a multiple of dp x micro_batches = {}, found {}",
                         pieces, question_.batch);
  } else if (refusal.empty()) {
    reason = fmt::format(
        "expected degrees that batch {}, {} devices and the planner's space allow, "
        "found none",
        question_.batch, question_.cluster->devices());
  }
  const std::string where = question_.part
                                ? fmt::format("{}:{}", question_.part->plan.file,
                                              growing_parts(*question_.part).front().first)
                                : "plan";
  return {
      ErrorCode::kInvalidInput,
      fmt::format("{}: no choice can be made{}: {}", where,
                  fixed.empty() ? "" : fmt::format(" with --fix {}", fmt::join(fixed, " --fix ")),
                  reason)};
}

namespace {

// Returns the different lists of axes inside a stage (all axes but the replicas).
std::vector<std::vector<ChoiceAxis>> inner_axes_of(const std::vector<PlanCandidate>& ranked) {
  std::vector<std::vector<ChoiceAxis>> out;
  for (const PlanCandidate& candidate : ranked) {
    std::vector<ChoiceAxis> axes(candidate.choice.axes.begin() + 1, candidate.choice.axes.end());
    if (std::find(out.begin(), out.end(), axes) == out.end()) out.push_back(std::move(axes));
  }
  return out;
}

}  // namespace

Result<PlanAnswer> PlanSearch::answer(std::vector<PlanCandidate> ranked, const std::string& refusal,
                                      const EditsOf& edits_of, const Refine& refine) {
  if (ranked.empty()) return tl::unexpected(no_choice(refusal));
  if (question_.part) {
    const Choice first = ranked.front().choice;
    std::erase_if(ranked, [&](const PlanCandidate& candidate) {
      return !goes_with(*question_.part, candidate.choice);
    });
    if (ranked.empty()) return tl::unexpected(why_not(first));
  }
  PlanAnswer answer;
  answer.programs_allowed = programs_allowed();
  answer.limit_bytes = limit_;
  answer.estimated = static_cast<int64_t>(ranked.size());
  answer.curve = pareto_curve(ranked);
  if (limit_ > 0) {
    std::optional<Merit> best;
    for (const PlanCandidate& candidate : ranked) {
      if (candidate.estimate.memory_bytes > 2 * candidate.estimate.capacity_bytes) continue;
      const Merit merit =
          question_.objective.merit(expected(question_, candidate.choice, candidate.estimate));
      if (best && merit >= *best) continue;
      best = merit;
      answer.with_twice_memory_s = candidate.estimate.step_s;
    }
  }
  std::vector<std::vector<ChoiceAxis>> offered;
  if (question_.explain) offered = inner_axes_of(ranked);
  judge_best(std::move(ranked), edits_of, refine, answer);
  if (answer.simulated.empty() && without_part_) return tl::unexpected(why_not(*without_part_));
  answer.folded_programs = pricer_->simulated();
  if (answer.best) {
    const size_t first = *answer.best;
    answer.best = simplest_of_ties(question_.objective, answer.simulated, first,
                                   tie_share(*question_.cluster));
    PlanCandidate& best = answer.simulated[*answer.best];
    if (*answer.best != first) {
      TESSERA_TRY(const Plan plan, plan_of(best.choice));
      TESSERA_TRY(judged_best_, lower(plan));
    }
    TESSERA_TRY(answer.simulation, simulate_in_full(*judged_best_));
    judged_best_.reset();
    best.step_s = answer.simulation->step_time_s;
    TESSERA_TRY(answer.plan, text_of(best.choice));
    answer.offloaded = best.choice.offload;
    set_bound(answer);
    if (question_.explain)
      answer.blocks = explain_blocks(question_, *forward_, fold_, *pricer_, best.choice, offered);
  }
  return answer;
}

void PlanSearch::set_bound(PlanAnswer& answer) const {
  if (const auto least = least_step_s(question_, fold_)) {
    answer.bound_s = *least;
    answer.bound_of = "each op at the rate of its best shape, on all devices at once";
    return;
  }
  // Every device counts as if it were of the fastest kind.
  const auto& first = question_.cluster->parts.front().type.device.peak;
  double faster = 1;
  for (const ClusterPart& part : question_.cluster->parts) {
    for (const auto& [arithmetic, rate] : part.type.device.peak) {
      const auto own = first.find(arithmetic);
      if (own != first.end() && own->second > 0) faster = std::max(faster, rate / own->second);
    }
  }
  answer.bound_s =
      answer.simulation->model_flops /
      (answer.simulation->peak_flops * faster * static_cast<double>(question_.cluster->devices()));
  answer.bound_of = "the model's arithmetic at peak rate";
}

namespace {

int64_t most_devices(const PlanQuestion& question) {
  const int64_t fixed = fixed_number(question, "devices");
  return fixed > 0 ? fixed : question.cluster->devices();
}

}  // namespace

bool is_small(const PlanQuestion& question, const Fold& fold) {
  size_t ops = 0;
  for (const FoldUnit& unit : fold.units) ops += unit.ops.size();
  const int64_t devices = most_devices(question);
  return static_cast<int64_t>(ops) * devices <= kSmallOps;
}

bool PlanSearch::has_cheap_programs() const { return programs_allowed() > kFew * kLeastPrograms; }

size_t PlanSearch::programs_allowed() const {
  if (question_.evaluations > 0) return question_.evaluations;
  if (is_small_)
    return 8 * kMostPrograms / static_cast<size_t>(std::max<int64_t>(2, most_devices(question_)));
  return std::clamp(kSearchOps / forward_->ops().size(), kLeastPrograms, kMostPrograms);
}

}  // namespace tessera
