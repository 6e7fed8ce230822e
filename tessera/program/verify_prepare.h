// What the verifier can say about one program alone (rules instruction, message, memory), and the
// same program with every instruction's regions worked out once, so that interpreting it for each
// micro-batch is cheap.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/kinds.h"
#include "tessera/program/verify.h"
#include "tessera/program/verify_parts.h"

namespace tessera::verifying {

// A region that moves with the micro-batch.
struct Moving {
  Box box;  // for micro-batch 0
  int dim = -1;
  int64_t step = 0;                                      // a micro-batch, in elements
  int64_t larger = std::numeric_limits<int64_t>::max();  // later micro-batches have one less
  Box at(int64_t micro_batch) const;
};

struct PreparedOutput {
  Moving region;
  Moving box;                // for which points of the iteration space its value stands
  std::vector<int> reduced;  // op dims that the output lacks
  int alias = -1;            // input that this output may overwrite; -1: none
  // Of keys with a band: where their elements stand for different points, each stretch apart.
  struct Stretch {
    Moving region, box;
  };
  std::vector<Stretch> stretches;
};

// By instruction. `regions`: inputs of a compute; hold then need of each transfer by member; else
// the one region.
struct RowUse {  // of a cache, by a compute
  int cache = 0;
  std::vector<size_t> ids;  // inputs
  bool changes = false;
};
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
