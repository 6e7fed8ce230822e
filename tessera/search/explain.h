// Explains an answer for `tessera plan --explain`: what each block does and costs, the next best
// way to compute the block, and the gain from more memory or faster links.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/price/unit_prices.h"
#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Returns one PlanBlock for each row of neighbouring equal units that are cut, stored and
// recomputed in one way. `offered`: the axes inside a stage, with dims, that the search ranked. The
// next best way of a row is the fastest among the offered axes with as many devices as the
// answer's, and the other levels of recomputation. Prices are for the first kind of nodes. The rows
// follow the model's order of units even if the choice has a unit_order of its own.
std::vector<PlanBlock> explain_blocks(const PlanQuestion& question, const Graph& forward,
                                      const Fold& fold, UnitPricer& pricer, const Choice& choice,
                                      const std::vector<std::vector<ChoiceAxis>>& offered);

// Changes the machine (apply_what_if) and returns the best candidate of a new search on it, made
// without explanations. Returns nothing if no plan fits there, or if the machine has nothing that
// the change applies to.
std::optional<PlanCandidate> answer_after(const PlanQuestion& question, const Planner& planner,
                                          const std::string& change);

// Returns the explanation as several lines.
std::string explanation_text(const PlanAnswer& answer);

}  // namespace tessera
