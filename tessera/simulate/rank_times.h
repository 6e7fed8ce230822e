// Describes what the ranks of a run did in a step that was watched, and the file in which a run keeps it:
// `ranks.jsonl` in the run's folder, one JSON object a line (docs/reference/run-config.md). The
// runtime writes it (runtime/training/watching.h), and `tessera report` reads it (report/slow_rank.h).
//
//   {"watch": {"model": "gpt:...", "plan": "...", "batch": 8, "precision": "float32",
//              "optimizer": "adamw", "transport": "mpi", "ranks": 4}}
//   {"step": 10, "rank": 0, "seconds": 0.021,
//    "work": [["einsum", "einsum.float32.nt 1 128 64 64", 12, 0.003], ...],
//    "transfers": [["all_reduce dp", [0, 1], 65536, 4, 0.001], ...],
//    "waits": [["all_reduce dp", "blocks.0.mlp.up.weight.grad", 1, 2, 0.004], ...]}
//
// A `watch` line says what the steps after it belong to. The lines of a step follow one another, by
// rank. The seconds of work, transfers and waits add up to `seconds`: every moment of a rank is one
// of the three.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

inline constexpr std::string_view kRankTimesFile = "ranks.jsonl";

// Work that a rank did on its own. Two pieces of work with equal `what` and `size` are the same
// work, on whichever rank they are.
struct RankWork {
  std::string what;  // kind of the op; "copy", "input"; "host": between instructions
  std::string size;  // the family of the kernel with its coordinates (cost/family.h), or the bytes
  int64_t count = 0;
  double seconds = 0;
};
// Bytes under way, while the rank had nothing else to do and all members were ready.
struct RankTransfer {
  std::string what;            // "all_reduce dp", "receive"; as the trace names them
  std::vector<int32_t> ranks;  // that take part; empty: a copy between memory tiers
  int64_t bytes = 0;           // that each of `count` transfers sends
  int64_t count = 0;
  double seconds = 0;
};
// Time in which the rank had nothing to do because another rank was not ready.
struct RankWait {
  std::string what, tensor;
  int32_t rank = 0;  // the one that was ready last
  int64_t count = 0;
  double seconds = 0;
};

struct RankTimes {
  int64_t step = 0;
  int32_t rank = 0;
  double seconds = 0;  // from the start of the step to the rank's last instruction
  std::vector<RankWork> work;
  std::vector<RankTransfer> transfers;
  std::vector<RankWait> waits;
};

// The run that is watched: all that is needed to predict its step.
struct WatchStart {
  std::string model, plan;  // plan: its text
  int64_t batch = 0;
  std::string precision, optimizer;  // optimizer: as compile/optimizer_text.h reads it
  std::string transport;             // "threads" or "mpi"
  int64_t ranks = 0;
};

// Returns the line of the file, without its end.
std::string to_text(const WatchStart& start);
std::string to_text(const RankTimes& times);
// Reads a line. `place` begins the message of an error: the line is not JSON, a key is missing or
// has another type, a time is negative.
Result<std::variant<WatchStart, RankTimes>> parse_rank_times(std::string_view line,
                                                             const std::string& place);

}  // namespace tessera
