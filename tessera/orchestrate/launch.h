// The supervisor of a run. It starts the run. After a loss (a killed rank, for example), it starts
// the run again from its newest checkpoint, with a plan for the ranks that are left.
//
// A try is one start of the run. It ends in one of three ways:
//   - It succeeds (exit code 0), or somebody stops it. The launch then ends, too.
//   - It fails for a reason that another try cannot change: exit code 1 or 2 and a line of
//     tessera's, because a check failed or the input is wrong. The launch then ends with this
//     error.
//   - Anything else is a loss: a killed process, a rank that no longer answers, a full disk. The
//     next try resumes from the newest complete checkpoint, if there is one.
//
// Plans are listed in order of preference. A try takes the first plan that has not been given up
// and needs no more ranks than are available. A plan is given up after `tries` losses in a row
// between which no new checkpoint was made. When no plan is left, the launch ends.
//
// The supervisor acts on the machines only through an interface (LaunchWorld), so that tests can
// check its decisions without starting processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/process.h"

namespace tessera {

// The number of available ranks where there is no limit: the ranks are threads of one process, as
// many as the plan has.
inline constexpr int64_t kAnyRanks = INT64_MAX;

struct LaunchPlan {
  std::string text;   // a plan file, a recipe call, or "auto"
  int64_t ranks = 0;  // 0: all that are available ("auto")
};

struct LaunchTry {
  int64_t number = 1;         // counts from 1
  LaunchPlan plan;            // its `ranks` are those that the try runs on
  int64_t resumes_from = -1;  // step of the checkpoint; -1: from the beginning
};

enum class LaunchEventKind : uint8_t {
  kStart,    // a try starts
  kEnd,      // a try ended; `ended` and `saved_step` are set
  kGivenUp,  // a plan is given up
  kDone,     // the launch succeeded
  kStopped,  // the launch ended without success
};
std::string_view event_name(LaunchEventKind kind);  // "start", "end", "given_up", "done", "stopped"

// An event, which becomes one line of the log.
struct LaunchEvent {
  LaunchEventKind kind = LaunchEventKind::kStart;
  LaunchTry at;
  Ended ended;
  int64_t saved_step = -1;
  std::string why;
};
// Returns the event as one line of JSON: {"time": "2026-11-23T18:40:12Z", "event": "end", "try": 2,
// "plan": ...}.
std::string to_json_line(const LaunchEvent& event, int64_t unix_time_s);

class LaunchWorld {
 public:
  virtual ~LaunchWorld() = default;
  virtual Result<int64_t> available_ranks() = 0;  // ranks that can be started now
  // Returns the hosts whose ranks were missing in the last answer of available_ranks(), with the
  // reason: "node3 (no answer within 20 s)".
  virtual std::vector<std::string> silent_hosts() const { return {}; }
  // Returns the step of the newest complete checkpoint; -1 if there is none.
  virtual Result<int64_t> saved_step() = 0;
  virtual Result<Ended> run(const LaunchTry& next) = 0;
  virtual Status log(const LaunchEvent& event) = 0;
};

struct LaunchSummary {
  int64_t tries = 0, losses = 0;
};

// Starts tries until the launch ends. Errors: the error of the last try, with its exit code;
// invalid input if no plan fits the ranks that are available at the first try.
Result<LaunchSummary> launch(const std::vector<LaunchPlan>& plans, int64_t tries,
                             LaunchWorld& world);

}  // namespace tessera
