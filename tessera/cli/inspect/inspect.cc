// tessera inspect: defines its options and decides which answer is asked for.
#include "tessera/cli/inspect/inspect.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/models/families.h"
#include "tessera/plan/load.h"
#include "tessera/plan/recipes.h"

namespace tessera::cli {
namespace {

enum class Subject { kModel, kPlan, kProgram, kResharding, kPath, kCluster };

bool is_program(const std::string& file) {
  const auto text = read_file(file);
  return text && trim(*text).starts_with("program ");
}

// Returns whether the file describes a cluster. It does if it has parts, because plans have none.
// Returns false if the file cannot be read; the plan's parser then reports the error.
bool is_cluster_file(const std::string& file) {
  const auto text = read_file(file);
  if (!text) return false;
  const auto table = parse_toml(*text, file);
  return table && table->contains("part");
}

// Returns whether the text is the name of a preset, or is closer to such a name than to that of a
// model family.
bool means_preset(const std::string& text) {
  if (names_preset(text)) return true;
  std::vector<std::string> names = preset_names();
  for (const std::string& family : family_names()) names.push_back(family);
  const std::string name = text.substr(0, text.find(':'));
  return text.find('/') == std::string::npos && names_preset(nearest(name, names));
}

Result<Subject> subject_of(const std::string& text) {
  if (text.find("->") != std::string::npos)
    return text.find('@') != std::string::npos ? Subject::kResharding : Subject::kPath;
  if (resolve_model(text)) return Subject::kModel;
  if (text.ends_with(".toml")) return is_cluster_file(text) ? Subject::kCluster : Subject::kPlan;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(text, ignored)) {
    if (is_program(text)) return Subject::kProgram;
    return invalid_input(fmt::format(
        "inspect: expected '{}' to be a model's config.json, a graph (.graph), a plan (.toml) "
        "or a program, found a text of another kind",
        text));
  }
  const size_t end = text.find_first_of("(:");
  const std::string name = text.substr(0, end);
  if (find_recipe(name) != nullptr || (end != std::string::npos && text[end] == '(')) {
    return Subject::kPlan;
  }
  if (means_preset(text)) return Subject::kCluster;
  return Subject::kModel;
}

Result<Compiled> compile_for(const InspectOptions& options, const std::string& model,
                             const std::string& plan) {
  CompileTexts texts{model, plan, options.batch, options.precision};
  TESSERA_TRY(texts.optimizer, parse_optimizer_text(options.optimizer));
  if (plan == "auto") {
    if (options.cluster.empty()) {
      return invalid_input(
          "inspect: expected --cluster beside --plan auto, the machine for which a plan is wanted "
          "(dgx-a100:8, local)");
    }
    TESSERA_TRY(const Cluster cluster, load_cluster(options.cluster));
    TESSERA_TRY(texts.plan, find_auto({plan, model, options.batch, options.precision, &cluster,
                                       std::nullopt, 0, texts.optimizer}));
  }
  texts.takes_outer = true;
  return compile(texts);
}

Result<int> inspect_planned(const InspectOptions& options, const std::string& model,
                            const std::string& plan) {
  TESSERA_TRY(const Compiled planned, compile_for(options, model, plan));
  if (!options.op.empty()) return inspect_op(options, planned);
  if (options.rank) return inspect_rank(options, planned);
  if (options.place) return inspect_place(options, planned);
  if (options.decisions) return inspect_decisions(options, planned);
  return inspect_roles(options, planned);
}

Status check_plan_is_given(const InspectOptions& options) {
  const char* option = !options.op.empty()              ? "--op"
                       : options.rank                   ? "--rank"
                       : options.place                  ? "--place"
                       : options.decisions              ? "--decisions"
                       : options.precision != "float32" ? "--precision"
                       : !options.optimizer.empty()     ? "--optimizer"
                       : !options.cluster.empty()       ? "--cluster"
                                                        : nullptr;
  if (option == nullptr) return {};
  return invalid_input(fmt::format("inspect: {} needs --plan", option));
}

Result<int> inspect(const InspectOptions& given) {
  InspectOptions options = given;
  if (options.list_clusters) return list_clusters(options.json);
  if (options.list_models) return list_models(options.json);
  if (options.subject.empty()) {
    return invalid_input(
        "inspect: MODEL|PLAN|PROGRAM|CLUSTER is required (tessera inspect --help)");
  }
  TESSERA_TRY(const Subject subject, subject_of(options.subject));
  std::string& model = subject == Subject::kModel ? options.subject : options.model;
  TESSERA_TRY(model, planned_model(model));
  const bool moves = subject == Subject::kResharding || subject == Subject::kPath;
  if (!moves && !options.shape.empty()) {
    return invalid_input("inspect: --shape belongs to a resharding, as 'S0RR@2x4 -> S0RR@3x4'");
  }
  if (subject != Subject::kPath && !options.mesh.empty()) {
    return invalid_input("inspect: --mesh belongs to a path on one mesh, as 'S0R -> RS0'");
  }
  if (subject == Subject::kPath && options.mesh.empty()) {
    return invalid_input(fmt::format(
        "inspect: expected --mesh for '{}', as 2x4; or both sides with their meshes, as "
        "S0R@2x4",
        options.subject));
  }
  if (subject == Subject::kResharding && !options.cluster.empty()) {
    return invalid_input(
        "inspect: --cluster belongs to a plan or to a path on one mesh, as 'S0R -> RS0'");
  }
  if (subject != Subject::kCluster && !options.what_if.empty()) {
    return invalid_input("inspect: --what-if belongs to a cluster, as dgx-a100:2");
  }
  switch (subject) {
    case Subject::kModel:
      if (!options.model.empty()) {
        return invalid_input(fmt::format("inspect: '{}' is a model and so is --model '{}'",
                                         options.subject, options.model));
      }
      if (!options.plan.empty()) return inspect_planned(options, options.subject, options.plan);
      TESSERA_TRY_VOID(check_plan_is_given(options));
      return inspect_model(options);
    case Subject::kPlan:
      if (!options.plan.empty()) {
        return invalid_input(fmt::format("inspect: '{}' is a plan and so is --plan '{}'",
                                         options.subject, options.plan));
      }
      if (!options.model.empty()) return inspect_planned(options, options.model, options.subject);
      if (names_plan_file(options.subject)) return inspect_plan_text(options);
      return invalid_input(
          fmt::format("inspect: expected --model for '{}': recipes read sizes "
                      "from the model",
                      options.subject));
    case Subject::kProgram: {
      if (options.model.empty() || options.plan.empty()) {
        return invalid_input(
            "inspect: a program needs --model and --plan, which say what it must compute");
      }
      TESSERA_TRY(const Compiled planned, compile_for(options, options.model, options.plan));
      return inspect_program(options, planned, options.subject);
    }
    case Subject::kResharding: return inspect_resharding(options);
    case Subject::kPath: return inspect_path(options);
    case Subject::kCluster:
      if (options.plan.empty() && options.model.empty() && !options.rank && !options.place &&
          !options.decisions && options.op.empty()) {
        return inspect_cluster(options);
      }
      return invalid_input(
          fmt::format("inspect: '{}' is a cluster: --plan, --model, --rank and --op belong to "
                      "models and plans",
                      options.subject));
  }
  return 0;
}

}  // namespace

