#include "tessera/report/slow_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <tuple>
#include <utility>

#include "tessera/base/statistics.h"

namespace tessera {
namespace {

// Something of which several do the same: a rank or a group of ranks (`actor`) does the work `key`.
struct Piece {
  int32_t actor = 0;
  int32_t role = 0;  // actors with equal roles do the same in the whole step
  std::string what, key;
  int64_t count = 0;
  double seconds = 0;
  double predicted_s = 1;  // of all `count`; times are compared in relation to it
};
struct Compared {
  double seconds = 0, expected_s = 0;
};
// Returns the median of ascending values of which one value `left_out` does not count. There are at
// least two values.
double median_of_others(const std::vector<double>& values, double left_out) {
  const auto at = static_cast<size_t>(std::ranges::lower_bound(values, left_out) - values.begin());
  const auto other = [&](size_t i) { return values[i < at ? i : i + 1]; };
  const size_t count = values.size() - 1;
  return (other((count - 1) / 2) + other(count / 2)) / 2;
}

// Compares pieces of equal keys: what a piece takes with what it would take at the median pace of its
// peers. The peers are the others with the same role; if there are none, all others, unless
// `only_same_role` is set. Pieces without peers are left out. By actor and `what`.
std::map<std::pair<int32_t, std::string>, Compared> compare(const std::vector<Piece>& pieces,
                                                            bool only_same_role) {
  std::map<std::string, std::vector<const Piece*>> same;
  for (const Piece& piece : pieces) {
    if (piece.count > 0) same[piece.key].push_back(&piece);
  }
  std::map<std::pair<int32_t, std::string>, Compared> out;
  for (const auto& [key, all] : same) {
    const bool predicted =
        std::all_of(all.begin(), all.end(), [](const Piece* one) { return one->predicted_s > 0; });
    const auto weight = [&](const Piece& one) {
      return static_cast<double>(one.count) * (predicted ? one.predicted_s : 1);
    };
    std::vector<double> paces;
    std::map<int32_t, std::vector<double>> by_role;
    for (const Piece* one : all) {
      paces.push_back(one->seconds / weight(*one));
      by_role[one->role].push_back(paces.back());
    }
    std::ranges::sort(paces);
    for (auto& [role, of_role] : by_role) std::ranges::sort(of_role);
    for (const Piece* one : all) {
      const std::vector<double>* among = &by_role[one->role];
      if (among->size() < 2 && !only_same_role) among = &paces;
      if (among->size() < 2) continue;
      Compared& sum = out[{one->actor, one->what}];
      sum.seconds += one->seconds;
      sum.expected_s += weight(*one) * median_of_others(*among, one->seconds / weight(*one));
    }
  }
  return out;
}

// Returns the probability that at least `heads` of `tosses` of a fair coin show heads.
double tail(int64_t heads, int64_t tosses) {
  const auto n = static_cast<double>(tosses);
  double sum = 0;
  for (int64_t i = heads; i <= tosses; ++i) {
    const auto k = static_cast<double>(i);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                    n * std::log(2.0));
  }
  return std::min(1.0, sum);
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

// One value a step. A step in which it did not occur counts as 0.
class Series {
 public:
  void set(size_t step, double value) {
    values_.resize(step + 1, 0);
    values_[step] += value;
  }
  double median_of(size_t steps) const {
    std::vector<double> all = values_;
    all.resize(steps, 0);
    return median(std::move(all));
  }

 private:
  std::vector<double> values_;
};

// The comparisons of one actor, step by step.
struct Paces {
  std::vector<double> ratios, lost;
  void add(const Compared& one) {
    if (one.expected_s <= 0) return;
    ratios.push_back(one.seconds / one.expected_s);
    lost.push_back(one.seconds - one.expected_s);
  }
  // Returns the comparison over all steps. `actors`: how many are compared, each of which chance may
  // make the slowest. `step_s`: the time of a step.
  Pace over_steps(size_t actors, double step_s) const {
    Pace out;
    if (ratios.empty()) return out;
    out.ratio = median(ratios);
    out.low = quantile(ratios, 0.25);
    out.high = quantile(ratios, 0.75);
    out.lost_s = median(lost);
    out.slower_steps = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r > 1; });
    const double chance = tail(out.slower_steps, std::ssize(ratios)) * static_cast<double>(actors);
    out.certainty = 1 - std::min(1.0, chance);
    out.is_slow = out.lost_s >= kLeastLoss * step_s && out.certainty >= kLeastCertainty;
    return out;
  }
};

