#include "tessera/predict/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/predict/baselines.h"
#include "tessera/predict/floor.h"
#include "tessera/predict/measured.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// The share of normally distributed errors that are within one standard deviation.
constexpr double kWithin = .68;

ScoredRow frame(const Row& row, const MeasuredRun& measured, const std::optional<Run>& run) {
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

// Returns whether the run needs more than the GPU has.
bool too_large(const Prediction& prediction, const Run& run) {
  return prediction.device_bytes > static_cast<double>(run.machine.memory_bytes);
}

// Adds the baselines. Their runs always use the recomputation that the row states.
void add_baselines(const std::vector<Row>& rows, const std::vector<ScoredRow>& frames,
                   Accuracy& out) {
  std::vector<std::optional<Run>> runs(rows.size());
  std::vector<BaselineRow> simple;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (auto run = infer(rows[i], {{"", "recompute_as_stated", "true"}})) runs[i] = std::move(*run);
    simple.push_back({runs[i] ? &*runs[i] : nullptr, rows[i].source, rows[i].gpu,
                      rows[i].dtype.text, frames[i].measured});
  }
  const std::vector<double> all = efficiency_baseline(simple, false);
  const std::vector<double> others = efficiency_baseline(simple, true);
  for (size_t i = 0; i < rows.size(); ++i) {
    ScoredRow row = frames[i];
    row.predicted_memory = 0;
    row.predicted = all[i];
    out.efficiency_all.push_back(row);
    row.predicted = others[i];
    out.efficiency_others.push_back(row);
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
  const Scores unnamed = score(accuracy.unnamed), others = score(accuracy.others),
               all = score(accuracy.all), efficiency = score(accuracy.efficiency_others);
  const Floor floor = floor_of(accuracy.others);
  std::string out =
      "| source | rows | name hidden | bias | constants of other sources | median | bias | all "
      "constants | bias | least possible | one efficiency, of other sources "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|\n";
  const auto pair_of = [](const Scores& scores, const std::string& source) {
    const SourceScore* found = source_score(scores, source);
    return found == nullptr
               ? std::string(" | ")
               : fmt::format("{} | {}", percent(found->mape), signed_percent(found->bias));
  };
  for (const auto& [source, known] : others.by_source) {
    const SourceFloor& least = floor.by_source.at(source);
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", source, known.rows,
                       pair_of(unnamed, source), percent(known.mape), percent(known.median),
                       signed_percent(known.bias), pair_of(all, source),
                       least.repeated > 0 ? percent(least.mape) : "", mape_of(efficiency, source));
  }
  return out;
}

std::string qualities_table(const Accuracy& accuracy) {
  std::string out =
      "| quality | sources | macro error, names hidden | constants of other sources | all "
      "constants "
      "| memory rows | memory error | memory bias |\n|---|---|---|---|---|---|---|---|\n";
  for (const char* quality : {"A", "B", "C"}) {
    const Scores unnamed = score(accuracy.unnamed, quality), all = score(accuracy.all, quality);
    const Scores others = score(accuracy.others, quality);
    out +=
        fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", quality, others.by_source.size(),
                    percent(unnamed.macro), percent(others.macro), percent(all.macro),
                    others.memory_rows, others.memory_rows > 0 ? percent(others.memory_mape) : "",
                    others.memory_rows > 0 ? signed_percent(others.memory_bias) : "");
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
  const Scores scores = score(rows), of_vtrain_alone = score(vtrain);
  return fmt::format("| {} | {:.3f} | {:.3f} | {} | {:.3f} | {:.3f} | {} |\n", name, scores.tau,
                     tau_of_distinct(rows), percent(scores.regret), of_vtrain_alone.tau,
                     tau_of_distinct(vtrain), percent(of_vtrain_alone.regret));
}

// Writes a table with tau and regret of each way to predict, for all groups and for the groups of
// vTrain, on whose runs the closed form was fitted.
std::string ranking_table(const Accuracy& accuracy) {
  const std::vector<ScoredRow> vtrain = of_vtrain(accuracy.others);
  std::string out = fmt::format(
      "| | tau, {} groups | of rows that differ | regret | tau, vTrain's {} groups | of rows that "
      "differ | regret |\n|---|---|---|---|---|---|---|\n",
      score(accuracy.others).groups, score(vtrain).groups);
  out += ranking_line("**names of sources hidden**", accuracy.unnamed);
  out += ranking_line("constants of other sources", accuracy.others);
  out += ranking_line("all constants", accuracy.all);
  out += ranking_line("closed form, fitted on vTrain", accuracy.reference);
  const Floor all = floor_of(accuracy.others), of_it = floor_of(vtrain);
  out += fmt::format("| best possible | {:.3f} | 1 | {} | {:.3f} | 1 | {} |\n", all.tau,
                     percent(all.regret), of_it.tau, percent(of_it.regret));
  return out;
}

