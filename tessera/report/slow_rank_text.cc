// The report of the ranks in words and as a table.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/report/slow_rank.h"

namespace tessera {
namespace {

// The most ranks, or sentences of one sort, that a text has.
constexpr size_t kMostRanks = 64;
constexpr size_t kMostSentences = 8;

std::string time_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", 1e3 * seconds);
  return fmt::format("{:.3g} us", 1e6 * seconds);
}

std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMostSentences) return out + fmt::format(" and {} more", ranks.size() - i);
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return out;
}

std::string share_text(double share) { return fmt::format("{:.3g} %", 100 * share); }

// Returns how sure a comparison is: "slower in 9 of 9 steps, 99.6 % sure".
std::string sure_text(const Pace& one, int64_t steps) {
  return fmt::format("slower in {} of {} step{}, {} sure", one.slower_steps, steps,
                     steps == 1 ? "" : "s", share_text(std::min(one.certainty, 0.9999)));
}

std::string ratio_text(const Pace& one) {
  return fmt::format("{:.2f} times as long ({:.2f} to {:.2f} in the middle half of the steps)",
                     one.ratio, one.low, one.high);
}

std::string slow_rank_text(const RankReport& rank, const WatchReport& report) {
  std::vector<const RankReport::Op*> ops;
  for (const RankReport::Op& op : rank.ops) ops.push_back(&op);
  std::stable_sort(ops.begin(), ops.end(), [](const auto* a, const auto* b) {
    return a->compared_s - a->peers_s > b->compared_s - b->peers_s;
  });
  std::string most;
  for (size_t i = 0; i < std::min<size_t>(3, ops.size()); ++i) {
    const double lost = ops[i]->compared_s - ops[i]->peers_s;
    if (lost <= 0.1 * rank.work.lost_s) break;
    most += fmt::format("{}{} {} where its peers take {}", i == 0 ? ": " : ", ", ops[i]->what,
                        time_text(ops[i]->compared_s), time_text(ops[i]->peers_s));
  }
  return fmt::format(
      "Rank {} is slow: for the same work it takes {} as its peers, {} of a step of "
      "{}; {}{}",
      rank.rank, ratio_text(rank.work), time_text(rank.work.lost_s), time_text(report.step_s),
      sure_text(rank.work, report.steps), most);
}

// Returns what a rank waits for, the longest first, by the rank that it waits for.
std::string waits_text(const RankReport& rank, double step_s) {
  struct Blamed {
    double seconds = 0;
    const RankWait* longest = nullptr;  // of the waits for this rank
    int64_t others = 0;
  };
  std::map<int32_t, Blamed> blamed;
  for (const RankWait& wait : rank.waits) {
    Blamed& one = blamed[wait.rank];
    one.seconds += wait.seconds;
    one.others += one.longest == nullptr ? 0 : 1;
    if (one.longest == nullptr) one.longest = &wait;
  }
  std::vector<std::pair<int32_t, Blamed>> sorted(blamed.begin(), blamed.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(2, sorted.size()); ++i) {
    const auto& [other, one] = sorted[i];
    if (i > 0 && one.seconds < kLeastLoss * step_s) break;
    const std::string tensor =
        one.longest->tensor.empty() ? "" : fmt::format(" of {}", one.longest->tensor);
    out += fmt::format("{}{} for rank {}: {}{}{}", i == 0 ? "" : "; ", time_text(one.seconds),
                       other, one.longest->what, tensor,
                       one.others == 0 ? ""
                                       : fmt::format(", and {} other wait{}", one.others,
                                                     one.others == 1 ? "" : "s"));
  }
  return fmt::format("Rank {} waits {} of its step of {}: {}", rank.rank, time_text(rank.wait_s),
                     time_text(rank.step_s), out);
}

void cut(std::vector<std::string>& sentences, std::string_view noun) {
  if (sentences.size() <= kMostSentences) return;
  const size_t left = sentences.size() - kMostSentences;
  sentences.resize(kMostSentences);
  sentences.push_back(fmt::format("{} more {} alike", left, noun));
}

std::string pair_text(double measured, const std::optional<RankPrediction>& predicted,
                      double RankPrediction::*member) {
  return predicted
             ? fmt::format("{:>10} {:>10}", time_text(measured), time_text(*predicted.*member))
             : fmt::format("{:>10}", time_text(measured));
}

}  // namespace

