// The jobs of the live controller, on a back end (backend.h).
//
// Once a round observe() looks at the jobs, and tell() hands over what it found, so that a recorded
// observation can take the place of jobs when a journal is replayed. place() only notes what the policy
// has decided, so that it can be recorded; carry_out() then does it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/orchestrate/live/backend.h"
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
  // Starts and stops jobs as it was decided. A job that was lost is started again.
  Status carry_out();

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
  struct Job {
    Submission submission;
    std::shared_ptr<MeasuredSpeeds> speeds;
    std::shared_ptr<const JobModel> model;
    JobRun run;
    Usage usage;
    Shape shape;
    Allocation allocation;
    std::unique_ptr<RunningJob> process;
    int process_gpus = 0;
    int losses = 0;  // in a row without a step between them
    int64_t lost_at_step = -1;
    LiveState state = LiveState::kWaiting;
    std::string error;
    bool is_cancelled = false;
    bool must_start = false;
  };
  std::string log_of(const Job& job) const;
  void look_at(int number, Job& job, Observation& out);

  std::unique_ptr<Backend> backend_;
  std::string folder_;
  const Machines* machines_;
  std::deque<Job> jobs_;
  Observation told_;
  double now_s_ = 0;
};

}  // namespace tessera::share
