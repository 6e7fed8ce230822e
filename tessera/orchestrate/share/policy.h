// A policy decides who has which GPUs. It sees the jobs that were submitted and are not done, in the
// order of submission, and answers with an allocation of each. It is asked at the end of each round;
// a policy that decides only when jobs come and go says so (wakes_after), and the rounds between are
// skipped.
//
// A policy is one file in policies/ and one row of the table in policies/table.cc
// (docs/guides/add-a-policy.md). The files placement.h, packing.h and
// rigid.h hold what several policies need.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/orchestrate/share/machines.h"
#include "tessera/orchestrate/share/switch_cost.h"

namespace tessera::share {

// A job as a policy sees it.
struct JobView {
  int id = 0;  // its number in the order of submission, from 0
  const JobSpec* spec = nullptr;
  const JobRun* run = nullptr;
  Allocation allocation;   // what it has now
  double held_s = 0;       // seconds during which it had GPUs, breaks for switching included
  double gpu_seconds = 0;  // the same, times its GPUs
  int switches = 0;        // changes of its allocation after the first start
  double started_s = -1;   // when it first had GPUs; -1: never
  double last_change_s = -1;

  const JobModel& model() const { return *spec->model; }
  int gpus() const { return allocation.gpus(); }
};

// Pointers in a view hold until the policy has answered; what it remembers it copies.
struct View {
  double now_s = 0, round_s = 60;
  double switch_s = 0;  // how long a changed job pauses, without the bytes that it moves
  LinkRates links;      // of the nodes; unknown: no pause depends on bytes
  const Machines* machines = nullptr;
  std::vector<JobView> jobs;
  size_t arrived = 0;  // jobs that were submitted so far, those that are done included
};

struct Decision {
  std::vector<Allocation> allocations;  // of each job of the view, in its order
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual BatchRule batch_rule() const { return BatchRule::kAsked; }
  // Returns whether running jobs change their GPUs without being stopped.
  virtual bool changes_live() const { return false; }
  virtual Decision decide(const View& view) = 0;
  // Returns the seconds after which the decision could change although no job came or ended.
  virtual double wakes_after(const View& view) const { return view.round_s; }
};

// The figure that a policy makes small.
enum class Objective : uint8_t {
  kTime,  // completion times
  kCost,  // missed deadlines, and then what the held GPUs cost
};

struct PolicyOptions {
  uint64_t seed = 1;
  Objective objective = Objective::kTime;
  std::vector<double> prices = {};  // USD an hour of a GPU, by type of the machines; of kCost
};

struct PolicyInfo {
  std::string name, summary;
  std::unique_ptr<Policy> (*make)(const PolicyOptions& options);
  bool has_cost = false;  // whether it knows Objective::kCost
};
const std::vector<PolicyInfo>& policies();
// Returns the policy of this name. Errors: an unknown name, with the nearest one; an objective that the
// policy does not know.
Result<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyOptions& options);

}  // namespace tessera::share
