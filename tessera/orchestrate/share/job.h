// Jobs that share a cluster, and what their speed depends on.
//
// A job is a specification (JobSpec), which a reader of workloads makes, and a model of its training
// (JobModel), which says how fast it runs on which GPUs and when it is done. The model has no state:
// what changes while the job runs is a JobRun, a value that can be copied. So a policy may try a
// decision on copies.
//
//   JobRun run;
//   model.retune(run, shape, BatchRule::kAsked);   // after each change of the allocation
//   const Advance step = model.advance(run, shape, /*seconds=*/60);
//   if (step.is_done) ...                          // after step.seconds
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/orchestrate/share/profile.h"

namespace tessera::share {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// GPUs on some nodes, in the order in which they were taken. No node occurs twice. An empty
// allocation: the job does not run.
struct Allocation {
  struct Part {
    int node = 0, gpus = 0;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;

  bool empty() const { return parts.empty(); }
  int gpus() const;
  bool operator==(const Allocation&) const = default;
};

// Holds what the speed of a job depends on: the GPUs on each of its nodes, and their type.
struct Shape {
  std::vector<int> gpus;
  int type = 0;  // index into Machines::types

  int total() const;
  int nodes() const { return static_cast<int>(gpus.size()); }
  bool operator==(const Shape&) const = default;
};

// How the batch of a job follows its GPUs.
enum class BatchRule : uint8_t {
  kAsked,   // the batch that the user asked for, whatever the number of GPUs
  kFitted,  // the batch of greatest goodput by a model that is fitted to what has been run
  kKnown,   // the batch of greatest goodput by measured or predicted rows
  kLinear,  // in proportion to the GPUs, up to the cap that the learning rate sets
};

// The batch of a run: `local` samples a GPU and pass, `extra_passes` + 1 passes a step.
struct Tuning {
  int64_t local = 0, extra_passes = 0;
  bool operator==(const Tuning&) const = default;
};

struct JobRun {
  int64_t epoch = 0;  // epochs done
  double done = 0;    // units of work done (JobModel::total)
  BatchRule rule = BatchRule::kAsked;
  Tuning tuning;
  Profile profile;  // what has been measured while it ran
};

struct Advance {
  double seconds = 0;  // how long it ran; less than asked if it is done
  bool is_done = false;
};

// Holds what a user sees of a training run.
struct Observed {
  double samples = 0, epoch_samples = 0;          // so far, and of one epoch
  double first_loss = 0, loss = 0, accuracy = 0;  // accuracy from 0 to 1
};

// The bytes of what a job keeps from step to step: parameters, states of the optimizer, counters.
struct StateBytes {
  double whole = 0;   // each element once; 0: not known
  double of_gpu = 0;  // on the GPU that holds the most
  bool is_known() const { return whole > 0 && of_gpu > 0; }
  bool operator==(const StateBytes&) const = default;
};

class JobModel {
 public:
  virtual ~JobModel() = default;
  virtual int least_gpus() const { return 1; }
  virtual int most_gpus(BatchRule rule) const = 0;
  // Returns whether the job can run there.
  virtual bool runs_on(const Shape& shape) const = 0;
  // Returns the work of the whole job, in units of its own.
  virtual double total() const = 0;
  virtual int64_t epochs() const { return 1; }
  // Returns units of work a second at this point of the run, with the batch that the rule chooses;
  // 0 where it cannot run.
  virtual double rate(const JobRun& run, const Shape& shape, BatchRule rule) const = 0;
  // Returns the same at the best batch, as a formula predicts that is fitted to what the job has shown
  // so far; for jobs without a profile what is known.
  virtual double predicted_rate(const JobRun& run, const Shape& shape) const {
    return rate(run, shape, BatchRule::kKnown);
  }
  // Returns the seconds until the end on such GPUs without a break; kNever where it cannot run.
  virtual double seconds_left(const JobRun& run, const Shape& shape, BatchRule rule) const = 0;
  // Chooses the batch anew, after a change of the allocation.
  virtual void retune(JobRun& run, const Shape& shape, BatchRule rule) const = 0;
  virtual Advance advance(JobRun& run, const Shape& shape, double seconds) const = 0;
  // Returns the optimiser steps that are left at the asked batch, and the seconds of one of them on so
  // many GPUs that are packed on as few nodes as possible. Policies that estimate by steps use both.
  virtual double steps_left(const JobRun& run) const = 0;
  virtual double packed_step_s(int gpus, int gpus_a_node) const = 0;
  virtual Observed observe(const JobRun& run) const;
  // Returns the bytes of its state under the plan that it runs there; 0 where they are not known.
  virtual StateBytes state_bytes(const Shape&, BatchRule) const { return {}; }
};

struct JobSpec {
  std::string name;
  double submit_s = 0;
  int gpus = 1;             // how many the user asked for
  int guaranteed_gpus = 0;  // never fewer, once it has started
  double deadline_s = kNever;
  double weight = 1;
  std::string application;
  std::shared_ptr<const JobModel> model;  // by which the job advances
  // The model that policies are shown in place of `model`, as one of predicted speeds; null: `model`.
  // Both have the same units of work.
  std::shared_ptr<const JobModel> believed = nullptr;

  // Returns the bytes of its state as either model knows them: measured speeds come without them.
  StateBytes state_bytes(const Shape& shape, BatchRule rule) const {
    const StateBytes own = model->state_bytes(shape, rule);
    return own.is_known() || !believed ? own : believed->state_bytes(shape, rule);
  }
};

}  // namespace tessera::share
