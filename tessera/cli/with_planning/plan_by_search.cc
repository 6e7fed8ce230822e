// `--plan auto`: returns the plan that the planner `auto` finds.
#include <fmt/format.h>

#include "tessera/cli/libraries/caller.h"
#include "tessera/cli/progress_line.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/models/model.h"
#include "tessera/planners/all_planners.h"

namespace tessera::cli {

Result<std::string> plan_by_search(const AutoQuestion& question) {
  PlanQuestion search;
  search.model = question.model;
  search.optimizer = question.optimizer;
  TESSERA_TRY(search.compute, parse_dtype(question.precision));
  TESSERA_TRY(search.batch, batch_of(question.model, question.batch, 0));
  if (search.batch == 0)
    return invalid_input("plan auto: expected --batch, the sequences of a step");
  Cluster local;
  search.cluster = question.cluster;
  if (search.cluster == nullptr) {
    const std::string name =
        question.ranks > 0 ? fmt::format("local:{}", question.ranks) : std::string("local");
    TESSERA_TRY(local, load_cluster(name));
    search.cluster = &local;
  }
  Pricing pricing;
  if (question.style) {
    search.options.style = *question.style;
  } else {
    TESSERA_TRY(pricing, decide_pricing({"", question.precision, ""}, *search.cluster,
                                        {question.model, "", search.batch, question.model}));
    search.cluster = &pricing.cluster;
    search.options.style = pricing.style;
  }
  TESSERA_TRY(search.memory_limit_bytes, memory_limit_of("", *search.cluster));
  if (question.ranks > 0) search.fixed["devices"] = std::to_string(question.ranks);
  ProgressLine progress("plan auto");
  search.progress = [&](const std::string& what) { progress.say(what); };
  search.stop = [&caller = *this_call().caller] { return caller.stopped(); };
  TESSERA_TRY(const PlanAnswer answer, find_plan(search, "auto", all_planners()));
  progress.end();
  if (!answer.best) {
    std::string text = to_text(answer, search, false);
    return check_failed("plan auto: " + text.substr(0, text.find('\n')));
  }
  return "# auto: " + answer.plan.substr(2);
}

}  // namespace tessera::cli
