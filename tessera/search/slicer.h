// Cuts a causal sequence into slices that follow one another through the stages of a pipeline. The
// time of a slice of l tokens behind c others is read from simulated programs of the folded model
// whose sequence is sliced so (SliceTable); the lengths are found by the published program
// (published/terapipe.h) on these times.
//
//   TESSERA_TRY(const SliceTable table, SliceTable::measure(pricer, question, 2048, 32));
//   table.seconds(unit, 256, 1024);      // of both passes of a unit of the folded model
//   Slicer slicer(search, estimator, length);
//   slicer.slice(choice, estimate, asked, prices, kSliceSchedules[0]);   // fills slices and estimate
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/search/plan_search.h"

namespace tessera {

inline const char* const kSlicedDim = "seq";

// A schedule of slices, and its counterpart for whole micro-batches.
struct SliceSchedule {
  const char *of_slices, *of_wholes;
};
inline constexpr SliceSchedule kSliceSchedules[] = {{"token", "gpipe"}, {"token_1f1b", "1f1b"}};
// The schedule with which a pipeline that may be sliced is ranked.
inline const char* const kWholeSchedule = "1f1b";
// Returns the schedule of slices of that name; null: there is none.
const SliceSchedule* slice_schedule(const std::string& name);

// Returns the length of the sequences that may be sliced. Errors: there are none, or a slice would
// read tokens of later ones.
Result<int64_t> sliced_length(const Graph& forward);

// A table of seconds by slice. Measured are the lengths `shortest` * 4^i, half and all of the
// sequence, behind no tokens, behind as many as the slice has, and at the end of the sequence.
// Between measured lengths, and between measured numbers of tokens before the slice, the table is
// linear; for slices longer than the longest that have tokens before them, the time that such
// tokens add is in proportion to the slice.
class SliceTable {
 public:
  // Measures a table. `question`: without slices. `length`: of the sequence; a multiple of
  // `shortest`. Errors: what cannot be sliced.
  static Result<SliceTable> measure(UnitPricer& pricer, const UnitQuestion& question,
                                    int64_t length, int64_t shortest);
  // Returns the seconds of both passes of a unit for `slice` tokens behind `context` others.
  double seconds(size_t unit, int64_t slice, int64_t context) const;
  // Returns the sum over units, each counted so many times.
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

class Slicer {
 public:
  // Makes a slicer. `length`: of the sequences. All arguments outlive the slicer.
  Slicer(PlanSearch& search, Estimator& estimator, int64_t length);

  // Finds the slices of a choice that has its degrees, and estimates the choice with them. `asked`:
  // how its units were priced, as `whole`. `count`: so many equal slices; 0: those of the least
  // step by the table, which may be one. Returns false if the model cannot be sliced so.
  bool slice(Choice& choice, Estimate& estimate, const UnitQuestion& asked, const UnitPrices& whole,
             const SliceSchedule& schedule, int64_t count = 0);
  // Estimates the choice once more, with a folded program that is sliced as the choice is.
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
  std::deque<UnitPrices> sliced_;  // prices that choices were estimated with
  std::string refusal_;
};

}  // namespace tessera
