// Where the jobs of a live controller run: the interface of back ends. backend_table.h lists them.
//
// A back end starts a job on the nodes that the policy has chosen, says how it ended, and ends it. It
// decides nothing. Whether its jobs outlive the controller is its own matter; a job that has outlived
// one is found again by start(), so that there are never two copies of it.
//
//   TESSERA_TRY(const BackendKind* kind, find_backend("processes"));
//   TESSERA_TRY(const auto backend, kind->make(setup));
//   TESSERA_TRY(const auto job, backend->start({submission, allocation, 2, "a.log", "a.steer"}));
//   while (!job->ended()) TESSERA_TRY_VOID(backend->look());
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/share/job.h"

namespace tessera::share {

struct Submission;

// A job that was started. Destroying the object without end() leaves a job alone that can outlive the
// controller, and ends others.
class RunningJob {
 public:
  struct End {
    int exit_code = 0, signal = 0;
    std::string why;  // what the back end says; "": the log of the job says it
  };
  virtual ~RunningJob() = default;
  // Returns how the job ended; nothing while it runs or waits for its nodes.
  virtual std::optional<End> ended() = 0;
  // Ends the job. Faults: the back end does not answer.
  virtual Status end() = 0;
  // Returns whether the job can go on with these GPUs without a restart, by a change of its plan.
  virtual bool can_go_on_with(const Allocation&) const { return false; }
  // Returns in a sentence what keeps a job from running that was started; "" if it runs.
  virtual std::string waits_for() const { return ""; }
};

struct JobStart {
  const Submission& job;
  const Allocation& allocation;
  int gpus = 0;
  std::string log_path;    // the job appends to it
  std::string steer_path;  // the file by which its plan is changed, and by which it is told to stop
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Starts the job, or goes on with the one of this name that runs on the same nodes already. Faults:
  // the back end does not answer. A job that the back end refuses has ended, with the reason.
  virtual Result<std::unique_ptr<RunningJob>> start(const JobStart& start) = 0;
  // Finds out how jobs and nodes stand, for ended() and nodes_out(). Faults: the back end has not
  // answered for long.
  virtual Status look() { return {}; }
  // Returns after how many seconds a job that was told to stop is looked at again.
  virtual double patience_s() const { return 0.05; }
  // Returns the numbers of the nodes that are out of service.
  virtual std::set<int> nodes_out() const { return {}; }
  // Ends the jobs of an earlier controller with this journal that start() did not go on with.
  virtual Status end_others() { return {}; }
};

struct BackendNode {
  std::string name, type;
  int gpus = 0;
};

struct BackendSetup {
  std::string program;             // the file of this program
  std::string folder;              // the controller's own
  std::string id;                  // of the journal
  std::vector<std::string> nodes;  // names by number; none where nodes have none
};

}  // namespace tessera::share
