// The checks that the verifier can make of one program alone (rules instruction, message, memory).
// They also work out every instruction's regions once. This makes it cheap to interpret the program
// for each micro-batch afterwards.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/kinds.h"
#include "tessera/program/verify/parts.h"
#include "tessera/program/verify/verify.h"

namespace tessera::verifying {

// A `Moving` is a region that moves with the micro-batch.
struct Moving {
  Box box;  // for micro-batch 0
  int dim = -1;
  int64_t step = 0;  // elements from the begin in one micro-batch to the begin in the next
  // The number of larger micro-batches: in later ones the region has one element less.
  int64_t larger = std::numeric_limits<int64_t>::max();
  Box at(int64_t micro_batch) const;  // the box in this micro-batch
};

struct PreparedOutput {
  Moving region;
  Moving box;                // the points of the iteration space that the value stands for
  std::vector<int> reduced;  // op dims that the output lacks
  int alias = -1;            // input that this output may overwrite; -1: none
  // For an output over the keys of attention with a band: its elements do not all stand for the
  // same points. They are cut into runs (KeyStretch, verify_points.h) with a box of points each.
  struct Stretch {
    Moving region, box;
  };
  std::vector<Stretch> stretches;
};

// A `RowUse` says which rows of a cache a compute touches.
struct RowUse {
  int cache = 0;
  std::vector<size_t> ids;  // the inputs of the compute whose ids name the rows
  bool changes = false;     // the compute writes the rows
};
// A `Prepared` has the worked-out facts of one instruction. `regions`: of a compute, the regions of
// its inputs; of an issue, for each transfer the boxes of `hold` and then those of `need`, by
// member; of any other instruction, its only region.
struct Prepared {
  std::optional<RowUse> rows;
  const Op* op = nullptr;
  const KindInfo* kind = nullptr;
  Moving box;
  bool linear = false;
  std::vector<Moving> regions;
  std::vector<PreparedOutput> outputs;
};

struct PreparedProgram {
  const Program* program = nullptr;
  ByBlock<std::vector<Prepared>> blocks;
  ByBlock<int64_t> runs;  // by family
  bool planned = false;   // buffers have offsets
};

inline constexpr size_t kMaxRejections = 8;

std::string where(const Program& program, BlockRef block, size_t index, const Graph& graph);

// Checks programs[rank], which must be the program of this rank, and works out its regions. Appends
// what is wrong to `rejections`; the result is only valid if nothing was appended.
PreparedProgram prepare(const Graph& graph, const std::vector<Program>& programs, size_t rank,
                        const VerifyOptions& options, std::vector<Rejection>& rejections);

}  // namespace tessera::verifying
