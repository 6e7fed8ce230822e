#include "tessera/orchestrate/workloads/trained_job.h"

#include <algorithm>
#include <cmath>

namespace tessera::share {
namespace {

class TrainedJob : public JobModel {
 public:
  TrainedJob(std::shared_ptr<const Application> application, int64_t batch, int gpus)
      : application_(std::move(application)), batch_(batch), gpus_(gpus) {}

  int most_gpus(BatchRule rule) const override {
    const int64_t batch = rule == BatchRule::kAsked ? batch_ : application_->most_batch();
    return std::min(application_->most_gpus(),
                    static_cast<int>(batch / application_->least_local()));
  }
  bool runs_on(const Shape& shape) const override {
    const int gpus = shape.total();
    return gpus >= 1 && gpus <= std::max(gpus_, most_gpus(BatchRule::kKnown));
  }
  double total() const override { return application_->progress_after(epochs() - 1); }
  int64_t epochs() const override { return application_->epochs(); }

  double rate(const JobRun& run, const Shape& shape, BatchRule rule) const override {
    if (!runs_on(shape)) return 0;
    const int64_t epoch = std::min(run.epoch, epochs() - 1);
    if (rule == BatchRule::kKnown) return application_->best(shape, epoch).rate;
    return application_->rate(shape, tuned(run, shape, rule), epoch);
  }

  double predicted_rate(const JobRun& run, const Shape& shape) const override {
    if (!runs_on(shape)) return 0;
    return run.profile.fitted > 0 ? application_->best_fitted(shape, run.profile).rate : 1;
  }

  double seconds_left(const JobRun& run, const Shape& shape, BatchRule rule) const override {
    if (!runs_on(shape)) return kNever;
    double out = 0, done = run.done;
    JobRun tried;
    tried.profile = run.profile;
    for (tried.epoch = run.epoch; tried.epoch < epochs(); ++tried.epoch) {
      const double end = application_->progress_after(tried.epoch);
      out += std::max(0.0, end - done) / rate(tried, shape, rule);
      done = end;
    }
    return out;
  }

  void retune(JobRun& run, const Shape& shape, BatchRule rule) const override {
    run.rule = rule;
    if (rule == BatchRule::kFitted) run.profile.refit();
    run.tuning = tuned(run, shape, rule);
  }

  Advance advance(JobRun& run, const Shape& shape, double seconds) const override {
    double used = 0;
    while (run.epoch < epochs() && used < seconds) {
      const double batch = Application::batch_of(run.tuning, shape.total());
      const GradientNoise noise = application_->noise(run.epoch, batch);
      const StepTime step = application_->step(shape, run.tuning.local);
      const double rate = application_->gain(noise, batch) / step.with(run.tuning.extra_passes);
      run.profile.gradient_square = noise.square;
      run.profile.gradient_variance = noise.variance;
      if (run.rule == BatchRule::kFitted)
        run.profile.add({shape.nodes(), shape.total(), run.tuning.local, step.step_s, step.sync_s});
      const double end = application_->progress_after(run.epoch);
      if (run.done + rate * (seconds - used) < end) {
        run.done += rate * (seconds - used);
        used = seconds;
        break;
      }
      // An epoch ends at a whole second; std::nearbyint takes halves to even.
      used += std::nearbyint((end - run.done) / rate);
      run.done = end;
      ++run.epoch;
      if (run.epoch < epochs()) retune(run, shape, run.rule);
    }
    if (run.rule == BatchRule::kFitted) run.profile.refit();
    return {used, run.epoch >= epochs()};
  }

  double steps_left(const JobRun& run) const override {
    const double batch = static_cast<double>(batch_);
    if (run.epoch >= epochs() - 1) return 1;
    return application_->steps(epochs() - 1, batch) - application_->steps(run.epoch, batch);
  }

  double packed_step_s(int gpus, int gpus_a_node) const override {
    Shape shape;
    for (int left = gpus; left > 0; left -= gpus_a_node)
      shape.gpus.push_back(std::min(left, gpus_a_node));
    Tuning tuning = application_->split(static_cast<double>(batch_), gpus, true);
    if (gpus == 1 && tuning.extra_passes == 0) {  // an extra pass, whatever the batch
      tuning.extra_passes = 1;
      tuning.local = (batch_ + 1) / 2;
    }
    return application_->step(shape, tuning.local).with(tuning.extra_passes);
  }

  Observed observe(const JobRun& run) const override {
    const double epoch_samples =
        total() * static_cast<double>(application_->least_batch()) / static_cast<double>(epochs());
    const auto metric = [&](int64_t epoch) {
      return application_->metric(std::clamp<int64_t>(epoch, 0, epochs() - 1));
    };
    const double first = metric(0), now = metric(run.epoch - 1), last = metric(epochs() - 1);
    const bool is_loss = last < first;
    return {.samples = static_cast<double>(run.epoch) * epoch_samples,
            .epoch_samples = epoch_samples,
            .first_loss = is_loss ? first : 1,
            .loss = is_loss ? now : 1 - std::min(now, 1.0),
            .accuracy = is_loss ? 0 : std::min(now, 1.0)};
  }

 private:
  Tuning tuned(const JobRun& run, const Shape& shape, BatchRule rule) const {
    const int gpus = shape.total();
    const double least = static_cast<double>(application_->least_batch());
    const double most = static_cast<double>(application_->most_batch());
    switch (rule) {
      case BatchRule::kAsked: break;
      case BatchRule::kLinear: {
        const double batch = static_cast<double>(batch_) / gpus_ * gpus;
        return application_->split(std::clamp(batch, least, most), gpus, true);
      }
      case BatchRule::kKnown:
        return application_->best(shape, std::min(run.epoch, epochs() - 1)).tuning;
      case BatchRule::kFitted:
        if (application_->most_gpus() == 1) break;
        if (run.profile.fitted > 0) return application_->best_fitted(shape, run.profile).tuning;
        return application_->split(
            std::max(least, static_cast<double>(application_->least_local() * gpus)), gpus, true);
    }
    return application_->split(static_cast<double>(batch_), gpus, true);
  }

  std::shared_ptr<const Application> application_;
  int64_t batch_;
  int gpus_;
};

}  // namespace

std::shared_ptr<const JobModel> trained_job(std::shared_ptr<const Application> application,
                                            int64_t batch, int gpus) {
  return std::make_shared<TrainedJob>(std::move(application), batch, gpus);
}

}  // namespace tessera::share
