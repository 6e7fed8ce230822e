// tessera export: writes a plan as the text of another framework, or reads such a text.
#include "tessera/export/export.h"
#include "tessera/base/json_text.h"
#include "tessera/base/memory_text.h"
#include "tessera/base/one_line.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/cli/with_planning/read_job.h"
#include "tessera/export/pytorch.h"
#include "tessera/import/export_weights.h"
#include "tessera/plan/load.h"
#include "tessera/planners/all_planners.h"

namespace tessera::cli {
namespace {

// The machine that decides the precision and the devices of a node where no --cluster is given.
constexpr const char* kUsualNode = "dgx-h100";

using Json = nlohmann::ordered_json;

struct ExportOptions {
  // `of` is the model if a plan is written; it is the weights if weights are written.
  std::string of, model, plan, target, out, from, cluster;
  PricingOptions pricing;
  int64_t batch = 0, ranks = 0;
  bool check = false, json = false;
};

std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const ExportTarget& target : export_targets()) names.push_back(target.name);
  names.emplace_back(kPyTorch);
  for (const WeightsTarget& target : weight_targets()) names.push_back(target.name);
  return names;
}

Result<const ExportTarget*> target_of(const std::string& name) {
  const ExportTarget* target = find_export_target(name);
  if (target != nullptr) return target;
  return invalid_input(
      fmt::format("export: --to: expected one of {}, found '{}', did you mean '{}'?",
                  join(target_names(), ", "), name, nearest(name, target_names())));
}

Json notes_json(const std::vector<std::string>& notes) {
  Json out = Json::array();
  for (const std::string& note : notes) out.push_back(note);
  return out;
}

Json trip_json(const RoundTrip& trip) {
  return {{"step_time_s", trip.step_s},
          {"read_back_step_time_s", trip.back_step_s},
          {"change", trip.change()},
          {"peak_memory_bytes", trip.memory_bytes},
          {"read_back_peak_memory_bytes", trip.back_memory_bytes},
          {"read_back_plan", trip.back.plan_text},
          {"ok", trip.same()}};
}

std::string trip_text(const RoundTrip& trip, const Pricing& pricing) {
  return fmt::format(
      "read back: step {:.6g} s, of the plan {:.6g} s ({}) on {}; memory {}, of the "
      "plan {}\npriced with {}\n",
      trip.back_step_s, trip.step_s, signed_percent(trip.change()), pricing.cluster.name,
      memory_text(static_cast<double>(trip.back_memory_bytes)),
      memory_text(static_cast<double>(trip.memory_bytes)), pricing.said);
}

// Writes the plan that a framework's text asks for.
Result<int> read_from(const ExportOptions& options, const ExportTarget& target) {
  TESSERA_TRY(const ReadBack back, read_job(target, options.from, options.model, options.ranks));
  for (const std::string& line : back.unread) note(fmt::format("note: {}\n", message_line(line)));
  if (!options.out.empty()) {
    TESSERA_TRY_VOID(write_file(options.out, back.plan_text));
    return 0;
  }
  return print(back.plan_text);
}

// ---- --plan auto

struct Found {
  Exported exported;
  std::string plan;  // the text of the plan
};

Result<PlanAnswer> search_plan(const ExportOptions& options, const Cluster& cluster,
                               const Style& style, const std::string& planner,
                               const std::map<std::string, std::string>& fixed) {
  PlanQuestion question;
  question.model = options.model;
  question.cluster = &cluster;
  question.options.style = style;
  question.fixed = fixed;
  TESSERA_TRY(question.compute, parse_dtype(options.pricing.precision));
  TESSERA_TRY(question.batch, batch_of(options.model, options.batch, 0));
  if (question.batch == 0)
    return invalid_input("plan auto: expected --batch, the sequences of a step");
  TESSERA_TRY(PlanAnswer answer, find_plan(question, planner, all_planners()));
  if (answer.best) return answer;
  const std::string text = to_text(answer, question, false);
  return check_failed("plan auto: " + text.substr(0, text.find('\n')));
}

// Finds the fastest plan of all. If the target cannot express it, finds the fastest plan that the
// target can express among those of the planner megatron_grid, searched once for each of the
// target's fixed choices.
Result<Found> find_exported(const ExportOptions& options, ExportRequest request,
                            const Cluster& cluster, const Style& style) {
  TESSERA_TRY(const PlanAnswer first, search_plan(options, cluster, style, "auto", {}));
  request.plan = "# auto: " + first.plan.substr(2);
  auto exported = export_plan(request);
  if (exported) return Found{std::move(*exported), request.plan};
  std::optional<Found> best;
  double best_s = 0;
  for (const auto& fixed : request.target->fixes) {
    const auto answer = search_plan(options, cluster, style, "megatron_grid", fixed);
    if (!answer) continue;
    const double step_s = *answer->simulated[*answer->best].step_s;
    if (best && step_s >= best_s) continue;
    request.plan = "# auto: " + answer->plan.substr(2);
    auto other = export_plan(request);
    if (!other) continue;
    best = Found{std::move(*other), request.plan};
    best_s = step_s;
    if (fixed.empty()) break;  // no other can be faster than with nothing fixed
  }
  if (!best) return tl::unexpected(std::move(exported.error()));
  note(fmt::format("note: a step of the fastest plan takes {:.4g} s, of this one {:.4g} s; {}\n",
                   *first.simulated[*first.best].step_s, best_s, exported.error().message));
  return std::move(*best);
}