struct RankSeries {
  std::vector<double> step_s, work_s, transfer_s, wait_s;
  Paces pace;
  struct Op {
    Series seconds, compared_s, peers_s;
  };
  std::map<std::string, Op> ops;
  std::map<std::tuple<std::string, std::string, int32_t>, std::pair<Series, Series>> waits;
};
struct LinkSeries {
  Paces pace;
  std::map<std::string, Series> kinds;
};

// Adds up the steps after one `watch` line, of which it keeps sums alone.
class Watch {
 public:
  explicit Watch(const std::vector<RankPrediction>& predictions) : predictions_(&predictions) {}

  void begin(WatchStart start) {
    *this = Watch(*predictions_);
    report_.start = std::move(start);
  }
  void add(RankTimes times) {
    if (!step_.empty() && step_.front().step != times.step) end_step();
    step_.push_back(std::move(times));
  }

  WatchReport finish() {
    end_step();
    for (const auto& [rank, series] : ranks_)
      report_.step_s = std::max(report_.step_s, median(series.step_s));
    for (const auto& [rank, series] : ranks_) report_.ranks.push_back(rank_report(rank, series));
    for (const auto& [ranks, series] : links_) {
      LinkReport link = link_report(ranks, series);
      if (link.time.is_slow) report_.links.push_back(std::move(link));
    }
    std::stable_sort(report_.links.begin(), report_.links.end(),
                     [](const auto& a, const auto& b) { return a.time.lost_s > b.time.lost_s; });
    std::vector<const RankReport*> slow;
    for (const RankReport& one : report_.ranks) {
      if (one.work.is_slow) slow.push_back(&one);
    }
    std::stable_sort(slow.begin(), slow.end(),
                     [](const auto* a, const auto* b) { return a->work.lost_s > b->work.lost_s; });
    for (const RankReport* one : slow) report_.slow.push_back(one->rank);
    return std::move(report_);
  }

 private:
  const RankPrediction* predicted(int32_t rank) const {
    const auto i = static_cast<size_t>(rank);
    return i < predictions_->size() ? &(*predictions_)[i] : nullptr;
  }

  // Takes the ranks' times of the step that has ended. The first step is left out: it touches memory
  // for the first time, and files are read.
  void end_step() {
    const std::vector<RankTimes> step = std::exchange(step_, {});
    if (step.empty() || !std::exchange(has_first_, true)) return;
    if (report_.steps == 0) report_.first_step = step.front().step;
    report_.last_step = step.front().step;
    const auto index = static_cast<size_t>(report_.steps++);
    std::vector<Piece> work, transfers;
    for (const RankTimes& one : step) {
      std::string role;
      for (const RankWork& part : one.work)
        role += fmt::format("{}\n{}\n{}\n", part.what, part.size, part.count);
      role_of_[one.rank] = number_of(roles_, role);
      add_rank(one, index, work);
    }
    add_transfers(step, index, transfers);
    std::map<int32_t, Compared> of_rank, of_link;
    for (const auto& [key, found] : compare(work, false)) {
      Compared& sum = of_rank[key.first];
      sum.seconds += found.seconds;
      sum.expected_s += found.expected_s;
      RankSeries::Op& op = ranks_[key.first].ops[key.second];
      op.compared_s.set(index, found.seconds);
      op.peers_s.set(index, found.expected_s);
    }
    for (const auto& [rank, found] : of_rank) ranks_[rank].pace.add(found);
    for (const auto& [key, found] : compare(transfers, true)) {
      Compared& sum = of_link[key.first];
      sum.seconds += found.seconds;
      sum.expected_s += found.expected_s;
    }
    for (const auto& [ranks, number] : groups_) {
      if (const auto found = of_link.find(number); found != of_link.end())
        links_[ranks].pace.add(found->second);
    }
  }

