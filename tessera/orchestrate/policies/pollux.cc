// Pollux: a genetic search for the allocations of greatest mean speed-up, where a job's speed-up is
// its goodput, at the best batch, over that at a fair share of the cluster. Goodput is predicted by a
// formula that is fitted to what the job has shown (profile.h). A changed job counts less, by what its
// pause costs against its age; the mean is the power mean of exponent -1, so that no job is starved.
#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/orchestrate/policies/makers.h"
#include "tessera/orchestrate/share/placement.h"
#include "tessera/orchestrate/share/random.h"

namespace tessera::share {
namespace {

constexpr size_t kPopulation = 100;
constexpr int kGenerations = 100;
constexpr double kLeast = 1e-3;   // added to speed-ups, so that none is 0
constexpr size_t kMostGpus = 64;  // of one job

// GPUs of each job on each node, a row for each job.
using Matrix = std::vector<uint8_t>;

class Search {
 public:
  Search(const View& view, Random& random)
      : view_(view), random_(random), jobs_(view.jobs.size()), nodes_(view.machines->nodes.size()) {
    const double share =
        std::max(1.0, std::ceil(view.machines->gpus() / static_cast<double>(jobs_)));
    fair_ = static_cast<int>(share);
    for (const JobView& job : view.jobs) {
      const int grown = std::max(2 * job.run->profile.most_gpus, job.model().least_gpus());
      limits_.push_back(std::min(
          {grown, static_cast<int>(kMostGpus), job.model().most_gpus(BatchRule::kFitted)}));
      const double age = view.now_s - job.spec->submit_s;
      penalties_.push_back(std::max(age - job.switches * view.switch_s, 0.0) /
                           (age + std::max(view.switch_s, 1.0)));
    }
    speedups_.resize(jobs_);
  }

  Matrix current() const {
    Matrix out(jobs_ * nodes_);
    for (size_t j = 0; j < jobs_; ++j) {
      for (const Allocation::Part& part : view_.jobs[j].allocation.parts)
        out[j * nodes_ + static_cast<size_t>(part.node)] = static_cast<uint8_t>(part.gpus);
    }
    return out;
  }

  // Takes GPUs away until nodes have room, each job keeps its limit, and no node has two jobs that run
  // on several nodes.
  void repair(Matrix& m) {
    std::vector<int> used(jobs_);
    for (size_t j = 0; j < jobs_; ++j) {
      int left = limits_[j];
      const size_t from = random_.below(nodes_);
      for (size_t i = 0; i < nodes_; ++i) {
        uint8_t& gpus = m[j * nodes_ + (from + i) % nodes_];
        gpus = static_cast<uint8_t>(std::min<int>(gpus, left));
        left -= gpus;
        used[j] += gpus > 0 ? 1 : 0;
      }
    }
    for (size_t n = 0; n < nodes_; ++n) {
      int room = view_.machines->nodes[n].gpus;
      bool has_wide = false;
      const size_t from = random_.below(jobs_);
      for (size_t i = 0; i < jobs_; ++i) {
        const size_t j = (from + i) % jobs_;
        uint8_t& gpus = m[j * nodes_ + n];
        if (gpus == 0) continue;
        const bool is_wide = used[j] > 1;
        const int kept = is_wide && has_wide ? 0 : std::min<int>(gpus, room);
        has_wide |= is_wide && kept > 0;
        room -= kept;
        if (kept == 0) --used[j];
        gpus = static_cast<uint8_t>(kept);
      }
    }
  }

  double fitness(const Matrix& m, const Matrix& before) {
    double sum = 0;
    for (size_t j = 0; j < jobs_; ++j) {
      int gpus = 0, nodes = 0;
      bool is_same = true;
      for (size_t n = 0; n < nodes_; ++n) {
        const int own = m[j * nodes_ + n];
        gpus += own;
        nodes += own > 0 ? 1 : 0;
        is_same &= own == before[j * nodes_ + n];
      }
      const double scale = static_cast<double>(nodes_) / static_cast<double>(jobs_);
      sum += 1 / (speedup(j, nodes, gpus) * (is_same ? 1 : penalties_[j]) * scale + kLeast);
    }
    return static_cast<double>(jobs_) / sum;
  }

  void mutate(Matrix& m) {
    for (size_t j = 0; j < jobs_; ++j) {
      uint8_t* row = &m[j * nodes_];
      if (random_.uniform() < 0.1) std::fill(row, row + nodes_, uint8_t{0});
      if (random_.uniform() >= 2.0 / static_cast<double>(jobs_ + 1)) continue;
      const size_t n = random_.below(nodes_);
      row[n] = random_.uniform() < 0.3
                   ? uint8_t{0}
                   : static_cast<uint8_t>(
                         1 + random_.below(static_cast<size_t>(view_.machines->nodes[n].gpus)));
    }
  }

  Matrix crossed(const Matrix& a, const Matrix& b) {
    const size_t point = random_.below(jobs_ + 1) * nodes_;
    Matrix out(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(point));
    out.insert(out.end(), b.begin() + static_cast<std::ptrdiff_t>(point), b.end());
    return out;
  }

