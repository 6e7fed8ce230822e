// An application of the Pollux traces (docs/reference/workloads.md): how long its steps take on
// any placement, and how its training progresses with batches of any size.
//
// Files of its folder: placements.csv, scalability.csv, validation-<batch>.csv. Progress is counted in
// steps at the smallest measured batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/share/job.h"
#include "tessera/orchestrate/workloads/interpolation.h"

namespace tessera::share {

struct StepTime {
  double step_s = 0, sync_s = 0;  // a whole step without extra passes; the synchronisation in it
  // Returns the seconds of a step with so many extra passes.
  double with(int64_t extra_passes) const {
    return step_s + static_cast<double>(extra_passes) * (step_s - sync_s);
  }
};

struct GradientNoise {
  double square = 0, variance = 0;
};

// Returns how many steps at the smallest batch a step at `scale` times that batch is worth.
inline double statistical_gain(const GradientNoise& noise, double scale) {
  return (noise.variance + noise.square) / (noise.variance / scale + noise.square);
}

class Application {
 public:
  // Reads the files of a folder. The batch of a GPU and pass is at most `most_local`; 0: what the file
  // has. `fixed_gpus` is the most GPUs; 0: as many as the batch allows.
  static Result<std::shared_ptr<const Application>> read(const std::string& folder,
                                                         const std::string& name,
                                                         int64_t most_local = 0, int most_gpus = 0);

  const std::string& name() const { return name_; }
  int64_t least_batch() const { return batches_.front(); }
  int64_t most_batch() const { return batches_.back(); }
  int64_t least_local() const { return least_local_; }
  int64_t most_local() const { return most_local_; }
  int most_gpus() const { return most_gpus_; }
  int64_t epochs() const { return static_cast<int64_t>(progress_.size()); }

  StepTime step(const Shape& shape, int64_t local) const;
  // Returns the noise of the gradient after so many epochs, for a batch: linear between measured ones.
  GradientNoise noise(int64_t epoch, double batch) const;
  // Returns the steps that a run at this batch has made when so many epochs are done.
  double steps(int64_t epoch, double batch) const;
  // Returns the progress that ends an epoch: the least of all measured batches.
  double progress_after(int64_t epoch) const { return progress_[static_cast<size_t>(epoch)]; }
  double metric(int64_t epoch) const;  // at the smallest batch

  // Divides a batch into samples a GPU and pass, and extra passes.
  Tuning split(double batch, int gpus, bool is_whole) const;
  static double batch_of(const Tuning& tuning, int gpus) {
    return static_cast<double>(gpus * tuning.local * (tuning.extra_passes + 1));
  }
  // Returns steps at the smallest batch that a step at `batch` is worth.
  double gain(const GradientNoise& noise, double batch) const;
  double rate(const Shape& shape, const Tuning& tuning, int64_t epoch) const;
  // Returns the batch of the greatest rate, of 50 in geometric spacing.
  struct Best {
    Tuning tuning;
    double rate = 0;
  };
  Best best(const Shape& shape, int64_t epoch) const;
  // Returns the same, where a step takes as long as the profile's formula says.
  Best best_fitted(const Shape& shape, const Profile& profile) const;

 private:
  struct Epoch {
    double progress = 0, iteration = 0, metric = 0, square = 0, variance = 0;
  };
  struct Measured {
    int64_t local;
    StepTime time;
  };
  Status read_placements(const std::string& folder);
  Status read_scalability(const std::string& folder);
  Status read_validation(const std::string& folder);
  StepTime measured(const std::vector<Measured>& rows, double local) const;
  double between(double Epoch::*what, int64_t epoch, double batch) const;
  std::vector<Tuning> grid(int gpus) const;

  std::string name_;
  std::vector<int64_t> batches_;
  std::vector<std::vector<Epoch>> rows_;  // by batch, then epoch
  std::vector<double> progress_;
  int64_t least_local_ = 0, most_local_ = 0;
  int most_gpus_ = 0;
  std::map<uint64_t, std::vector<Measured>> placements_;  // by the key of the least rotation
  ScatteredTable scattered_;
  mutable std::unordered_map<uint64_t, StepTime> known_steps_;
  mutable std::unordered_map<uint64_t, Best> known_best_;
};

// Reads one of the six applications of the Pollux traces, with the limits that their files do not say.
Result<std::shared_ptr<const Application>> read_pollux_application(const std::string& traces,
                                                                   const std::string& name);

}  // namespace tessera::share
