// A law of how often rows of a table are looked up, fitted to published histograms. A histogram
// says which share of the rows that a batch looks up is looked up once, twice, three or four times,
// ... (facebookresearch/dlrm_datasets; data/dlrm/README.md).
//
//   TESSERA_TRY(const auto sections, read_reuse("data/dlrm/locality_stats.txt"));
//   const ReuseLaw law = ReuseLaw::fit(sections.front());
//   const RowDraw draw(law, 1'000'000);
//   const int64_t rank = draw(philox, i);     // a row, the most frequent ones first
//
// The law is a mixture: each class, a share of the table's rows, has an expected number of look-ups
// a batch, on a grid of powers of the square root of two; a row's number of look-ups is Poisson
// distributed around that of its class. The shares are the most likely ones given the histogram of
// rows that were looked up at all, found by expectation maximization; bins whose share of the rows
// is rounded to nothing get theirs from their share of the look-ups.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/philox.h"
#include "tessera/base/result.h"

namespace tessera {

// A section of the file. Bin b holds rows of edges[b] + 1 .. edges[b + 1] look-ups; the last is open.
struct ReuseHistogram {
  std::string name;
  double lookups = 0, rows = 0;  // look-ups of the batch; rows that it looked up
  std::vector<double> edges;
  std::vector<double> rows_share, lookups_share;  // by bin
};
// Parses the sections. Errors: "locality_stats.txt:7: expected '(LO, HI]: SHARE', found 'x'".
Result<std::vector<ReuseHistogram>> parse_reuse(std::string_view text, const std::string& file);
Result<std::vector<ReuseHistogram>> read_reuse(const std::string& path);

struct ReuseLaw {
  struct Class {
    double share = 0;    // of all rows of the table
    double lookups = 0;  // expected look-ups of a row in a batch
  };
  std::vector<Class> classes;  // by falling look-ups
  static ReuseLaw fit(const ReuseHistogram& histogram);
};

// Draws ranks of rows by the law; a draw is a function of philox and index.
class RowDraw {
 public:
  RowDraw(const ReuseLaw& law, int64_t rows);
  int64_t operator()(const Philox& philox, uint64_t index) const;

 private:
  std::vector<double> upto_;    // share of the look-ups of this class and those before
  std::vector<int64_t> first_;  // rank, by class, and the number of rows
};

}  // namespace tessera
