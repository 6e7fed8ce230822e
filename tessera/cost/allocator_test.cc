// Checks the allocator against hand-made traces and against a naive allocator.
#include "tessera/cost/allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// docs/theory/cost-model.md section 12.
TEST(CachingAllocator, of_a_hand_made_trace) {
  CachingAllocator allocator;
  const auto b = allocator.allocate(11 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 12 * kMiB);
  EXPECT_EQ(allocator.live_bytes(), 12 * kMiB);  // not split: the rest is not above 1 MiB
  const auto a = allocator.allocate(kMiB + 1);
  EXPECT_EQ(allocator.live_bytes(), 12 * kMiB + kMiB + 512);
  EXPECT_EQ(allocator.reserved_bytes(), (12 + 20) * kMiB);
  EXPECT_EQ(allocator.segments(), 2);
  const auto c = allocator.allocate(9 * kMiB);  // in the rest of the second segment
  EXPECT_EQ(allocator.reserved_bytes(), 32 * kMiB);
  EXPECT_EQ(*c, *a + kMiB + 512);
  allocator.free(*a);
  allocator.free(*b);
  allocator.free(*c);
  EXPECT_EQ(allocator.live_bytes(), 0);
  EXPECT_EQ(allocator.reserved_bytes(), 32 * kMiB);
  EXPECT_EQ(*allocator.allocate(19 * kMiB), *a);  // the parts are one block again
  EXPECT_EQ(allocator.reserved_bytes(), 32 * kMiB);
  EXPECT_EQ(allocator.peak_live_bytes(), 22 * kMiB + 512);
}

TEST(CachingAllocator, small_requests_share_segments_of_2_mib) {
  CachingAllocator allocator;
  for (int i = 0; i < 4096; ++i) ASSERT_TRUE(allocator.allocate(1).has_value());
  EXPECT_EQ(allocator.reserved_bytes(), 2 * kMiB);
  ASSERT_TRUE(allocator.allocate(0).has_value());
  EXPECT_EQ(allocator.reserved_bytes(), 4 * kMiB);
  ASSERT_TRUE(allocator.allocate(kMiB).has_value());
  EXPECT_EQ(allocator.reserved_bytes(), 4 * kMiB);
}

TEST(CachingAllocator, streams_do_not_share_pools) {
  CachingAllocator allocator;
  const auto a = allocator.allocate(30 * kMiB, 0);
  allocator.free(*a);
  ASSERT_TRUE(allocator.allocate(30 * kMiB, 1).has_value());
  EXPECT_EQ(allocator.reserved_bytes(), 60 * kMiB);
}

TEST(CachingAllocator, gives_free_segments_back_before_it_fails) {
  CachingAllocator allocator({false, 64 * kMiB});
  const auto a = allocator.allocate(40 * kMiB);
  allocator.free(*a);
  ASSERT_TRUE(allocator.allocate(50 * kMiB).has_value());
  EXPECT_EQ(allocator.reserved_bytes(), 50 * kMiB);
  EXPECT_FALSE(allocator.allocate(20 * kMiB).has_value());
  EXPECT_EQ(allocator.peak_reserved_bytes(), 50 * kMiB);
}

// A trace that fragments segments of the arrays' own sizes does not fragment a segment that grows.
TEST(CachingAllocator, an_expandable_segment_reserves_about_the_live_peak) {
  std::vector<AllocatorEvent> trace;
  int64_t id = 0, first = 0;
  for (int64_t round = 0; round < 8; ++round) {  // ever larger arrays, two alive at a time
    trace.push_back({id++, (30 + 4 * round) * kMiB, 0});
    trace.push_back({id++, (31 + 4 * round) * kMiB, 0});
    for (; first < id; ++first) trace.push_back({first, -1, 0});
  }
  const AllocatorUse plain = replay(trace), expandable = replay(trace, {true, 0});
  EXPECT_EQ(expandable.peak_live_bytes, (58 + 59) * kMiB);
  EXPECT_GT(plain.peak_reserved_bytes, 3 * plain.peak_live_bytes);
  EXPECT_LE(expandable.peak_reserved_bytes, expandable.peak_live_bytes + 20 * kMiB);
}

TEST(CachingAllocator, an_expandable_segment_fails_at_the_capacity_and_shrinks_first) {
  CachingAllocator allocator({true, 100 * kMiB});
  const auto a = allocator.allocate(60 * kMiB, 0);
  allocator.free(*a);
  ASSERT_TRUE(allocator.allocate(80 * kMiB, 1).has_value());
  EXPECT_EQ(allocator.reserved_bytes(), 80 * kMiB);
  EXPECT_FALSE(allocator.allocate(30 * kMiB, 0).has_value());
  const AllocatorUse use = replay({{0, 50 * kMiB, 0}, {1, 60 * kMiB, 0}}, {true, 100 * kMiB});
  EXPECT_FALSE(use.fits);
  EXPECT_EQ(use.failed_event, 1);
}

