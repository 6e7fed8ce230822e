#include "tessera/cli/with_planning/plan_for.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/export/export.h"
#include "tessera/search/choices/grid.h"
#include "tessera/search/planner.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

ExportRequest export_request(const PlanQuestion& question, const PlanForRequest& request,
                             const std::string& plan, Compiler& compiler) {
  return {question.model, plan,
          question.batch, request.pricing->precision,
          request.target, question.cluster->type_of(0).devices,
          &compiler};
}

// Returns the plan in the words of people: "tp=2 cp=2 pp=4 dp=4, ZeRO-1, recompute full, 8
// micro-batches of 1".
std::string words_of(const ExportSettings& s) {
  std::vector<std::string> degrees;
  for (const auto& [name, degree] :
       {std::pair{"tp", s.tp}, std::pair{"cp", s.cp}, std::pair{"ep", s.ep}, std::pair{"pp", s.pp},
        std::pair{"dp", s.dp}, std::pair{"replicas", s.replicas}}) {
    if (degree > 1) degrees.push_back(fmt::format("{}={}", name, degree));
  }
  std::string out = degrees.empty() ? "one rank" : join(degrees, " ");
  if (s.zero > 0) out += fmt::format(", ZeRO-{}", s.zero);
  if (s.pp > 1) {
    out += s.chunks > 1 ? fmt::format(", {} with {} stages a rank", s.schedule, s.chunks)
                        : fmt::format(", {}", s.schedule);
  }
  if (s.recompute != "none") out += fmt::format(", recompute {}", s.recompute);
  return out +
         fmt::format(", {} of {}",
                     (s.micro_batches == 1 ? std::string("1 micro-batch")
                                           : fmt::format("{} micro-batches", s.micro_batches)),
                     s.micro_batch_size());
}

struct Offered {
  const GridPlan* plan = nullptr;
  Exported exported;
  std::string words;
};

// Returns the plan of a choice with expert ranks as frameworks lay it out: each rank chooses the
// experts of its own tokens, while a choice cuts also that by experts. Nothing for other choices.
std::optional<std::string> plan_with_experts(const Choice& choice, int64_t batch,
                                             const Graph& forward) {
  ExportSettings s;
  s.pp = choice.stages;
  s.dp = choice.axes.front().size;
  for (size_t a = 1; a < choice.axes.size(); ++a) {
    const ChoiceAxis& axis = choice.axes[a];
    if (has(axis.dims, "experts")) {
      s.ep = axis.size;
    } else if (has(axis.dims, "heads")) {
      s.tp = axis.size;
      s.sequence_shard = has(axis.dims, "seq");
    } else {
      s.cp = axis.size;
      if (!has(axis.dims, "seq~kv")) s.context = ContextForm::kGather;
    }
  }
  if (s.ep == 1) return std::nullopt;
  s.chunks = choice.chunks;
  s.schedule = choice.schedule;
  s.micro_batches = choice.micro_batches;
  s.batch = batch;
  s.zero = choice.sharded;
  if (s.zero == 3) s.gathered_ahead = choice.transfers.ahead;
  s.recompute = choice.recompute;
  s.compute = choice.compute;
  const auto plan = plan_of(s, forward);
  if (!plan) return std::nullopt;
  return fmt::format("# {}\n{}", choice.str(), to_toml(*plan));
}

// The exports of the plans that were accepted, by the texts of the plans.
using Accepted = std::map<std::string, Exported>;

// Returns the plans as the target has them, in the answer's order.
std::vector<Offered> offered_of(const GridAnswer& answer, Accepted accepted) {
  std::vector<Offered> out;
  for (const GridPlan& plan : answer.plans) {
    Exported exported = std::move(accepted.at(plan.text));
    std::string words = words_of(exported.settings);
    out.push_back({&plan, std::move(exported), std::move(words)});
  }
  return out;
}

std::string row_of(const Offered& one) {
  return fmt::format("{:.4g} s, {}: {}", *one.plan->candidate.step_s,
                     memory_text(one.plan->candidate.need_bytes), one.words);
}

