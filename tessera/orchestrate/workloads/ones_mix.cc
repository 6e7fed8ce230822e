// Generates jobs like those of ONES: ones:jobs=50,interval=30. Policies that keep
// the asked batch keep that of one GPU, whatever the number of GPUs; with kept=asked that of the asked
// GPUs. The mix of models, their data, batches,
// rates, targets and asked GPUs is that of its trace (docs/reference/workloads.md). How fast a model
// computes (images of 64 x 64 on a GPU of the V100 class), how long it synchronises and how many epochs
// it needs are assumptions, in the table below; the epochs until the target are drawn.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/orchestrate/share/elastic_batch.h"
#include "tessera/orchestrate/share/random.h"
#include "tessera/orchestrate/workloads/workload.h"

namespace tessera::share {
namespace {

struct MixModel {
  const char* name;
  std::array<int64_t, 2> epoch_samples;
  int64_t local;
  double rate, most_rate, target;
  int patience, gpus;
  // Assumed: samples a second of a GPU, bytes of the gradient, epochs until the target.
  double samples_per_s, gradient_bytes, least_epochs, most_epochs;
};

constexpr std::array<MixModel, 10> kMix = {{
    {"alexnet", {10000, 20000}, 64, 2.5e-4, 4e-3, .25, 20, 16, 6000, 244e6, 10, 25},
    {"resnet50", {10000, 20000}, 32, 5e-4, 8e-3, .55, 10, 16, 2500, 102e6, 15, 30},
    {"vgg16", {10000, 20000}, 32, 5e-4, 8e-3, .55, 10, 16, 2000, 553e6, 15, 30},
    {"inception3", {10000, 20000}, 32, 5e-4, 8e-3, .55, 10, 16, 2000, 95e6, 15, 30},
    {"resnet18", {20000, 40000}, 256, 5e-3, .08, .70, 10, 4, 9000, 45e6, 8, 20},
    {"googlenet", {20000, 40000}, 256, 5e-3, .08, .70, 10, 4, 5000, 25e6, 8, 20},
    {"vgg16-cifar", {20000, 40000}, 128, 1e-3, .016, .70, 10, 4, 12000, 60e6, 8, 20},
    {"bert-cola", {5000, 8000}, 16, 5e-6, 2e-5, .80, 5, 2, 400, 440e6, 3, 8},
    {"bert-mrpc", {3600, 3600}, 16, 5e-6, 2e-5, .80, 5, 2, 400, 440e6, 3, 8},
    {"bert-sst2", {10000, 20000}, 32, 2.5e-6, 2e-5, .90, 5, 8, 400, 440e6, 3, 8},
}};

constexpr double kStepOverhead_s = 0.01;
constexpr double kInsideBytesPerS = 60e9, kBetweenBytesPerS = 12.5e9;
constexpr double kOverlap = 0.5;  // of the computing time, during which gradients are summed, too
constexpr double kOvershoot = 1.08;  // the accuracy without end, over the target

class MixJob : public JobModel {
 public:
  MixJob(const MixModel& model, int64_t epoch_samples, double epochs_to_target, bool keeps_one)
      : model_(model),
        kept_gpus_(keeps_one ? 1 : model.gpus),
        epoch_samples_(static_cast<double>(epoch_samples)),
        time_(-epochs_to_target / std::log(1 - 1 / kOvershoot)),
        epochs_(static_cast<int64_t>(std::ceil(epochs_to_target)) + model.patience) {}