// ---- the naive allocator: lists, searched from the front
// -----------------------------------------------
struct Naive {
  struct Piece {
    int64_t size = 0;
    int64_t id = -1;  // -1: free
  };
  struct Segment {
    bool small = false;
    int32_t stream = 0;
    std::vector<Piece> pieces;
  };
  bool expandable = false;
  std::vector<Segment> segments;
  int64_t live = 0, reserved = 0;

  static int64_t up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

  void allocate(int64_t id, int64_t bytes, int32_t stream) {
    const int64_t size = std::max<int64_t>(512, up(bytes, 512));
    const bool small = size <= kMiB;
    size_t best_segment = segments.size(), best_piece = 0;
    int64_t best = std::numeric_limits<int64_t>::max();
    for (size_t s = 0; s < segments.size(); ++s) {
      if (segments[s].small != small || segments[s].stream != stream) continue;
      for (size_t p = 0; p < segments[s].pieces.size(); ++p) {
        const Piece& piece = segments[s].pieces[p];
        if (piece.id >= 0 || piece.size < size) continue;
        // The end of a segment that can grow is the last choice.
        const bool last = expandable && p + 1 == segments[s].pieces.size();
        const int64_t rank = piece.size + (last ? int64_t{1} << 60 : 0);
        if (rank >= best) continue;
        best = rank;
        best_segment = s;
        best_piece = p;
      }
    }
    if (best_segment == segments.size())
      std::tie(best_segment, best_piece) = more(size, small, stream);
    std::vector<Piece>& pieces = segments[best_segment].pieces;
    const int64_t rest = pieces[best_piece].size - size;
    pieces[best_piece].id = id;
    if (small || expandable ? rest >= 512 : rest > kMiB) {
      pieces[best_piece].size = size;
      pieces.insert(pieces.begin() + static_cast<std::ptrdiff_t>(best_piece) + 1, Piece{rest, -1});
    }
    live += pieces[best_piece].size;
  }

  std::pair<size_t, size_t> more(int64_t size, bool small, int32_t stream) {
    if (!expandable) {
      const int64_t bytes = small ? 2 * kMiB : size < 10 * kMiB ? 20 * kMiB : up(size, 2 * kMiB);
      segments.push_back({small, stream, {{bytes, -1}}});
      reserved += bytes;
      return {segments.size() - 1, 0};
    }
    auto found = std::find_if(segments.begin(), segments.end(), [&](const Segment& segment) {
      return segment.small == small && segment.stream == stream;
    });
    if (found == segments.end()) found = segments.insert(found, Segment{small, stream, {}});
    if (found->pieces.empty() || found->pieces.back().id >= 0) found->pieces.push_back({0, -1});
    const int64_t bytes = up(size - found->pieces.back().size, small ? 2 * kMiB : 20 * kMiB);
    found->pieces.back().size += bytes;
    reserved += bytes;
    return {static_cast<size_t>(found - segments.begin()), found->pieces.size() - 1};
  }

  void free(int64_t id) {
    for (Segment& segment : segments) {
      for (Piece& piece : segment.pieces) {
        if (piece.id != id) continue;
        piece.id = -1;
        live -= piece.size;
      }
      for (size_t p = 0; p + 1 < segment.pieces.size();) {
        if (segment.pieces[p].id >= 0 || segment.pieces[p + 1].id >= 0) {
          ++p;
          continue;
        }
        segment.pieces[p].size += segment.pieces[p + 1].size;
        segment.pieces.erase(segment.pieces.begin() + static_cast<std::ptrdiff_t>(p) + 1);
      }
    }
  }
};

RC_GTEST_PROP(CachingAllocator, equals_the_naive_one_on_random_traces, ()) {
  const bool expandable = *rc::gen::arbitrary<bool>();
  CachingAllocator allocator({expandable, 0});
  Naive naive;
  naive.expandable = expandable;
  std::vector<std::pair<int64_t, int64_t>> alive;  // id, address
  const int64_t events = *rc::gen::inRange<int64_t>(1, 200);
  for (int64_t id = 0; id < events; ++id) {
    if (!alive.empty() && *rc::gen::inRange(0, 5) < 2) {
      const size_t which = *rc::gen::inRange<size_t>(0, alive.size());
      allocator.free(alive[which].second);
      naive.free(alive[which].first);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      const int64_t unit = *rc::gen::element<int64_t>(100, 200'000, 3'000'000);
      const int64_t bytes = unit * *rc::gen::inRange<int64_t>(1, 12);
      const auto stream = *rc::gen::inRange<int32_t>(0, 2);
      const auto address = allocator.allocate(bytes, stream);
      RC_ASSERT(address.has_value());
      alive.emplace_back(id, *address);
      naive.allocate(id, bytes, stream);
    }
    RC_ASSERT(allocator.live_bytes() == naive.live);
    RC_ASSERT(allocator.reserved_bytes() == naive.reserved);
  }
  for (const auto& [id, address] : alive) allocator.free(address);
  RC_ASSERT(allocator.live_bytes() == 0);
}

}  // namespace
}  // namespace tessera
