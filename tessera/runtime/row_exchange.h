// Executes an exchange of named rows (NamedRows, program/program.h) on one rank: finds out of the ids who
// names which rows, packs those that others take of this rank, and puts those that arrive where they
// belong. All members find the same lists, so nothing but rows moves.
//
// The lists are kept and made anew only if ids or the sample have changed since the last run. Sums are
// taken in the order of the members, as a reduce_scatter takes them.
//
//   const comm::Handle handle = exchange.begin(world, group, ids, in, out, step, label);
//   if (handle != comm::kNoHandle) world.wait(handle);
//   exchange.finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/kernels.h"
#include "tessera/sparse/graphs/named_rows.h"

namespace tessera {

class RowExchange {
 public:
  // Graph and issue outlive it. `me`: this rank's place among the members.
  RowExchange(const Graph& graph, const Issue& issue, size_t me);

  // `in` and `out` as the issue's one transfer has them, with rows in memory one after the other; their
  // memory stays until finish(). kNoHandle: no member takes anything.
  comm::Handle begin(comm::Communicator& world, int group, const std::vector<kernels::Array>& ids,
                     const std::optional<kernels::Array>& in,
                     const std::optional<kernels::Array>& out, int64_t step,
                     const comm::Label& label);
  void finish();  // after the wait
  int64_t bytes() const;

 private:
  void name(const std::vector<kernels::Array>& ids, int64_t step);
  // The rows that the member takes of the giver, in the numbers of those that the owner holds.
  const std::vector<int32_t>& rows(size_t giver, size_t taker) const;
  std::byte* row_of(const kernels::Array& array, const Box& region, size_t owner,
                    int32_t row) const;

  const Op& op_;
  const Issue& issue_;
  const Transfer& transfer_;
  const size_t me_, members_;
  const bool sums_;
  const std::vector<Interval> owned_;
  // Of the last ids.
  std::vector<std::vector<int64_t>> ids_;
  std::optional<sparse::Sampling> sampling_;
  sparse::NamedLists lists_;
  std::vector<Redistribution> whats_;           // by taker
  std::vector<std::vector<std::byte>> packed_;  // by taker: what this rank gives
  std::vector<std::byte> arrived_;
  // Of the run that is under way.
  std::optional<kernels::Array> in_, out_;
};

// The program with the rows counted that its exchanges move in a step, for which `load` gives ids; none:
// it has no such exchange.
std::optional<Program> with_counted_rows(const Program& program, const Graph& graph, int64_t step,
                                         const LoadFunction& load);

}  // namespace tessera
