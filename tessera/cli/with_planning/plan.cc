// tessera plan: finds a plan for a model on a machine. Also lists the recipes and prints the plan
// text that a call of a recipe gives.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/caller.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/progress_line.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/plan_for.h"
#include "tessera/cli/with_planning/prices.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/models/model.h"
#include "tessera/models/model_title.h"
#include "tessera/plan/load.h"
#include "tessera/plan/recipe_aliases.h"
#include "tessera/plan/recipes.h"
#include "tessera/planners/all_planners.h"
#include "tessera/search/constants.h"
#include "tessera/search/question/with_part.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanOptions {
  std::string subject, named, model, cluster, planner = "auto", out, memory_limit, optimizer,
                                              target;
  PricingOptions pricing;
  ObjectiveOptions objective;
  std::vector<std::string> fixed;
  std::string with, allowed;
  int64_t batch = 0, evaluations = 0;
  double seconds = 0;  // 0: without limit
  bool list = false, json = false, explain = false;
};

Json recipe_json(const Recipe& recipe) {
  Json arguments = Json::array();
  for (const RecipeArgument& argument : recipe.arguments) {
    Json item{{"name", argument.name}, {"default", nullptr}, {"meaning", argument.meaning}};
    if (argument.otherwise && argument.is_text) item["default"] = *argument.otherwise;
    if (argument.otherwise && !argument.is_text) {
      item["default"] = parse_int(*argument.otherwise).value_or(0);
    }
    arguments.push_back(std::move(item));
  }
  return {{"name", recipe.name}, {"summary", recipe.summary}, {"arguments", std::move(arguments)}};
}

std::string recipe_text(const Recipe& recipe) {
  std::string out = fmt::format("{}\n    {}\n", signature(recipe), recipe.summary);
  for (const RecipeArgument& argument : recipe.arguments) {
    out +=
        fmt::format("      {:<14} {:<9} {}\n", argument.name,
                    argument.otherwise ? "= " + *argument.otherwise : "required", argument.meaning);
  }
  return out;
}

Json recipes_json(const Recipe* only) {
  Json list = Json::array(), aliases = Json::array();
  for (const Recipe& recipe : all_recipes()) {
    if (only == nullptr || only == &recipe) list.push_back(recipe_json(recipe));
  }
  for (const RecipeAlias& alias : recipe_aliases())
    aliases.push_back({{"name", alias.name}, {"recipe", alias.recipe}});
  return {{"recipes", std::move(list)}, {"aliases", std::move(aliases)}};
}

// Returns the names that stand for the recipe, as "ddp, dp"; "" if there are none.
std::string aliases_text(const Recipe& recipe) {
  std::vector<std::string> names;
  for (const RecipeAlias& alias : recipe_aliases()) {
    if (alias.recipe == recipe.name) names.push_back(alias.name);
  }
  return join(names, ", ");
}

// Lists the recipes, a line each, or describes the one that is named.
Result<int> list_recipes(const std::string& name, bool json) {
  const Recipe* only = nullptr;
  if (!name.empty()) {
    only = find_recipe(name);
    if (only == nullptr) return tl::unexpected(parse_recipe_call(name).error());
  }
  if (json) return print(dumped(recipes_json(only)) + "\n");
  if (only != nullptr) {
    const std::string also = aliases_text(*only);
    return print(recipe_text(*only) + (also.empty() ? "" : fmt::format("    also {}\n", also)));
  }
  std::string out;
  for (const Recipe& recipe : all_recipes()) {
    const std::string also = aliases_text(recipe);
    out += fmt::format("{:<20}{}{}\n", recipe.name, recipe.summary,
                       also.empty() ? "" : fmt::format(" (also {})", also));
  }
  return print(out +
               "\nOne with its arguments: tessera plan --list fsdp\n"
               "Example: tessera plan 'megatron(tp=2,pp=2)' --model "
               "gpt:layers=4,hidden=64,heads=4,seq=32\n");
}

// Returns whether the subject is a MODEL for which a plan is wanted, and not a recipe call. A text
// that is neither is a model, whose error names the nearest models, unless --model is given.
bool is_model(const PlanOptions& options) {
  const std::string& subject = options.subject;
  if (resolve_model(subject)) return true;
  const std::string name(trim(subject.substr(0, subject.find_first_of("(:"))));
  if (subject.empty() || subject.ends_with(".toml") || find_recipe(name) != nullptr) return false;
  return options.model.empty() && subject.find('(') == std::string::npos;
}

