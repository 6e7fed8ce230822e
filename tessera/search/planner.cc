#include "tessera/search/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/search/ranking.h"

namespace tessera {
namespace {

std::string size_text(double bytes) { return fmt::format("{:.2f} GB", bytes / 1e9); }
std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

Status check_question(const PlanQuestion& question) {
  if (question.batch < 1) {
    return invalid_input(
        fmt::format("plan: expected a batch of at least 1, found {}", question.batch));
  }
  std::vector<std::string> keys;
  for (const auto& [key, meaning] : fix_keys()) keys.push_back(key);
  for (const auto& [key, value] : question.fixed) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return invalid_input(
          fmt::format("plan: --fix {}={}: unknown key '{}', did you mean '{}'? ({})", key, value,
                      key, nearest(key, keys), join(keys, ", ")));
    }
    const bool is_text = key == "schedule" || key == "recompute";
    const auto number = parse_int(value);
    const int64_t least = key == "zero" ? 0 : 1;
    if (!is_text && (!number || *number < least)) {
      return invalid_input(fmt::format("plan: --fix {}={}: expected a whole number of at least {}",
                                       key, value, least));
    }
  }
  return {};
}

// The simulation of a choice's program.
class Judge {
 public:
  Judge(const PlanQuestion& question, std::shared_ptr<const Model> model,
        const std::vector<FoldUnit>& units, double limit)
      : question_(question), forward_(forward_of(model)), units_(units), limit_(limit) {}

  std::string text_of(const Choice& choice) const {
    return write_plan(choice, *forward_, units_, choice.str()).value_or("");
  }

  Result<Simulation> simulate_choice(const Choice& choice, bool quick) {
    TESSERA_TRY(const std::string text, write_plan(choice, *forward_, units_, choice.str()));
    TESSERA_TRY(const Plan plan, parse_plan(text, choice.str()));
    TESSERA_TRY(const auto lowering, compiler_.lower(forward_, plan));
    SimulateOptions options = question_.options;
    options.steady_state = quick;
    if (quick) options.memory_details = options.critical_path = options.events = false;
    return simulate(*lowering, *question_.cluster, options);
  }

  void judge(PlanCandidate& candidate) {
    const auto simulation = simulate_choice(candidate.choice, true);
    if (!simulation) {
      candidate.refused = simulation.error().message;
      return;
    }
    candidate.step_s = simulation->step_time_s;
    candidate.fits = true;
    for (const RankResult& role : simulation->roles) {
      candidate.need_bytes = std::max(candidate.need_bytes, role.memory.high);
      const auto device =
          static_cast<double>(question_.cluster->type_of(role.device).device.memory_bytes);
      const double capacity =
          limit_ > 0 && device > 0 ? std::min(limit_, device) : std::max(limit_, device);
      if (capacity > 0 && role.memory.high > capacity) candidate.fits = false;
    }
  }

 private:
  const PlanQuestion& question_;
  std::shared_ptr<const Graph> forward_;
  const std::vector<FoldUnit>& units_;
  double limit_;
  Compiler compiler_;
};

// By formula: those that fit, the fastest first, then the others, the smallest first.
std::vector<const PlanCandidate*> in_order(const std::vector<PlanCandidate>& ranked, double limit) {
  std::vector<const PlanCandidate*> order;
  for (const PlanCandidate& candidate : ranked) order.push_back(&candidate);
  const auto fits = [&](const PlanCandidate* candidate) {
    return limit <= 0 || candidate->estimate.memory_bytes <= limit;
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
    if (fits(a) != fits(b)) return fits(a);
    if (!fits(a)) return a->estimate.memory_bytes < b->estimate.memory_bytes;
    return a->estimate.step_s < b->estimate.step_s;
  });
  return order;
}

std::vector<PlanCandidate> pareto_curve(const std::vector<PlanCandidate>& ranked) {
  std::vector<const PlanCandidate*> order;
  for (const PlanCandidate& candidate : ranked) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (a->estimate.memory_bytes != b->estimate.memory_bytes) {
      return a->estimate.memory_bytes < b->estimate.memory_bytes;
    }
    return a->estimate.step_s < b->estimate.step_s;
  });
  std::vector<PlanCandidate> curve;
  for (const PlanCandidate* candidate : order) {
    if (curve.empty() || candidate->estimate.step_s < curve.back().estimate.step_s) {
      curve.push_back(*candidate);
    }
  }
  return curve;
}

void say(const PlanQuestion& question, const std::string& what) {
  if (question.progress) question.progress(what);
}

}  // namespace

