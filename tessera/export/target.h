// Frameworks for which a plan can be written. A target is one file of this folder: how the settings
// (settings.h) are written in the framework's own words, and a small reader of what it writes. The
// table is the only list of them.
//
//   const ExportTarget* target = find_export_target("megatron");
//   TESSERA_TRY(const std::string text, target->write({found.settings, found.origins, about}));
//   TESSERA_TRY(const ExportSettings back, target->read(text, found.settings.ranks()));
//
// A writer refuses what the framework cannot express, by the entry of the plan that asked for it;
// nothing is left out without a word. A reader ignores arguments that say nothing of a plan
// (learning rates, paths), so it also reads what people wrote.
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
  std::string plan;       // what the plan is called
  std::string file;       // in front of the lines of the origins
  int64_t node_size = 8;  // devices of a node
  std::vector<std::string> notes;
};

struct ExportTarget {
  std::string name;     // of --to
  std::string summary;  // one line: what is written
  std::string version;  // of the framework whose words are used
  // What a planner must not search so that its plan can be said: values of `--fix`
  // (search/planner.h), one list after the other; of several the fastest plan counts. An empty list
  // fixes nothing: a plan that it gives and that can be said is the best.
  std::vector<std::map<std::string, std::string>> fixes;
  bool has_comments = true;  // does the format allow comments? Notes are printed beside it if not
  std::function<Result<std::string>(const ExportJob&)> write;
  // `ranks`: how many the launcher starts, which most frameworks do not write down. `forward`: the
  // model, whose blocks are counted.
  std::function<Result<ExportSettings>(const std::string& text, int64_t ranks,
                                       const Graph& forward)>
      read;
  // The model families that it trains (models/model.h); empty: any that is a module of PyTorch.
  std::vector<std::string> families = {};
};

const std::vector<ExportTarget>& export_targets();
const ExportTarget* find_export_target(std::string_view name);  // null if unknown

ExportTarget megatron_target();
ExportTarget nemo_target();
ExportTarget torchtitan_target();
ExportTarget deepspeed_target();

// ---- parts of targets

// "plan.toml:3 (schedule = "gpipe"): megatron has no ...". `setting`: a key of the origins.
tl::unexpected<Error> cannot_express(const ExportJob& job, std::string_view target,
                                     std::string_view setting, const std::string& why);
// A size of the model, by its key, that a degree must divide: `what` is cut into `by` equal pieces.
struct Division {
  std::string_view key;
  const char* what;
  int64_t by;
  std::string_view setting;  // of the origins
};
// Refuses the first size that its degree does not divide. Keys that the model lacks are passed over.
Status check_divisions(const ExportJob& job, std::string_view target,
                       const std::vector<Division>& divisions);
// The origin of a setting; "" if it has none.
std::string origin_of(const ExportJob& job, std::string_view setting);
// The end of a comment: " (line 7)", the line of the plan that decided the setting; "" if none did.
std::string line_of_setting(const ExportJob& job, std::string_view setting);
// Of so many ranks, how many replicas are left beside the other degrees. Errors: they do not divide
// the ranks.
Result<int64_t> replicas_left(int64_t ranks, int64_t others, std::string_view target);
// From the batch and a micro-batch's size, how many of them a replica has.
Result<int64_t> micro_batches_of(int64_t batch, int64_t micro_batch_size, int64_t replicas,
                                 std::string_view target);
// The first lines of an export, without comment signs: what it is of, how to start it.
std::vector<std::string> heading(const ExportJob& job, const ExportTarget& target);

}  // namespace tessera
