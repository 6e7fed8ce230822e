#include "tessera/base/redistribution.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

Box line(int64_t begin, int64_t end) { return Box({{begin, end - begin}}); }

TEST(Traffic, all_reduce_counts_both_phases) {
  Redistribution what{CollectiveKind::kAllReduce, Combiner::kSum, DType::kFloat32, {}, {}};
  what.hold = what.need = {line(0, 10), line(0, 10), line(0, 10), line(0, 10)};
  // chunks 3 3 2 2: member 0 sends 3 + 2 + 2 and then 3 to each of 3 peers.
  EXPECT_EQ(traffic(what, 0), (Traffic{(7 + 9) * 4, 6}));
  EXPECT_EQ(traffic(what, 3), (Traffic{(8 + 6) * 4, 6}));
}

TEST(Traffic, all_reduce_of_one_element_sends_no_empty_message) {
  Redistribution what{CollectiveKind::kAllReduce, Combiner::kSum, DType::kFloat64, {}, {}};
  what.hold = what.need = {Box(), Box()};
  EXPECT_EQ(traffic(what, 0), (Traffic{8, 1}));  // only the reduced value
  EXPECT_EQ(traffic(what, 1), (Traffic{8, 1}));  // only its part
}

TEST(Traffic, all_reduce_of_moments_keeps_triples_together) {
  Redistribution what{CollectiveKind::kAllReduce, Combiner::kMoments, DType::kFloat32, {}, {}};
  const Box box({{0, 3}, {0, 3}});
  what.hold = what.need = {box, box};
  EXPECT_EQ(traffic(what, 0).bytes, (3 + 6) * 4);
}

TEST(Traffic, all_gather_and_reduce_scatter) {
  Redistribution gather{CollectiveKind::kAllGather, {}, DType::kFloat32, {}, {}};
  gather.hold = {line(0, 3), line(3, 5)};
  gather.need = {line(0, 5), line(0, 5)};
  EXPECT_EQ(traffic(gather, 0), (Traffic{12, 1}));
  EXPECT_EQ(traffic(gather, 1), (Traffic{8, 1}));
  Redistribution scatter{CollectiveKind::kReduceScatter, Combiner::kSum, DType::kFloat32,
                         gather.need, gather.hold};
  EXPECT_EQ(traffic(scatter, 0), (Traffic{8, 1}));
  EXPECT_EQ(traffic(scatter, 1), (Traffic{12, 1}));
}

TEST(Traffic, a_replica_serves_its_nearest_taker) {
  Redistribution what{CollectiveKind::kExchange, {}, DType::kFloat32, {}, {}};
  what.hold = {line(0, 4), line(0, 0), line(0, 4), line(0, 0)};
  what.need = {line(0, 0), line(0, 4), line(0, 0), line(1, 4)};
  EXPECT_EQ(traffic(what, 2), (Traffic{16, 1}));  // member 1 takes from 2
  EXPECT_EQ(traffic(what, 0), (Traffic{12, 1}));  // member 3 takes from 0
}

TEST(Takes, sum_over_takers_equals_traffic_of_givers) {
  Redistribution what{CollectiveKind::kExchange, {}, DType::kFloat32, {}, {}};
  what.hold = {line(0, 6), line(4, 9), line(2, 5), line(8, 12)};
  what.need = {line(3, 12), line(0, 12), line(1, 7), line(0, 4)};
  std::vector<int64_t> given(4, 0);
  for (size_t member = 0; member < 4; ++member) {
    int64_t covered = 0;
    for (const Take& take : takes(what, member)) {
      EXPECT_TRUE(what.hold[take.source].contains(take.box));
      covered += take.box.volume();
      if (take.source != member) given[take.source] += take.box.volume();
    }
    EXPECT_EQ(covered, what.need[member].volume());
  }
  for (size_t member = 0; member < 4; ++member) {
    EXPECT_EQ(traffic(what, member).bytes, given[member] * 4);
  }
}

}  // namespace
}  // namespace tessera