std::vector<std::string> watch_sentences(const WatchReport& report) {
  if (report.steps == 0)
    return {"No step counts yet, because the first one that is watched is left out"};
  std::vector<std::string> slow, links, waits;
  const auto rank_of = [&](int32_t rank) -> const RankReport& {
    return *std::find_if(report.ranks.begin(), report.ranks.end(),
                         [&](const RankReport& one) { return one.rank == rank; });
  };
  for (const int32_t rank : report.slow) slow.push_back(slow_rank_text(rank_of(rank), report));
  cut(slow, "ranks are slow");
  for (const LinkReport& link : report.links) {
    links.push_back(fmt::format(
        "The link between ranks {} is slow: {} takes {} as between other ranks, {} of a step; {}",
        ranks_text(link.ranks), link.what, ratio_text(link.time), time_text(link.time.lost_s),
        sure_text(link.time, report.steps)));
  }
  cut(links, "links are slow");
  std::vector<std::string> out = slow;
  if (slow.empty()) {
    const auto most = std::max_element(
        report.ranks.begin(), report.ranks.end(),
        [](const auto& a, const auto& b) { return a.work.lost_s < b.work.lost_s; });
    const bool may_be = most->work.lost_s >= kLeastLoss * report.step_s;
    out.push_back(
        may_be
            ? fmt::format("No rank is slow for certain: rank {} takes {} as its peers for the "
                          "same work, but it is {}, which may be chance; watch more steps",
                          most->rank, ratio_text(most->work), sure_text(most->work, report.steps))
            : fmt::format("No rank is slow: the one that loses most to its peers, rank {}, "
                          "loses {} of a step of {}",
                          most->rank, time_text(std::max(0.0, most->work.lost_s)),
                          time_text(report.step_s)));
  }
  out.insert(out.end(), links.begin(), links.end());
  for (const RankReport& rank : report.ranks) {
    if (rank.wait_s >= kLeastLoss * rank.step_s && !rank.waits.empty())
      waits.push_back(waits_text(rank, report.step_s));
  }
  cut(waits, "ranks wait");
  out.insert(out.end(), waits.begin(), waits.end());
  return out;
}

std::string draw(const WatchReport& report, const std::string& predicted_for) {
  std::string out;
  if (report.steps > 0) {
    const bool predicted = report.ranks.front().predicted.has_value();
    out +=
        fmt::format("times of the ranks in a step, medians over {} watched step{} ({} to {}){}\n",
                    report.steps, report.steps == 1 ? "" : "s", report.first_step, report.last_step,
                    predicted ? fmt::format("; beside them as predicted for {}", predicted_for)
                              : std::string());
    const auto head = [&](const char* name) {
      return predicted ? fmt::format("{:>10} {:>10}", name, "predicted")
                       : fmt::format("{:>10}", name);
    };
    out += fmt::format("{:>5} {:>10} {} {} {} {:>9}\n", "rank", "step", head("computing"),
                       head("transfers"), head("waiting"), "of peers");
    for (const RankReport& rank : report.ranks) {
      if (&rank - report.ranks.data() == static_cast<std::ptrdiff_t>(kMostRanks)) {
        out += fmt::format("and {} more ranks\n", report.ranks.size() - kMostRanks);
        break;
      }
      out += fmt::format("{:>5} {:>10} {} {} {} {:>9}\n", rank.rank, time_text(rank.step_s),
                         pair_text(rank.work_s, rank.predicted, &RankPrediction::work_s),
                         pair_text(rank.transfer_s, rank.predicted, &RankPrediction::transfer_s),
                         pair_text(rank.wait_s, rank.predicted, &RankPrediction::wait_s),
                         fmt::format("{:.2f}", rank.work.ratio));
    }
    // The ops of the rank that is slow or, if none is, of the one that computes longest.
    const RankReport& shown = *std::max_element(
        report.ranks.begin(), report.ranks.end(), [&](const auto& a, const auto& b) {
          const auto order = [&](const RankReport& one) {
            const bool first = !report.slow.empty() && report.slow.front() == one.rank;
            return std::pair(first, one.work_s);
          };
          return order(a) < order(b);
        });
    constexpr size_t kMostOps = 8;
    out += fmt::format("\n{:<24} {:>10} {:>10}{}\n", fmt::format("op on rank {}", shown.rank),
                       "time", "its peers", predicted ? "  predicted" : "");
    for (size_t i = 0; i < std::min(kMostOps, shown.ops.size()); ++i) {
      const RankReport::Op& op = shown.ops[i];
      std::string prediction;
      if (shown.predicted) {
        const auto found = shown.predicted->work.find(op.what);
        prediction =
            fmt::format(" {:>10}", found == shown.predicted->work.end() ? std::string("-")
                                                                        : time_text(found->second));
      }
      out += fmt::format("{:<24} {:>10} {:>10}{}\n", op.what, time_text(op.seconds),
                         op.peers_s > 0 ? time_text(op.peers_s) : std::string("-"), prediction);
    }
    out += "\n";
  }
  for (const std::string& sentence : watch_sentences(report)) out += sentence + ".\n";
  return out;
}

}  // namespace tessera
