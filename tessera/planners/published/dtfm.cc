#include "tessera/planners/published/dtfm.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "tessera/base/infinity.h"
#include "tessera/planners/published/open_path.h"

namespace tessera::published {
namespace {

using Groups = std::vector<std::vector<size_t>>;

double group_seconds(const RegionProblem& problem, const std::vector<size_t>& group, double size) {
  double slowest = 0;
  for (const size_t i : group) {
    double sum = 0;
    for (const size_t j : group) {
      if (i == j) continue;
      sum += 2 * (problem.delay_seconds[i][j] +
                  8 * problem.gradient_gb / (problem.gbit_per_second[i][j] * size));
    }
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

// Finds a matching with edges of at most `most`, by Kuhn's algorithm.
class Matching {
 public:
  Matching(const std::vector<std::vector<double>>& edges, double most)
      : edges_(edges), most_(most), partner_(edges.size(), edges.size()) {}
  bool is_perfect() {
    for (size_t left = 0; left < edges_.size(); ++left) {
      seen_.assign(edges_.size(), false);
      if (!match(left)) return false;
    }
    return true;
  }
  // Returns the member on the left that the perfect matching has for one on the right.
  size_t partner_of(size_t right) const { return partner_[right]; }

 private:
  bool match(size_t left) {
    for (size_t right = 0; right < edges_.size(); ++right) {
      if (seen_[right] || edges_[left][right] > most_) continue;
      seen_[right] = true;
      if (partner_[right] == edges_.size() || match(partner_[right])) {
        partner_[right] = left;
        return true;
      }
    }
    return false;
  }

  const std::vector<std::vector<double>>& edges_;
  double most_;
  std::vector<size_t> partner_;
  std::vector<bool> seen_;
};

// The times of all messages between two groups, and the least time within which a perfect matching
// sends them.
struct Links {
  std::vector<std::vector<double>> seconds;
  double slowest = 0;
};

Links links_of(const RegionProblem& problem, const std::vector<size_t>& from,
               const std::vector<size_t>& to) {
  Links out;
  std::vector<double> sorted;
  for (const size_t i : from) {
    auto& row = out.seconds.emplace_back();
    for (const size_t j : to) {
      row.push_back(problem.delay_seconds[i][j] +
                    8 * problem.activation_gb / problem.gbit_per_second[i][j]);
      sorted.push_back(row.back());
    }
  }
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  size_t low = 0;
  size_t high = sorted.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (Matching(out.seconds, sorted[middle]).is_perfect()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  out.slowest = sorted[low];
  return out;
}

double link_seconds(const RegionProblem& problem, const std::vector<size_t>& from,
                    const std::vector<size_t>& to) {
  return links_of(problem, from, to).slowest;
}

}  // namespace

std::vector<std::vector<size_t>> matched_groups(const RegionProblem& problem,
                                                const Groups& groups) {
  Groups out = groups;
  for (size_t g = 1; g < out.size(); ++g) {
    const Links links = links_of(problem, out[g - 1], groups[g]);
    Matching matching(links.seconds, links.slowest);
    matching.is_perfect();
    for (size_t right = 0; right < groups[g].size(); ++right)
      out[g][matching.partner_of(right)] = groups[g][right];
  }
  return out;
}

RegionPlan price_regions(const RegionProblem& problem, const Groups& groups, size_t most_exact) {
  RegionPlan plan;
  std::vector<std::vector<double>> links(groups.size(), std::vector<double>(groups.size(), 0));
  for (size_t g = 0; g < groups.size(); ++g) {
    plan.data_seconds =
        std::max(plan.data_seconds,
                 group_seconds(problem, groups[g], static_cast<double>(groups[g].size())));
    for (size_t h = g + 1; h < groups.size(); ++h) {
      links[g][h] = links[h][g] = link_seconds(problem, groups[g], groups[h]);
    }
  }
  const OpenPath path = best_open_path(links, false, most_exact);
  plan.pipeline_seconds = path.cost;
  plan.seconds = plan.data_seconds + 2 * plan.pipeline_seconds;
  for (const size_t g : path.nodes) {
    plan.groups.push_back(groups[g]);
    std::sort(plan.groups.back().begin(), plan.groups.back().end());
  }
  return plan;
}

namespace {

// While a search prices partitions, the path is exact up to so many groups.
constexpr size_t kExactWhileSearching = 10;

// Exchanges two devices of different groups as long as the score falls. Each exchange computes anew
// only the times of the two groups and of their links.
class Exchanges {
 public:
  Exchanges(const RegionProblem& problem, Groups groups)
      : problem_(problem), groups_(std::move(groups)), count_(groups_.size()) {
    data_.resize(count_);
    links_.assign(count_, std::vector<double>(count_, 0));
    for (size_t g = 0; g < count_; ++g) refresh(g);
    score_ = score();
  }

  // Prices at most `most` exchanges; returns how many it priced.
  int64_t descend(int64_t most) {
    int64_t priced = 0;
    for (bool gained = true; gained;) {
      gained = false;
      for (size_t g = 0; g < count_; ++g) {
        for (size_t h = g + 1; h < count_; ++h) {
          for (size_t i = 0; i < groups_[g].size(); ++i) {
            for (size_t j = 0; j < groups_[h].size(); ++j) {
              if (priced == most) return priced;
              ++priced;
              gained = exchange(g, i, h, j) || gained;
            }
          }
        }
      }
    }
    return priced;
  }

  double seconds() const { return score_; }
  const Groups& groups() const { return groups_; }

 private:
  void refresh(size_t g) {
    data_[g] = group_seconds(problem_, groups_[g], static_cast<double>(groups_[g].size()));
    for (size_t h = 0; h < count_; ++h) {
      if (h != g) links_[g][h] = links_[h][g] = link_seconds(problem_, groups_[g], groups_[h]);
    }
  }
  double score() const {
    const double data = *std::max_element(data_.begin(), data_.end());
    if (data >= score_) return data;  // the exchange is no gain even without the path
    return data + 2 * best_open_path(links_, false, kExactWhileSearching).cost;
  }
  bool exchange(size_t g, size_t i, size_t h, size_t j) {
    const std::vector<double> data = data_;
    const std::vector<std::vector<double>> links = links_;
    std::swap(groups_[g][i], groups_[h][j]);
    refresh(g);
    refresh(h);
    const double found = score();
    if (found < score_ * (1 - 1e-12)) {
      score_ = found;
      return true;
    }
    std::swap(groups_[g][i], groups_[h][j]);
    data_ = data;
    links_ = links;
    return false;
  }

  const RegionProblem& problem_;
  Groups groups_;
  size_t count_;
  std::vector<double> data_;
  std::vector<std::vector<double>> links_;
  double score_ = kInfinity;
};

class Genetic {
 public:
  Genetic(const RegionProblem& problem, const GeneticOptions& options)
      : problem_(problem),
        options_(options),
        random_(options.seed),
        devices_(problem.delay_seconds.size()),
        size_(devices_ / problem.stages) {}

  RegionPlan solve(const std::function<void(std::string_view)>& progress) {
    for (size_t i = 0; i < options_.population; ++i) people_.push_back(person(any_stage()));
    for (size_t i = 0; i < options_.offspring; ++i) {
      if (i % 100 == 0) progress(fmt::format("offspring {} of {}", i, options_.offspring));
      const size_t a = below(people_.size());
      const size_t b = below(people_.size());
      std::vector<size_t> child = crossed(people_[a].stage, people_[b].stage);
      cyclic_moves(child);
      Person made = person(child);
      Person& worse = people_[a].seconds > people_[b].seconds ? people_[a] : people_[b];
      if (made.seconds < worse.seconds) worse = std::move(made);
    }
    return price_regions(problem_, moved(progress));
  }

 private:
  struct Person {
    std::vector<size_t> stage;  // stage of each device
    double seconds = 0;
  };
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }

  // Returns a random partition: the stage of each device.
  std::vector<size_t> any_stage() {
    std::vector<size_t> order(devices_);
    for (size_t p = 0; p < devices_; ++p) order[p] = p;
    for (size_t p = devices_; p > 1; --p) std::swap(order[p - 1], order[below(p)]);
    std::vector<size_t> stage(devices_);
    for (size_t p = 0; p < devices_; ++p) stage[order[p]] = p / size_;
    return stage;
  }

  Groups groups_of(const std::vector<size_t>& stage) const {
    Groups groups(problem_.stages);
    for (size_t p = 0; p < devices_; ++p) groups[stage[p]].push_back(p);
    return groups;
  }
  // Returns the best partition after local moves: from each partition of the population, the best
  // first, and then from random partitions until all moves are used.
  Groups moved(const std::function<void(std::string_view)>& progress) {
    std::stable_sort(people_.begin(), people_.end(),
                     [](const Person& x, const Person& y) { return x.seconds < y.seconds; });
    Groups best = groups_of(people_.front().stage);
    double least = people_.front().seconds;
    int64_t left = options_.local_moves;
    std::set<Groups> seen;
    for (size_t i = 0; left > 0 && problem_.stages > 1 && size_ < devices_; ++i) {
      const bool is_known = i < people_.size();
      Groups groups = groups_of(is_known ? people_[i].stage : any_stage());
      Groups sorted = groups;  // equal for equal groups, whatever the numbers of their stages
      std::sort(sorted.begin(), sorted.end());
      --left;
      if (!seen.insert(std::move(sorted)).second) continue;
      if (i % 10 == 0) progress(fmt::format("local moves, {} left", left));
      Exchanges moves(problem_, std::move(groups));
      left -= moves.descend(left);
      if (moves.seconds() >= least) continue;
      least = moves.seconds();
      best = moves.groups();
    }
    return best;
  }

  Person person(const std::vector<size_t>& stage) const {
    return {stage, price_regions(problem_, groups_of(stage), kExactWhileSearching).seconds};
  }

  // Returns a child that takes the stages of devices from the two parents by turns, changing the
  // parent at five points. Devices of groups that are then too large move to groups that are too
  // small, in the order of their numbers.
  std::vector<size_t> crossed(const std::vector<size_t>& a, const std::vector<size_t>& b) {
    constexpr size_t kPoints = 5;
    std::vector<size_t> points;
    for (size_t i = 0; i < kPoints; ++i) points.push_back(below(devices_ + 1));
    std::vector<size_t> child(devices_);
    std::vector<size_t> members(problem_.stages, 0);
    for (size_t p = 0; p < devices_; ++p) {
      const auto passed =
          std::count_if(points.begin(), points.end(), [p](size_t point) { return point <= p; });
      child[p] = passed % 2 == 0 ? a[p] : b[p];
      ++members[child[p]];
    }
    for (size_t p = 0; p < devices_; ++p) {
      if (members[child[p]] <= size_) continue;
      const auto to = std::find_if(members.begin(), members.end(),
                                   [this](size_t count) { return count < size_; });
      --members[child[p]];
      child[p] = static_cast<size_t>(to - members.begin());
      ++members[child[p]];
    }
    return child;
  }

  double bandwidth_to(const std::vector<size_t>& stage, size_t p, size_t group,
                      size_t without) const {
    double sum = 0;
    for (size_t q = 0; q < devices_; ++q) {
      if (q != p && q != without && stage[q] == group) sum += problem_.gbit_per_second[p][q];
    }
    return sum;
  }

  // Moves devices in cycles. In a round, the device of a random group that gains most by moving to
  // the next group moves there, a device of that group moves on, and so on around all groups back
  // to the first. A round that gains nothing is undone and ends the moves.
  void cyclic_moves(std::vector<size_t>& stage) {
    const size_t groups = problem_.stages;
    if (groups < 2) return;
    for (bool gained = true; gained;) {
      const std::vector<size_t> before = stage;
      const size_t first = below(groups);
      double gain = 0;
      std::vector<bool> moved(devices_, false);
      for (size_t i = 0; i < groups; ++i) {
        const size_t from = (first + i) % groups;
        const size_t to = (from + 1) % groups;
        size_t best = devices_;
        double most = -kInfinity;
        for (size_t p = 0; p < devices_; ++p) {
          if (stage[p] != from || moved[p]) continue;
          const double own =
              bandwidth_to(stage, p, to, devices_) - bandwidth_to(stage, p, from, devices_);
          if (own > most) {
            most = own;
            best = p;
          }
        }
        stage[best] = to;
        moved[best] = true;
        gain += most;
      }
      gained = gain > 1e-12;
      if (!gained) stage = before;
    }
  }

  const RegionProblem& problem_;
  const GeneticOptions& options_;
  std::mt19937_64 random_;
  size_t devices_, size_;
  std::vector<Person> people_;
};

// Enumerates partitions: groups one by one, each from the first device that is free.
class Partitions {
 public:
  explicit Partitions(const RegionProblem& problem)
      : problem_(problem),
        devices_(problem.delay_seconds.size()),
        size_(devices_ / problem.stages),
        taken_(devices_, false) {
    best_.plan.seconds = kInfinity;
  }
  ExactRegions solve() {
    choose(0);
    return std::move(best_);
  }

 private:
  static constexpr double kEqual = 1e-12;

  void choose(double data) {
    if (data > best_.plan.seconds * (1 + kEqual)) return;
    const size_t first =
        static_cast<size_t>(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
    if (first == devices_) {
      RegionPlan plan = price_regions(problem_, groups_);
      if (plan.seconds < best_.plan.seconds * (1 - kEqual)) {
        best_ = {std::move(plan), 1};
      } else if (plan.seconds <= best_.plan.seconds * (1 + kEqual)) {
        ++best_.ties;
      }
      return;
    }
    groups_.push_back({first});
    taken_[first] = true;
    fill(first + 1, data);
    taken_[first] = false;
    groups_.pop_back();
  }
  void fill(size_t from, double data) {
    if (groups_.back().size() == size_) {
      const double own = group_seconds(problem_, groups_.back(), static_cast<double>(size_));
      return choose(std::max(data, own));
    }
    for (size_t p = from; p < devices_; ++p) {
      if (taken_[p]) continue;
      taken_[p] = true;
      groups_.back().push_back(p);
      fill(p + 1, data);
      groups_.back().pop_back();
      taken_[p] = false;
    }
  }

  const RegionProblem& problem_;
  size_t devices_, size_;
  std::vector<bool> taken_;
  Groups groups_;
  ExactRegions best_;
};

}  // namespace

RegionPlan genetic_regions(const RegionProblem& problem, const GeneticOptions& options,
                           const std::function<void(std::string_view)>& progress) {
  return Genetic(problem, options).solve(progress);
}

double count_partitions(size_t devices, size_t stages) {
  // Each group has the first free device and size - 1 of the others.
  const size_t size = devices / stages;
  double count = 1;
  for (size_t left = devices; left > 0; left -= size) {
    for (size_t i = 1; i < size; ++i) {
      count *= static_cast<double>(left - i) / static_cast<double>(i);
    }
  }
  return count;
}

ExactRegions exact_regions(const RegionProblem& problem) { return Partitions(problem).solve(); }

}  // namespace tessera::published
