// The checks that the verifier can make of one program alone (rules instruction, message, memory).
// The result is the program with every instruction's regions worked out once, which makes it cheap
// to interpret the program for each micro-batch.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/kinds.h"
#include "tessera/program/verify.h"
#include "tessera/program/verify_parts.h"

namespace tessera::verifying {

// A `Moving` is a region that moves with the micro-batch.
struct Moving {
  Box box;  // for micro-batch 0
  int dim = -1;
  int64_t step = 0;                                      // from a micro-batch to the next, in
                                                         // elements
  int64_t larger = std::numeric_limits<int64_t>::max();  // later micro-batches have one less
  Box at(int64_t micro_batch) const;
};

struct PreparedOutput {
  Moving region;
  Moving box;                // the points of the iteration space that its value stands for
  std::vector<int> reduced;  // op dims that the output lacks
  int alias = -1;            // input that this output may overwrite; -1: none
  // For keys with a band: the stretches whose elements stand for different points.
  struct Stretch {
    Moving region, box;
  };
  std::vector<Stretch> stretches;
};

// A `RowUse` is the use of a cache's rows by a compute.
struct RowUse {
  int cache = 0;
  std::vector<size_t> ids;  // inputs
  bool changes = false;
};
// A `Prepared` belongs to one instruction. `regions`: the inputs of a compute; `hold`, then `need`
// of each transfer, by member; else the one region.
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

// `rank`: the expected one. Appends to `rejections`; the result is to be used only if nothing was
// appended.
PreparedProgram prepare(const Graph& graph, const std::vector<Program>& programs, size_t rank,
                        const VerifyOptions& options, std::vector<Rejection>& rejections);

}  // namespace tessera::verifying
