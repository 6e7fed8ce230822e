// tessera import: turns a model of another tool into a model of Tessera.
#include "tessera/import/import.h"
#include "tessera/base/json_text.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_planning/commands.h"

namespace tessera::cli {
namespace {

struct ImportOptions {
  std::string path, out;
  std::vector<std::string> assignments;
  bool json = false;
};

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
  TESSERA_TRY(const Importer* importer, importer_of(options.path));
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
      commands.add("import", "Read a model and its weights as another tool has written them");
  std::vector<std::string> kinds, keys;
  for (const Importer& importer : importers()) {
    kinds.push_back(importer.summary);
    for (const auto& [key, help] : importer.keys)
      keys.push_back(fmt::format("{} ({}): {}", key, importer.name, help));
  }
  command.option("PATH", options->path, "What to read: " + join(kinds, "; or ")).required();
  command.option("--out", options->out, "Folder to write; it must not exist yet").required();
  command
      .option("--set", options->assignments,
              "A setting as key=value" + (keys.empty() ? "" : ": " + join(keys, "; ")))
      .one_value_each();
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  tessera import downloads/llama --out models/llama\n"
      "  tessera import my_model.pt2 --out models/mine\n");
  command.action([options] { return run_import(*options); });
}

}  // namespace tessera::cli
