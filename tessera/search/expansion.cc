#include "tessera/search/expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/search/unit_prices.h"
#include "tessera/search/with_part.h"

namespace tessera {
namespace {

constexpr double kPays = .99;  // of the passes' time, or less

// Patterns of paths of the ops of each kind that has an expansion, with a star for the numbers of
// blocks.
std::map<std::string, std::set<std::string>> expandable_ops(const Graph& forward) {
  std::map<std::string, std::set<std::string>> out;
  for (const Op& op : forward.ops()) {
    const KindInfo& kind = info_of(op);
    if (!kind.expand || kind.expandable != nullptr) continue;  // those are made where a split asks
    std::vector<std::string> words = split_text(op.path, '.');
    for (std::string& word : words) {
      if (parse_int(word)) word = "*";
    }
    out[op.kind].insert(join(words, "."));
  }
  return out;
}

// The question with these ops taken apart.
Result<PlanQuestion> with_expansion(const PlanQuestion& question, const std::string& kinds,
                                    const std::set<std::string>& patterns) {
  std::vector<std::string> quoted;
  for (const std::string& pattern : patterns) quoted.push_back(fmt::format("\"{}\"", pattern));
  return with_more(question, fmt::format("expand = [{}]\n", join(quoted, ", ")),
                   kinds + " taken apart");
}

// Seconds of the passes of the folded model, cut as the choice cuts it; nothing if it is refused.
std::optional<double> passes_of_choice(const PlanQuestion& question, const Choice& choice) {
  const int64_t fixed_batch = names_graph_file(question.model) ? question.batch : 0;
  UnitPricer pricer({question.model, question.compute, question.cluster, question.options,
                     fixed_batch, question.part, question.optimizer});
  UnitQuestion asked = unit_question(choice, question.batch);
  asked.passes_only = true;
  const auto prices = pricer.price(asked);
  if (!prices) return {};
  return (*prices)->step_s;
}

}  // namespace

Result<Expanded> find_with_expansions(
    const PlanQuestion& question, PlanAnswer plain,
    const std::function<Result<PlanAnswer>(const PlanQuestion&)>& find) {
  Expanded out{question, std::move(plain)};
  if (!out.answer.best || (question.part && question.part->has("expand"))) return out;
  Compiler compiler;
  TESSERA_TRY(const auto model,
              compiler.model(question.model, question.batch, storage_dtype(question.compute)));
  const auto kinds = expandable_ops(model->graph);
  if (kinds.empty()) return out;
  const Choice choice = out.answer.simulated[*out.answer.best].choice;
  const auto fused = passes_of_choice(question, choice);
  std::vector<std::string> names;
  std::set<std::string> chosen;
  for (const auto& [kind, patterns] : kinds) {
    if (!fused || (question.stop && question.stop())) break;
    TESSERA_TRY(const PlanQuestion asked, with_expansion(question, kind, patterns));
    const auto apart = passes_of_choice(asked, choice);
    if (!apart || *apart > kPays * *fused) continue;
    names.push_back(kind);
    chosen.insert(patterns.begin(), patterns.end());
  }
  if (chosen.empty()) return out;
  TESSERA_TRY(PlanQuestion asked, with_expansion(question, join(names, ", "), chosen));
  if (question.progress) question.progress("with " + join(names, ", ") + " taken apart");
  auto answer = find(asked);
  if (answer && is_better(*answer, out.answer)) out = {std::move(asked), *std::move(answer)};
  return out;
}

}  // namespace tessera