void add_inspect(Commands& commands) {
  const auto options = std::make_shared<InspectOptions>();
  Command command =
      commands.add("inspect", "Show a model, a plan, the programs that they make, or a cluster");
  command.option("MODEL|PLAN|PROGRAM|CLUSTER", options->subject,
                 "What to show; or two layouts with an arrow between them");
  command.option(
      "--plan", options->plan,
      "Plan file, recipe call or, with --cluster and --batch, auto: show the ranks' roles");
  command.option("--model", options->model, "MODEL for a PLAN or a PROGRAM");
  add_batch(command, options->batch);
  add_precision(command, options->precision);
  add_optimizer(command, options->optimizer);
  command.option("--rank", options->rank, "Print the program of this rank").at_least(0);
  command
      .option("--place", options->place,
              "Print the text of this place: what its ranks have in common, with layouts")
      .at_least(0);
  command.flag("--decisions", options->decisions,
               "Print the layouts of every op, and where and how often tensors move");
  command.option("--cluster", options->cluster,
                 "With a plan: how its axes lie on this machine, in a node or across nodes; of a "
                 "path between layouts: the machine on which it is priced");
  command.option("--op", options->op,
                 "Which plan entries decide for these ops (a selector, as blocks.0.mlp)");
  command
      .option("--shape", options->shape,
              "Of a resharding or a path between layouts: the tensor's sizes, with commas between")
      .delimiter(',');
  command.option("--mesh", options->mesh,
                 "Of a path between layouts: the sizes of the mesh's axes, as 2x4");
  command.option("--what-if", options->what_if,
                 "Of a CLUSTER: figures times a factor, as 'link:nic*2,device:peak*1.2'");
  command.flag("--models", options->list_models,
               "The model families with their keys, defaults and meanings");
  command.flag("--list-clusters", options->list_clusters, "The machines with a name");
  command.flag("--text", options->text,
               "Of a MODEL: the text of its training graph; of a CLUSTER: its file");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  tessera inspect gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200 \\\n"
      "      --plan 'megatron(tp=8,pp=16,dp=128,zero=1,micro_batches=64)'\n"
      "  tessera inspect examples/plans/tp2_dp2.toml --model gpt:layers=2 --op blocks.0.mlp\n"
      "  tessera inspect gpt:layers=2 --plan 'zero(stage=1,dp=2)' --rank 0\n"
      "  tessera inspect gpt:layers=2 --plan 'gpipe(2,4)' --place 1\n"
      "  tessera inspect gpt:layers=2,heads=4 --plan 'summa(4,device_order=\"row:2,col\")' \\\n"
      "      --cluster dgx-a100:2\n"
      "  tessera inspect 'S0RR@2x4 -> S0RR@3x4' --shape 3072,1024,170\n"
      "  tessera inspect 'S0R -> RS0' --mesh 2x4\n"
      "  tessera inspect 'S0RP1 -> RS01' --mesh 2x4 --shape 4096,1024 --cluster dgx-a100:1\n"
      "  tessera inspect dgx-a100:4\n");
  command.action([options] { return inspect(*options); });
}

}  // namespace tessera::cli
