// Schedules: in which order a stage runs its blocks (forward or backward of a micro-batch). A
// schedule is only an order; when a block really starts follows from the messages it waits for.
//
//   make_schedule("1f1b", /*stage=*/0, /*stages=*/2, /*micro_batches=*/3)   ->  F0 F1 B0 F2 B1 B2
//
// Rules of the named schedules (superscaler.md section 8; i the stage, n stages, m micro-batches):
//   gpipe  all forwards, then all backwards; m micro-batches in flight
//   1f1b   min(m, n-1-i) warm-up forwards, then forward and backward in turn; min(m, n-i) in flight
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct BlockRun {
  enum Kind : uint8_t { kForward, kBackward } kind = kForward;
  int64_t micro_batch = 0;
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

std::string to_string(const BlockRun& run);               // "F0", "B12"
Result<BlockRun> parse_block_run(std::string_view text);  // the inverse

std::vector<std::string> schedule_names();
Result<std::vector<BlockRun>> make_schedule(std::string_view name, int64_t stage, int64_t stages,
                                            int64_t micro_batches);
// The largest number of micro-batches whose forward has run and whose backward has not.
int64_t in_flight(const std::vector<BlockRun>& runs);

// Every stage runs F and B of each micro-batch once, F first. Errors name stage and block.
Status check_schedule(const std::vector<std::vector<BlockRun>>& stages, int64_t micro_batches);
// The stages in a chain (forward i waits for forward i-1, backward i for backward i+1) reach the
// end; the error names a stage and the block at which it waits for ever.
Status check_schedule_finishes(const std::vector<std::vector<BlockRun>>& stages);

}  // namespace tessera
