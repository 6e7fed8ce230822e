// What `tessera plan --explain` says of an answer beside its candidates: what each block does and
// costs, what it could do instead, and what more memory or faster links would bring.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

// Rows of neighbouring units that do the same. `offered`: ways to cut a stage's inner axes that
// the search ranked; of those of the answer's size, and of other recomputation, the fastest for the
// row is its next best. Prices are those of the first kind of nodes. Units that a stage has in an
// order of its own are taken in the model's order.
std::vector<PlanBlock> explain_blocks(const PlanQuestion& question, const Graph& forward,
                                      const Fold& fold, UnitPricer& pricer, const Choice& choice,
                                      const std::vector<std::vector<ChoiceAxis>>& offered);

// The search again on the machine after the change (apply_what_if), without explanations. Nothing if
// it has no answer, or the machine has nothing to change.
std::optional<PlanCandidate> answer_after(const PlanQuestion& question, const Planner& planner,
                                          const std::string& change);

// Several lines.
std::string explanation_text(const PlanAnswer& answer);

}  // namespace tessera