  void add_rank(const RankTimes& one, size_t index, std::vector<Piece>& pieces) {
    RankSeries& series = ranks_[one.rank];
    double work = 0, transfer = 0, wait = 0;
    for (const RankWork& part : one.work) {
      work += part.seconds;
      series.ops[part.what].seconds.set(index, part.seconds);
      pieces.push_back({one.rank, role_of_[one.rank], part.what, part.what + '\n' + part.size,
                        part.count, part.seconds});
    }
    for (const RankTransfer& part : one.transfers) transfer += part.seconds;
    for (const RankWait& part : one.waits) {
      wait += part.seconds;
      auto& [seconds, count] = series.waits[{part.what, part.tensor, part.rank}];
      seconds.set(index, part.seconds);
      count.set(index, static_cast<double>(part.count));
    }
    series.step_s.push_back(one.seconds);
    series.work_s.push_back(work);
    series.transfer_s.push_back(transfer);
    series.wait_s.push_back(wait);
  }

  // Adds what each group of ranks transferred, with the mean time of its members.
  void add_transfers(const std::vector<RankTimes>& step, size_t index, std::vector<Piece>& pieces) {
    std::map<std::pair<int32_t, std::string>, Piece> sums;  // by group and key
    for (const RankTimes& one : step) {
      for (const RankTransfer& part : one.transfers) {
        if (part.ranks.size() < 2) continue;
        const int32_t group = number_of(groups_, part.ranks);
        std::string key = fmt::format("{}\n{} {}", part.what, part.ranks.size(), part.bytes);
        Piece& piece = sums[{group, key}];
        std::vector<int32_t> roles;
        for (const int32_t rank : part.ranks) roles.push_back(role_of_[rank]);
        piece.actor = group;
        piece.role = number_of(group_roles_, roles);
        piece.what = part.what;
        piece.key = std::move(key);
        piece.count = std::max(piece.count, part.count);
        const double members = static_cast<double>(part.ranks.size());
        piece.seconds += part.seconds / members;
        links_[part.ranks].kinds[part.what].set(index, part.seconds / members);
        piece.predicted_s = predicted_transfer(part);
      }
    }
    for (auto& [key, piece] : sums) pieces.push_back(std::move(piece));
  }
  double predicted_transfer(const RankTransfer& transfer) const {
    double sum = 0;
    for (const int32_t rank : transfer.ranks) {
      const RankPrediction* one = predicted(rank);
      if (one == nullptr) return 0;
      const auto found = one->transfers.find(transfer.what);
      sum += found == one->transfers.end() ? 0 : found->second;
    }
    return sum;
  }
  // Returns the number of a value that is counted from 0 as it comes.
  template <class Value>
  static int32_t number_of(std::map<Value, int32_t>& known, const Value& value) {
    return known.try_emplace(value, static_cast<int32_t>(known.size())).first->second;
  }

