#include "tessera/predict/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/predict/baselines.h"
#include "tessera/predict/floor.h"
#include "tessera/predict/measured.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

ScoredRow frame(const Row& row, const Measured& measured, const std::optional<Run>& run) {
  ScoredRow out;
  out.id = row.id;
  out.inputs = inputs_of(row);
  out.block = block_of(row);
  out.source = row.source;
  out.group = fmt::format("{}|{}|{}|{}", row.source, row.model, row.gpus.value_or(0),
                          row.global_batch.value_or(0));
  out.quality = measured.quality;
  out.measured = run ? measured_step(measured, *run) : 0;
  out.measured_memory = measured.memory_bytes;
  return out;
}

ScoredRow with(ScoredRow row, const Prediction& prediction) {
  row.predicted = prediction.step_time_s;
  row.predicted_memory = prediction.memory_bytes;
  row.uncertainty = prediction.uncertainty;
  return row;
}

// Does the run need more than the GPU has?
bool too_large(const Prediction& prediction, const Run& run) {
  return prediction.device_bytes > static_cast<double>(run.machine.memory_bytes);
}

// Baselines take recomputation as the row states it.
void add_baselines(const std::vector<Row>& rows, const std::vector<ScoredRow>& frames,
                   Accuracy& out) {
  std::vector<std::optional<Run>> runs(rows.size());
  std::vector<BaselineRow> simple;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (auto run = infer(rows[i], {{"", "recompute_as_stated", "true"}})) runs[i] = std::move(*run);
    simple.push_back({runs[i] ? &*runs[i] : nullptr, rows[i].source, rows[i].gpu, rows[i].dtype,
                      frames[i].measured});
  }
  const std::vector<double> fitted = efficiency_baseline(simple, false);
  const std::vector<double> held_out = efficiency_baseline(simple, true);
  for (size_t i = 0; i < rows.size(); ++i) {
    ScoredRow row = frames[i];
    row.predicted_memory = 0;
    row.predicted = fitted[i];
    out.efficiency.push_back(row);
    row.predicted = held_out[i];
    out.efficiency_held_out.push_back(row);
    row.predicted = runs[i] ? reference_model(*runs[i]) : 0;
    out.reference.push_back(row);
  }
}

// ---- page

const SourceScore* source_score(const Scores& scores, const std::string& source) {
  const auto found = scores.by_source.find(source);
  return found == scores.by_source.end() ? nullptr : &found->second;
}

constexpr const char* kSingle = "vTrain measured single-node set";
constexpr const char* kMulti = "vTrain measured multi-node set";

std::string mape_of(const Scores& scores, const std::string& source) {
  const SourceScore* found = source_score(scores, source);
  return found == nullptr ? "" : percent(found->mape);
}

std::string summary_line(const std::string& name, const std::vector<ScoredRow>& rows) {
  const Scores scores = score(rows);
  return fmt::format("| {} | {} | {} | {} | {:.3f} | {} | {} |\n", name, percent(scores.macro),
                     mape_of(scores, kSingle), mape_of(scores, kMulti), scores.tau,
                     percent(scores.regret), percent(scores.worst_regret));
}

std::string sources_table(const Accuracy& accuracy) {
  const Scores fitted = score(accuracy.fitted), held_out = score(accuracy.held_out);
  const Scores efficiency = score(accuracy.efficiency_held_out);
  const Floor floor = floor_of(accuracy.held_out);
  std::string out =
      "| source | rows | error, source held out | median | bias | all rows fitted | bias | least "
      "possible | one efficiency, source held out |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& [source, held] : held_out.by_source) {
    const SourceScore* all = source_score(fitted, source);
    const SourceFloor& least = floor.by_source.at(source);
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", source, held.rows,
                       percent(held.mape), percent(held.median), signed_percent(held.bias),
                       all ? percent(all->mape) : "", all ? signed_percent(all->bias) : "",
                       least.repeated > 0 ? percent(least.mape) : "", mape_of(efficiency, source));
  }
  return out;
}

