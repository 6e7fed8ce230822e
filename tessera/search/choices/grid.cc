#include "tessera/search/choices/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/search/constants.h"
#include "tessera/search/plan_search.h"

namespace tessera {
namespace {

bool has_dim(const ChoiceAxis& axis, std::string_view dim) {
  return std::find(axis.dims.begin(), axis.dims.end(), dim) != axis.dims.end();
}

// Returns the key of --fix that has the axis's size, by the dims that it cuts.
std::string_view degree_of(const ChoiceAxis& axis) {
  return has_dim(axis, "heads") ? "tp" : has_dim(axis, "experts") ? "ep" : "cp";
}

// Returns which sorts of ranks the choice has beside replicas: of "pp", "tp", "ep", "cp".
std::set<std::string> sorts_of(const Choice& choice) {
  std::set<std::string> out;
  if (choice.stages > 1) out.insert("pp");
  for (size_t a = 1; a < choice.axes.size(); ++a) {
    if (choice.axes[a].size > 1) out.emplace(degree_of(choice.axes[a]));
  }
  return out;
}

// The degrees inside a stage that are fixed: "tp", "cp", "ep".
using Degrees = std::map<std::string, int64_t, std::less<>>;

bool have_degrees(const std::vector<ChoiceAxis>& axes, const Degrees& fixed) {
  Degrees found;
  for (const ChoiceAxis& axis : axes)
    found.try_emplace(std::string(degree_of(axis)), 1).first->second *= axis.size;
  return std::all_of(fixed.begin(), fixed.end(), [&](const auto& degree) {
    const auto one = found.find(degree.first);
    return (one == found.end() ? 1 : one->second) == degree.second;
  });
}

// Takes the degrees inside a stage out of what is fixed: a ranking would take "tp" for the number of
// all ranks that share a layer. Returns an error for a key that no grid has.
Result<Degrees> take_degrees(PlanQuestion& question) {
  constexpr std::array<std::string_view, 11> kKeys = {
      "devices",       "pp",     "dp",   "tp",        "cp",      "ep",
      "micro_batches", "chunks", "zero", "recompute", "schedule"};
  for (const auto& [key, value] : question.fixed) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      return invalid_input(
          fmt::format("plan: --fix {}={}: expected one of {} beside --for, found '{}'", key, value,
                      join(std::vector<std::string>(kKeys.begin() + 1, kKeys.end()), ", "), key));
    }
  }
  Degrees out;
  for (const char* key : {"tp", "cp", "ep"}) {
    const auto found = question.fixed.find(key);
    if (found == question.fixed.end()) continue;
    out[key] = fixed_number(question, key);
    question.fixed.erase(found);
  }
  return out;
}

// Returns whether the ranks inside a stage are devices of one node, where they exchange parts of
// every layer. Ranks that share a sequence exchange less.
bool stays_in_node(const Choice& choice, int64_t node) {
  int64_t inside = 1;
  for (size_t a = 1; a < choice.axes.size(); ++a) {
    const ChoiceAxis& axis = choice.axes[a];
    if (has_dim(axis, "heads") || has_dim(axis, "experts")) inside *= axis.size;
  }
  return inside <= node;
}

class GridSearch {
 public:
  GridSearch(const PlanQuestion& question, const Degrees& fixed, const DegreeGrid& grid,
             const AcceptsPlan& accepts, const OwnPlan& own)
      : question_(question), fixed_(fixed), grid_(grid), accepts_(accepts), own_(own) {}

