// Executes an exchange of named rows (NamedRows, program/program.h) on one rank: finds from the ids
// which rank names which rows, packs the rows that other ranks take from this rank, and writes
// arriving rows to their places. Every member finds the same lists of rows by itself, so only rows
// are sent and no lists.
//
// The lists are kept and are made anew only if ids or the sample have changed since the last run.
// If the exchange sums rows, it adds the members' rows in the order of the members, as a
// reduce_scatter does.
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
#include "tessera/runtime/kernels.h"
#include "tessera/runtime/step/execution.h"
#include "tessera/sparse/graphs/named_rows.h"

namespace tessera {

class RowExchange {
 public:
  // Makes an exchange. The graph and the issue outlive the exchange. `me` is this rank's place
  // among the members.
  RowExchange(const Graph& graph, const Issue& issue, size_t me);

  // Starts the exchange. `in` and `out` are the arrays of the issue's only transfer, whose rows are
  // one after the other in memory. The caller keeps this memory until finish(). Returns kNoHandle
  // if no member takes any row.
  comm::Handle begin(comm::Communicator& world, int group, const std::vector<kernels::Array>& ids,
                     const std::optional<kernels::Array>& in,
                     const std::optional<kernels::Array>& out, int64_t step,
                     const comm::Label& label);
  void finish();  // call this after the wait for begin()'s handle
  int64_t bytes() const;

 private:
  void name(const std::vector<kernels::Array>& ids, int64_t step);
  // Returns the rows that member `taker` takes from member `giver`. A row's number counts from the
  // first row that its owner holds.
  const std::vector<int32_t>& rows(size_t giver, size_t taker) const;
  std::byte* row_of(const kernels::Array& array, const Box& region, size_t owner,
                    int32_t row) const;

  const Op& op_;
  const Issue& issue_;
  const Transfer& transfer_;
  const size_t me_, members_;
  const bool sums_;
  const std::vector<Interval> owned_;
  // The following members are derived from the ids of the last run.
  std::vector<std::vector<int64_t>> ids_;
  std::optional<sparse::Sampling> sampling_;
  sparse::NamedLists lists_;
  std::vector<Redistribution> whats_;           // by taker: which rows the members send to it
  std::vector<std::vector<std::byte>> packed_;  // by taker: rows of this rank for it
  std::vector<std::byte> arrived_;
  // The following members are those of the current run.
  std::optional<kernels::Array> in_, out_;
};

// Returns a copy of the program in which each exchange of named rows states how many rows it
// moves in the step, computed from the ids that `load` gives; nothing if the program has no
// such exchange.
std::optional<Program> with_counted_rows(const Program& program, const Graph& graph, int64_t step,
                                         const LoadFunction& load);

}  // namespace tessera
