// Frameworks for which a plan can be written. A target is one file of this folder, with a writer of
// the settings (settings.h) in the framework's own words and a small reader of such texts. One
// table, export_targets(), lists all targets.
//
//   const ExportTarget* target = find_export_target("megatron");
//   TESSERA_TRY(const std::string text, target->write({found.settings, found.origins, about}));
//   TESSERA_TRY(const ExportSettings back, target->read(text, found.settings.ranks()));
//
// A writer refuses settings that the framework cannot express, naming the plan's entry that asked
// for them; it leaves nothing out silently. A reader ignores arguments that say nothing of a plan
// (learning rates, paths), so it also reads texts that people wrote.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/recognize.h"
#include "tessera/export/settings.h"

namespace tessera {

struct ExportJob {
  const ExportSettings& settings;
  const Origins& origins;
  const Model& model;
  std::string plan;       // the plan's name
  std::string file;       // stands in front of the lines of the origins
  int64_t node_size = 8;  // devices of a node
  std::vector<std::string> notes;
};

struct ExportTarget {
  std::string name;     // a value of --to
  std::string summary;  // one line: the kind of text that is written
  std::string version;  // the version of the framework whose words are used
  // Choices that a planner must not vary, so that the target can express its plan: lists of values
  // of `--fix` (search/planner.h), tried in order; the fastest plan that can be expressed counts.
  // An empty list fixes nothing: if its plan can be expressed, that plan is the best.
  std::vector<std::map<std::string, std::string>> fixes;
  bool has_comments = true;  // whether the format allows comments; if not, notes are printed
  std::function<Result<std::string>(const ExportJob&)> write;
  // `ranks`: the number that the launcher starts, which most frameworks do not write down.
  // `forward`: the model, whose blocks are counted.
  std::function<Result<ExportSettings>(const std::string& text, int64_t ranks,
                                       const Graph& forward)>
      read;
  // The model families that it trains (models/model.h); empty: any module of PyTorch.
  std::vector<std::string> families = {};
};

const std::vector<ExportTarget>& export_targets();
const ExportTarget* find_export_target(std::string_view name);  // null if unknown

ExportTarget megatron_target();
ExportTarget nemo_target();
ExportTarget torchtitan_target();
ExportTarget deepspeed_target();

// ---- parts of targets

// Returns "plan.toml:3 (schedule = "gpipe"): megatron has no ...". `setting`: a key of the origins.
tl::unexpected<Error> cannot_express(const ExportJob& job, std::string_view target,
                                     std::string_view setting, const std::string& why);
// A size of the model, by its key, that a degree must divide: `what` is cut into `by` equal pieces.
struct Division {
  std::string_view key;
  const char* what;
  int64_t by;
  std::string_view setting;  // a key of the origins
};
// Refuses the first size that its degree does not divide; passes over keys that the model lacks.
Status check_divisions(const ExportJob& job, std::string_view target,
                       const std::vector<Division>& divisions);
// Returns the origin of a setting; "" if it has none.
std::string origin_of(const ExportJob& job, std::string_view setting);
// Returns " (line 7)", the end of a comment, for the plan's line that decided the setting; else "".
std::string line_of_setting(const ExportJob& job, std::string_view setting);
// Returns how many of the ranks are left for replicas beside the other degrees, whose product is
// `others`. Returns an error if `others` does not divide the ranks.
Result<int64_t> replicas_left(int64_t ranks, int64_t others, std::string_view target);
// Returns how many micro-batches of the given size each replica has.
Result<int64_t> micro_batches_of(int64_t batch, int64_t micro_batch_size, int64_t replicas,
                                 std::string_view target);
// Returns the first lines of an export, without comment signs: its plan, and how to start it.
std::vector<std::string> heading(const ExportJob& job, const ExportTarget& target);

}  // namespace tessera