// Writes a table of the sources that have many rows for each block (block_of() in floor.h), with
// and without corrected times of blocks.
std::string blocks_table(const Accuracy& accuracy) {
  constexpr size_t kRows = 20, kRowsABlock = 4;
  std::string out =
      "| source | rows | blocks | | error | Kendall's tau | regret "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const auto& [source, ignored] : score(accuracy.all).by_source) {
    std::vector<ScoredRow> rows;
    std::set<std::string> blocks;
    for (const ScoredRow& row : accuracy.all) {
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
    out += fmt::format("| {} | {} | {} | all constants | {}", source, rows.size(), blocks.size(),
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
          {"uncertainty_factor", uncertainty_factor(rows, kWithin)},
          {"within_uncertainty", scores.within},
          {"within_twice_uncertainty", scores.within_twice},
          {"memory_rows", scores.memory_rows},
          {"memory_mape", scores.memory_mape},
          {"memory_bias", scores.memory_bias},
          {"sources", std::move(sources)}};
}

std::string figure(double value) { return value > 0 ? fmt::format("{:.6g}", value) : ""; }

}  // namespace

namespace {

// Collects the jobs of all ways in which the rows are predicted, so that one call of predict() does
// them all. A way is a list of settings.
class Ways {
 public:
  // Adds a job for each row with the settings of one way, and returns the index of the first job.
  // Stores the settings, to which the jobs point.
  size_t add(const std::vector<Row>& rows, std::vector<PredictSettings> settings) {
    const size_t first = jobs_.size();
    settings_.push_back(std::move(settings));
    for (size_t i = 0; i < rows.size(); ++i)
      jobs_.push_back({&rows[i], &settings_.back()[i % settings_.back().size()]});
    return first;
  }
  const std::vector<PredictJob>& jobs() const { return jobs_; }

 private:
  std::vector<PredictJob> jobs_;
  std::list<std::vector<PredictSettings>> settings_;
};

// Returns the indices of the rows whose statement about recomputation their framework ignores.
std::vector<size_t> rows_with_ignored_recompute(const std::vector<Row>& rows) {
  std::vector<size_t> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string reason;
    const bool ignored = !framework_of(rows[i], reason).recompute_as_stated;
    if (ignored && !rows[i].recompute.empty()) out.push_back(i);
  }
  return out;
}

std::vector<PredictSettings> as_stated(std::vector<PredictSettings> settings) {
  for (PredictSettings& one : settings) one.push_back({"", "plan.recompute_as_stated", "true"});
  return settings;
}

}  // namespace

Result<Accuracy> measure_accuracy(const CsvTable& table, std::string_view file,
                                  const Constants& constants, const AccuracyOptions& options) {
  TESSERA_TRY(const std::vector<Row> rows, read_rows(table, file));
  TESSERA_TRY(const std::vector<MeasuredRun> measured, read_measured(table, file));
  std::vector<Row> hidden = rows;
  for (Row& row : hidden) row.source.clear();
  const std::vector<Row>& priced = options.unnamed ? hidden : rows;
  std::vector<PredictSettings> of_others;
  for (const Row& row : rows) of_others.push_back(constants.without(row.source));
  const std::vector<size_t> ignored = rows_with_ignored_recompute(priced);
  std::vector<Row> stated;
  std::vector<PredictSettings> of_stated;
  for (const size_t i : ignored) {
    stated.push_back(priced[i]);
    of_stated.push_back(of_others[i]);
  }
  Ways ways;
  const size_t all = ways.add(priced, {constants.all}), others = ways.add(priced, of_others);
  const size_t unnamed = ways.add(hidden, of_others);
  const size_t all_stated = ways.add(stated, as_stated({constants.all}));
  const size_t others_stated = ways.add(stated, as_stated(of_stated));
  const std::vector<Prediction> predictions = predict(ways.jobs(), options.threads);
  Accuracy out;
  out.names_hidden = options.unnamed;
  out.rows = static_cast<int64_t>(rows.size());
  out.sources_with_constants = static_cast<int64_t>(constants.sources().size());
  out.ignored_recompute = static_cast<int64_t>(ignored.size());
  std::vector<std::optional<Run>> runs(rows.size());
  std::vector<ScoredRow> frames;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (auto run = infer(priced[i])) runs[i] = std::move(*run);
    frames.push_back(frame(rows[i], measured[i], runs[i]));
    const Prediction& known = predictions[all + i];
    out.all.push_back(with(frames[i], known));
    out.others.push_back(with(frames[i], predictions[others + i]));
    const auto hidden_run = infer(hidden[i]);
    const ScoredRow of_hidden = hidden_run ? frame(rows[i], measured[i], *hidden_run) : frames[i];
    out.unnamed.push_back(with(of_hidden, predictions[unnamed + i]));
    if (!known.ok) {
      ++out.refused[known.reason];
      continue;
    }
    ++out.expressed;
    if (!measured[i].out_of_memory) continue;
    ++out.out_of_memory;
    if (too_large(known, *runs[i])) ++out.out_of_memory_found;
  }
  out.all_as_stated = out.all;
  out.others_as_stated = out.others;
  for (size_t i = 0; i < ignored.size(); ++i) {
    out.all_as_stated[ignored[i]] = with(frames[ignored[i]], predictions[all_stated + i]);
    out.others_as_stated[ignored[i]] = with(frames[ignored[i]], predictions[others_stated + i]);
  }
  add_baselines(rows, frames, out);
  return out;
}

