// tessera diff: compares two traces of the same program.
#include "tessera/simulate/diff.h"
#include "tessera/base/json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "tessera/base/text.h"
#include "tessera/base/text_file.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/simulate/chrome_trace.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct DiffOptions {
  std::string a, b;
  int64_t worst = 10;
  bool json = false;
};

std::string difference_seconds(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-3) return fmt::format("{:.1f} us", value * 1e6);
  if (size < 1) return fmt::format("{:.2f} ms", value * 1e3);
  return fmt::format("{:.3f} s", value);
}
std::string change(double a, double b) { return a > 0 ? signed_percent(b / a - 1) : "-"; }

std::string ranks_text(const std::vector<int32_t>& ranks) {
  constexpr size_t kMost = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < ranks.size() && i < kMost; ++i) names.push_back(std::to_string(ranks[i]));
  if (ranks.size() > kMost) names.push_back("...");
  return join(names, ", ");
}

std::string unmatched_text(const std::string& file, const std::vector<int32_t>& ranks,
                           const std::vector<Unmatched>& unmatched) {
  std::string out;
  if (!ranks.empty()) {
    out += fmt::format("\nnot compared: {} only in {}: {}\n",
                       plural(static_cast<int64_t>(ranks.size()), "rank"), file, ranks_text(ranks));
  }
  if (unmatched.empty()) return out;
  Table table({"only in " + file, "events", "time", "first"});
  for (const Unmatched& item : unmatched) {
    table.add({item.what, grouped(item.events), difference_seconds(item.seconds), item.example});
  }
  return out + "\n" + table.to_string();
}

std::string text(const DiffOptions& options, const TraceDifference& d) {
  std::string out = fmt::format("step    {} -> {} ({})\n", difference_seconds(d.a_step_s),
                                difference_seconds(d.b_step_s), change(d.a_step_s, d.b_step_s));
  out += fmt::format("aligned {} on {}\n\n", plural(d.events, "instruction"),
                     plural(static_cast<int64_t>(d.ranks.size()), "rank"));
  Table classes(
      {"class", "events", options.a, options.b, "change", "spread", "share", "of the step"});
  for (const ClassDifference& c : d.classes) {
    classes.add({c.what, grouped(c.events), difference_seconds(c.a_s), difference_seconds(c.b_s),
                 change(c.a_s, c.b_s), fmt::format("{:.1f} %", 100 * c.spread),
                 fmt::format("{:.1f} %", 100 * c.share), signed_percent(c.rank_step)});
  }
  out += classes.to_string();
  if (!d.worst.empty()) {
    Table worst({"instruction", "rank", "class", "what", options.a, options.b, "change"});
    for (const InstructionDifference& i : d.worst) {
      worst.add({i.id, fmt::format("{}", i.rank), i.what, i.label, difference_seconds(i.a_s),
                 difference_seconds(i.b_s), change(i.a_s, i.b_s)});
    }
    out += "\n" + worst.to_string();
  }
  out += unmatched_text(options.a, d.only_a_ranks, d.only_a);
  return out + unmatched_text(options.b, d.only_b_ranks, d.only_b);
}

Json unmatched_json(const std::vector<Unmatched>& unmatched) {
  Json out = Json::array();
  for (const Unmatched& item : unmatched) {
    out.push_back({{"class", item.what},
                   {"events", item.events},
                   {"seconds", item.seconds},
                   {"first", item.example}});
  }
  return out;
}

Json json(const DiffOptions& options, const TraceDifference& d) {
  Json classes = Json::array(), worst = Json::array();
  for (const ClassDifference& c : d.classes) {
    classes.push_back({{"class", c.what},
                       {"events", c.events},
                       {"a_s", c.a_s},
                       {"b_s", c.b_s},
                       {"change", c.change()},
                       {"spread", c.spread},
                       {"share", c.share},
                       {"of_step", c.rank_step}});
  }
  for (const InstructionDifference& i : d.worst) {
    worst.push_back({{"rank", i.rank},
                     {"id", i.id},
                     {"class", i.what},
                     {"what", i.label},
                     {"a_s", i.a_s},
                     {"b_s", i.b_s}});
  }
  return {{"a", options.a},
          {"b", options.b},
          {"a_step_time_s", d.a_step_s},
          {"b_step_time_s", d.b_step_s},
          {"events", d.events},
          {"ranks", d.ranks},
          {"classes", std::move(classes)},
          {"worst", std::move(worst)},
          {"only_a", unmatched_json(d.only_a)},
          {"only_b", unmatched_json(d.only_b)},
          {"only_a_ranks", d.only_a_ranks},
          {"only_b_ranks", d.only_b_ranks}};
}

Result<Simulation> load(const std::string& path) {
  TESSERA_TRY(const std::string text, read_text_file(path, kMostDataTextBytes));
  return parse_chrome_trace(text, path);
}

Result<int> diff(const DiffOptions& options) {
  TESSERA_TRY(const Simulation a, load(options.a));
  TESSERA_TRY(const Simulation b, load(options.b));
  const TraceDifference found = diff_traces(a, b, static_cast<size_t>(options.worst));
  if (found.events == 0) {
    return invalid_input(fmt::format(
        "diff: expected traces of one model, plan and batch, found no common instruction in {} "
        "({} events) and {} ({} events)",
        options.a, a.events.size(), options.b, b.events.size()));
  }
  if (options.json) return print(dumped(json(options, found)) + "\n");
  return print(text(options, found));
}

}  // namespace

void add_diff(Commands& commands) {
  const auto options = std::make_shared<DiffOptions>();
  Command command = commands.add("diff", "Compare two traces, instruction by instruction");
  command.option("A", options->a, "Trace to compare with, as of a real run").required();
  command.option("B", options->b, "Trace that is compared, as of a simulation").required();
  command.option("--worst", options->worst, "How many instructions to list (default: 10)")
      .at_least(0);
  command.flag("--json", options->json, "Print JSON");
  command.footer(
      "A change of +12 % means: it takes 12 % longer in B.\n\nExample:\n  tessera train run.toml "
      "--trace real.json\n  tessera simulate MODEL --plan P --cluster local --trace "
      "predicted.json\n"
      "  tessera diff real.json predicted.json\n");
  command.action([options]() -> Result<int> { return diff(*options); });
}

}  // namespace tessera::cli