Status check_is_recipe(const PlanOptions& options) {
  if (options.subject.empty()) {
    return invalid_input(
        "plan: expected a model with --cluster, or a recipe call with --model, or "
        "--list (tessera plan --help)");
  }
  if (names_plan_file(options.subject)) {
    return invalid_input(fmt::format("plan: '{}' is a plan file already; tessera inspect shows it",
                                     options.subject));
  }
  if (options.model.empty()) {
    return invalid_input(fmt::format(
        "plan: expected --model for '{}': recipes read sizes from the model", options.subject));
  }
  return {};
}

Result<int> emit(const PlanOptions& options) {
  TESSERA_TRY_VOID(check_is_recipe(options));
  TESSERA_TRY(const Model model, build_model_of(options.model, 0, 1));
  TESSERA_TRY(const PlanText text, load_plan_text(options.subject, model.graph));
  TESSERA_TRY(const Plan plan, parse_plan(text.text, text.file));
  if (!options.out.empty()) {
    TESSERA_TRY_VOID(write_file(options.out, text.text));
    return 0;
  }
  if (!options.json) return print(text.text);
  return print(dumped(Json{{"recipe", options.subject},
                           {"model", model.spec},
                           {"ranks", plan.ranks()},
                           {"text", text.text}}) +
               "\n");
}

// ---- planners