  int most_gpus(BatchRule) const override { return cap(); }
  bool runs_on(const Shape& shape) const override {
    return shape.total() >= 1 && shape.total() <= cap();
  }
  double total() const override { return epoch_samples_ * static_cast<double>(epochs_); }
  int64_t epochs() const override { return epochs_; }
  double rate(const JobRun&, const Shape& shape, BatchRule rule) const override {
    if (!runs_on(shape)) return 0;
    const int gpus = shape.total();
    const ElasticBatch batch = elastic_batch(model_.local, model_.rate, model_.most_rate,
                                             rule == BatchRule::kAsked ? kept_gpus_ : gpus);
    const double global = static_cast<double>(batch.global);
    return global / step_s(shape, global / gpus);
  }
  double seconds_left(const JobRun& run, const Shape& shape, BatchRule rule) const override {
    const double own = rate(run, shape, rule);
    return own > 0 ? (total() - run.done) / own : kNever;
  }
  void retune(JobRun& run, const Shape& shape, BatchRule rule) const override {
    run.rule = rule;
    run.profile.most_gpus = std::max(run.profile.most_gpus, shape.total());
  }
  Advance advance(JobRun& run, const Shape& shape, double seconds) const override {
    const double own = rate(run, shape, run.rule);
    const double left = total() - run.done;
    const bool is_done = own > 0 && left <= own * seconds;
    run.done = is_done ? total() : run.done + own * seconds;
    run.epoch = static_cast<int64_t>(run.done / epoch_samples_ + 1e-9);
    return {is_done ? left / own : seconds, is_done};
  }
  double steps_left(const JobRun& run) const override {
    return (total() - run.done) / asked_batch();
  }
  double packed_step_s(int gpus, int gpus_a_node) const override {
    Shape shape;
    for (int left = gpus; left > 0; left -= gpus_a_node)
      shape.gpus.push_back(std::min(left, gpus_a_node));
    return step_s(shape, asked_batch() / gpus);
  }
  Observed observe(const JobRun& run) const override {
    const double epochs = run.done / epoch_samples_;
    const double part = 1 - std::exp(-epochs / time_);
    return {.samples = run.done,
            .epoch_samples = epoch_samples_,
            .first_loss = 7,
            .loss = 7 * (1 - 0.9 * part),
            .accuracy = model_.target * kOvershoot * part};
  }

 private:
  double asked_batch() const {
    return static_cast<double>(
        elastic_batch(model_.local, model_.rate, model_.most_rate, kept_gpus_).global);
  }
  // Returns the most GPUs of which each still has a sample.
  int cap() const {
    return static_cast<int>(static_cast<double>(model_.local) * model_.most_rate / model_.rate);
  }
  double step_s(const Shape& shape, double local) const {
    const double gpus = shape.total();
    const double bytes = 2 * (gpus - 1) / gpus * model_.gradient_bytes;
    const double compute = local / model_.samples_per_s;
    const double sum = bytes / (shape.nodes() > 1 ? kBetweenBytesPerS : kInsideBytesPerS);
    return kStepOverhead_s + compute + std::max(0.0, sum - kOverlap * compute);
  }

  const MixModel& model_;
  int kept_gpus_;  // the batch of so many GPUs is kept where a policy keeps the asked batch
  double epoch_samples_, time_;
  int64_t epochs_;
};

}  // namespace

Result<Workload> generate_ones(const std::string& path, const ReadOptions& options) {
  int64_t jobs = 50;
  double interval = 30;
  bool keeps_one = true;
  TESSERA_TRY(const Call call, parse_call(path));
  for (const auto& [key, value] : call.arguments) {
    const auto number = parse_double(value);
    const bool is_known = key == "jobs" || key == "interval" || (key == "kept" && value == "asked");
    const bool is_right = key == "kept" || (number && *number > 0 && *number <= 1e6);
    if (!is_known || !is_right) {
      return invalid_input(
          fmt::format("{}: expected jobs and interval as positive numbers, or "
                      "kept=asked, found '{}={}'",
                      path, key, value));
    }
    if (key == "jobs") jobs = static_cast<int64_t>(*number);
    if (key == "interval") interval = *number;
    if (key == "kept") keeps_one = false;
  }
  Random random(options.seed, 3);
  Workload out;
  out.round_s = 5;
  out.switch_s = 20;
  out.live_switch_s = 1;
  double now = 0;
  for (int64_t i = 0; i < jobs; ++i) {
    const MixModel& model = kMix[random.below(kMix.size())];
    const double epochs =
        model.least_epochs + random.uniform() * (model.most_epochs - model.least_epochs);
    JobSpec job;
    job.name = fmt::format("{}-{}", model.name, i);
    job.application = model.name;
    now += random.exponential(interval);
    job.submit_s = now;
    job.gpus = std::min(model.gpus, std::max(1, options.machines.gpus(0)));
    job.model =
        std::make_shared<MixJob>(model, model.epoch_samples[random.below(2)], epochs, keeps_one);
    out.jobs.push_back(std::move(job));
  }
  return out;
}

}  // namespace tessera::share