std::vector<std::string> lines_of(const PlanForRequest& request, const GridAnswer& answer,
                                  const std::vector<Offered>& offered) {
  const Offered& best = offered.front();
  const double step_s = *best.plan->candidate.step_s;
  std::vector<std::string> out;
  out.push_back(fmt::format("{} on {}: {}", request.target->version, request.cluster, best.words));
  out.push_back(fmt::format("step {:.4g} s (uncertainty {}), memory {} of {} a device", step_s,
                            percent(answer.uncertainty, 0),
                            memory_text(best.plan->candidate.need_bytes),
                            memory_text(answer.limit_bytes)));
  out.push_back("priced with " + request.pricing->said);
  for (const std::string& one : request.assumed) out.push_back(one);
  std::vector<std::string> faster, slower;
  for (size_t i = 1; i < offered.size(); ++i) {
    (*offered[i].plan->candidate.step_s < step_s ? faster : slower).push_back(row_of(offered[i]));
  }
  if (!faster.empty()) {
    out.push_back(fmt::format(
        "this is the simplest of the plans that are as fast within the uncertainty; faster by "
        "prediction:"));
    for (const std::string& row : faster) out.push_back("  " + row);
  }
  if (!request.explain) return out;
  out.push_back(fmt::format("{} choices ranked by formula, {} simulated, {} refused by the target",
                            answer.ranked, answer.simulated, answer.refused));
  if (!answer.refusal.empty()) out.push_back("first refused: " + answer.refusal);
  out.push_back("entries: " + best.plan->candidate.choice.str());
  if (!slower.empty()) out.emplace_back("slower:");
  for (const std::string& row : slower) out.push_back("  " + row);
  return out;
}

Json plan_json(const Offered& one) {
  return {{"words", one.words},
          {"choice", one.plan->candidate.choice.str()},
          {"step_time_s", *one.plan->candidate.step_s},
          {"memory_bytes", std::llround(one.plan->candidate.need_bytes)}};
}

std::string answer_json(const PlanQuestion& question, const PlanForRequest& request,
                        const GridAnswer& answer, const std::vector<Offered>& offered) {
  Json others = Json::array();
  for (size_t i = 1; i < offered.size(); ++i) others.push_back(plan_json(offered[i]));
  const Json out{{"model", question.model},
                 {"cluster", request.cluster},
                 {"for", request.target->name},
                 {"version", request.target->version},
                 {"style", to_string(question.options.style)},
                 {"precision", request.pricing->precision},
                 {"priced_with", request.pricing->said},
                 {"batch", question.batch},
                 {"best", plan_json(offered.front())},
                 {"uncertainty", answer.uncertainty},
                 {"memory_limit_bytes", std::llround(answer.limit_bytes)},
                 {"others", std::move(others)},
                 {"ranked", answer.ranked},
                 {"simulated", answer.simulated},
                 {"refused", answer.refused},
                 {"notes", offered.front().exported.notes},
                 {"plan", with_style(offered.front().plan->text, *request.pricing)},
                 {"text", offered.front().exported.text}};
  return dumped(out) + "\n";
}

Result<int> nothing_fits(const PlanForRequest& request, const GridAnswer& answer) {
  if (answer.simulated == 0) {
    return check_failed(fmt::format("plan: {} runs none of {} plans: {}", request.target->name,
                                    answer.refused, answer.refusal));
  }
  return check_failed(fmt::format(
      "plan: nothing that {} runs fits: the smallest of {} simulated plans needs {} of {}; more "
      "devices, a smaller batch or a larger limit would help",
      request.target->name, answer.simulated, memory_text(answer.least_bytes),
      memory_text(answer.limit_bytes)));
}

}  // namespace

std::vector<std::string> plan_targets() {
  std::vector<std::string> out;
  for (const ExportTarget& target : export_targets()) out.push_back(target.name);
  return out;
}

Result<int> plan_for(const PlanQuestion& question, const PlanForRequest& request) {
  TESSERA_TRY_VOID(check_question(question));
  Accepted accepted;
  Compiler compiler;
  const auto accepts = [&](const std::string& plan) -> Status {
    TESSERA_TRY(Exported exported, export_plan(export_request(question, request, plan, compiler)));
    accepted.insert_or_assign(plan, std::move(exported));
    return {};
  };
  TESSERA_TRY(const auto model,
              compiler.model(question.model, question.batch, storage_dtype(question.compute)));
  const auto own = [&](const Choice& choice) {
    return plan_with_experts(choice, question.batch, model->graph);
  };
  TESSERA_TRY(const GridAnswer answer, find_in_grid(question, request.target->grid, accepts, own));
  if (answer.plans.empty()) return nothing_fits(request, answer);
  const std::vector<Offered> offered = offered_of(answer, std::move(accepted));
  const Exported& best = offered.front().exported;
  if (!request.out.empty()) TESSERA_TRY_VOID(write_file(request.out, best.text));
  if (request.json) return print(answer_json(question, request, answer, offered));
  std::string text;
  const bool to_file = !request.out.empty();
  for (const std::string& line : lines_of(request, answer, offered))
    text += fmt::format("{}{}\n", to_file || !request.target->has_comments ? "" : "# ", line);
  if (to_file) return print(text);
  // A text without comments is the output alone; what was found goes beside it.
  if (request.target->has_comments) return print(text + best.text);
  for (const std::string& note : best.notes) text += fmt::format("note: {}\n", message_line(note));
  note(text);
  return print(best.text);
}

}  // namespace tessera::cli
