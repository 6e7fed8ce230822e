// A law that says how often the rows of a table are looked up, fitted to published histograms. Such
// a histogram takes the rows that a batch looks up at all, and says which share of these rows is
// looked up once, which share twice, which share three or four times, and so on
// (facebookresearch/dlrm_datasets; data/dlrm/README.md).
//
//   TESSERA_TRY(const auto sections, read_reuse("data/dlrm/locality_stats.txt"));
//   const ReuseLaw law = ReuseLaw::fit(sections.front());
//   const RowDraw draw(law, 1'000'000);
//   const int64_t rank = draw(philox, i);     // the rank of a row; 0 is the most frequent row
//
// The law is a mixture of classes. A class is a share of the table's rows. It has an expected
// number of look-ups of each row in a batch, a power of the square root of two; the number of
// look-ups of a row is Poisson distributed with this mean. fit() chooses the shares that make the
// histogram most likely, given that it has only rows that were looked up, by expectation
// maximization. If a bin's share of the rows is so small that the published digits hide it, the
// share is computed from the bin's share of the look-ups.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/philox.h"
#include "tessera/base/result.h"

namespace tessera {

// A section of the file. Bin b has the rows with edges[b] + 1 .. edges[b + 1] look-ups; the last
// bin has no upper edge.
struct ReuseHistogram {
  std::string name;
  double lookups = 0, rows = 0;  // look-ups of one batch, and the rows that they name
  std::vector<double> edges;
  std::vector<double> rows_share, lookups_share;  // by bin
};
// Parses the sections of the text; `file` is for messages. Errors: "locality_stats.txt:7: expected
// '(LO, HI]: SHARE', found 'x'".
Result<std::vector<ReuseHistogram>> parse_reuse(std::string_view text, const std::string& file);
Result<std::vector<ReuseHistogram>> read_reuse(const std::string& path);

struct ReuseLaw {
  struct Class {
    double share = 0;    // of all rows of the table
    double lookups = 0;  // expected look-ups of a row in a batch
  };
  std::vector<Class> classes;  // the class with the most look-ups first
  static ReuseLaw fit(const ReuseHistogram& histogram);
};

// Draws ranks of rows by the law; rank 0 is the most frequent row. A draw is a function of `philox`
// and `index` alone.
class RowDraw {
 public:
  RowDraw(const ReuseLaw& law, int64_t rows);
  int64_t operator()(const Philox& philox, uint64_t index) const;

 private:
  // By class: the share of the look-ups that go to this class and the classes before it.
  std::vector<double> upto_;
  std::vector<int64_t> first_;  // by class: the first rank in it; at the end the number of rows
};

}  // namespace tessera