  Result<GridAnswer> run() {
    TESSERA_TRY(search_, PlanSearch::begin(question_));
    Ranking ranking(question_, search_->fold(), search_->pricer());
    Space space = space_of_grid(grid_, ranking);
    if (!fixed_.empty()) {
      space.takes = [&](const std::vector<ChoiceAxis>& axes) { return have_degrees(axes, fixed_); };
    }
    std::vector<PlanCandidate> ranked = ranking.rank(space);
    const int64_t node = question_.cluster->type_of(0).devices;
    std::erase_if(ranked, [&](const PlanCandidate& one) {
      const bool shards = std::find(grid_.sharded.begin(), grid_.sharded.end(),
                                    one.choice.sharded) != grid_.sharded.end();
      const bool all = one.choice.ranks() == question_.cluster->devices();
      return !shards || !all || !stays_in_node(one.choice, node);
    });
    if (ranked.empty()) {
      return invalid_input(fmt::format(
          "plan: no choice of the framework's degrees can be made for batch {} on {} devices{}{}{}",
          question_.batch, question_.cluster->devices(), fixed_text(),
          ranking.last_refusal().empty() ? "" : ": ", ranking.last_refusal()));
    }
    out_.ranked = ranked.size();
    out_.limit_bytes = search_->limit_bytes();
    for (const PlanCandidate* one : in_order(question_, ranked)) {
      const bool stopped = question_.stop && question_.stop() && !out_.plans.empty();
      if (out_.simulated >= kLeastPrograms || out_.refused >= kMostPrograms || stopped) break;
      if (!is_hopeless(*one)) try_one(*one);
    }
    TESSERA_TRY_VOID(finish());
    return std::move(out_);
  }

 private:
  // Returns whether a choice cannot be among the answers: enough of its kind were simulated, or it is
  // expected to be much slower than the best.
  bool is_hopeless(const PlanCandidate& one) const {
    const auto count = of_kind_.find(sorts_of(one.choice));
    if (count != of_kind_.end() && count->second >= kFew) return true;
    return best_s_ > 0 && one.estimate.step_s > kFormulaErrs * best_s_;
  }

  // Returns what the user fixed, as " with pp=2, tp=4"; "" if nothing is.
  std::string fixed_text() const {
    std::vector<std::string> words;
    for (const auto& [key, value] : question_.fixed) {
      const bool by_user = key != "devices" && (key != "pp" || grid_.pipelines);
      if (by_user) words.push_back(fmt::format("{}={}", key, value));
    }
    for (const auto& [key, value] : fixed_) words.push_back(fmt::format("{}={}", key, value));
    return words.empty() ? "" : " with " + join(words, ", ");
  }

  Result<std::string> text_of(const Choice& choice) const {
    if (const auto own = own_ ? own_(choice) : std::nullopt) return *own;
    return write_plan(choice, search_->forward(), search_->fold().units, choice.str());
  }

  void try_one(const PlanCandidate& one) {
    PlanCandidate candidate = one;
    const auto text = text_of(one.choice);
    if (!text) return;
    if (const Status accepted = accepts_(*text); !accepted) {
      if (out_.refused++ == 0) out_.refusal = accepted.error().message;
      return;
    }
    const auto plan = parse_plan(*text, one.choice.str());
    if (!plan) return;
    search_->say(fmt::format("simulating {} of at most {}: {}", out_.simulated + 1, kLeastPrograms,
                             one.choice.str()));
    search_->judge_plan(*plan, candidate);
    if (!candidate.step_s) return;
    ++out_.simulated;
    ++of_kind_[sorts_of(one.choice)];
    if (out_.least_bytes == 0 || candidate.need_bytes < out_.least_bytes)
      out_.least_bytes = candidate.need_bytes;
    if (!candidate.fits) return;
    if (best_s_ == 0 || *candidate.step_s < best_s_) best_s_ = *candidate.step_s;
    const auto sorts = static_cast<int64_t>(sorts_of(one.choice).size());
    out_.plans.push_back({std::move(candidate), *text, sorts});
  }

