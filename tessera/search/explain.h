// Explains an answer for `tessera plan --explain`: what each block does and costs, what it could do
// instead, and what more memory or faster links would bring.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

// Returns rows of neighbouring units that do the same. `offered`: the ways to cut a stage's inner
// axes that the search ranked. The next best way of a row is the fastest among those of the
// answer's size and among other levels of recomputation. Prices are those of the first kind of
// nodes. Units that a stage has in an order of its own are taken in the model's order.
std::vector<PlanBlock> explain_blocks(const PlanQuestion& question, const Graph& forward,
                                      const Fold& fold, UnitPricer& pricer, const Choice& choice,
                                      const std::vector<std::vector<ChoiceAxis>>& offered);

// Searches again on the machine after the change (apply_what_if), without explanations. Returns
// nothing if that search has no answer, or the machine has nothing to change.
std::optional<PlanCandidate> answer_after(const PlanQuestion& question, const Planner& planner,
                                          const std::string& change);

// Returns the explanation as several lines.
std::string explanation_text(const PlanAnswer& answer);

}  // namespace tessera
