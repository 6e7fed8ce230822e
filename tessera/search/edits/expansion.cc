#include "tessera/search/edits/expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/search/constants.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/price/fold.h"
#include "tessera/search/price/unit_prices.h"
#include "tessera/search/question/with_part.h"

namespace tessera {
namespace {

// The ops that can be taken apart: patterns of their paths, by kind.
using FusedOps = std::map<std::string, std::set<std::string>>;

// Returns patterns of paths of the ops of each kind that has an expansion, with a star for the
// numbers of blocks.
FusedOps expandable_ops(const Graph& forward) {
  FusedOps out;
  for (const Op& op : forward.ops()) {
    const KindInfo& kind = info_of(op);
    // These are expanded only where a split needs it.
    if (!kind.expand || kind.expandable != nullptr) continue;
    std::vector<std::string> words = split_text(op.path, '.');
    for (std::string& word : words) {
      if (parse_int(word)) word = "*";
    }
    out[op.kind].insert(join(words, "."));
  }
  return out;
}

// Returns the question with these ops taken apart. `kinds`: a text for people.
Result<PlanQuestion> with_expansion(const PlanQuestion& question, const std::string& kinds,
                                    const std::set<std::string>& patterns) {
  std::vector<std::string> quoted;
  for (const std::string& pattern : patterns) quoted.push_back(fmt::format("\"{}\"", pattern));
  return with_more(question, fmt::format("expand = [{}]\n", join(quoted, ", ")),
                   kinds + " taken apart");
}

// Returns the seconds of the passes of the folded model, cut as in the choice; nothing if the plan
// is refused.
std::optional<double> passes_of_choice(const PlanQuestion& question, const Choice& choice) {
  const int64_t fixed_batch = names_graph_file(question.model) ? question.batch : 0;
  UnitPricer pricer({question.model, question.compute, question.cluster, question.options,
                     fixed_batch, question.part, question.optimizer, question.broken});
  UnitQuestion asked = unit_question(choice, question.batch);
  asked.passes_only = true;
  const auto prices = pricer.price(asked);
  if (!prices) return {};
  return (*prices)->step_s;
}

// Returns a choice with a few sequences on one device.
Choice uncut_choice(const PlanQuestion& question) {
  Choice out;
  int64_t sequences = 1;
  while (2 * sequences <= static_cast<int64_t>(kFew) && question.batch % (2 * sequences) == 0)
    sequences *= 2;
  out.axes = {{"dp", 1, {"batch"}}};
  out.micro_batches = question.batch / sequences;
  out.compute = question.compute;
  return out;
}

bool computes_again(const Choice& choice) {
  const auto does = [](const UnitChoice& unit) {
    return unit.recompute.value_or("none") != "none";
  };
  return choice.recompute != "none" || std::any_of(choice.units.begin(), choice.units.end(), does);
}

// Returns whether memory does not bind in the answer. Where memory binds, fused kernels may still
// win although they are slower, because they need less memory.
bool is_free(const PlanAnswer& answer) {
  const PlanCandidate& best = answer.simulated[*answer.best];
  const bool has_room =
      answer.limit_bytes <= 0 || best.need_bytes <= (1 - kLittle) * answer.limit_bytes;
  return has_room && !computes_again(best.choice);
}

class Expansions {
 public:
  using Find = std::function<Result<PlanAnswer>(const PlanQuestion&)>;
  // Prepares the searches. `may_be_alone`: whether the search of the model as it is may be left out
  // if taking ops apart is clearly faster.
  Expansions(const PlanQuestion& question, FusedOps kinds, const Find& find, bool may_be_alone)
      : question_(question), kinds_(std::move(kinds)), find_(find), may_be_alone_(may_be_alone) {}

  Result<Expanded> best() const {
    FusedOps clear;
    if (may_be_alone_) {
      TESSERA_TRY(clear, that_pay(uncut_choice(question_), 1 - kLittle));
    }
    std::optional<Expanded> apart;
    if (!clear.empty()) {
      apart = search_with(clear);
      if (apart && is_free(apart->answer)) {
        TESSERA_TRY(const FusedOps still, that_pay(choice_of(*apart), 1 - kLittle));
        if (still == clear) return *std::move(apart);
      }
    }
    auto fused = find_(question_);
    if (!fused || !fused->best) {
      if (apart) return *std::move(apart);
      if (!fused) return tl::unexpected(fused.error());
      return Expanded{question_, *std::move(fused)};
    }
    Expanded out{question_, *std::move(fused)};
    TESSERA_TRY(const FusedOps pay, that_pay(choice_of(out), kGain));
    if (apart && is_better(question_, apart->answer, out.answer)) out = *std::move(apart);
    if (pay.empty() || pay == clear) return out;
    auto other = search_with(pay);
    return other && is_better(question_, other->answer, out.answer) ? *std::move(other)
                                                                    : std::move(out);
  }

 private:
  static const Choice& choice_of(const Expanded& found) {
    return found.answer.simulated[*found.answer.best].choice;
  }

  // Returns the kinds of ops that pay: with the ops of such a kind taken apart, the passes of the
  // choice take at most this share of the time that they take otherwise.
  Result<FusedOps> that_pay(const Choice& choice, double share) const {
    FusedOps out;
    const auto fused = passes_of_choice(question_, choice);
    for (const auto& [kind, patterns] : kinds_) {
      if (!fused || (question_.stop && question_.stop())) break;
      TESSERA_TRY(const PlanQuestion asked, with_expansion(question_, kind, patterns));
      const auto apart = passes_of_choice(asked, choice);
      if (apart && *apart <= share * *fused) out.emplace(kind, patterns);
    }
    return out;
  }

  // Searches with the ops of these kinds taken apart. Returns nothing if no plan is found.
  std::optional<Expanded> search_with(const FusedOps& kinds) const {
    std::vector<std::string> names;
    std::set<std::string> chosen;
    for (const auto& [kind, patterns] : kinds) {
      names.push_back(kind);
      chosen.insert(patterns.begin(), patterns.end());
    }
    auto asked = with_expansion(question_, join(names, ", "), chosen);
    if (!asked) return {};
    if (question_.progress) question_.progress("with " + join(names, ", ") + " taken apart");
    auto answer = find_(*asked);
    if (!answer || !answer->best) return {};
    return Expanded{*std::move(asked), *std::move(answer)};
  }

  const PlanQuestion& question_;
  FusedOps kinds_;
  const Find& find_;
  bool may_be_alone_;
};

}  // namespace

Result<Expanded> find_with_expansions(
    const PlanQuestion& question,
    const std::function<Result<PlanAnswer>(const PlanQuestion&)>& find) {
  FusedOps kinds;
  bool is_searched_whole = false;
  if (!question.part || !question.part->has("expand")) {
    Compiler compiler;
    TESSERA_TRY(const auto model,
                compiler.model(question.model, question.batch, storage_dtype(question.compute)));
    kinds = expandable_ops(model->graph);
    TESSERA_TRY(const Fold fold, fold_layers(model->graph));
    is_searched_whole = is_small(question, fold);
  }
  if (!kinds.empty())
    return Expansions(question, std::move(kinds), find, !is_searched_whole).best();
  TESSERA_TRY(PlanAnswer answer, find(question));
  return Expanded{question, std::move(answer)};
}

}  // namespace tessera
