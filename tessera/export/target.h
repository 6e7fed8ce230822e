// The frameworks for which a plan can be written. Each target is one file of this folder, with a
// function that writes the settings (settings.h) as the framework's text and a small function that
// reads such texts. The table export_targets() lists all targets.
//
//   const ExportTarget* target = find_export_target("megatron");
//   TESSERA_TRY(const std::string text, target->write({found.settings, found.origins, about}));
//   TESSERA_TRY(const ReadSettings back, read_settings(*target, text, ranks, forward));
//
// `write` refuses settings that the framework cannot express, and names the plan's entry that asked
// for them; it leaves nothing out silently. Reading goes in three steps, so that texts that people
// wrote lose nothing either: `scan` finds all keys of a text, the table of the framework's keys
// (keys.h) says what becomes of each, and `settings` reads those that decide the plan.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/keys.h"
#include "tessera/export/recognize.h"
#include "tessera/export/settings.h"
#include "tessera/plan/degree_grid.h"

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

struct SettingsRequest {
  const SaidKeys& said;
  int64_t ranks = 0;     // that the launcher starts; 0: the text must say it
  const Graph& forward;  // the model's graph, whose blocks are counted
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
  // Returns all keys of a text. An error says that the text is not of the target's form.
  std::function<Result<SaidKeys>(const std::string& text)> scan;
  std::function<Result<ExportSettings>(const SettingsRequest& request)> settings;
  // Returns the command that starts training, for targets whose texts have no comments; the others
  // write it into the text.
  std::function<std::string(const ExportJob&)> start = {};
  // The families of models (models/model.h) that the framework trains. Empty: any module of
  // PyTorch.
  std::vector<std::string> families = {};
  std::string style = {};  // the execution style (cost/style.h) in which the framework is priced
  // How names of its files end, with the dot.
  std::vector<std::string> endings = {};
  // Words that a text has if it starts the framework, as "pretrain_gpt.py".
  std::vector<std::string> starts = {};
  DegreeGrid grid = {};  // what a planner may offer for it (search/choices/grid.h)
};

// Returns the targets, in the order in which find_target_of_plan() in export.h asks them.
const std::vector<ExportTarget>& export_targets();
const ExportTarget* find_export_target(std::string_view name);  // null if unknown

// The settings that a text asks for, and what became of its other keys, a sentence each.
struct ReadSettings {
  ExportSettings settings;
  std::vector<std::string> unread;
};
// Reads a text of the target. Errors: the text is not of the target's form; it has an unknown key, or
// one that no plan here can say.
Result<ReadSettings> read_settings(const ExportTarget& target, const std::string& text,
                                   int64_t ranks, const Graph& forward);
// Returns the target of a text, by the end of the file's name and by its content: one that the text
// starts, else the one with the most keys. The error lists the forms that are known.
Result<const ExportTarget*> target_of_text(const std::string& path, const std::string& text);

ExportTarget megatron_target();
ExportTarget nemo_target();
ExportTarget torchtitan_target();
ExportTarget deepspeed_target();
ExportTarget fsdp2_target();
ExportTarget accelerate_target();
ExportTarget transformers_target();

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
// Returns the number of ranks: the product of two keys of a launcher, where the text has numbers for
// them, else `ranks`. Returns an error if that is 0.
Result<int64_t> ranks_of(const SettingsRequest& request, std::string_view nodes,
                         std::string_view of_a_node, std::string_view target);
// Returns the flags with which torchrun starts the plan's ranks: "--nnodes 2 --nproc-per-node 8".
std::string launcher_flags(const ExportJob& job);
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