std::string qualities_table(const Accuracy& accuracy) {
  std::string out =
      "| quality | sources | macro error, source held out | all rows fitted | memory rows | memory "
      "error | memory bias |\n|---|---|---|---|---|---|---|\n";
  for (const char* quality : {"A", "B", "C"}) {
    const Scores fitted = score(accuracy.fitted, quality);
    const Scores held_out = score(accuracy.held_out, quality);
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", quality, held_out.by_source.size(),
                       percent(held_out.macro), percent(fitted.macro), held_out.memory_rows,
                       held_out.memory_rows > 0 ? percent(held_out.memory_mape) : "",
                       held_out.memory_rows > 0 ? signed_percent(held_out.memory_bias) : "");
  }
  return out;
}

std::vector<ScoredRow> of_vtrain(const std::vector<ScoredRow>& rows) {
  std::vector<ScoredRow> out;
  for (const ScoredRow& row : rows) {
    if (row.source == kSingle || row.source == kMulti) out.push_back(row);
  }
  return out;
}

std::string ranking_line(const std::string& name, const std::vector<ScoredRow>& rows) {
  const std::vector<ScoredRow> vtrain = of_vtrain(rows);
  const Scores scores = score(rows), of_sheet = score(vtrain);
  return fmt::format("| {} | {:.3f} | {:.3f} | {} | {:.3f} | {:.3f} | {} |\n", name, scores.tau,
                     tau_of_distinct(rows), percent(scores.regret), of_sheet.tau,
                     tau_of_distinct(vtrain), percent(of_sheet.regret));
}

// Ranking over all groups and over those that the cost sheet counts (section 10.3).
std::string ranking_table(const Accuracy& accuracy) {
  const std::vector<ScoredRow> vtrain = of_vtrain(accuracy.held_out);
  std::string out = fmt::format(
      "| | tau, {} groups | of rows that differ | regret | tau, vTrain's {} groups | of rows that "
      "differ | regret |\n|---|---|---|---|---|---|---|\n",
      score(accuracy.held_out).groups, score(vtrain).groups);
  out += ranking_line("**source held out**", accuracy.held_out);
  out += ranking_line("all rows fitted", accuracy.fitted);
  out += ranking_line("closed form of the cost sheet", accuracy.reference);
  const Floor all = floor_of(accuracy.held_out), of_it = floor_of(vtrain);
  out += fmt::format("| best possible | {:.3f} | 1 | {} | {:.3f} | 1 | {} |\n", all.tau,
                     percent(all.regret), of_it.tau, percent(of_it.regret));
  return out;
}

// Of sources with many rows for each block.
std::string blocks_table(const Accuracy& accuracy) {
  constexpr size_t kRows = 20, kRowsABlock = 4;
  std::string out =
      "| source | rows | blocks | | error | Kendall's tau | regret "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const auto& [source, ignored] : score(accuracy.fitted).by_source) {
    std::vector<ScoredRow> rows;
    std::set<std::string> blocks;
    for (const ScoredRow& row : accuracy.fitted) {
      if (row.source != source || row.predicted <= 0 || row.measured <= 0) continue;
      rows.push_back(row);
      blocks.insert(row.block);
    }
    if (rows.size() < kRows || rows.size() < kRowsABlock * blocks.size()) continue;
    const auto line = [](const std::vector<ScoredRow>& scored) {
      const Scores scores = score(scored);
      return fmt::format("{} | {:.3f} | {} |\n", percent(scores.macro), scores.tau,
                         percent(scores.regret));
    };
    out += fmt::format("| {} | {} | {} | all rows fitted | {}", source, rows.size(), blocks.size(),
                       line(rows));
    out += "| | | | with a factor for each block | " + line(with_block_factors(rows));
  }
  return out;
}