// Notes that whoever called wants the best plan so far. On a terminal that is Ctrl-C, of which a
// second one ends the program; other callers say it themselves.
class Interrupt {
 public:
  Interrupt() : caller_(*this_call().caller) {
    if (!caller_.has_terminal()) return;
    before_ = std::signal(SIGINT, [](int) {
      asked_ = 1;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~Interrupt() {
    if (caller_.has_terminal()) std::signal(SIGINT, before_);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool asked() const { return caller_.has_terminal() ? asked_ != 0 : caller_.stopped(); }

 private:
  static inline volatile std::sig_atomic_t asked_ = 0;
  const Caller& caller_;
  void (*before_)(int) = nullptr;
};

Json candidate_json(const PlanCandidate& candidate) {
  Json out{{"choice", candidate.name()},
           {"estimated_step_s", candidate.estimate.step_s},
           {"estimated_memory_bytes", std::llround(candidate.estimate.memory_bytes)}};
  if (candidate.step_s) {
    out["step_time_s"] = *candidate.step_s;
    out["memory_bytes"] = std::llround(candidate.need_bytes);
    out["fits"] = candidate.fits;
    out["devices"] = candidate.used.count;
    if (candidate.used.usd_an_hour > 0)
      out["usd_a_step"] = usd_a_step(*candidate.step_s, candidate.used);
    out["transfers"] = candidate.effort.transfers;
    out["instructions"] = candidate.effort.instructions;
  }
  if (!candidate.refused.empty()) out["refused"] = candidate.refused;
  return out;
}

Json blocks_json(const PlanAnswer& answer) {
  Json out = Json::array();
  for (const PlanBlock& row : answer.blocks) {
    out.push_back({{"first", row.first},
                   {"last", row.last},
                   {"units", row.units},
                   {"chosen", row.chosen},
                   {"passes_s", row.passes_s},
                   {"activation_bytes", std::llround(row.activation_bytes)},
                   {"resting_bytes", std::llround(row.resting_bytes)}});
    if (row.next.empty()) continue;
    out.back()["next"] = row.next;
    out.back()["next_passes_s"] = row.next_s;
    out.back()["next_activation_bytes"] = std::llround(row.next_activation_bytes);
  }
  return out;
}

// Returns the keys with which every answer begins.
Json head_json(const PlanQuestion& question, const PlanOptions& options, const Pricing& pricing,
               bool found) {
  return {{"model", options.subject},
          {"cluster", options.cluster},
          {"batch", question.batch},
          {"planner", options.planner},
          {"style", to_string(pricing.style)},
          {"precision", pricing.precision},
          {"priced_with", pricing.said},
          {"objective", options.objective.goal},
          {"found", found}};
}

// Returns the answer while the search goes on: its keys are some of those of answer_json().
std::string best_json(const PlanCandidate& best, const std::string& plan,
                      const PlanQuestion& question, const PlanOptions& options,
                      const Pricing& pricing) {
  Json out = head_json(question, options, pricing, true);
  out["best"] = candidate_json(best);
  out["text"] = with_style(plan, pricing);
  out["memory_limit_bytes"] = question.memory_limit_bytes;
  out["ended"] = "stopped";
  out["simulated"] = Json::array({candidate_json(best)});
  return dumped(out) + "\n";
}

std::string answer_json(const PlanAnswer& answer, const PlanQuestion& question,
                        const PlanOptions& options, const Pricing& pricing) {
  Json tried = Json::array(), curve = Json::array();
  for (const PlanCandidate& candidate : answer.simulated)
    tried.push_back(candidate_json(candidate));
  for (const PlanCandidate& candidate : answer.curve) curve.push_back(candidate_json(candidate));
  Json out = head_json(question, options, pricing, answer.best.has_value());
  if (answer.best) {
    out["best"] = candidate_json(answer.simulated[*answer.best]);
    out["bound_s"] = answer.bound_s;
    out["gap"] = *answer.simulated[*answer.best].step_s / answer.bound_s;
    out["text"] = answer.plan;
  } else {
    const std::string text = to_text(answer, question, false);
    out["reason"] = text.substr(0, text.find('\n'));
  }
  out["memory_limit_bytes"] = std::llround(answer.limit_bytes);
  if (answer.deadline_s > 0) out["deadline_s"] = answer.deadline_s;
  if (answer.fastest_s > 0) out["fastest_step_time_s"] = answer.fastest_s;
  out["lists"] = answer.lists;
  out["estimated"] = answer.estimated;
  out["folded_programs"] = answer.folded_programs;
  out["ended"] = answer.ended;
  if (answer.broken.count > 0)
    out["faults"] = {{"plans", answer.broken.count}, {"first", answer.broken.first}};
  if (!answer.offloaded.empty()) out["offload"] = answer.offloaded;
  if (answer.with_twice_memory_s)
    out["estimated_with_twice_memory_s"] = *answer.with_twice_memory_s;
  if (!answer.blocks.empty()) out["blocks"] = blocks_json(answer);
  if (answer.with_twice_memory)
    out["with_twice_memory"] = candidate_json(*answer.with_twice_memory);
  if (answer.with_twice_rates) out["with_twice_rates"] = candidate_json(*answer.with_twice_rates);
  out["simulated"] = std::move(tried);
  out["curve"] = std::move(curve);
  return dumped(out) + "\n";
}

// Sequences a step for each device, where --batch is not given.
constexpr int64_t kUsualSequences = 8;

Result<PlanQuestion> question_of(const PlanOptions& options, const Pricing& pricing) {
  PlanQuestion question;
  question.model = options.subject;
  question.cluster = &pricing.cluster;
  question.options.style = pricing.style;
  question.evaluations = static_cast<size_t>(options.evaluations);
  question.explain = options.explain;
  question.allows_lossy = !options.allowed.empty();
  const char* without = std::getenv("TESSERA_SEARCH_WITHOUT");
  TESSERA_TRY(question.without, parse_mechanisms(without == nullptr ? "" : without));
  TESSERA_TRY(question.optimizer, parse_optimizer_text(options.optimizer));
  TESSERA_TRY(question.compute, parse_dtype(pricing.precision));
  TESSERA_TRY(question.batch, batch_of(options.subject, options.batch,
                                       kUsualSequences * pricing.cluster.devices()));
  for (const std::string& fixed : options.fixed) {
    const size_t equals = fixed.find('=');
    if (equals == std::string::npos)
      return invalid_input(fmt::format("plan: --fix: expected KEY=VALUE, found '{}'", fixed));
    question.fixed[fixed.substr(0, equals)] = fixed.substr(equals + 1);
  }
  if (!options.with.empty()) {
    TESSERA_TRY(const std::string text, read_file(options.with));
    TESSERA_TRY(question.part, parse_part(text, options.with, planned_axes()));
  }
  TESSERA_TRY(question.memory_limit_bytes, memory_limit_of(options.memory_limit, pricing.cluster));
  TESSERA_TRY(question.objective, read_objective(options.objective, pricing.cluster));
  return question;
}

// Searches for a plan that a framework runs (--for), with what it assumes where the user says
// nothing.
Result<int> search_for(const PlanOptions& options, const PlanQuestion& question,
                       const Pricing& pricing, ProgressLine& progress) {
  PlanForRequest request{find_export_target(options.target),
                         options.cluster,
                         &pricing,
                         options.out,
                         {},
                         options.json,
                         options.explain};
  if (options.planner != "auto" || !options.with.empty())
    return invalid_input("plan: --planner and --with do not go with --for");
  if (question.objective.goal != Goal::kTime)
    return invalid_input("plan: --for: expected --objective time, found " + options.objective.goal);
  if (options.batch == 0) {
    request.assumed.push_back(fmt::format("batch {} sequences, {} a device, as none is given",
                                          question.batch, kUsualSequences));
  }
  if (options.memory_limit.empty() && question.memory_limit_bytes > 0)
    request.assumed.emplace_back("5 % of a device is kept free, as --memory-limit is not given");
  auto code = plan_for(question, request);
  progress.end();
  return code;
}

Result<int> search(const PlanOptions& options) {
  TESSERA_TRY_VOID(resolve_model(options.subject));
  if (options.cluster.empty()) {
    return invalid_input(
        "plan: expected --cluster, the machine for which a plan is wanted (dgx-a100:8, local)");
  }
  TESSERA_TRY(Cluster cluster, load_machine(options.cluster));
  PricingOptions asked = options.pricing;
  const ExportTarget* target = find_export_target(options.target);
  if (asked.style.empty() && target != nullptr) asked.style = target->style;
  TESSERA_TRY(const Pricing pricing,
              decide_pricing(asked, std::move(cluster), {options.subject, "", 0, options.named}));
  TESSERA_TRY(PlanQuestion question, question_of(options, pricing));
  ProgressLine progress("plan", options.seconds);
  question.progress = [&](const std::string& what) { progress.say(what); };
  Caller& caller = *this_call().caller;
  if (!caller.has_terminal()) {
    question.found = [&](const PlanCandidate& best, const std::string& plan) {
      caller.best_so_far(best_json(best, plan, question, options, pricing));
    };
  }
  const Interrupt interrupt;
  const auto begin = std::chrono::steady_clock::now();
  question.stop = [&] {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return interrupt.asked() || (options.seconds > 0 && taken.count() >= options.seconds);
  };
  if (!options.target.empty()) return search_for(options, question, pricing, progress);
  TESSERA_TRY(const Model model, build_model(options.subject, question.batch));
  if (!options.json) {
    const bool assumed =
        options.batch == 0 && question.batch == kUsualSequences * pricing.cluster.devices();
    say_first(fmt::format(
        "{} on {}, batch {}{}", model_title(model), machine_title(pricing.cluster),
        grouped(question.batch),
        assumed ? fmt::format(" ({} a device, as none is given)", kUsualSequences) : ""));
  }
  TESSERA_TRY(PlanAnswer answer, find_plan(question, options.planner, all_planners()));
  if (answer.best) answer.plan = with_style(answer.plan, pricing);
  progress.end();
  if (answer.best && !options.out.empty()) TESSERA_TRY_VOID(write_file(options.out, answer.plan));
  if (options.json) {
    const int printed = print(answer_json(answer, question, options, pricing));
    return answer.best ? printed : 1;
  }
  std::string text =
      to_text(answer, question, options.explain) + fmt::format("priced with {}\n", pricing.said);
  if (!answer.best) {
    note("tessera: plan: " + text);
    return 1;
  }
  if (options.out.empty()) {
    // The plan is the output. The facts found about the plan are printed before it, as comments.
    std::string notes;
    for (const std::string& line : split_text(text, '\n')) {
      if (&line != &text && !line.empty()) notes += fmt::format("# {}\n", line);
    }
    text = notes + answer.plan;
  }
  return print(text);
}

// Returns the tables that the help text has after the options.
std::string planners_and_keys() {
  std::string text = "Planners (--planner):\n";
  for (const Planner& planner : all_planners())
    text += fmt::format("  {:<16}{}\n", planner.name, planner.summary);
  text += "\nKeys of --fix:\n";
  for (const auto& [key, meaning] : fix_keys()) text += fmt::format("  {:<16}{}\n", key, meaning);
  return text;
}

}  // namespace

void add_plan(Commands& commands) {
  const auto options = std::make_shared<PlanOptions>();
  Command command = commands.add(
      "plan", "Find a plan for a model on a machine; list recipes or print one's plan");
  command.option("SUBJECT", options->subject,
                 "MODEL to find a plan for, or a recipe call, as 'zero(stage=1,dp=4)'");
  command.flag("--list", options->list,
               "The recipes, a line each; with a recipe's name, that one with its arguments");
  command.option("--model", options->model, "MODEL for which the recipe emits a plan");
  command.option("--out", options->out, "Write the plan to this file, not to the terminal");
  command.flag("--json", options->json, "Print JSON");
  command.option("--cluster", options->cluster,
                 "Machine: a preset and its nodes (dgx-a100:8), local, or a TOML file");
  command.option("--batch", options->batch, "Sequences a step over all ranks").at_least(1);
  command
      .option(
          "--for", options->target,
          "Framework: search only what it runs, and print its launch text. The style is its own; "
          "of plans that are as fast within the uncertainty the simplest is printed")
      .one_of(plan_targets());
  command.option("--planner", options->planner, "Who finds the plan; the planners stand below")
      .default_text("auto");
  command.option(
      "--memory-limit", options->memory_limit,
      "Memory of a device that the plan may use, as 40GB or 90% (default: 95% on equal GPUs, all "
      "of it elsewhere)");
  command
      .option(
          "--objective", options->objective.goal,
          "What the plan makes as small as can be: time of a step; money of a step, by --price; "
          "devices that are used; memory of the device that needs the most")
      .one_of(goal_names());
  command
      .option("--price", options->objective.prices,
              "TYPE=USD an hour of a device, once for each type; USD alone if all are equal")
      .one_value_each();
  command
      .option("--within", options->objective.within,
              "With another objective than time: how much longer than that of the fastest plan a "
              "step may be, as 20%, which is searched first, or how long it may be, as '1.5 s'")
      .default_text("10% for devices and memory, no limit for money");
  add_pricing(command, options->pricing);
  add_optimizer(command, options->optimizer);
  command.option("--fix", options->fixed, "KEY=VALUE that is not searched; the keys stand below");
  command
      .option("--allow", options->allowed,
              "lossy: plans may compress what ranks exchange, or exchange it rarely, which changes "
              "what a step computes (planner opfence; auto on a cluster of sites)")
      .one_of({"lossy"});
  command.option("--with", options->with,
                 "Plan file of keys and entries that the plan must contain; the rest is searched "
                 "around them");
  command
      .option("--evaluations", options->evaluations,
              "Programs of the whole model that may be simulated")
      .default_text(
          fmt::format("{} to {}, by the number of the model's ops; up to {} for a few layers",
                      kLeastPrograms, kMostPrograms, 4 * kMostPrograms))
      .at_least(1);
  command
      .option("--seconds", options->seconds,
              "Time after which the search ends with the best so far, as Ctrl-C does; up to four "
              "programs are simulated in any case until one fits. Equal questions may then have "
              "unequal answers")
      .at_least(.001);
  command.flag(
      "--explain", options->explain,
      "Also the candidates beside the answer, what each block does and costs, what binds, and what "
      "twice the memory or bandwidth would bring (three searches)");
  command.footer(
      planners_and_keys() +
      "\nExamples:\n"
      "  tessera plan gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304 --cluster dgx-a100:4 "
      "--batch 256 --precision bfloat16 --explain --out plan.toml\n"
      "  tessera plan llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256 "
      "--cluster dgx-a100:1 --for torchtitan --out planned.py\n"
      "  tessera plan gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304 --cluster dgx-a100:4 "
      "--batch 256 --objective money --price 2.5 --within 50%\n"
      "  tessera plan 'megatron(tp=2,dp=2)' --model gpt:layers=4,hidden=128,heads=4 --out "
      "plan.toml\n");
  command.action([options]() -> Result<int> {
    if (options->list) return list_recipes(options->subject, options->json);
    PlanOptions given = *options;
    const bool searches = is_model(given);
    given.named = given.subject;
    std::string& model = searches ? given.subject : given.model;
    if (!model.empty()) {
      TESSERA_TRY(model, planned_model(model));
    }
    return searches ? search(given) : emit(given);
  });
}

}  // namespace tessera::cli
