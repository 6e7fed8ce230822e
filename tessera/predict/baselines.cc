#include "tessera/predict/baselines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tessera/base/statistics.h"
#include "tessera/cluster/cluster.h"
#include "tessera/predict/measured.h"

namespace tessera {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

// Returns the FLOP of a step on one GPU, recomputation included, times 1 + the share of the
// pipeline's bubble.
double work(const Run& run) {
  const double tokens = real(run.global_batch) * real(run.seq) / real(run.gpus);
  const double recompute = run.recompute == Recompute::kFull ? 4.0 / 3 : 1;
  const double bubble = real(run.pp - 1) / (real(run.vpp) * real(run.micro_batches));
  return tokens * model_flops_a_token(run) * recompute * (1 + bubble);
}

double peak(const Run& run, const Device& device) {
  const auto found = device.peak.find(std::string(arithmetic_name(run.arithmetic)));
  if (found != device.peak.end()) return found->second;
  const auto fallback = device.peak.find("fp16");
  return fallback == device.peak.end() ? 0 : fallback->second;
}

Device device_of(const Run& run) {
  const auto cluster = load_cluster(run.machine.preset + ":1");
  return cluster ? cluster->parts.front().type.device : Device{};
}

}  // namespace

std::vector<double> efficiency_baseline(const std::vector<BaselineRow>& rows, bool of_others) {
  // rates: share of the peak that the row reaches
  std::vector<double> rates(rows.size(), 0), peaks(rows.size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].run == nullptr) continue;
    peaks[i] = peak(*rows[i].run, device_of(*rows[i].run));
    if (rows[i].measured_s > 0 && peaks[i] > 0) {
      rates[i] = work(*rows[i].run) / rows[i].measured_s / peaks[i];
    }
  }
  std::map<std::array<std::string, 3>, double> known;  // results, by (left-out source, GPU, dtype)
  using Key = std::array<std::string, 3>;
  const auto efficiency = [&](const BaselineRow& of) {
    const auto [found, fresh] =
        known.try_emplace(Key{of_others ? of.source : "", of.gpu, of.dtype}, 0.0);
    if (!fresh) return found->second;
    for (int level = 0; level < 3 && found->second == 0; ++level) {
      std::vector<double> values;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rates[i] <= 0 || (of_others && rows[i].source == of.source)) continue;
        if (level < 2 && rows[i].dtype != of.dtype) continue;
        if (level < 1 && rows[i].gpu != of.gpu) continue;
        values.push_back(rates[i]);
      }
      found->second = median(std::move(values));
    }
    return found->second;
  };
  std::vector<double> out(rows.size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].run == nullptr || peaks[i] <= 0) continue;
    if (const double share = efficiency(rows[i]); share > 0) {
      out[i] = work(*rows[i].run) / (share * peaks[i]);
    }
  }
  return out;
}

double reference_model(const Run& run) {
  const Architecture& m = run.model;
  if (m.form != Form::kGpt && m.form != Form::kLlama) return 0;
  const Device device = device_of(run);
  const double rate = peak(run, device);
  const double memory = 1.6e12 * device.memory_rate / 2.039e12;
  if (rate <= 0 || memory <= 0) return 0;
  // A product of F FLOP has the efficiency kBest F / (F + kHalf).
  constexpr double kBest = 0.84, kHalf = 16e9;
  const double b = real(run.microbatch), s = real(run.seq) / real(run.cp), h = real(m.hidden);
  const double a = real(m.heads), t = real(run.tp), v = real(m.vocab);
  const double products = 24 * b * s * h * h / t;
  const double x = products / 6;
  const double attention = 4 * b * s * s * h / t / (rate * kBest / 2);
  const double elementwise = (29 * 2 * b * s * h + 2.2 * 2 * b * a * s * s / t) / memory;
  double forward = products / (rate * kBest * x / (x + kHalf)) + attention + elementwise;
  // The time of an all-reduce of the tensor group: within a node from curves measured on the A100,
  // over several nodes with 80 GB/s.
  constexpr std::array<double, 9> kAlpha = {0, 0, 46, 56, 54, 59, 67, 71, 79};
  constexpr std::array<double, 9> kBus = {1, 1, 193, 210, 218, 222, 225, 226, 227};
  double all_reduce = 0;
  if (run.tp > 1) {
    const bool inside = run.tp <= 8;
    const auto n = static_cast<size_t>(std::min<int64_t>(run.tp, 8));
    const double volume = 2 * (t - 1) / t * 2 * b * s * h;
    const double nodes = std::max(1.0, t / 8);
    all_reduce =
        inside ? kAlpha[n] * 1e-6 + volume / (kBus[n] * 1e9) : nodes * 42e-6 + volume / 80e9;
  }
  forward += 2 * all_reduce;
  const double backward_pass = 2 * (forward - 2 * all_reduce) + 2 * all_reduce;
  // A layer's forward pass takes at least the seconds in which the host issues its kernels.
  const double floor = 0.73e-3 + (run.tp > 1 ? 0.075e-3 : 0) + (run.tp >= 8 ? 0.23e-3 : 0);
  const bool again = run.recompute == Recompute::kFull;
  const double layers = real(m.layers) / real(run.pp);
  const auto stage = [&](bool last) {
    const double recompute = again ? forward * (last ? 1 - 0.68 : 1) : 0;
    const double backward = std::max(backward_pass + recompute, 2.9 * floor);
    double time = layers * (std::max(forward, floor) + backward);
    if (last) {
      time += 3 * (2 * b * s * h * v / t) / (rate * kBest) + 3 * 13.3 * 4 * b * s * v / t / memory;
    }
    return time;
  };
  const double last = stage(true), others = stage(false);
  const double slowest = run.pp > 1 ? std::max(last, others) : last;
  const double sum = last + real(run.pp - 1) * others;
  double total = real(run.micro_batches) * slowest + (sum - slowest) / real(run.vpp);
  if (run.dp > 1) {
    const double bytes = 2 * parameter_count(m) / (real(run.pp) * t);
    const double ring = 2 * real(run.dp - 1) / real(run.dp) * bytes;
    total += run.gpus <= run.gpus_a_node ? ring / (0.52 * 227e9) : ring / 5.5e9;
  }
  return total;
}

}  // namespace tessera
