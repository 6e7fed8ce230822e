// The checks that the verifier can make of one program alone (rules instruction, message, memory).
// They also work out every instruction's regions once. This makes it cheap to interpret the program
// for each micro-batch afterwards.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

// A failed check, without its position in the program. An empty rule means no failure.
struct Failure {
  std::string rule;
  TensorId tensor;
  std::string message;
  explicit operator bool() const { return !rule.empty(); }
};

// A program while it is checked. prepare.cc checks what belongs to the whole program,
// prepare_compute.cc checks computes, and prepare_moves.cc checks instructions that move values.
struct Preparing {
  const Graph& graph;
  const Program& program;
  size_t ranks, rank;
  const VerifyOptions& options;
  std::vector<Rejection>& rejections;
  bool located = false;  // whether an instruction is checked: the one at `index` of `block`
  BlockRef block{};
  size_t index = 0;
  // The handles that were seen, with whether in a block of the smaller micro-batches.
  std::set<std::pair<bool, int>> handles{};
  std::set<BufferId> residuals{};

  // Appends to `rejections`. Returns false, as all checks do that fail.
  template <class... Args>
  bool reject(std::string rule, TensorId tensor, fmt::format_string<Args...> format,
              Args&&... args) {
    if (rejections.size() < kMaxRejections) {
      rejections.push_back({std::move(rule), static_cast<int>(rank),
                            located ? where(program, block, index, graph) : "",
                            known(tensor) ? graph.tensor(tensor).name : "",
                            fmt::format(format, std::forward<Args>(args)...)});
    }
    return false;
  }
  bool check(const Failure& failure) {
    return !failure || reject(failure.rule, failure.tensor, "{}", failure.message);
  }
  bool known(TensorId id) const { return id.valid() && id.index() < graph.tensors().size(); }
  bool known(OpId id) const { return id.valid() && id.index() < graph.ops().size(); }
  bool known(BufferId id) const { return id.valid() && id.index() < program.buffers.size(); }
  Tier tier_of(const View& view) const { return program.buffer(view.buffer).tier; }
  bool uses_micro_batch() const { return !block.once() && program.micro_batches > 1; }
  // Says that the region moves with the micro-batch along the dim; -1: it does not move.
  void move_along(int dim, Moving& region) const;
  Moving region_of(TensorId tensor, const Box& region) const;
  bool check_view(const View& view, TensorId tensor, const Box& region);
  // Checks that the region lies in the shape in every micro-batch that runs the block.
  bool check_inside(const Moving& region, const std::vector<int64_t>& shape, TensorId tensor);
};

bool prepare_compute(Preparing& p, const Compute& compute, Prepared& out);
bool prepare_instruction(Preparing& p, const Instruction& instruction, Prepared& out);

// Checks programs[rank], which must be the program of this rank, and works out its regions. Appends
// what is wrong to `rejections`; the result is only valid if nothing was appended.
PreparedProgram prepare(const Graph& graph, const std::vector<Program>& programs, size_t rank,
                        const VerifyOptions& options, std::vector<Rejection>& rejections);

}  // namespace tessera::verifying