namespace {

std::string headline(const Accuracy& accuracy) {
  const Scores unnamed = score(accuracy.unnamed);
  return fmt::format(
      "**Expect an error of {} of the step time** for runs of a source that Tessera does not know "
      "by name: mean over the {} sources of "
      "[published-throughput.csv](../data/published-throughput.csv), their names hidden, so that "
      "degrees, ZeRO stage, dtype, GPU and model alone tell what a run does where its row is "
      "silent, and with constants of other sources. Kendall's tau of plans of one run is {:.3f}; "
      "the plan that is predicted best takes {} longer than the best one (mean).\n\n",
      percent(unnamed.macro), unnamed.by_source.size(), unnamed.tau, percent(unnamed.regret));
}

std::string scores_table(const Accuracy& accuracy) {
  std::string out =
      "| | macro error | vTrain, one node | vTrain, several | Kendall's tau | regret | worst "
      "regret |\n|---|---|---|---|---|---|---|\n";
  out += summary_line("**names of sources hidden, constants of other sources**", accuracy.unnamed);
  out += summary_line("names known, constants of other sources", accuracy.others);
  out += summary_line("names known, all constants", accuracy.all);
  if (accuracy.ignored_recompute > 0) {
    const std::string what =
        fmt::format("without the assumption about {} rows of vTrain", accuracy.ignored_recompute);
    out += summary_line(what + ", constants of other sources", accuracy.others_as_stated);
    out += summary_line(what + ", all constants", accuracy.all_as_stated);
  }
  out += summary_line("one efficiency a GPU and dtype, and the bubble; of other sources",
                      accuracy.efficiency_others);
  out += summary_line("the same, of all sources", accuracy.efficiency_all);
  out += summary_line("closed form, fitted on vTrain", accuracy.reference);
  return out;
}

std::string honesty(const Accuracy& accuracy) {
  return fmt::format(
      "\nNone of these lines is *held out* in the strict sense, because no row was out of sight: "
      "what "
      "frameworks and styles preset (overlap, gaps, networks of sites, what silent rows mean) was "
      "chosen while all rows were known. *Constants of other sources*: {} sources have constants "
      "that were fitted on them alone; their own rows are priced without these. *Names known*: the "
      "name of the source tells its framework and its site. Twenty runs that the file does not "
      "have "
      "are in [the calibration notes](results/calibration.md): 14 %.\n\n"
      "*The assumption about rows of vTrain*: all rows of its node state that everything is "
      "computed again; their step times are those of runs that computed nothing again. The data "
      "says so (`vtrain-node` in tessera/predict/data/frameworks.toml); the two lines without it "
      "take what the rows state, with the same constants.\n\n",
      accuracy.sources_with_constants);
}

std::string uncertainty_table(const Accuracy& accuracy) {
  std::string out =
      "## Stated uncertainty\nEach prediction says its relative uncertainty, one standard "
      "deviation: the uncertainties of its kernels and transfers, weighted by their times, and a "
      "factor that is fitted so that 68 % of the rows lie within it (mean over sources). "
      "Cross-validated: the factor for each source is found without its rows.\n\n"
      "| | within one deviation | cross-validated | within two (normal errors: 95 %) | factor that "
      "is missing |\n|---|---|---|---|---|\n";
  const auto line = [&](const char* name, const std::vector<ScoredRow>& rows) {
    const Scores scores = score(rows);
    out += fmt::format("| {} | {} | {} | {} | {:.2f} |\n", name, percent(scores.within),
                       percent(cross_validated_within(rows, kWithin)), percent(scores.within_twice),
                       uncertainty_factor(rows, kWithin));
  };
  line("names of sources hidden", accuracy.unnamed);
  line("names known, constants of other sources", accuracy.others);
  return out + "\n";
}

}  // namespace

