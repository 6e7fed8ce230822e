// tessera import: turns a model of another tool into a model of Tessera, and the configuration of
// another framework's run into a plan.
#include "tessera/import/import.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planned_model.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/cli/with_planning/read_job.h"

namespace tessera::cli {
namespace {

struct ImportOptions {
  std::string path, out, model, framework;
  std::vector<std::string> assignments;
  int64_t ranks = 0;
  bool json = false;
};

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const ExportTarget& target : export_targets()) names.push_back(target.name);
  return names;
}

// ---- configurations of runs

Result<const ExportTarget*> framework_of(const ImportOptions& options) {
  if (!options.framework.empty()) return find_export_target(options.framework);
  TESSERA_TRY(const std::string text, read_file(options.path));
  return target_of_text(options.path, text);
}

Result<int> import_job(const ImportOptions& options) {
  TESSERA_TRY(const ExportTarget* target, framework_of(options));
  if (options.model.empty()) {
    return invalid_input(
        fmt::format("import: {}: expected --model, the model that this {} configuration trains",
                    options.path, target->name));
  }
  if (!options.assignments.empty())
    return invalid_input("import: --set goes with models, not with configurations of runs");
  TESSERA_TRY(const std::string model, planned_model(options.model));
  TESSERA_TRY(const ReadBack back, read_job(*target, options.path, model, options.ranks));
  if (!options.out.empty()) TESSERA_TRY_VOID(write_file(options.out, back.plan_text));
  if (options.json) {
    const nlohmann::ordered_json json{
        {"from", target->name},           {"settings", back.settings.str()},
        {"ranks", back.settings.ranks()}, {"batch", back.settings.batch},
        {"unread", back.unread},          {"text", back.plan_text}};
    return print(dumped(json) + "\n");
  }
  for (const std::string& line : back.unread) note(fmt::format("note: {}\n", message_line(line)));
  if (options.out.empty()) return print(back.plan_text);
  return print(fmt::format("{} ({}): {}\nbatch    {}\nplan     {}\n", options.path, target->name,
                           back.settings.str(), back.settings.batch, options.out));
}

// ---- models

Result<std::map<std::string, std::string>> settings_of(const ImportOptions& options,
                                                       const Importer& importer) {
  std::map<std::string, std::string> settings;
  for (const std::string& assignment : options.assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
      return invalid_input(
          fmt::format("import: --set: expected key=value, found '{}'", assignment));
    }
    settings[assignment.substr(0, equals)] = assignment.substr(equals + 1);
  }
  TESSERA_TRY_VOID(check_settings(importer, settings, "import: --set"));
  return settings;
}

Result<int> run_import(const ImportOptions& options) {
  const auto found = importer_of(options.path);
  const bool says_job = !options.framework.empty() || !options.model.empty();
  if (says_job || !found) {
    // A file that is neither gets the message about models, unless something says that it is a run.
    if (says_job || framework_of(options)) return import_job(options);
    return tl::unexpected(found.error());
  }
  const Importer* importer = *found;
  if (options.out.empty())
    return invalid_input("import: expected --out, the folder to write; it must not exist yet");
  ImportRequest request{options.path, options.out, {}};
  TESSERA_TRY(request.settings, settings_of(options, *importer));
  TESSERA_TRY(const ImportReport report, importer->run(request));
  if (options.json) {
    const nlohmann::ordered_json json{{"from", importer->name},          {"model", report.model},
                                      {"weights", report.weights},       {"arrays", report.arrays},
                                      {"parameters", report.parameters}, {"bytes", report.bytes},
                                      {"carried", report.carried},       {"notes", report.notes}};
    return print(dumped(json) + "\n");
  }
  std::string more =
      report.carried.empty() ? "" : fmt::format("beside   {}\n", join(report.carried, ", "));
  const std::string weights =
      report.weights.empty() ? "" : fmt::format("weights  {}\n", report.weights);
  for (const std::string& note : report.notes) more += fmt::format("note     {}\n", note);
  return print(fmt::format("{} ({}): {} parameters in {}, {}\nmodel    {}\n{}{}", options.path,
                           importer->name, grouped(report.parameters),
                           plural(report.arrays, "array"), short_bytes(report.bytes), report.model,
                           weights, more));
}

}  // namespace

void add_import(Commands& commands) {
  const auto options = std::make_shared<ImportOptions>();
  Command command =
      commands.add("import", "Read a model as another tool has written it, or the plan of a run");
  std::vector<std::string> kinds, keys;
  for (const Importer& importer : importers()) {
    kinds.push_back(importer.summary);
    for (const auto& [key, help] : importer.keys)
      keys.push_back(fmt::format("{} ({}): {}", key, importer.name, help));
  }
  kinds.emplace_back("a configuration of a run (" + join(framework_names(), ", ") + ")");
  command.option("PATH", options->path, "What to read: " + join(kinds, "; or ")).required();
  command.option("--out", options->out,
                 "Folder to write, which must not exist yet; of a run: the plan's file (default: "
                 "the terminal)");
  command.option("--model", options->model, "MODEL that the run trains");
  command
      .option("--ranks", options->ranks,
              "Ranks that the run's launcher starts, where its configuration does not say it")
      .ranks();
  command
      .option("--framework", options->framework,
              "Framework of the configuration (default: by its name and its keys)")
      .one_of(framework_names());
  command
      .option("--set", options->assignments,
              "A setting as key=value" + (keys.empty() ? "" : ": " + join(keys, "; ")))
      .one_value_each();
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  tessera import downloads/llama --out models/llama\n"
      "  tessera import my_model.pt2 --out models/mine\n"
      "  tessera import pretrain.sh --model llama:layers=32,hidden=4096 --out plan.toml\n"
      "  tessera import ds_config.json --model llama:layers=32,hidden=4096 --ranks 8\n");
  command.action([options] { return run_import(*options); });
}

}  // namespace tessera::cli