  RankReport rank_report(int32_t rank, const RankSeries& series) const {
    const auto steps = static_cast<size_t>(report_.steps);
    RankReport out;
    out.rank = rank;
    out.step_s = median(series.step_s);
    out.work_s = median(series.work_s);
    out.transfer_s = median(series.transfer_s);
    out.wait_s = median(series.wait_s);
    out.work = series.pace.over_steps(ranks_.size(), report_.step_s);
    for (const auto& [what, op] : series.ops) {
      out.ops.push_back({what, op.seconds.median_of(steps), op.peers_s.median_of(steps),
                         op.compared_s.median_of(steps)});
    }
    std::stable_sort(out.ops.begin(), out.ops.end(),
                     [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    for (const auto& [key, wait] : series.waits) {
      const auto& [what, tensor, other] = key;
      const double seconds = wait.first.median_of(steps);
      if (seconds <= 0) continue;
      out.waits.push_back(
          {what, tensor, other, std::llround(wait.second.median_of(steps)), seconds});
    }
    std::stable_sort(out.waits.begin(), out.waits.end(),
                     [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    if (const RankPrediction* one = predicted(rank)) out.predicted = *one;
    return out;
  }

  LinkReport link_report(const std::vector<int32_t>& ranks, const LinkSeries& series) const {
    LinkReport out;
    out.ranks = ranks;
    double longest = -1;
    for (const auto& [what, seconds] : series.kinds) {
      const double one = seconds.median_of(static_cast<size_t>(report_.steps));
      out.seconds += one;
      if (one > longest) out.what = what;
      longest = std::max(longest, one);
    }
    out.time = series.pace.over_steps(links_.size(), report_.step_s);
    return out;
  }

  const std::vector<RankPrediction>* predictions_;
  WatchReport report_;
  std::vector<RankTimes> step_;  // the ranks of the step that is being read
  bool has_first_ = false;
  std::map<int32_t, RankSeries> ranks_;
  std::map<std::vector<int32_t>, LinkSeries> links_;
  std::map<std::vector<int32_t>, int32_t> groups_;
  std::map<std::string, int32_t> roles_;  // of ranks: what they have to do in a step
  std::map<int32_t, int32_t> role_of_;    // by rank, in the step that is taken
  std::map<std::vector<int32_t>, int32_t> group_roles_;
};

// Calls `use` with each whole line of the file. The part of a line at the end of a file that is being
// written, or whose writer was killed, is passed over.
template <class Use>
Status for_each_line(const std::string& path, const Use& use) {
  std::ifstream file(path);
  if (!file) return invalid_input(fmt::format("cannot read '{}'", path));
  std::string line;
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number)
    TESSERA_TRY_VOID(use(line, number));
  return {};
}

}  // namespace

std::vector<RankPrediction> rank_predictions(const Simulation& simulation, int64_t islands) {
  std::map<int32_t, RankPrediction> played;
  const auto spent = [](const RankResult& role, std::initializer_list<Spent> kinds) {
    double sum = 0;
    for (const Spent kind : kinds) sum += role.spent_s[static_cast<size_t>(kind)];
    return sum;
  };
  for (const RankResult& role : simulation.roles) {
    RankPrediction& one = played[role.representative];
    one.work_s = spent(role, {Spent::kCompute, Spent::kRecompute, Spent::kUpdate, Spent::kHost});
    one.transfer_s = spent(role, {Spent::kCollective, Spent::kMessage, Spent::kCopy});
    one.wait_s = spent(role, {Spent::kBubble});
  }
  for (const TraceEvent& event : simulation.events) {
    const std::string& what = simulation.labels[static_cast<size_t>(event.what)];
    RankPrediction& one = played[event.rank];
    if (event.lane == Lane::kCompute) one.work[what] += event.end_s - event.start_s;
    if (event.lane == Lane::kCollective || event.lane == Lane::kMessage)
      one.transfers[what] += event.end_s - event.start_s;
  }
  std::vector<RankPrediction> out;
  for (int64_t island = 0; island < islands; ++island) {
    for (const int32_t rank : simulation.played_by)
      out.push_back(rank < 0 ? RankPrediction() : played[rank]);
  }
  return out;
}

Result<std::optional<WatchStart>> watched_of(const std::string& path) {
  std::optional<WatchStart> last;
  TESSERA_TRY_VOID(for_each_line(path, [&](const std::string& line, int64_t number) -> Status {
    if (!line.starts_with("{\"watch\"")) return {};
    TESSERA_TRY(auto read, parse_rank_times(line, fmt::format("{}:{}", path, number)));
    if (WatchStart* start = std::get_if<WatchStart>(&read)) last = std::move(*start);
    return {};
  }));
  return last;
}

Result<WatchReport> watch_report(const std::string& path,
                                 const std::vector<RankPrediction>& predictions) {
  Watch watch(predictions);
  TESSERA_TRY_VOID(for_each_line(path, [&](const std::string& line, int64_t number) -> Status {
    TESSERA_TRY(auto read, parse_rank_times(line, fmt::format("{}:{}", path, number)));
    if (WatchStart* start = std::get_if<WatchStart>(&read)) {
      watch.begin(std::move(*start));
    } else {
      watch.add(std::get<RankTimes>(std::move(read)));
    }
    return {};
  }));
  return watch.finish();
}

}  // namespace tessera
