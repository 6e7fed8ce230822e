// TeraPipe's planner on our costs (docs/planners/terapipe.md): a pipeline through which slices of a
// sequence go one after the other, jointly with tensor parallelism and replicas, micro-batches and
// recomputation. How long a slice of l tokens behind c others takes is read from simulated programs
// of the folded model whose sequence is sliced so (SliceTable); the lengths are found by the
// published program (published/terapipe.h) on these times.
//
//   TESSERA_TRY(const SliceTable table, SliceTable::measure(pricer, question, 2048, 32));
//   table.seconds(unit, 256, 1024);      // of both passes of a unit of the folded model
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/search/plan_search.h"

namespace tessera {

// Seconds by slice. Measured: lengths `shortest` * 4^i, half and all of the sequence, behind no
// tokens, behind as many, and at the end of the sequence. Between measured lengths, and between
// measured numbers of tokens before the slice, the table is linear; beyond the longest slices that
// have tokens before them, what these tokens add is in proportion to the slice.
class SliceTable {
 public:
  // `question`: without slices. `length`: of the sequence; a multiple of `shortest`. Errors: what
  // cannot be sliced.
  static Result<SliceTable> measure(UnitPricer& pricer, const UnitQuestion& question,
                                    int64_t length, int64_t shortest);
  double seconds(size_t unit, int64_t slice, int64_t context) const;
  // The sum over units, each so many times.
  double seconds(const std::vector<double>& counts, int64_t slice, int64_t context) const;

 private:
  struct Point {
    int64_t context = 0;
    std::vector<double> seconds;  // by unit of the folded model
  };
  struct Row {
    int64_t slice = 0;
    std::vector<Point> points;  // context rises
  };
  using Read = std::function<double(const Point&)>;
  static double in_row(const Row& row, int64_t context, const Read& read);
  double read_at(int64_t slice, int64_t context, const Read& read) const;

  std::vector<Row> rows_;  // slice rises; the last one is the whole sequence
};

// Errors: a model without a causal dim `seq` in every attention, a schedule of other pipelines, and
// those of PlanSearch.
Result<PlanAnswer> find_by_terapipe(const PlanQuestion& question);

}  // namespace tessera