  // Finds the uncertainty, and puts the answer first.
  Status finish() {
    if (out_.plans.empty()) return {};
    const auto faster = [](const GridPlan& a, const GridPlan& b) {
      return *a.candidate.step_s < *b.candidate.step_s;
    };
    std::stable_sort(out_.plans.begin(), out_.plans.end(), faster);
    PlanAnswer best;
    best.simulated = {out_.plans.front().candidate};
    best.best = 0;
    TESSERA_TRY(const Plan plan,
                parse_plan(out_.plans.front().text, out_.plans.front().candidate.choice.str()));
    TESSERA_TRY(best, search_->answer_with(std::move(best), plan));
    out_.uncertainty = best.simulation->uncertainty;
    const double most_s = best_s_ * (1 + out_.uncertainty);
    auto simplest = out_.plans.begin();
    for (auto one = out_.plans.begin(); one != out_.plans.end(); ++one) {
      if (*one->candidate.step_s <= most_s && one->sorts < simplest->sorts) simplest = one;
    }
    std::rotate(out_.plans.begin(), simplest, simplest + 1);
    return {};
  }

  const PlanQuestion& question_;
  const Degrees& fixed_;
  const DegreeGrid& grid_;
  const AcceptsPlan& accepts_;
  const OwnPlan& own_;
  std::unique_ptr<PlanSearch> search_;
  std::map<std::set<std::string>, size_t> of_kind_;  // programs simulated, by the kind
  double best_s_ = 0;
  GridAnswer out_;
};

}  // namespace

Space space_of_grid(const DegreeGrid& grid, Ranking& ranking) {
  const std::vector<std::string> dims = dims_to_cut(ranking.fold().graph);
  const bool has_keys = has(dims_to_cut(ranking.fold().graph, 0), "seq~kv");
  Space space;
  space.lists = grid.tensor;
  const auto add_around = [&](const DimList& outer) {
    if (std::find(space.lists.begin(), space.lists.end(), outer) != space.lists.end()) return;
    space.lists.push_back(outer);
    for (const DimList& inner : grid.tensor) space.pairs.push_back({outer, inner});
  };
  for (DimList context : grid.context) {
    // A model that does not compare queries with keys has no keys that travel.
    if (!has_keys) std::erase(context, "seq~kv");
    if (has(dims, "seq")) add_around(context);
  }
  // Expert parallelism; other ops are cut along the batch.
  if (grid.experts && has(dims, "experts")) add_around({"experts", "batch"});
  space.recompute = grid.recompute;
  for (const auto& [name, chunks] : grid.schedules) space.schedules.push_back({name, chunks});
  return space;
}

DegreeGrid megatron_grid() {
  DegreeGrid out;
  out.tensor = {{"heads", "ffn", "vocab"}, {"heads", "ffn", "vocab", "seq"}};
  // Context parallelism: if the model compares queries with keys, the keys travel around the axis.
  out.context = {{"seq~kv", "seq"}};
  out.experts = out.pipelines = true;
  out.recompute = {"none", "selective", "full"};
  out.schedules = {{"1f1b", {1}}, {"interleaved", {2, 3, 4, 6, 8}}};
  return out;
}

Result<GridAnswer> find_in_grid(const PlanQuestion& question, const DegreeGrid& grid,
                                const AcceptsPlan& accepts, const OwnPlan& own) {
  PlanQuestion asked = question;
  if (!grid.pipelines) asked.fixed.try_emplace("pp", "1");
  // A launcher starts as many ranks as there are devices.
  const int64_t all = question.cluster->devices();
  if (!allows(question, "devices", all)) {
    return invalid_input(fmt::format(
        "plan: --fix devices={}: expected all {} devices beside --for; a smaller --cluster has "
        "fewer",
        question.fixed.at("devices"), all));
  }
  asked.fixed["devices"] = fmt::format("{}", all);
  TESSERA_TRY(const Degrees degrees, take_degrees(asked));
  asked.broken = std::make_shared<BrokenInvariants>();
  return GridSearch(asked, degrees, grid, accepts, own).run();
}

}  // namespace tessera