Result<PlanAnswer> find_in_space(const PlanQuestion& question, const SpaceMaker& space_of) {
  PlanAnswer answer;
  Compiler compiler;
  TESSERA_TRY(const auto model,
              compiler.model(question.model, question.batch, storage_dtype(question.compute)));
  say(question, "folding the model");
  TESSERA_TRY(const Fold fold, fold_layers(model->graph));
  const int64_t fixed_batch = names_graph_file(question.model) ? question.batch : 0;
  UnitPricer pricer(
      {question.model, question.compute, question.cluster, question.options, fixed_batch});
  Ranking ranking(question, fold, pricer);
  TESSERA_TRY(const Space space, space_of(ranking));
  answer.limit_bytes = ranking.limit_bytes();
  answer.lists = space.lists;
  std::vector<PlanCandidate> ranked = ranking.rank(space);
  answer.estimated = static_cast<int64_t>(ranked.size());
  answer.curve = pareto_curve(ranked);
  if (ranked.empty()) {
    return check_failed(
        fmt::format("plan: no choice can be made: {}",
                    ranking.last_refusal().empty()
                        ? fmt::format("batch {} and {} devices leave none with what is fixed",
                                      question.batch, question.cluster->devices())
                        : ranking.last_refusal()));
  }
  const auto order = in_order(ranked, answer.limit_bytes);
  if (answer.limit_bytes > 0) {
    const auto roomier = in_order(ranked, 2 * answer.limit_bytes);
    if (roomier.front()->estimate.memory_bytes <= 2 * answer.limit_bytes) {
      answer.with_twice_memory_s = roomier.front()->estimate.step_s;
    }
  }

  Judge judge(question, model, fold.units, answer.limit_bytes);
  answer.ended = fmt::format("all choices within {:.0f} % by formula were simulated",
                             (question.margin - 1) * 100);
  for (const PlanCandidate* next : order) {
    const bool is_too_slow =
        answer.best &&
        next->estimate.step_s > question.margin * *answer.simulated[*answer.best].step_s;
    if (is_too_slow) break;
    if (answer.simulated.size() >= question.evaluations) {
      answer.ended =
          fmt::format("{} programs were simulated (--evaluations)", question.evaluations);
      break;
    }
    if (question.stop && question.stop()) {
      answer.ended = "stopped";
      break;
    }
    say(question, fmt::format("simulating {} of at most {}: {}", answer.simulated.size() + 1,
                              question.evaluations, next->choice.str()));
    PlanCandidate candidate = *next;
    judge.judge(candidate);
    const bool better =
        candidate.fits &&
        (!answer.best || *candidate.step_s < *answer.simulated[*answer.best].step_s);
    if (better) answer.best = answer.simulated.size();
    answer.simulated.push_back(std::move(candidate));
  }
  answer.folded_programs = pricer.simulated();
  if (answer.best) {
    PlanCandidate& best = answer.simulated[*answer.best];
    TESSERA_TRY(answer.simulation, judge.simulate_choice(best.choice, false));
    best.step_s = answer.simulation->step_time_s;
    answer.plan = judge.text_of(best.choice);
    answer.bound_s =
        answer.simulation->model_flops /
        (answer.simulation->peak_flops * static_cast<double>(question.cluster->devices()));
  }
  return answer;
}

