// tessera predict: predicts the rows of a CSV by the simulator.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>

#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_planning/commands.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/predict.h"

namespace tessera::cli {
namespace {

struct PredictOptions {
  std::string rows, out, explain, constants;
  std::vector<std::string> settings, only;
  int threads = 1;
};

std::string seconds_text(double value) { return fmt::format("{:.6g} s", value); }

// Returns on what the role (rank class) with the longest compute time spends its time.
std::string time_text(const Simulation& simulation) {
  const auto& roles = simulation.roles;
  if (roles.empty()) return "";
  const auto compute = static_cast<size_t>(Lane::kCompute);
  const auto busiest =
      std::max_element(roles.begin(), roles.end(), [&](const RankResult& a, const RankResult& b) {
        return a.busy_s[compute] < b.busy_s[compute];
      });
  std::string out = "time       ";
  for (size_t what = 0; what < kSpent; ++what) {
    if (busiest->spent_s[what] <= 0) continue;
    out += fmt::format(" {} {:.1f} %", spent_name(static_cast<Spent>(what)),
                       100 * busiest->spent_s[what] / simulation.step_time_s);
  }
  return out + "\n";
}

std::string traffic_text(const Simulation& simulation) {
  std::string out;
  if (simulation.roles.empty()) return out;
  for (const TrafficRow& row : simulation.roles.front().traffic) {
    out += fmt::format("traffic     {} {}: {} times, {}, {}, exposed {}, {}\n", row.kind, row.axes,
                       row.count, short_bytes(row.bytes), seconds_text(row.seconds),
                       seconds_text(row.exposed_s), row.algorithm);
  }
  return out;
}

// Returns the memory in use at the peak: the bytes of each kind, and the names with the most bytes.
// Buffers whose names differ only in the numbers of blocks or copies are added up.
std::string peak_text(const MemoryUse& memory) {
  const auto largest = [](const std::map<std::string, int64_t>& bytes, size_t most) {
    std::vector<std::pair<std::string, int64_t>> all(bytes.begin(), bytes.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (all.size() > most) all.resize(most);
    return all;
  };
  std::map<std::string, int64_t> by_what, by_name;
  for (const LiveBuffer& live : memory.at_peak) {
    by_what[live.what] += live.bytes;
    std::string name;  // with '*' for the numbers of blocks and of copies
    for (size_t i = 0; i < live.name.size(); ++i) {
      const bool digit = std::isdigit(static_cast<unsigned char>(live.name[i])) != 0;
      const bool starts = i > 0 && (live.name[i - 1] == '.' || live.name[i - 1] == ' ');
      if (digit && starts) {
        while (i + 1 < live.name.size() &&
               std::isdigit(static_cast<unsigned char>(live.name[i + 1])))
          ++i;
        name += '*';
      } else {
        name += live.name[i];
      }
    }
    by_name[live.what + " " + name] += live.bytes;
  }
  std::string out = "at peak    ";
  for (const auto& [what, bytes] : largest(by_what, by_what.size()))
    out += fmt::format(" {} {},", what, short_bytes(bytes));
  out.back() = '\n';
  for (const auto& [name, bytes] : largest(by_name, 16))
    out += fmt::format("            {:>12}  {}\n", short_bytes(bytes), name);
  return out;
}

std::string explained_text(const Explained& all) {
  const Expressed& row = all.expressed;
  std::string plan = row.plan;
  std::string out = fmt::format("row         {}\nmodel       {}\nbatch       {}\nrecipe      {}\n",
                                all.prediction.id, row.model, row.batch, row.recipe);
  out += fmt::format("cluster     {} ({} GPUs a node)\nstyle       {}\n", row.cluster,
                     row.gpus_a_node, row.style);
  if (!row.changes.empty()) out += fmt::format("changes     {}\n", row.changes);
  for (const std::string& reason : row.reasons) out += "inferred    " + reason + "\n";
  out += fmt::format("step        {} (+- {:.0f} %)\n", seconds_text(all.prediction.step_time_s),
                     100 * all.prediction.uncertainty);
  out += fmt::format("device      {:.1f} TFLOP/s of the model, MFU {:.3f}\n",
                     all.simulation.flops_per_device() / 1e12, all.simulation.mfu());
  out += time_text(all.simulation) + traffic_text(all.simulation);
  for (const RankResult& role : all.simulation.roles) {
    out += fmt::format("memory      {}: live {}, reserved {}, overhead {}\n",
                       plural(role.ranks, "rank"), short_bytes(role.memory.live_bytes),
                       short_bytes(role.memory.reserved_bytes),
                       short_bytes(role.memory.overhead_bytes));
  }
  const auto fullest = std::max_element(all.simulation.roles.begin(), all.simulation.roles.end(),
                                        [](const RankResult& a, const RankResult& b) {
                                          return a.memory.total_bytes() < b.memory.total_bytes();
                                        });
  out += fmt::format("counted     {} ({} memory, as the framework's log tells it)\n",
                     short_bytes(static_cast<int64_t>(all.prediction.memory_bytes)),
                     memory_name(row.memory));
  if (fullest != all.simulation.roles.end()) out += peak_text(fullest->memory);
  return out + "plan\n" + plan;
}

Status keep_sources(std::vector<Row>& rows, const std::vector<std::string>& only) {
  if (only.empty()) return {};
  std::vector<std::string> sources;
  for (const Row& row : rows) sources.push_back(row.source);
  for (const std::string& source : only) {
    if (std::find(sources.begin(), sources.end(), source) == sources.end()) {
      return invalid_input(fmt::format("predict: no row has the source '{}', did you mean '{}'?",
                                       source, nearest(source, sources)));
    }
  }
  std::erase_if(rows, [&](const Row& row) {
    return std::find(only.begin(), only.end(), row.source) == only.end();
  });
  return {};
}

Result<int> explain_row(const std::vector<Row>& rows, const std::string& id,
                        const PredictSettings& settings) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& known) { return known.id == id; });
  if (row == rows.end()) {
    std::vector<std::string> ids;
    for (const Row& known : rows) ids.push_back(known.id);
    return invalid_input(
        fmt::format("predict: no row '{}', did you mean '{}'?", id, nearest(id, ids)));
  }
  TESSERA_TRY(const Explained all, explain(*row, settings));
  return print(explained_text(all));
}

