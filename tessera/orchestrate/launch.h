// The supervisor of a run: starts it and, after a loss, starts it again from its newest checkpoint,
// with a plan for the ranks that are left.
//
// A try ends in one of three ways:
//   - it succeeds (exit code 0), or somebody stops it: the launch ends;
//   - it fails for a reason that a new try does not change (exit code 1 or 2 with a line of tessera's:
//     a check failed, wrong input): the launch ends with its error;
//   - anything else is a loss: a killed process, a rank that no longer answers, a full disk. The
//     next try resumes from the newest complete checkpoint, if there is one.
//
// Plans are listed in order of preference. A try takes the first plan that needs no more ranks than
// are available and has not been given up. A plan is given up after `tries` losses in a row with no
// new checkpoint between them; when no plan is left, the launch ends.
//
// The supervisor's surroundings are an interface (LaunchWorld), so that its decisions are tested
// without processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/process.h"

namespace tessera {

// No limit on ranks: they are threads of one process, as many as the plan has.
inline constexpr int64_t kAnyRanks = INT64_MAX;

struct LaunchPlan {
  std::string text;   // a plan file, a recipe call, or auto
  int64_t ranks = 0;  // ranks that it runs on; 0: all that are available (auto)
};

struct LaunchTry {
  int64_t number = 1;         // 1 is the first
  LaunchPlan plan;            // with the ranks that it runs on
  int64_t resumes_from = -1;  // step of the checkpoint; -1: from the beginning
};

enum class LaunchEventKind : uint8_t {
  kStart,    // a try starts
  kEnd,      // a try ended; with `ended` and `saved_step`
  kGivenUp,  // a plan is given up
  kDone,     // the launch succeeded
  kStopped,  // the launch ended without success
};
std::string_view event_name(LaunchEventKind kind);  // "start", "end", "given_up", "done", "stopped"

// One line of the log.
struct LaunchEvent {
  LaunchEventKind kind = LaunchEventKind::kStart;
  LaunchTry at;
  Ended ended;
  int64_t saved_step = -1;
  std::string why;
};
// Writes the event as one line: {"time": "2026-11-23T18:40:12Z", "event": "end", "try": 2, "plan":
// ...}.
std::string to_json_line(const LaunchEvent& event, int64_t unix_time_s);

class LaunchWorld {
 public:
  virtual ~LaunchWorld() = default;
  virtual Result<int64_t> available_ranks() = 0;  // that can be started now
  // Returns the hosts whose ranks the last answer lacks, and why: "node3 (no answer within 20 s)".
  virtual std::vector<std::string> silent_hosts() const { return {}; }
  virtual Result<int64_t> saved_step() = 0;  // of the newest complete checkpoint; -1: none
  virtual Result<Ended> run(const LaunchTry& next) = 0;
  virtual Status log(const LaunchEvent& event) = 0;
};

struct LaunchSummary {
  int64_t tries = 0, losses = 0;
};

// Runs the plans until the launch ends. Errors: the error of the last try, with its exit code;
// invalid input if no plan fits the ranks available at the first try.
Result<LaunchSummary> launch(const std::vector<LaunchPlan>& plans, int64_t tries,
                             LaunchWorld& world);

}  // namespace tessera