namespace {

std::string candidate_row(const PlanCandidate& candidate, bool is_best) {
  std::string outcome = candidate.refused;
  if (candidate.step_s) {
    outcome = fmt::format("{}, {}{}", time_text(*candidate.step_s), size_text(candidate.need_bytes),
                          candidate.fits ? "" : ": does not fit");
  }
  return fmt::format("  {} {}\n      by formula {}, {}; program {}\n", is_best ? "*" : " ",
                     candidate.choice.str(), time_text(candidate.estimate.step_s),
                     size_text(candidate.estimate.memory_bytes), outcome);
}

// What keeps the best plan from being faster, by share of the devices' time.
std::string what_binds(const Simulation& simulation) {
  std::array<double, kSpent> spent{};
  for (const RankResult& role : simulation.roles) {
    for (size_t i = 0; i < kSpent; ++i) {
      spent[i] += role.spent_s[i] * static_cast<double>(role.ranks) /
                  (simulation.step_time_s * static_cast<double>(simulation.ranks));
    }
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < kSpent; ++i) {
    if (spent[i] >= .005) {
      parts.push_back(
          fmt::format("{} {:.1f} %", spent_name(static_cast<Spent>(i)), spent[i] * 100));
    }
  }
  return join(parts, ", ");
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& fix_keys() {
  static const std::vector<std::pair<std::string, std::string>> keys = {
      {"devices", "how many devices the plan uses"},
      {"pp", "pipeline stages"},
      {"dp", "replicas"},
      {"tp", "devices that share each layer"},
      {"micro_batches", "pieces of the batch"},
      {"chunks", "stages of each place of the pipeline"},
      {"zero", "what rests in shards over the replicas: 0 nothing, 1, 2, 3"},
      {"recompute", "none, selective, full, or modules"},
      {"schedule", "of the pipeline"}};
  return keys;
}

const std::vector<Planner>& all_planners() {
  static const std::vector<Planner> planners = {
      {"auto", "finds which dims each axis cuts, then meshes, stages, shards and recomputation",
       [](const PlanQuestion& question) { return find_in_space(question, whole_space); }},
      {"megatron_grid",
       "all (tp, pp, dp, micro-batch, chunks, ZeRO, recompute) with Megatron's dims: the baseline",
       [](const PlanQuestion& question) { return find_in_space(question, megatron_space); }}};
  return planners;
}

Result<PlanAnswer> find_plan(const PlanQuestion& question, const std::string& planner) {
  TESSERA_TRY_VOID(check_question(question));
  std::vector<std::string> names;
  for (const Planner& one : all_planners()) {
    if (one.name == planner) return one.find(question);
    names.push_back(one.name);
  }
  return invalid_input(fmt::format("plan: unknown planner '{}', did you mean '{}'? ({})", planner,
                                   nearest(planner, names), join(names, ", ")));
}

std::string to_text(const PlanAnswer& answer, const PlanQuestion& question, bool explain) {
  std::string out;
  if (!answer.best) {
    const PlanCandidate* smallest = nullptr;
    for (const PlanCandidate& candidate : answer.simulated) {
      if (candidate.step_s &&
          (smallest == nullptr || candidate.need_bytes < smallest->need_bytes)) {
        smallest = &candidate;
      }
    }
    if (smallest == nullptr) {
      out = fmt::format("no plan: {} programs were tried and refused, the first because {}\n",
                        answer.simulated.size(),
                        answer.simulated.empty() ? "none was tried" : answer.simulated[0].refused);
    } else {
      out = fmt::format(
          "nothing fits: the smallest of {} simulated plans needs {} of {}, {} too much ({})\n"
          "more devices, a smaller batch or a larger limit would help; by formula the smallest "
          "choice needs {}\n",
          answer.simulated.size(), size_text(smallest->need_bytes), size_text(answer.limit_bytes),
          size_text(smallest->need_bytes - answer.limit_bytes), smallest->choice.str(),
          size_text(answer.curve.front().estimate.memory_bytes));
    }
  } else {
    const PlanCandidate& best = answer.simulated[*answer.best];
    out = fmt::format(
        "{}\n"
        "step      {} ({} by formula)\n"
        "memory    {} a device{}\n"
        "devices   {} of {}\n"
        "bound     {} (the model's arithmetic at peak rate), gap {:.2f} times\n"
        "searched  {} choices ranked by formula from {} folded programs, {} programs simulated; "
        "{}\n",
        best.choice.str(), time_text(*best.step_s), time_text(best.estimate.step_s),
        size_text(best.need_bytes),
        answer.limit_bytes > 0 ? " of " + size_text(answer.limit_bytes) : "", best.choice.ranks(),
        question.cluster->devices(), time_text(answer.bound_s), *best.step_s / answer.bound_s,
        answer.estimated, answer.folded_programs, answer.simulated.size(), answer.ended);
  }
  if (!explain) return out;
  std::vector<std::string> lists;
  for (const auto& list : answer.lists) lists.push_back("[" + join(list, ",") + "]");
  out += fmt::format("\nDims that the inner axis was offered: {}\n", join(lists, " "));
  out += "\nCandidates, as they were tried (* the answer):\n";
  for (size_t i = 0; i < answer.simulated.size(); ++i) {
    out += candidate_row(answer.simulated[i], answer.best && *answer.best == i);
  }
  if (answer.simulation) {
    out += fmt::format("\nTime of the devices: {}\n", what_binds(*answer.simulation));
  }
  if (answer.with_twice_memory_s) {
    out += fmt::format("With twice the memory the best choice by formula takes {}\n",
                       time_text(*answer.with_twice_memory_s));
  }
  return out;
}

}  // namespace tessera
