// Planners turn a model, a machine and a batch into the text of a plan. A planner ranks the choices
// of its space by formula (estimate.h), then the programs of the best ones are lowered and
// simulated, and the fastest that fits is the answer.
//
//   PlanQuestion question;
//   question.model = "gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304";
//   question.batch = 64;
//   question.cluster = &cluster;
//   TESSERA_TRY(const PlanAnswer answer, find_plan(question, "auto"));
//   if (answer.best) fmt::print("{}", answer.plan);
//
// Equal questions have equal answers, because programs are counted, not seconds. The guides
// docs/guides/choose-a-plan.md and add-a-planner.md tell more.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

const std::vector<Planner>& all_planners();
// Answers a question with the planner of that name. Errors: an unknown planner, a key of `fixed`
// that is none, a value that is no number, a batch below 1, what the model's text is refused for,
// and a part that does not go with the model, with what is fixed or with any choice (with its file
// and line).
Result<PlanAnswer> find_plan(const PlanQuestion& question, const std::string& planner);

// Returns several lines: what was found and why. `explain`: also the candidates beside it, what
// binds, and what more memory would bring.
std::string to_text(const PlanAnswer& answer, const PlanQuestion& question, bool explain);

}  // namespace tessera
