// The jobs of the live controller, on a back end (backend.h).
//
// Once a round observe() looks at the jobs, and tell() hands over what it found, so that a recorded
// observation can take the place of jobs when a journal is replayed. place() only notes what the policy
// has decided, so that it can be recorded; carry_out() then brings the jobs there, as far as they are
// ready. A job that must give up GPUs is told to stop after its present step, with a checkpoint, or to
// go on under another plan if its back end allows it, and the GPUs are given to others when it has
// done so. Until then is_settling() holds, and settle() goes on.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/orchestrate/live/backend.h"
#include "tessera/orchestrate/live/run_log.h"
#include "tessera/orchestrate/live/training.h"
#include "tessera/orchestrate/share/workers.h"

namespace tessera::share {

// How a job of the live controller stands.
enum class LiveState : uint8_t { kWaiting, kRunning, kDone, kFailed, kCancelled };
std::string_view state_name(LiveState state);

// An observation of the jobs in one round.
struct Observation {
  struct Seen {
    int job = 0;
    int64_t step = 0;
    int gpus = 0;
    double steps_per_s = 0;
  };
  struct Ended {
    int job = 0;
    LiveState state = LiveState::kDone;
    std::string error;
  };
  std::vector<Seen> seen;  // of jobs whose progress has changed
  std::vector<Ended> ended;
};
nlohmann::json to_json(const Observation& observation);
Result<Observation> parse_observation(const nlohmann::json& json, size_t jobs);

class LiveWorkers : public Workers {
 public:
  // Logs of jobs go to the folder.
  LiveWorkers(std::string folder, const Machines& machines);
  // Sets where jobs run. Without it nothing may be observed or carried out, only replayed.
  void run_on(std::unique_ptr<Backend> backend) { backend_ = std::move(backend); }

  // Adds a job, which is the next of the controller's. Returns its model.
  std::shared_ptr<const JobModel> add(const Submission& job);
  void cancel(int job) { jobs_[static_cast<size_t>(job)].is_cancelled = true; }

  // Looks at the jobs. `shown`: how many jobs the policy has seen; others do not end yet. Faults: those
  // of the back end.
  Result<Observation> observe(size_t shown);
  // Returns the nodes that were out of service when observe() looked.
  std::set<int> nodes_out() const { return backend_->nodes_out(); }
  void tell(Observation observation) { told_ = std::move(observation); }
  // Starts, changes and stops jobs as it was decided. A job that was lost is started again.
  Status carry_out();
  // Returns whether a job is not yet what was decided, and after how many seconds to look again.
  bool is_settling() const;
  double patience_s() const { return backend_->patience_s(); }
  // Looks at the jobs, and carries out what can be done now. Faults: those of the back end.
  Status settle();

  void place(int job, const Allocation& allocation, double now_s) override;
  std::vector<Ending> work_until(double now_s) override;
  double next_end_s() const override { return kNever; }
  double end_s(int job) const override;
  const JobRun& run(int job) const override { return jobs_[static_cast<size_t>(job)].run; }
  const Usage& usage(int job) const override { return jobs_[static_cast<size_t>(job)].usage; }
  LiveState state(int job) const { return jobs_[static_cast<size_t>(job)].state; }
  // Returns what keeps a job from running that has GPUs; "" if it runs.
  std::string waits_for(int job) const;
  const std::string& error(int job) const { return jobs_[static_cast<size_t>(job)].error; }
  const Submission& submission(int job) const { return jobs_[static_cast<size_t>(job)].submission; }

 private:
  // An order that a job got through its steering file: to go on with these GPUs, or, with none, to stop.
  struct Told {
    Allocation to;
    int64_t at_step = 0, changes_before = 0;
  };
  struct Job {
    Job(Submission the_submission, const std::string& log_path)
        : submission(std::move(the_submission)), log(log_path) {}
    Submission submission;
    std::shared_ptr<MeasuredSpeeds> speeds;
    std::shared_ptr<const JobModel> model;
    // As the policy has decided.
    JobRun run;
    Usage usage;
    Shape shape;
    Allocation allocation;
    LiveState state = LiveState::kWaiting;
    std::string error;
    bool is_cancelled = false;
    // As it is.
    std::unique_ptr<RunningJob> process;
    RunLog log;
    Allocation held;  // the GPUs of the process
    std::optional<Told> told;
    std::optional<Observation::Ended> over;  // how it ended, until the next round
    int losses = 0;                          // in a row without a step between them
    int64_t lost_at_step = -1;

    // Returns the GPUs that it should have now.
    Allocation wanted() const;
    bool must_start() const { return process == nullptr && !wanted().empty(); }
  };
  std::string path_of(const Job& job, const char* ending) const;
  void look_at(int number, Job& job);
  bool fits(const Job& job) const;
  bool is_on_lost_node(const Allocation& held) const;
  Status start(Job& job);
  Status tell(Job& job, const Allocation& to);
  Status change(Job& job);
  static Status end(Job& job);

  std::unique_ptr<Backend> backend_;
  std::string folder_;
  const Machines* machines_;
  std::deque<Job> jobs_;
  Observation told_;
  double now_s_ = 0;
};

}  // namespace tessera::share
