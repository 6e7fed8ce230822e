// Asks Slurm, without a shell: sinfo, squeue, sbatch, scontrol and scancel.
//
// Invariants: a word that was submitted is an argument of its own, behind the script, where sbatch reads
// no options. Errors of all: the program is not there (invalid input). Faults of all: Slurm does not
// answer; the message has the last line of what the program says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/live/backend.h"

namespace tessera::share::slurm {

// Returns a node with the GPUs of a text of generic resources, as "gpu:a100:4(S:0-1),mps:200": their
// number, and their type, "gpu" if it has none.
BackendNode node_of(std::string name, const std::string& resources);
// Returns the nodes with GPUs that are in service, in the order of Slurm.
Result<std::vector<BackendNode>> nodes_up();

// Which part of which job a Slurm job is: its comment. Other jobs have other comments.
struct Mark {
  std::string journal, job;
  int part = 0, parts = 1;  // part 0 trains, and reaches the others
  std::string node;
  int gpus = 0;
  bool operator==(const Mark&) const = default;
  std::string text() const;
};
// Reads a comment; parts == 0 if it is no mark.
Mark mark_of(const std::string& comment);

// A job of this user with a mark, as squeue lists it.
struct Listed {
  int64_t id = 0;
  std::string state, reason;  // "RUNNING", "Resources"
  Mark mark;
  bool has_ended() const;
  bool is_held() const { return reason.starts_with("JobHeld"); }
};
Result<std::vector<Listed>> marked_jobs(const std::string& journal);

// Submits a held job: the script with its words on one node with GPUs. `after`: jobs that must have
// begun before. Returns its number. Errors: Slurm refuses it (invalid input).
Result<int64_t> submit_held(const Mark& mark, const std::vector<int64_t>& after,
                            const std::string& script, const std::vector<std::string>& words);
// Says on which node a held job runs.
Status set_node(int64_t id, const std::string& node);
Status release(const std::vector<int64_t>& ids);
// Ends jobs; those that have ended already are none of its errors.
Status cancel(const std::vector<int64_t>& ids);
// Returns the exit code of a job that has failed, and its signal.
Result<RunningJob::End> end_of(int64_t id);

}  // namespace tessera::share::slurm