Json scores_json(const std::vector<ScoredRow>& rows) {
  const Scores scores = score(rows);
  Json sources = Json::object();
  for (const auto& [source, value] : scores.by_source) {
    sources[source] = {
        {"rows", value.rows}, {"mape", value.mape}, {"median", value.median}, {"bias", value.bias}};
  }
  return {{"macro_mape", scores.macro},
          {"groups", scores.groups},
          {"tau", scores.tau},
          {"regret", scores.regret},
          {"worst_regret", scores.worst_regret},
          {"within_uncertainty", scores.within},
          {"within_twice_uncertainty", scores.within_twice},
          {"memory_rows", scores.memory_rows},
          {"memory_mape", scores.memory_mape},
          {"memory_bias", scores.memory_bias},
          {"sources", std::move(sources)}};
}

std::string figure(double value) { return value > 0 ? fmt::format("{:.6g}", value) : ""; }

}  // namespace

Result<Accuracy> measure_accuracy(const CsvTable& table, std::string_view file,
                                  const Constants& constants, const AccuracyOptions& options) {
  TESSERA_TRY(const std::vector<Row> rows, read_rows(table, file));
  TESSERA_TRY(const std::vector<Measured> measured, read_measured(table, file));
  std::vector<Row> priced = rows;
  if (options.unnamed) {
    for (Row& row : priced) row.source.clear();
  }
  std::vector<PredictJob> jobs;
  for (const Row& row : priced) jobs.push_back({&row, &constants.all});
  for (size_t i = 0; i < rows.size(); ++i)
    jobs.push_back({&priced[i], &constants.for_source(rows[i].source)});
  const std::vector<Prediction> predictions = predict(jobs, options.threads);
  Accuracy out;
  out.unnamed = options.unnamed;
  out.rows = static_cast<int64_t>(rows.size());
  out.held_out_sources = static_cast<int64_t>(constants.without.size());
  std::vector<std::optional<Run>> runs(rows.size());
  std::vector<ScoredRow> frames;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (auto run = infer(priced[i])) runs[i] = std::move(*run);
    frames.push_back(frame(rows[i], measured[i], runs[i]));
    out.fitted.push_back(with(frames[i], predictions[i]));
    out.held_out.push_back(with(frames[i], predictions[rows.size() + i]));
    if (!predictions[i].ok) {
      ++out.refused[predictions[i].reason];
      continue;
    }
    ++out.expressed;
    if (!measured[i].out_of_memory) continue;
    ++out.out_of_memory;
    if (too_large(predictions[i], *runs[i])) ++out.out_of_memory_found;
  }
  add_baselines(rows, frames, out);
  return out;
}

