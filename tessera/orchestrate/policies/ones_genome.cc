#include "tessera/orchestrate/policies/ones_genome.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::share::ones {
namespace {

int allowed(const Facts& facts, int job) {
  const auto found = facts.find(job);
  return found == facts.end() ? 0 : found->second.allowed;
}

int sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0,
                         [](int sum, const auto& item) { return sum + item.second; });
}

// Raises executed jobs to the sizes that `most` returns, while GPUs are free; the shortest first.
template <class Most>
void raise(Counts& counts, const Facts& facts, int& free, Most most) {
  std::vector<std::pair<double, int>> order;
  for (const auto& [job, fact] : facts) {
    if (!fact.is_executed || counts[job] >= most(fact)) continue;
    const double one = fact.throughput(1);
    order.emplace_back(one > 0 ? fact.left / one : std::numeric_limits<double>::max(), job);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [seconds, job] : order) {
    const int more = std::min(free, most(facts.at(job)) - counts[job]);
    counts[job] += more;
    free -= more;
  }
}

}  // namespace

Counts counts_of(const Genome& genome) {
  Counts out;
  for (const int job : genome) {
    if (job != kFree) ++out[job];
  }
  return out;
}

Genome refresh(const Genome& genome, const Facts& facts) {
  Genome out = genome;
  Counts kept;
  for (int& job : out) {
    if (job == kFree) continue;
    if (kept[job] >= allowed(facts, job)) {
      job = kFree;
    } else {
      ++kept[job];
    }
  }
  return out;
}

std::pair<Genome, Genome> crossover(const Genome& a, const Genome& b, const Facts& facts,
                                    double chance, const std::function<double()>& draw) {
  Genome one(a.size(), kFree), two(a.size(), kFree);
  Counts in_one, in_two;
  const auto put = [&](Genome& child, Counts& counts, size_t i, int job) {
    if (job == kFree || counts[job] >= allowed(facts, job)) return;
    child[i] = job;
    ++counts[job];
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const bool keep = draw() >= chance;
    put(one, in_one, i, keep ? a[i] : b[i]);
    put(two, in_two, i, keep ? b[i] : a[i]);
  }
  return {std::move(one), std::move(two)};
}

Genome mutate(const Genome& genome, const Facts& facts, double rate,
              const std::function<double()>& draw) {
  Genome out = genome;
  for (const auto& [job, count] : counts_of(genome)) {
    const auto found = facts.find(job);
    if (found == facts.end() || !found->second.is_executed || draw() >= rate) continue;
    std::replace(out.begin(), out.end(), job, kFree);
  }
  return out;
}

Counts pad(const Genome& genome, const Facts& facts) {
  Counts out = counts_of(genome);
  int free = static_cast<int>(genome.size()) - sum_of(out);
  for (const auto& [job, fact] : facts) {
    if (!fact.is_new || free == 0 || out[job] > 0) continue;
    out[job] = 1;
    --free;
  }
  raise(out, facts, free, [](const JobFacts& fact) { return fact.allowed; });
  raise(out, facts, free, [](const JobFacts& fact) { return fact.limit; });
  std::erase_if(out, [](const auto& item) { return item.second == 0; });
  return out;
}

Genome reorder(const Counts& counts, const Genome& deployed) {
  const size_t slots = deployed.size(), jobs = counts.size();
  std::vector<std::pair<int, size_t>> blocks;
  for (const auto& [job, count] : counts) blocks.emplace_back(job, static_cast<size_t>(count));
  // Occupied slots before i, and those of each job.
  std::vector<int> occupied(slots + 1);
  std::vector<std::vector<int>> own(jobs, std::vector<int>(slots + 1));
  for (size_t i = 0; i < slots; ++i) {
    occupied[i + 1] = occupied[i] + (deployed[i] != kFree ? 1 : 0);
    for (size_t j = 0; j < jobs; ++j)
      own[j][i + 1] = own[j][i] + (deployed[i] == blocks[j].first ? 1 : 0);
  }
  // The best way to place k jobs in the first i slots, with the jobs that it has used.
  struct Way {
    int cost = std::numeric_limits<int>::max();
    int last = kFree;  // the block that ends here, or kFree for an empty slot
    std::vector<bool> used;
  };
  std::vector<std::vector<Way>> best(slots + 1, std::vector<Way>(jobs + 1));
  best[0][0] = {0, kFree, std::vector<bool>(jobs)};
  for (size_t i = 1; i <= slots; ++i) {
    for (size_t k = 0; k <= jobs; ++k) {
      Way& way = best[i][k];
      int from = kFree;
      way.cost = best[i - 1][k].cost;
      for (size_t j = 0; j < jobs && k > 0; ++j) {
        const size_t size = blocks[j].second;
        if (size > i) continue;
        const Way& before = best[i - size][k - 1];
        if (before.cost == std::numeric_limits<int>::max() || before.used[j]) continue;
        const int kept = own[j][i] - own[j][i - size];
        const int moved = occupied[i] - occupied[i - size] - kept;
        // Among ways of equal cost, that one counts as best in which jobs keep the most GPUs.
        const int cost = before.cost + moved * static_cast<int>(slots + 1) - kept;
        if (cost >= way.cost) continue;
        way.cost = cost;
        from = static_cast<int>(j);
      }
      way.last = from;
      if (way.cost == std::numeric_limits<int>::max()) continue;
      way.used = from == kFree ? best[i - 1][k].used
                               : best[i - blocks[static_cast<size_t>(from)].second][k - 1].used;
      if (from != kFree) way.used[static_cast<size_t>(from)] = true;
    }
  }
  // The path with all jobs; if the search has lost some on its way, that with the most jobs.
  size_t k = jobs;
  while (best[slots][k].cost == std::numeric_limits<int>::max()) --k;
  Genome out(slots, kFree);
  for (size_t i = slots; i > 0;) {
    const int last = best[i][k].last;
    if (last == kFree) {
      --i;
      continue;
    }
    const auto& [job, size] = blocks[static_cast<size_t>(last)];
    for (size_t s = 0; s < size; ++s) out[i - 1 - s] = job;
    i -= size;
    --k;
  }
  return out;
}

double score(const Genome& genome, const Facts& facts) {
  double out = 0;
  for (const auto& [job, count] : counts_of(genome)) {
    const auto found = facts.find(job);
    if (found == facts.end() || !found->second.has_prediction) continue;
    const double throughput = found->second.throughput(count);
    if (throughput > 0) out += count * found->second.left / throughput;
  }
  return out;
}

int scaled_down(int size, double run_s, double median_s) {
  constexpr double kFactor = 1.0;
  const int m = std::max(static_cast<int>(2 * size / (kFactor * run_s / median_s + 1)), 1);
  return 2 * (m / 2 + m % 2);
}

double interpolated(const std::map<int, double>& seen, int gpus) {
  if (gpus <= 0 || seen.empty()) return 0;
  const auto above = seen.lower_bound(gpus);
  if (above != seen.end() && above->first == gpus) return above->second;
  // Between two points, or beyond the last one on the line through the last two; (0, 0) is a point.
  auto right = above == seen.end() ? std::prev(above) : above;
  const std::pair<int, double> b = *right;
  std::pair<int, double> a{0, 0.0};
  if (right != seen.begin()) a = *std::prev(right);
  const double slope = (b.second - a.second) / (b.first - a.first);
  return std::max(0.0, a.second + slope * (gpus - a.first));
}

}  // namespace tessera::share::ones
