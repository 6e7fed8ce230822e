// Tests the bytes and messages of redistributions against values computed by hand, and names.
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/testing.h"
#include "tessera/comm/transfer.h"

namespace tessera::comm {
namespace {

constexpr int64_t kBytes = 4;  // of a float32

TEST(Traffic, AllReduceMovesTheBytesOfARing) {
  const auto what =
      testing::combinations(Box::whole({4, 2}), DType::kFloat32, Combiner::kSum, 4)[0];
  for (size_t j = 0; j < 4; ++j) {
    EXPECT_EQ(traffic(what, j), (Traffic{2 * 3 * 8 / 4 * kBytes, 6}));
  }
}

TEST(Traffic, UnevenAllReduceGivesTheFirstMembersMore) {
  // 5 elements on 3 members: chunks of 2, 2, 1.
  const auto what =
      testing::combinations(Box::whole({5, 1}), DType::kFloat32, Combiner::kSum, 3)[0];
  EXPECT_EQ(traffic(what, 0), (Traffic{(3 + 2 * 2) * kBytes, 4}));
  EXPECT_EQ(traffic(what, 2), (Traffic{(4 + 2 * 1) * kBytes, 4}));
}

TEST(Traffic, AnAllReduceOfFewerElementsThanMembersLeavesSomeWithoutAChunk) {
  const auto what =
      testing::combinations(Box::whole({1, 1}), DType::kFloat32, Combiner::kSum, 3)[0];
  EXPECT_EQ(traffic(what, 0), (Traffic{2 * kBytes, 2}));  // hands the result to both
  EXPECT_EQ(traffic(what, 1), (Traffic{kBytes, 1}));      // hands its element to the owner
}

TEST(Traffic, AnAllReduceOfMomentsKeepsTriplesTogether) {
  const auto what =
      testing::combinations(Box::whole({3, 3}), DType::kFloat32, Combiner::kMoments, 2)[0];
  EXPECT_EQ(chunk(what, 0), (Interval{0, 6}));
  EXPECT_EQ(chunk(what, 1), (Interval{6, 3}));
}

TEST(Traffic, AllGatherSendsTheOwnPieceToAllOthers) {
  const auto what = testing::copies(Box::whole({5, 2}), DType::kFloat32, 3)[0];
  EXPECT_EQ(traffic(what, 0), (Traffic{2 * 4 * kBytes, 2}));
  EXPECT_EQ(traffic(what, 2), (Traffic{2 * 2 * kBytes, 2}));
}

TEST(Traffic, ReplicatedSourcesAreUsedEvenly) {
  const Box whole = Box::whole({6});
  const Box none = Box({{0, 0}});
  const Redistribution what = {CollectiveKind::kExchange,
                               {},
                               DType::kFloat32,
                               {whole, none, whole, none},
                               {whole, whole, whole, whole}};
  EXPECT_EQ(traffic(what, 0), (Traffic{6 * kBytes, 1}));  // to member 3
  EXPECT_EQ(traffic(what, 1), (Traffic{0, 0}));
  EXPECT_EQ(traffic(what, 2), (Traffic{6 * kBytes, 1}));  // to member 1
}

TEST(Traffic, SumOfAllMembersIsWhatIsTakenFromOthers) {
  for (const testing::Case& test : testing::all_cases(4)) {
    if (is_chunked(test.what)) continue;
    int64_t sent = 0;
    int64_t taken_bytes = 0;
    for (size_t j = 0; j < 4; ++j) {
      sent += traffic(test.what, j).bytes;
      for (size_t k = 0; k < 4; ++k) {
        if (j != k) taken_bytes += bytes_of(test.what, taken(test.what, j, k));
      }
    }
    EXPECT_EQ(sent, taken_bytes) << test.name;
  }
}

TEST(Traffic, CountersNameOnlyWhatMoved) {
  Counters counters;
  counters.collectives[static_cast<size_t>(CollectiveKind::kAllGather)] = {12, 1};
  EXPECT_EQ(counters.total_bytes(), 12);
  EXPECT_EQ(counters.bytes_by_kind(), (std::map<std::string, int64_t>{{"all_gather", 12}}));
}

TEST(Traffic, KindsHaveNames) {
  EXPECT_EQ(collective_name(CollectiveKind::kAllReduce), "all_reduce");
  EXPECT_EQ(collective_name(CollectiveKind::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(collective_name(CollectiveKind::kExchange), "exchange");
}

}  // namespace
}  // namespace tessera::comm
