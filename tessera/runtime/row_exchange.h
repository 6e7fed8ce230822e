// Executes an exchange of named rows (NamedRows, program/program.h) on one rank: finds from the ids
// which rank names which rows, packs the rows that others take from this rank, and puts arriving
// rows where they belong. All members find equal lists, so nothing but rows moves.
//
// The lists are kept and are made anew only if ids or the sample have changed since the last run.
// Sums are taken in the order of the members, as a reduce_scatter takes them.
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
  // Makes an exchange. Graph and issue outlive it. `me` is this rank's place among the members.
  RowExchange(const Graph& graph, const Issue& issue, size_t me);

  // Starts the exchange. `in` and `out` are those of the issue's one transfer, with rows in memory
  // one after the other; their memory stays until finish(). Returns kNoHandle if no member takes
  // anything.
  comm::Handle begin(comm::Communicator& world, int group, const std::vector<kernels::Array>& ids,
                     const std::optional<kernels::Array>& in,
                     const std::optional<kernels::Array>& out, int64_t step,
                     const comm::Label& label);
  void finish();  // after the wait
  int64_t bytes() const;

 private:
  void name(const std::vector<kernels::Array>& ids, int64_t step);
  // Returns the rows that the taker takes from the giver, numbered as the owner holds them.
  const std::vector<int32_t>& rows(size_t giver, size_t taker) const;
  std::byte* row_of(const kernels::Array& array, const Box& region, size_t owner,
                    int32_t row) const;

  const Op& op_;
  const Issue& issue_;
  const Transfer& transfer_;
  const size_t me_, members_;
  const bool sums_;
  const std::vector<Interval> owned_;
  // These belong to the last ids.
  std::vector<std::vector<int64_t>> ids_;
  std::optional<sparse::Sampling> sampling_;
  sparse::NamedLists lists_;
  std::vector<Redistribution> whats_;           // by taker
  std::vector<std::vector<std::byte>> packed_;  // by taker: what this rank gives
  std::vector<std::byte> arrived_;
  // These belong to the current run.
  std::optional<kernels::Array> in_, out_;
};

// Returns the program with a count of the rows that its exchanges move in a step, for which `load`
// gives ids; none if it has no such exchange.
std::optional<Program> with_counted_rows(const Program& program, const Graph& graph, int64_t step,
                                         const LoadFunction& load);

}  // namespace tessera
