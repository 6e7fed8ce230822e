#include "tessera/orchestrate/workloads/rated_job.h"

#include <algorithm>

namespace tessera::share {
namespace {

class RatedJob : public JobModel {
 public:
  RatedJob(std::shared_ptr<const Speeds> speeds, double steps)
      : speeds_(std::move(speeds)), steps_(steps) {}

  int least_gpus() const override { return speeds_->least_gpus(); }
  int most_gpus(BatchRule rule) const override { return speeds_->most_gpus(rule); }
  bool runs_on(const Shape& shape) const override {
    return speeds_->steps_per_s(shape, BatchRule::kAsked) > 0 ||
           speeds_->steps_per_s(shape, BatchRule::kKnown) > 0;
  }
  double total() const override { return steps_; }
  int64_t epochs() const override { return 100; }  // for policies that count in parts of a job
  double rate(const JobRun&, const Shape& shape, BatchRule rule) const override {
    return shape.gpus.empty() ? 0 : speeds_->steps_per_s(shape, rule);
  }
  double seconds_left(const JobRun& run, const Shape& shape, BatchRule rule) const override {
    const double own = rate(run, shape, rule);
    return own > 0 ? std::max(0.0, steps_ - run.done) / own : kNever;
  }
  void retune(JobRun& run, const Shape& shape, BatchRule rule) const override {
    run.rule = rule;
    run.profile.most_gpus = std::max(run.profile.most_gpus, shape.total());
  }
  Advance advance(JobRun& run, const Shape& shape, double seconds) const override {
    const double own = rate(run, shape, run.rule);
    const double left = steps_ - run.done;
    const bool is_done = own > 0 && left <= own * seconds * (1 + 1e-12);
    run.done = is_done ? steps_ : run.done + own * seconds;
    run.epoch = static_cast<int64_t>(run.done / steps_ * 100);
    return {is_done ? std::min(seconds, left / own) : seconds, is_done};
  }
  double steps_left(const JobRun& run) const override { return steps_ - run.done; }
  StateBytes state_bytes(const Shape& shape, BatchRule rule) const override {
    return shape.gpus.empty() ? StateBytes() : speeds_->state_bytes(shape, rule);
  }
  double packed_step_s(int gpus, int gpus_a_node) const override {
    Shape shape;
    for (int left = gpus; left > 0; left -= gpus_a_node)
      shape.gpus.push_back(std::min(left, gpus_a_node));
    const double own = speeds_->steps_per_s(shape, BatchRule::kAsked);
    return own > 0 ? 1 / own : 1e9;
  }

 private:
  std::shared_ptr<const Speeds> speeds_;
  double steps_;
};

class RigidSpeeds : public Speeds {
 public:
  explicit RigidSpeeds(int gpus) : gpus_(gpus) {}
  double steps_per_s(const Shape& shape, BatchRule) const override {
    return shape.total() == gpus_ ? 1 : 0;
  }
  int least_gpus() const override { return gpus_; }
  int most_gpus(BatchRule) const override { return gpus_; }

 private:
  int gpus_;
};

}  // namespace

std::shared_ptr<const JobModel> rated_job(std::shared_ptr<const Speeds> speeds, double steps) {
  return std::make_shared<RatedJob>(std::move(speeds), steps);
}

std::shared_ptr<const JobModel> rigid_job(int gpus, double seconds) {
  return rated_job(std::make_shared<RigidSpeeds>(gpus), seconds);
}

}  // namespace tessera::share
