// The frameworks for which a plan can be written. Each target is one file of this folder, with a
// function that writes the settings (settings.h) as the framework's text and a small function that
// reads such texts. The table export_targets() lists all targets.
//
//   const ExportTarget* target = find_export_target("megatron");
//   TESSERA_TRY(const std::string text, target->write({found.settings, found.origins, about}));
//   TESSERA_TRY(const ExportSettings back, target->read(text, found.settings.ranks()));
//
// `write` refuses settings that the framework cannot express, and names the plan's entry that asked
// for them; it leaves nothing out silently. `read` ignores arguments that do not concern a plan
// (learning rates, paths), so it can also read texts that people wrote.
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
  std::string file;       // the plan's file, which the origins name before a line number
  int64_t node_size = 8;  // devices of a node
  std::vector<std::string> notes;
};

struct ExportTarget {
  std::string name;     // a value of --to
  std::string summary;  // the kind of text that is written, in one line
  std::string version;  // the version of the framework that the texts are for
  // Which choices a planner must keep fixed so that the target can express its plan. Each list has
  // values of `--fix` (search/planner.h); the lists are tried in order. The result is the fastest
  // plan that can be expressed. An empty list fixes nothing: if its plan can be expressed, that
  // plan is the best.
  std::vector<std::map<std::string, std::string>> fixes;
  bool has_comments = true;  // whether texts may have comments; if not, notes are printed
  std::function<Result<std::string>(const ExportJob&)> write;
  // `ranks` is the number of ranks that the launcher starts; most frameworks do not write it into
  // the text. `forward` is the model's graph, whose blocks are counted.
  std::function<Result<ExportSettings>(const std::string& text, int64_t ranks,
                                       const Graph& forward)>
      read;
  // The families of models (models/model.h) that the framework trains. Empty: any module of
  // PyTorch.
  std::vector<std::string> families = {};
  std::string style = {};  // the execution style (cost/style.h) in which the framework is priced
};

// The targets, in the order in which find_target_of_plan() in export.h asks them.
const std::vector<ExportTarget>& export_targets();
const ExportTarget* find_export_target(std::string_view name);  // null if unknown

ExportTarget megatron_target();
ExportTarget nemo_target();
ExportTarget torchtitan_target();
ExportTarget deepspeed_target();

// ---- parts of targets

// Returns the error "plan.toml:3 (schedule = "gpipe"): megatron has no ...". `setting` is a key of
// the origins.
tl::unexpected<Error> cannot_express(const ExportJob& job, std::string_view target,
                                     std::string_view setting, const std::string& why);
// A size of the model that a degree must divide: the model's size `key`, in messages `what`, is cut
// into `by` equal pieces.
struct Division {
  std::string_view key;
  const char* what;
  int64_t by;
  std::string_view setting;  // a key of the origins
};
// Returns an error for the first size that its degree does not divide. Skips keys that the model
// lacks.
Status check_divisions(const ExportJob& job, std::string_view target,
                       const std::vector<Division>& divisions);
// Returns the origin of a setting; "" if it has none.
std::string origin_of(const ExportJob& job, std::string_view setting);
// Returns the end of a comment that names the plan's line that decided a setting: " (line 7)".
// Returns "" if there is none.
std::string line_of_setting(const ExportJob& job, std::string_view setting);
// Returns the number of replicas: `ranks` over `others`, the product of all other degrees. Returns
// an error if `others` does not divide `ranks`.
Result<int64_t> replicas_left(int64_t ranks, int64_t others, std::string_view target);
// Returns the number of micro-batches of each replica: `batch` over `replicas` and
// `micro_batch_size`.
Result<int64_t> micro_batches_of(int64_t batch, int64_t micro_batch_size, int64_t replicas,
                                 std::string_view target);
// Returns the first lines of an export, without comment signs: which plan it is, and how to start
// it.
std::vector<std::string> heading(const ExportJob& job, const ExportTarget& target);

}  // namespace tessera