std::string accuracy_markdown(const Accuracy& accuracy) {
  const Scores others = score(accuracy.others);
  std::string out = "# Accuracy\n\n" + headline(accuracy);
  out += fmt::format(
      "Made by `make accuracy`. Each row is priced as `tessera predict` does it: model, plan, "
      "cluster and style give the program that would run, and that program is simulated "
      "([predict](reference/predict.md)). `tessera simulate` of the same texts prints the same "
      "step "
      "([pricing](reference/pricing.md)). {} of {} rows are expressed ({}). Error: |predicted / "
      "reported - 1| of the step time; macro: mean over sources. Ranking: {} groups of at least 4 "
      "rows that differ in the plan alone. Regret: how much longer than the best plan of its group "
      "the plan takes that is predicted best.\n\n",
      accuracy.expressed, accuracy.rows,
      percent(static_cast<double>(accuracy.expressed) / static_cast<double>(accuracy.rows)),
      others.groups);
  if (accuracy.names_hidden)
    out += "**Without the names of sources**: all lines of this page hide them.\n\n";
  out += scores_table(accuracy) + honesty(accuracy) + uncertainty_table(accuracy);
  out += "## By source\n";
  out += sources_table(accuracy);
  out += fmt::format(
      "\nLeast possible: rows that say the same of their run report different times (releases of a "
      "recipe, iterations of a log); the error of the one prediction that suits them best. Mean "
      "over all sources: {}.\n\n## Ranking, and what bounds it\nRows that say the same cannot be "
      "ordered, but they count in tau (tau-a, as in the other tables), and whichever of them is "
      "chosen costs their mean. *Of rows that differ*: without those pairs, and without those that "
      "report equal times.\n\n",
      percent(floor_of(accuracy.others).macro));
  out += ranking_table(accuracy);
  out +=
      "\n## Where the error sits\nA block: rows of one source whose blocks of the model, tensor "
      "parallelism and micro-batch are equal; they differ in depth, stages, replicas and batch. "
      "A factor for each block takes away the error of the times of single blocks; what is left is "
      "the error in how steps are made of them.\n\n";
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
  for (const Reality& one : accuracy.reality) out += "\n" + reality_markdown(one);
  return out;
}

std::string accuracy_json(const Accuracy& accuracy) {
  Json out = {{"rows", accuracy.rows},
              {"expressed", accuracy.expressed},
              {"unnamed", scores_json(accuracy.unnamed)},
              {"others_constants", scores_json(accuracy.others)},
              {"all_constants", scores_json(accuracy.all)},
              {"others_constants_as_stated", scores_json(accuracy.others_as_stated)},
              {"all_constants_as_stated", scores_json(accuracy.all_as_stated)},
              {"efficiency_others", scores_json(accuracy.efficiency_others)},
              {"efficiency_all", scores_json(accuracy.efficiency_all)},
              {"reference", scores_json(accuracy.reference)}};
  for (const Reality& one : accuracy.reality)
    out["reality"].push_back(Json::parse(reality_json(one)));
  return dumped(out, 1) + "\n";
}

std::string accuracy_csv(const Accuracy& accuracy) {
  std::string out =
      csv_line({"row_id", "source", "group", "quality", "reported_s", "predicted_s",
                "others_constants_s", "unnamed_s", "reported_bytes", "predicted_bytes"});
  for (size_t i = 0; i < accuracy.all.size(); ++i) {
    const ScoredRow& row = accuracy.all[i];
    if (row.measured <= 0 && row.measured_memory <= 0) continue;
    out += csv_line({row.id, row.source, row.group, std::string(1, row.quality),
                     figure(row.measured), figure(row.predicted),
                     figure(accuracy.others[i].predicted), figure(accuracy.unnamed[i].predicted),
                     figure(row.measured_memory), figure(row.predicted_memory)});
  }
  return out;
}

}  // namespace tessera