std::string accuracy_markdown(const Accuracy& accuracy) {
  const Scores held_out = score(accuracy.held_out);
  std::string out =
      "# Accuracy\n\nMade by `make accuracy` (about 40 s on two idle cores). Each "
      "row "
      "of [published-throughput.csv](../data/published-throughput.csv) is priced as `tessera "
      "predict` does it: model, plan, cluster and style to the program that would run, and that "
      "program simulated ([predict](reference/predict.md)).\n\n";
  if (accuracy.unnamed) {
    out +=
        "**Without the names of sources**: what runs do where their rows are silent is told by "
        "degrees, ZeRO stage, dtype, GPU and model alone, as for a source that nobody has "
        "seen.\n\n";
  }
  out += fmt::format(
      "{} of {} rows are expressed ({}). Error: |predicted / reported - 1| of the step "
      "time; macro: mean over sources. Ranking: {} groups of at least 4 rows that "
      "differ in the plan alone.\n\n",
      accuracy.expressed, accuracy.rows,
      percent(static_cast<double>(accuracy.expressed) / static_cast<double>(accuracy.rows)),
      held_out.groups);
  out +=
      "| | macro error | vTrain, one node | vTrain, several | Kendall's tau | regret | worst "
      "regret |\n|---|---|---|---|---|---|---|\n";
  out += summary_line("**source held out**", accuracy.held_out);
  out += summary_line("all rows fitted", accuracy.fitted);
  out += summary_line("one efficiency a GPU and dtype, bubble; source held out",
                      accuracy.efficiency_held_out);
  out += summary_line("the same, all rows fitted", accuracy.efficiency);
  out += summary_line("closed form of the cost sheet (fitted on vTrain)", accuracy.reference);
  out += fmt::format(
      "\nSource held out: constants fitted without any row of the source, {} sources have "
      "constants "
      "of their own. What frameworks and styles preset (overlap, gaps, networks of sites, what "
      "silent "
      "rows mean) was chosen with these rows in sight and is the same in both lines: of other "
      "sources expect more than the first says. Regret: how much longer than the best plan of its "
      "group the plan takes that is predicted best.\n\nEach prediction says its relative "
      "uncertainty, one standard deviation: {} of the rows lie within it, {} within twice (mean "
      "over sources, source held out; of normal errors 68 and 95 %).\n\n## By source\n",
      accuracy.held_out_sources, percent(held_out.within), percent(held_out.within_twice));
  out += sources_table(accuracy);
  out += fmt::format(
      "\nLeast possible: rows that say the same of their run report different times (releases of a "
      "recipe, iterations of a log); the error of the one prediction that suits them best. Mean "
      "over all sources: {}.\n\n## Ranking, and what bounds it\nRows that say the same cannot be "
      "ordered, but count in tau (tau-a, as the other lines of this page), and whichever of them "
      "is chosen costs their mean. Of rows that differ: without those pairs and those that report "
      "equal times.\n\n",
      percent(floor_of(accuracy.held_out).macro));
  out += ranking_table(accuracy);
  out +=
      "\n## Where the error sits\nA block: rows of one source whose blocks of the model, tensor "
      "parallelism and micro-batch are equal; they differ in depth, stages, replicas and batch. "
      "What "
      "a factor for each takes away is the error of the times of single blocks; what is left, how "
      "steps are made of them.\n\n";
  out += blocks_table(accuracy);
  out +=
      "\n## By quality, and memory\nA: all fields stated; B: some inferred; C: read off figures, "
      "recalled or incomplete.\n\n";
  out += qualities_table(accuracy);
  out += fmt::format("\nOf {} rows that ran out of memory {} are predicted to.\n",
                     accuracy.out_of_memory, accuracy.out_of_memory_found);
  out += "\n## Rows without a prediction\n| rows | reason |\n|---|---|\n";
  for (const auto& [reason, count] : accuracy.refused) {
    out += fmt::format("| {} | {} |\n", count, reason);
  }
  if (accuracy.reality) out += "\n" + reality_markdown(*accuracy.reality);
  return out;
}

std::string accuracy_json(const Accuracy& accuracy) {
  Json out = {{"rows", accuracy.rows},
              {"expressed", accuracy.expressed},
              {"held_out", scores_json(accuracy.held_out)},
              {"fitted", scores_json(accuracy.fitted)},
              {"efficiency_held_out", scores_json(accuracy.efficiency_held_out)},
              {"efficiency", scores_json(accuracy.efficiency)},
              {"reference", scores_json(accuracy.reference)}};
  if (accuracy.reality) out["reality"] = Json::parse(reality_json(*accuracy.reality));
  return out.dump(1) + "\n";
}

std::string accuracy_csv(const Accuracy& accuracy) {
  std::string out = csv_line({"row_id", "source", "group", "quality", "reported_s", "predicted_s",
                              "held_out_s", "reported_bytes", "predicted_bytes"});
  for (size_t i = 0; i < accuracy.fitted.size(); ++i) {
    const ScoredRow& row = accuracy.fitted[i];
    if (row.measured <= 0 && row.measured_memory <= 0) continue;
    out +=
        csv_line({row.id, row.source, row.group, std::string(1, row.quality), figure(row.measured),
                  figure(row.predicted), figure(accuracy.held_out[i].predicted),
                  figure(row.measured_memory), figure(row.predicted_memory)});
  }
  return out;
}

}  // namespace tessera
