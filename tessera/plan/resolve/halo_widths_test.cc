// Widths of halos against the formulas of docs/strategies/spatial.md section 3, for every extent,
// number of parts, kernel, stride and padding of some size. In the formulas a rank makes the places
// whose middles lie in its own interval; here places are cut as evenly as extents are. Where both
// give each rank the same places, widths must equal those of the formulas.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/redistribution.h"
#include "tessera/plan/layout/layout.h"

namespace tessera {
namespace {

const AxisId kAxis(0);

int64_t modulo(int64_t x, int64_t m) { return ((x % m) + m) % m; }
int64_t ceil_divided(int64_t x, int64_t by) { return -((-x - modulo(-x, by)) / by); }

// A `Cut` is one dim of `extent` elements over `parts` ranks, and the window that reads it.
struct Cut {
  int64_t extent, parts, kernel, stride, padding;

  int64_t radius() const { return (kernel - 1) / 2; }
  int64_t places() const { return (extent + 2 * padding - kernel) / stride + 1; }
  Interval own(int64_t rank) const { return split_interval({0, extent}, parts, rank); }
  Interval made(int64_t rank) const { return split_interval({0, places()}, parts, rank); }
  // Returns the interval of the input that the rank reads. A rank that makes no place reads
  // nothing.
  Interval read(int64_t rank) const {
    Layout need = Layout::whole(1);
    need.shards = {{kAxis}};
    need.windows.push_back({0, {{kernel, stride, padding}, WindowUse::kUnder, places(), extent}});
    return dim_interval(need, 0, extent, Mesh::row_major({{"a", parts}}), {rank});
  }

  // x and y of the formulas, and the places whose middles lie in the rank's own interval.
  int64_t first() const { return padding == radius() ? 0 : radius(); }
  int64_t x(int64_t rank) const { return own(rank).begin - first(); }
  int64_t y(int64_t rank) const { return own(rank).end() - 1 - first(); }
  Interval made_by_middles(int64_t rank) const {
    const int64_t begin = std::clamp<int64_t>(ceil_divided(x(rank), stride), 0, places()),
                  end = std::clamp<int64_t>(ceil_divided(y(rank) + 1, stride), begin, places());
    return {begin, end - begin};
  }
  // Widths before they are clipped at 0 and at the ends of the dim.
  int64_t receives_left(int64_t rank) const {
    return radius() - modulo(stride - modulo(x(rank), stride), stride);
  }
  int64_t receives_right(int64_t rank) const { return radius() - modulo(y(rank), stride); }
};

template <class Check>
void each_cut(Check check) {
  for (int64_t extent = 1; extent <= 26; ++extent) {
    for (int64_t parts = 1; parts <= 6; ++parts) {
      for (const int64_t kernel : {1, 3, 5, 7}) {
        for (const int64_t stride : {1, 2, 3}) {
          for (const bool padded : {true, false}) {
            const int64_t padding = padded ? (kernel - 1) / 2 : 0;
            const Cut cut{extent, parts, kernel, stride, padding};
            if (extent + 2 * padding < kernel) continue;
            SCOPED_TRACE(::testing::Message()
                         << extent << " over " << parts << ", kernel " << kernel << " stride "
                         << stride << " padding " << padding);
            check(cut);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(HaloWidths, are_those_of_the_formulas_where_places_are_cut_alike) {
  int64_t compared = 0;
  each_cut([&](const Cut& cut) {
    if (cut.parts == 1) return;
    for (int64_t rank = 0; rank < cut.parts; ++rank) {
      const Interval made = cut.made(rank), own = cut.own(rank), read = cut.read(rank);
      if (made.empty() || made != cut.made_by_middles(rank) || made.size == cut.places()) continue;
      // The formulas are about the first and the last middle in the rank's interval. Without
      // padding the ends of the dim have no middles.
      if (ceil_divided(cut.x(rank), cut.stride) == made.begin) {
        const int64_t before = std::clamp<int64_t>(cut.receives_left(rank), 0, own.begin);
        EXPECT_EQ(std::max<int64_t>(0, own.begin - read.begin), before) << rank;
        ++compared;
      }
      if (ceil_divided(cut.y(rank) + 1, cut.stride) == made.end()) {
        const int64_t behind =
            std::clamp<int64_t>(cut.receives_right(rank), 0, cut.extent - own.end());
        EXPECT_EQ(std::max<int64_t>(0, read.end() - own.end()), behind) << rank;
        ++compared;
      }
    }
  });
  EXPECT_GT(compared, 10000);
}

TEST(HaloWidths, places_of_all_ranks_are_those_of_the_dim) {
  each_cut([](const Cut& cut) {
    int64_t made = 0;
    for (int64_t rank = 0; rank < cut.parts; ++rank) made += cut.made(rank).size;
    EXPECT_EQ(made, cut.places());
    // With a padding of the radius, the number of places is ceil(extent / stride).
    if (cut.padding == cut.radius()) {
      EXPECT_EQ(made, ceil_divided(cut.extent, cut.stride));
    }
  });
}

// Each element that a rank reads and does not hold is sent to it once; nothing else is sent.
TEST(HaloWidths, are_the_bytes_that_are_exchanged) {
  each_cut([](const Cut& cut) {
    Redistribution halo;
    halo.dtype = DType::kFloat64;
    int64_t received = 0, sent = 0;
    for (int64_t rank = 0; rank < cut.parts; ++rank) {
      const Interval own = cut.own(rank), read = cut.read(rank);
      halo.hold.push_back(Box({own}));
      halo.need.push_back(Box({read}));
      received += read.size - intersect(own, read).size;
    }
    for (size_t rank = 0; rank < static_cast<size_t>(cut.parts); ++rank)
      sent += traffic(halo, rank).bytes;
    EXPECT_EQ(sent, 8 * received);
  });
}

}  // namespace
}  // namespace tessera
