// Cuts a causal sequence into slices that follow one another through the stages of a pipeline. The
// time of a slice of l tokens after c earlier tokens comes from simulated programs of the folded
// model with sliced sequences (SliceTable). From these times the published algorithm
// (published/terapipe.h) finds the lengths of the slices.
//
//   TESSERA_TRY(const SliceTable table, SliceTable::measure(pricer, question, 2048, 32));
//   table.seconds(unit, 256, 1024);      // both passes of a unit, 256 tokens after 1024 others
//   Slicer slicer(search, estimator, length);
//   slicer.slice(choice, estimate, asked, prices, kSliceSchedules[0]);  // sets slices and estimate
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/price/schedule_facts.h"

namespace tessera {

inline const char* const kSlicedDim = "seq";

// Returns the length of the sequences, the dim kSlicedDim. Errors: the model has no such dim, or a
// slice would read tokens of later slices.
Result<int64_t> sliced_length(const Graph& forward);

// A table of the seconds of a slice, by its length and by the number of earlier tokens. It measures
// slices of the lengths `shortest` * 4^i and of half the sequence: without earlier tokens, after as
// many tokens as the slice has, and at the end of the sequence. It also measures the whole
// sequence. Between measured lengths and numbers of earlier tokens the table is linear. For slices
// longer than the longest that was measured with earlier tokens, the time that earlier tokens add
// is taken to be in proportion to the slice's length.
class SliceTable {
 public:
  // Measures a table. `question`: has no slices. `length`: of the sequence; a multiple of
  // `shortest`. Errors: the model cannot be sliced, or a sliced program is refused.
  static Result<SliceTable> measure(UnitPricer& pricer, const UnitQuestion& question,
                                    int64_t length, int64_t shortest);
  // Returns the seconds of both passes of a unit for `slice` tokens after `context` earlier tokens.
  double seconds(size_t unit, int64_t slice, int64_t context) const;
  // Returns the sum of these seconds over the units, each multiplied by its count.
  double seconds(const std::vector<double>& counts, int64_t slice, int64_t context) const;

 private:
  struct Point {
    int64_t context = 0;
    std::vector<double> seconds;  // seconds by unit of the folded model
  };
  struct Row {
    int64_t slice = 0;
    std::vector<Point> points;  // in the order of rising context
  };
  using Read = std::function<double(const Point&)>;
  static double in_row(const Row& row, int64_t context, const Read& read);
  double read_at(int64_t slice, int64_t context, const Read& read) const;

  std::vector<Row> rows_;  // in the order of rising slice; the last row is the whole sequence
};

class Slicer {
 public:
  // Makes a slicer. `length`: of the sequences. All arguments outlive the slicer.
  Slicer(PlanSearch& search, Estimator& estimator, int64_t length);

  // Sets the slices of a choice whose degrees are set, and estimates the choice with them. `whole`:
  // the prices of its units without slices; `asked`: the question that they answer. `count`: cut
  // into so many equal slices; 0: find the slices with the shortest step by the table, which may be
  // a single slice. Returns false if the model cannot be sliced in this way.
  bool slice(Choice& choice, Estimate& estimate, const UnitQuestion& asked, const UnitPrices& whole,
             const SliceSchedule& schedule, int64_t count = 0);
  // Estimates the choice once more, from prices of a folded program with the choice's slices. Keeps
  // the estimate if that program is refused.
  void measure(Choice& choice, Estimate& estimate, UnitQuestion asked);
  const std::string& last_refusal() const { return refusal_; }

 private:
  Estimate estimated(Choice& choice, const UnitPrices& prices, int64_t sequences);
  std::vector<double> slowest_stage(const Choice& choice, const UnitPrices& prices) const;
  const SliceTable* table_for(const UnitQuestion& asked);
  std::vector<int64_t> best_lengths(const Choice& choice, const UnitPrices& whole,
                                    const SliceTable& table) const;

  PlanSearch& search_;
  Estimator& estimator_;
  int64_t length_, shortest_ = 1;
  std::map<std::string, std::optional<SliceTable>> tables_;
  std::deque<UnitPrices> sliced_;  // prices with which sliced choices were estimated
  std::string refusal_;
};

}  // namespace tessera