Result<int> run_predict(const PredictOptions& options) {
  TESSERA_TRY(const std::string text, read_file(options.rows));
  TESSERA_TRY(const CsvTable table, parse_csv(text, options.rows));
  TESSERA_TRY(std::vector<Row> rows, read_rows(table, options.rows));
  TESSERA_TRY(const Constants constants, load_constants(options.constants));
  PredictSettings settings = constants.all;
  TESSERA_TRY(const PredictSettings more, parse_settings(options.settings));
  settings.insert(settings.end(), more.begin(), more.end());
  TESSERA_TRY_VOID(keep_sources(rows, options.only));
  if (!options.explain.empty()) return explain_row(rows, options.explain, settings);
  const std::string csv = predictions_csv(predict(rows, settings, options.threads));
  if (options.out.empty()) return print(csv);
  TESSERA_TRY_VOID(write_file(options.out, csv));
  return 0;
}

}  // namespace

void add_predict(Commands& commands) {
  const auto options = std::make_shared<PredictOptions>();
  Command command =
      commands.add("predict", "Price the runs of a CSV: step time and memory of each row");
  command.option("ROWS.csv", options->rows, "Runs (docs/reference/predict.md)").required();
  command.option("--out", options->out, "Write the predictions to this file");
  command.option("--style-set", options->settings, "Set a constant: [FRAMEWORK|MACHINE.]KEY=VALUE")
      .one_value_each();
  command.option("--constants", options->constants,
                 "Constants in place of those of the program (docs/reference/predict.md)");
  command.option("--only", options->only, "Only rows of this source (may be repeated)")
      .one_value_each();
  command.option("--threads", options->threads, "Rows priced at the same time").at_least(1);
  command.option("--explain", options->explain,
                 "Show how this row is expressed and where its time goes");
  command.footer(
      "Examples:\n"
      "  tessera predict data/published-throughput.csv --out predictions.csv\n"
      "  tessera predict rows.csv --explain D0103 --style-set megatron-lm.plan.dropout=0\n");
  command.action([options] { return run_predict(*options); });
}

}  // namespace tessera::cli
