#include "tessera/orchestrate/launch.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/text.h"

namespace tessera {
namespace {

std::string how_it_ended(const Ended& ended) {
  std::string text = ended.timed_out     ? std::string("ran out of time")
                     : ended.signal != 0 ? fmt::format("was ended by signal {}", ended.signal)
                                         : fmt::format("ended with exit code {}", ended.exit_code);
  if (!ended.error.empty()) text += ": " + ended.error;
  return text;
}

// Returns whether another try would fail in the same way. The exit code alone does not say, because
// launchers use the same codes for losses; but only tessera writes an error line.
bool repeats(const Ended& ended) {
  return ended.signal == 0 && !ended.error.empty() &&
         (ended.exit_code == exit_code(ErrorCode::kCheckFailed) ||
          ended.exit_code == exit_code(ErrorCode::kInvalidInput));
}

class Launch {
 public:
  Launch(const std::vector<LaunchPlan>& plans, int64_t tries, LaunchWorld& world)
      : plans_(plans), losses_in_row_(plans.size(), 0), tries_(tries), world_(world) {}

  Result<LaunchSummary> run() {
    for (;;) {
      TESSERA_TRY(const int64_t available, world_.available_ranks());
      const std::optional<size_t> chosen = choose(available);
      if (!chosen) return none_left(available);
      LaunchTry next;
      next.number = ++summary_.tries;
      next.plan = plans_[*chosen];
      if (next.plan.ranks == 0) next.plan.ranks = available;
      TESSERA_TRY(next.resumes_from, world_.saved_step());
      TESSERA_TRY_VOID(world_.log({LaunchEventKind::kStart, next, {}, next.resumes_from, ""}));
      TESSERA_TRY(const Ended ended, world_.run(next));
      TESSERA_TRY(const int64_t saved, world_.saved_step());
      TESSERA_TRY_VOID(
          world_.log({LaunchEventKind::kEnd, next, ended, saved, how_it_ended(ended)}));
      if (ended.stopped) return end(next, ended, "the launcher was told to stop");
      if (ended.signal == 0 && ended.exit_code == 0) {
        TESSERA_TRY_VOID(world_.log({LaunchEventKind::kDone, next, ended, saved, ""}));
        return summary_;
      }
      if (repeats(ended)) return end(next, ended, how_it_ended(ended));
      TESSERA_TRY_VOID(lost(*chosen, next, ended, saved));
    }
  }

 private:
  std::optional<size_t> choose(int64_t available) const {
    for (size_t i = 0; i < plans_.size(); ++i) {
      if (losses_in_row_[i] < tries_ && std::max<int64_t>(1, plans_[i].ranks) <= available)
        return i;
    }
    return std::nullopt;
  }

  Status lost(size_t plan, const LaunchTry& at, const Ended& ended, int64_t saved) {
    ++summary_.losses;
    last_ = fmt::format("try {} {}", at.number, how_it_ended(ended));
    if (saved > at.resumes_from) {
      losses_in_row_[plan] = 0;
      return {};
    }
    if (++losses_in_row_[plan] < tries_) return {};
    return world_.log({LaunchEventKind::kGivenUp, at, ended, saved,
                       fmt::format("{} losses in a row without a new checkpoint", tries_)});
  }

  Result<LaunchSummary> none_left(int64_t available) const {
    std::vector<std::string> needs;
    for (const LaunchPlan& plan : plans_)
      needs.push_back(fmt::format("{} ({})", plan.text, std::max<int64_t>(1, plan.ranks)));
    const std::vector<std::string> silent = world_.silent_hosts();
    const std::string message = fmt::format(
        "launch: expected ranks for one of the plans {}, found {}{}", join(needs, ", "), available,
        silent.empty() ? "" : "; hosts without an answer: " + join(silent, ", "));
    if (summary_.tries == 0) return invalid_input(message);
    const bool all_given_up = std::all_of(losses_in_row_.begin(), losses_in_row_.end(),
                                          [&](int64_t losses) { return losses >= tries_; });
    return fault(all_given_up
                     ? fmt::format("launch: gave up after {} tries; {}", summary_.tries, last_)
                     : fmt::format("{}; {}", message, last_));
  }

  Result<LaunchSummary> end(const LaunchTry& at, const Ended& ended, const std::string& why) {
    TESSERA_TRY_VOID(world_.log({LaunchEventKind::kStopped, at, ended, -1, why}));
    const std::string message = fmt::format("launch: try {}: {}", at.number, why);
    if (repeats(ended) && ended.exit_code == exit_code(ErrorCode::kCheckFailed))
      return check_failed(message);
    if (repeats(ended)) return invalid_input(message);
    return fault(message);
  }

  const std::vector<LaunchPlan>& plans_;
  std::vector<int64_t> losses_in_row_;  // by plan: losses since the last new checkpoint
  int64_t tries_;
  LaunchWorld& world_;
  LaunchSummary summary_;
  std::string last_;
};

}  // namespace

Result<LaunchSummary> launch(const std::vector<LaunchPlan>& plans, int64_t tries,
                             LaunchWorld& world) {
  return Launch(plans, tries, world).run();
}

std::string_view event_name(LaunchEventKind kind) {
  switch (kind) {
    case LaunchEventKind::kStart: return "start";
    case LaunchEventKind::kEnd: return "end";
    case LaunchEventKind::kGivenUp: return "given_up";
    case LaunchEventKind::kDone: return "done";
    case LaunchEventKind::kStopped: return "stopped";
  }
  return "";
}

std::string to_json_line(const LaunchEvent& event, int64_t unix_time_s) {
  nlohmann::ordered_json json{
      {"time", fmt::format("{:%FT%TZ}", fmt::gmtime(static_cast<std::time_t>(unix_time_s)))},
      {"event", event_name(event.kind)},
      {"try", event.at.number},
      {"plan", event.at.plan.text}};
  if (event.at.plan.ranks != kAnyRanks) json["ranks"] = event.at.plan.ranks;
  if (event.kind == LaunchEventKind::kStart) json["resumes_from_step"] = event.at.resumes_from;
  if (event.kind == LaunchEventKind::kEnd) {
    json["exit_code"] = event.ended.exit_code;
    json["signal"] = event.ended.signal;
    json["seconds"] = event.ended.seconds;
    json["saved_step"] = event.saved_step;
  }
  if (!event.why.empty()) json["why"] = event.why;
  // Replaces bytes that are not UTF-8, which the error line of a process may have.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