// Writes weights with the names of another tool.
Result<int> write_weights(const ExportOptions& options, const WeightsTarget& target) {
  if (options.model.empty() || options.out.empty()) {
    return invalid_input(
        fmt::format("export: --to {} needs --model, the model of the weights, and --out, the "
                    "folder to write",
                    target.name));
  }
  for (const auto& [option, given] :
       {std::pair{"--plan", !options.plan.empty()}, std::pair{"--from", !options.from.empty()},
        std::pair{"--check", options.check}, std::pair{"--cluster", !options.cluster.empty()}}) {
    if (given) {
      return invalid_input(
          fmt::format("export: {} goes with a plan, not with --to {}, which "
                      "writes weights",
                      option, target.name));
    }
  }
  TESSERA_TRY(const ExportedWeights done, target.run({options.of, options.model, options.out}));
  if (options.json) {
    const Json json{{"model", options.model},
                    {"to", target.name},
                    {"out", options.out},
                    {"arrays", done.arrays},
                    {"parameters", done.parameters},
                    {"bytes", done.bytes},
                    {"carried", done.carried},
                    {"notes", done.notes}};
    return print(dumped(json) + "\n");
  }
  std::string notes;
  for (const std::string& note : done.notes) notes += fmt::format("note     {}\n", note);
  return print(fmt::format("{}: {} parameters in {}, {}\n{}", options.out, grouped(done.parameters),
                           plural(done.arrays, "array"), short_bytes(done.bytes), notes));
}

// Writes a plan as a file of plain PyTorch.
Result<int> write_pytorch(const ExportOptions& options) {
  if (options.plan.empty()) {
    return invalid_input("export: --to pytorch: expected --plan, the plan to write");
  }
  for (const auto& [option, given] :
       {std::pair{"--from", !options.from.empty()}, std::pair{"--check", options.check},
        std::pair{"--model", !options.model.empty()},
        std::pair{"--cluster", !options.cluster.empty()},
        std::pair{"--plan auto", options.plan == "auto"}}) {
    if (given)
      return invalid_input(fmt::format("export: {} does not go with --to pytorch", option));
  }
  ExportRequest request;
  TESSERA_TRY(request.model, planned_model(options.of));
  request.plan = options.plan;
  request.batch = options.batch;
  if (!options.pricing.precision.empty()) request.precision = options.pricing.precision;
  TESSERA_TRY(const PyTorchFile file, export_pytorch(request));
  if (!options.out.empty()) TESSERA_TRY_VOID(write_file(options.out, file.text));
  if (options.json) {
    const Json json{{"model", file.model},
                    {"plan", plan_label(request.plan)},
                    {"to", kPyTorch},
                    {"version", kPyTorchVersion},
                    {"ranks", file.ranks},
                    {"batch", file.batch},
                    {"notes", notes_json(file.notes)},
                    {"text", file.text}};
    return print(dumped(json) + "\n");
  }
  return options.out.empty() ? print(file.text) : 0;
}

Status check_options(const ExportOptions& options) {
  if (!options.model.empty())
    return invalid_input("export: --model goes with weights; a plan's model is the first argument");
  if (options.from.empty() == options.plan.empty())
    return invalid_input("export: expected --plan, the plan to write, or --from, a file to read");
  if (!options.from.empty() && (options.check || options.json))
    return invalid_input("export: --check and --json go with --plan, not with --from");
  if (options.check && options.cluster.empty())
    return invalid_input("export: --check needs --cluster, the machine to predict a step on");
  if (options.plan == "auto" && options.cluster.empty())
    return invalid_input("export: --plan auto needs --cluster, the machine to find a plan for");
  return {};
}

