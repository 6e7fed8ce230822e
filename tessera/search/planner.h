// Planners turn a model, a machine and a batch into the text of a plan. A planner ranks the choices
// of its space by formula (estimate.h). The programs of the best choices are then lowered and
// simulated, and the best one is the answer: the fastest that fits, or what the question's objective
// says (objective.h).
//
//   PlanQuestion question;
//   question.model = "gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304";
//   question.batch = 64;
//   question.cluster = &cluster;
//   TESSERA_TRY(const PlanAnswer answer, find_plan(question, "auto", search_planners()));
//   if (answer.best) fmt::print("{}", answer.plan);
//
// Equal questions have equal answers, because the search is limited by a number of programs and not
// by time. See also the guides docs/guides/choose-a-plan.md and add-a-planner.md.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Returns the planners of this module. Those of publications are added to them, and `auto` learns
// of sites, in tessera/planners/all_planners.h, which programs should use.
const std::vector<Planner>& search_planners();
// Answers a question with the planner of that name. Errors: an unknown planner, an unknown key in
// `fixed`, a value that must be a number and is not, a batch below 1, errors of the model's text,
// and a part that fits neither the model, nor what is fixed, nor any choice (the message has the
// part's file and line).
Result<PlanAnswer> find_plan(const PlanQuestion& question, const std::string& planner,
                             const std::vector<Planner>& planners);

// Checks the batch, and keys and values of `fixed`, as find_plan() does.
Status check_question(const PlanQuestion& question);
// Checks that the question does not fix settings that the planner does not choose. `planners`: those
// of which the error names one that chooses the setting.
Status check_own_keys(const PlanQuestion& question, const Planner& planner,
                      const std::vector<Planner>& planners);

// Checks that the planner answers questions with this objective.
Status check_objective(const PlanQuestion& question, const Planner& planner,
                       const std::vector<Planner>& planners);

// Returns several lines that say what was found and why. `explain`: adds the other candidates, what
// limits the best plan, and the gain from more memory.
std::string to_text(const PlanAnswer& answer, const PlanQuestion& question, bool explain);

}  // namespace tessera
