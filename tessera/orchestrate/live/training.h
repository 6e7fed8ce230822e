// A training run as a job of a live controller: how it is submitted, started, looked at and ended.
//
// A run is a process of `tessera train --resume --steer`, with a plan for the GPUs that it has. Its
// state is in the checkpoints of its run file, so it may be killed at any moment: the next start goes
// on from the newest one. A process ends with the controller that started it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/live/backend.h"
#include "tessera/orchestrate/share/job.h"
#include "tessera/orchestrate/workloads/rated_job.h"

namespace tessera::share {

// A request to run something. All of it comes from outside; it reaches no shell.
struct Submission {
  std::string name, run_file, folder;  // folder: where the process runs
  // The plan, in which {} stands for the number of GPUs; "": that of the run file, and the job always
  // has the GPUs that it asked for.
  std::string plan;
  int gpus = 1, least_gpus = 1, most_gpus = 1;
  std::vector<int> sizes;           // numbers of GPUs on which the plan runs; none: all of these
  std::map<int, double> predicted;  // steps a second by number of GPUs; may be empty
  double deadline_s = kNever;       // seconds from the submission
  int64_t steps = 0;                // of the run file
  std::string checkpoints;          // the folder of its checkpoints, as an absolute path
  bool is_elastic() const { return plan.find("{}") != std::string::npos; }
  std::string plan_on(int gpus) const;
};
nlohmann::json to_json(const Submission& job);
// Reads a submission. Errors: a key of another type or value, with its name.
Result<Submission> parse_submission(const nlohmann::json& json);
// Sets the steps and the folder of checkpoints from the run file. Errors: it writes no checkpoints.
Status read_run(Submission& job);

// The speed of a job: what has been measured, and for other numbers of GPUs the measured speed of the
// nearest one, scaled as the predicted speeds are; without predictions, as the GPUs are.
class MeasuredSpeeds : public Speeds {
 public:
  explicit MeasuredSpeeds(const Submission& job)
      : least_(job.least_gpus),
        most_(job.most_gpus),
        sizes_(job.sizes),
        predicted_(job.predicted) {}
  void measured(int gpus, double steps_per_s) { measured_[gpus] = steps_per_s; }
  double steps_per_s(const Shape& shape, BatchRule rule) const override;
  int least_gpus() const override { return least_; }
  int most_gpus(BatchRule) const override { return most_; }

 private:
  int least_, most_;
  std::vector<int> sizes_;
  std::map<int, double> measured_, predicted_;  // by number of GPUs
};

// Returns the words that train the job on its GPUs: a program and its arguments. `most_ranks`: how
// many ranks the plans may have to which it is changed.
std::vector<std::string> training_words(const std::string& program, const JobStart& start,
                                        int most_ranks);

// A process that trains. Destroying the object kills it.
class Training : public RunningJob {
 public:
  // Starts `program train`. Its output is appended to the log.
  static Result<Training> start(const std::string& program, const JobStart& start);
  Training(Training&& other) noexcept;
  Training& operator=(Training&& other) noexcept;
  ~Training() override { kill(); }
  std::optional<End> ended() override;
  Status end() override;
  bool can_go_on_with(const Allocation&) const override { return true; }
  pid_t process() const { return process_; }

 private:
  explicit Training(pid_t process) : process_(process) {}
  void kill();
  pid_t process_ = -1;
};

// Makes the back end whose jobs are processes on this machine. They end with the controller.
Result<std::unique_ptr<Backend>> make_processes(const BackendSetup& setup);

}  // namespace tessera::share