Result<int> run_export(const ExportOptions& given) {
  if (const WeightsTarget* weights = find_weights_target(given.target); weights != nullptr)
    return write_weights(given, *weights);
  if (given.target == kPyTorch) return write_pytorch(given);
  TESSERA_TRY(const ExportTarget* target, target_of(given.target));
  TESSERA_TRY_VOID(check_options(given));
  ExportOptions options = given;
  TESSERA_TRY(options.model, planned_model(given.of));
  if (!options.from.empty()) return read_from(options, *target);
  SimulateOptions simulated;
  simulated.critical_path = false;
  simulated.memory_details = false;
  if (options.pricing.style.empty()) options.pricing.style = target->style;
  TESSERA_TRY(Cluster machine,
              load_machine(options.cluster.empty() ? kUsualNode : options.cluster));
  TESSERA_TRY(const Pricing pricing,
              decide_pricing(options.pricing, std::move(machine),
                             {options.model, options.plan, options.batch, given.of}));
  const Cluster& cluster = pricing.cluster;
  simulated.style = pricing.style;
  options.pricing.precision = pricing.precision;
  ExportRequest request{options.model,     options.plan, options.batch,
                        pricing.precision, target,       cluster.type_of(0).devices};
  Exported exported;
  if (options.plan == "auto") {
    TESSERA_TRY(Found found, find_exported(options, request, cluster, simulated.style));
    exported = std::move(found.exported);
    request.plan = std::move(found.plan);
  } else {
    TESSERA_TRY(exported, export_plan(request));
  }
  std::optional<RoundTrip> trip;
  if (options.check) {
    TESSERA_TRY(trip, check_export(request, exported, cluster, simulated));
  }
  if (!options.out.empty()) TESSERA_TRY_VOID(write_file(options.out, exported.text));
  int code = 0;
  if (options.json) {
    Json out{{"model", exported.model->spec},
             {"plan", plan_label(request.plan)},
             {"to", target->name},
             {"version", target->version},
             {"ranks", exported.settings.ranks()},
             {"batch", exported.settings.batch},
             {"notes", notes_json(exported.notes)},
             {"text", exported.text}};
    if (trip) out["check"] = trip_json(*trip);
    code = print(dumped(out) + "\n");
  } else if (options.out.empty()) {
    code = print(exported.text);
  }
  if (!options.json) {
    for (const std::string& line : exported.notes) {
      if (!target->has_comments) note(fmt::format("note: {}\n", message_line(line)));
    }
    if (trip) note(trip_text(*trip, pricing));
  }
  const int64_t memory = cluster.type_of(0).device.memory_bytes;
  if (code == 0 && trip && trip->memory_bytes <= memory && trip->back_memory_bytes > memory) {
    return check_failed(
        fmt::format("export: the plan fits into the {} of a device, but what is read back needs {}",
                    memory_text(static_cast<double>(memory)),
                    memory_text(static_cast<double>(trip->back_memory_bytes))));
  }
  if (code == 0 && trip && !trip->same()) {
    return check_failed(fmt::format(
        "export: expected that what is read back takes the plan's step within {}, found {}",
        percent(kMostRoundTripChange, 0), signed_percent(trip->change())));
  }
  return code;
}

}  // namespace

Result<ReadBack> read_job(const ExportTarget& target, const std::string& path,
                          const std::string& model, int64_t ranks) {
  TESSERA_TRY(const std::string text, read_file(path));
  TESSERA_TRY(const Model built, build_model(model, 1));
  auto back = read_export(target, text, ranks, built);
  if (back) return back;
  back.error().message = fmt::format("{}: {}", path, back.error().message);
  return tl::unexpected(std::move(back.error()));
}

void add_export(Commands& commands) {
  const auto options = std::make_shared<ExportOptions>();
  Command command = commands.add(
      "export", "Write a plan in the words of another framework, or read one back; or weights");
  command.option("MODEL", options->of, "Model; or weights, a file or folder of safetensors")
      .required();
  std::vector<std::string> targets;
  for (const ExportTarget& target : export_targets())
    targets.push_back(fmt::format("{} ({}; {})", target.name, target.summary, target.version));
  targets.push_back(fmt::format("{} ({}; {})", kPyTorch, kPyTorchSummary, kPyTorchVersion));
  for (const WeightsTarget& target : weight_targets())
    targets.push_back(fmt::format("{} ({}; {})", target.name, target.summary, target.version));
  command.option("--to", options->target, "Framework: " + join(targets, ", ")).required();
  command.option("--model", options->model,
                 "Model that the weights are of, for targets that write weights (hf, pt2)");
  command.option("--plan", options->plan, "Plan file, recipe call, or auto");
  command.option("-o,--out", options->out,
                 "Write to this file, not to the terminal; of weights: a new folder");
  add_batch(command, options->batch);
  add_pricing(command, options->pricing);
  command.option(
      "--cluster", options->cluster,
      "Machine, for --check, for --plan auto and for the devices of a node: a preset and "
      "its nodes (dgx-a100:8), local, or a TOML file");
  command.flag("--check", options->check,
               "Read back what was written and predict both steps: exit code 1 if they differ by "
               "more than 2 %, or if the plan fits and what is read back does not");
  command.option("--from", options->from,
                 "Read this file of the framework and print the plan that it asks for");
  command
      .option("--ranks", options->ranks,
              "Ranks that the launcher starts, for --from where the file does not say it")
      .ranks();
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "What each framework can express: docs/reference/export.md\n\n"
      "Examples:\n"
      "  tessera export gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304 --plan "
      "'megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=4)' --precision bfloat16 --to megatron "
      "--cluster "
      "dgx-a100:1 --check\n"
      "  tessera export llama:layers=8 --from job.toml --ranks 16 --to torchtitan --out "
      "plan.toml\n"
      "  tessera export models/llama/model.safetensors --to hf --model models/llama/config.json "
      "--out llama_hf\n"
      "  tessera export model.pt2 --plan 'fsdp(dp=4)' --to pytorch --out parallel.py\n"
      "  tessera export checkpoints --to pt2 --model models/mine/model.graph --out trained\n");
  command.action([options] { return run_export(*options); });
}

}  // namespace tessera::cli