 private:
  double speedup(size_t j, int nodes, int gpus) {
    if (gpus == 0) return 0;
    std::vector<double>& known = speedups_[j];
    const size_t width = kMostGpus + 1;
    if (known.empty()) known.assign((nodes_ + 1) * width, -1);
    double& out = known[static_cast<size_t>(nodes) * width + static_cast<size_t>(gpus)];
    if (out < 0) out = predicted(j, nodes, gpus) / at_fair_share(j);
    return out;
  }
  double predicted(size_t j, int nodes, int gpus) const {
    Shape shape;
    for (int n = 0; n < nodes; ++n) shape.gpus.push_back(gpus / nodes + (n < gpus % nodes ? 1 : 0));
    const JobView& job = view_.jobs[j];
    return job.model().predicted_rate(*job.run, shape);
  }
  double at_fair_share(size_t j) {
    double& out = fair_rates_[j];
    if (out > 0) return out;
    const int gpus =
        std::clamp(fair_, 1, std::max(1, view_.jobs[j].model().most_gpus(BatchRule::kFitted)));
    const Shape packed = view_.machines->packed(gpus);
    out = std::max(predicted(j, packed.nodes(), gpus), 1e-12);
    return out;
  }

  const View& view_;
  Random& random_;
  size_t jobs_, nodes_;
  int fair_ = 1;
  std::vector<int> limits_;
  std::vector<double> penalties_;
  std::vector<std::vector<double>> speedups_;  // by job, then nodes and GPUs; negative: not known
  std::map<size_t, double> fair_rates_;
};

class Pollux : public Policy {
 public:
  explicit Pollux(uint64_t seed) : random_(seed, 11) {}
  BatchRule batch_rule() const override { return BatchRule::kFitted; }

  Decision decide(const View& view) override {
    Search search(view, random_);
    const Matrix before = search.current();
    std::vector<std::pair<double, Matrix>> population{{search.fitness(before, before), before}};
    for (Matrix& kept : kept_rows(view)) population.emplace_back(0, std::move(kept));
    while (population.size() < kPopulation) population.emplace_back(0, before);
    for (size_t i = 1; i < population.size(); ++i) {
      search.mutate(population[i].second);
      search.repair(population[i].second);
      population[i].first = search.fitness(population[i].second, before);
    }
    const auto better = [](const auto& a, const auto& b) { return a.first > b.first; };
    for (int generation = 0; generation < kGenerations; ++generation) {
      for (size_t i = 0; i < kPopulation; ++i) {
        const auto chosen = [&] {
          const size_t a = random_.below(kPopulation), b = random_.below(kPopulation);
          return population[a].first >= population[b].first ? a : b;
        };
        Matrix child = search.crossed(population[chosen()].second, population[chosen()].second);
        search.mutate(child);
        search.repair(child);
        const double fitness = search.fitness(child, before);
        population.emplace_back(fitness, std::move(child));
      }
      std::stable_sort(population.begin(), population.end(), better);
      population.resize(kPopulation);
    }
    keep(view, population);
    return {allocations(view, before, population.front().second)};
  }

 private:
  // Returns schedules of the last decision, with the rows of the jobs that are still there.
  std::vector<Matrix> kept_rows(const View& view) const {
    const size_t nodes = view.machines->nodes.size();
    std::vector<Matrix> out;
    for (const auto& rows : kept_) {
      Matrix m(view.jobs.size() * nodes);
      for (size_t j = 0; j < view.jobs.size(); ++j) {
        const auto row = rows.find(view.jobs[j].id);
        if (row == rows.end()) continue;
        std::copy(row->second.begin(), row->second.end(),
                  m.begin() + static_cast<std::ptrdiff_t>(j * nodes));
      }
      out.push_back(std::move(m));
    }
    return out;
  }
  void keep(const View& view, const std::vector<std::pair<double, Matrix>>& population) {
    const size_t nodes = view.machines->nodes.size();
    kept_.clear();
    for (size_t i = 0; i < kPopulation / 2; ++i) {
      auto& rows = kept_.emplace_back();
      for (size_t j = 0; j < view.jobs.size(); ++j) {
        const auto from = population[i].second.begin() + static_cast<std::ptrdiff_t>(j * nodes);
        rows[view.jobs[j].id] = Matrix(from, from + static_cast<std::ptrdiff_t>(nodes));
      }
    }
  }
  static std::vector<Allocation> allocations(const View& view, const Matrix& before,
                                             const Matrix& best) {
    const size_t nodes = view.machines->nodes.size();
    std::vector<Allocation> out;
    for (size_t j = 0; j < view.jobs.size(); ++j) {
      const auto row = static_cast<std::ptrdiff_t>(j * nodes);
      const auto end = row + static_cast<std::ptrdiff_t>(nodes);
      if (std::equal(best.begin() + row, best.begin() + end, before.begin() + row)) {
        out.push_back(view.jobs[j].allocation);
        continue;
      }
      Allocation& own = out.emplace_back();
      for (size_t n = 0; n < nodes; ++n) {
        const int gpus = best[j * nodes + n];
        if (gpus > 0) own.parts.push_back({static_cast<int>(n), gpus});
      }
    }
    return out;
  }

  Random random_;
  std::vector<std::map<int, Matrix>> kept_;  // schedules by job, for the next decision
};

}  // namespace

std::unique_ptr<Policy> make_pollux(const PolicyOptions& options) {
  return std::make_unique<Pollux>(options.seed);
}

}  // namespace tessera::share
