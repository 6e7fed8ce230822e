// What prepare() keeps while it checks a program, and checks that several kinds of instructions need.
// prepare.cc checks what belongs to the whole program, prepare_compute.cc checks computes, and
// prepare_moves.cc checks what moves values. Private to tessera/program.
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/program/verify/prepare.h"
#include "tessera/program/verify/state.h"

namespace tessera::verifying {

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

}  // namespace tessera::verifying
