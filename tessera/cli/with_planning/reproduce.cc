// tessera reproduce: runs published planning algorithms on their published cost models.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cli/progress_line.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/planners/published/reproduce.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;
using published::Reproduction;

struct ReproduceOptions {
  std::string system, instance;
  bool list = false, json = false;
};

std::string_view state_text(const std::string& reproduced) {
  if (reproduced == "exactly") return "reproduced exactly";
  if (reproduced == "simulated") return "reproduced by simulation";
  return "not reproducible";
}

Result<int> list_claims(bool json) {
  TESSERA_TRY(const auto claims, published::published_claims());
  if (json) {
    Json systems = Json::array();
    for (const published::PublishedSystem& system : published::published_systems()) {
      systems.push_back(
          {{"name", system.name}, {"summary", system.summary}, {"page", system.page}});
    }
    Json rows = Json::array();
    for (const published::Claim& claim : claims) {
      rows.push_back({{"system", claim.system},
                      {"claim", claim.claim},
                      {"reproduced", claim.reproduced},
                      {"examples", claim.examples},
                      {"how", claim.how}});
    }
    return print(dumped(Json{{"systems", std::move(systems)}, {"claims", std::move(rows)}}) + "\n");
  }
  std::map<std::string, std::string> about;
  for (const published::PublishedSystem& system : published::published_systems()) {
    about[system.name] = fmt::format(": {} ({})", system.summary, system.page);
  }
  std::string out;
  std::string last;
  for (const published::Claim& claim : claims) {
    if (claim.system != last) {
      out += fmt::format("{}{}{}\n", last.empty() ? "" : "\n", claim.system, about[claim.system]);
      last = claim.system;
    }
    out +=
        fmt::format("  {}\n      {}: {}{}\n", claim.claim, state_text(claim.reproduced), claim.how,
                    claim.examples.empty() ? "" : " [" + join(claim.examples, ", ") + "]");
  }
  return print(out);
}

// Returns exit code 0 if all expectations were met; else an error with the number of differences.
Result<int> verdict(const std::string& what, const std::vector<std::string>& differences) {
  if (differences.empty()) return 0;
  return check_failed(fmt::format("reproduce: {}: {} of what is expected found otherwise; {}", what,
                                  plural(static_cast<int64_t>(differences.size()), "value"),
                                  differences.front()));
}

Result<int> run_instance(const ReproduceOptions& options) {
  TESSERA_TRY(const std::string text, read_file(options.instance));
  Result<Reproduction> result;
  {
    ProgressLine line("reproduce");
    result = published::reproduce(options.system, text, options.instance,
                                  [&](std::string_view what) { line.say(what); });
  }
  if (!result) return tl::unexpected(result.error());
  std::string out = options.json ? result->json + "\n" : result->text;
  if (!options.json && result->checked > 0) {
    out += fmt::format("\n{} expected, {} found otherwise\n", plural(result->checked, "value"),
                       result->differences.size());
    for (const std::string& difference : result->differences) out += "  " + difference + "\n";
  }
  if (const int code = print(out); code != 0) return code;
  return verdict(options.instance, result->differences);
}

// Runs the worked examples; called if no instance is given.
Result<int> run_examples(const ReproduceOptions& options) {
  TESSERA_TRY(const auto examples, published::worked_examples(options.system));
  ProgressLine line("reproduce");
  Json list = Json::array();
  Table table({"worked example", "values", "found otherwise"});
  std::vector<std::string> differences;
  for (const auto& [name, text] : examples) {
    TESSERA_TRY(const Reproduction result,
                published::reproduce(options.system, text, name + ".json", [&](auto what) {
                  line.say(fmt::format("{}: {}", name, what));
                }));
    table.add({name, grouped(result.checked), fmt::format("{}", result.differences.size())});
    list.push_back(
        {{"name", name}, {"checked", result.checked}, {"differences", result.differences}});
    for (const std::string& difference : result.differences) {
      differences.push_back(fmt::format("{}: {}", name, difference));
    }
  }
  const std::string out =
      options.json ? dumped(Json{{"system", options.system}, {"examples", std::move(list)}}) + "\n"
                   : table.to_string();
  if (const int code = print(out); code != 0) return code;
  return verdict(options.system, differences);
}

Result<int> run_reproduce(const ReproduceOptions& options) {
  if (options.list) return list_claims(options.json);
  if (options.system.empty()) {
    return invalid_input("reproduce: expected --list, or a system (tessera reproduce --help)");
  }
  return options.instance.empty() ? run_examples(options) : run_instance(options);
}

}  // namespace

void add_reproduce(Commands& commands) {
  const auto options = std::make_shared<ReproduceOptions>();
  Command command =
      commands.add("reproduce", "Run a published planning algorithm on its published cost model");
  std::vector<std::string> names;
  for (const published::PublishedSystem& system : published::published_systems()) {
    names.push_back(system.name);
  }
  command.option("NAME", options->system, "The system: " + join(names, ", "));
  command.option("INSTANCE.json", options->instance,
                 "What to plan (docs/reference/reproduce.md); without it the worked examples");
  command.flag("--list", options->list,
               "What each publication claims, and whether it is reproduced");
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "Examples:\n"
      "  tessera reproduce galvatron tests/reproduce/galvatron_chain.json\n"
      "  tessera reproduce --list\n"
      "Exit code 1: the instance says what it expects, and the answer is another.\n");
  command.action([options] { return run_reproduce(*options); });
}

}  // namespace tessera::cli
