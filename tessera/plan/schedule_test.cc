#include "tessera/plan/schedule.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string text(const std::vector<BlockRun>& runs) {
  std::string out;
  for (const BlockRun& run : runs) out += (out.empty() ? "" : " ") + to_string(run);
  return out;
}

PipelineShape chunks(int64_t places, int64_t per_place, int64_t micro_batches) {
  PipelineShape shape{.places = places, .micro_batches = micro_batches};
  for (int64_t s = 0; s < places * per_place; ++s) shape.at.push_back({s % places});
  return shape;
}

TEST(Schedule, OneForwardOneBackwardOrders) {
  EXPECT_EQ(text(make_schedule("1f1b", chunks(2, 1, 3)).value()[0]),
            "F0@0 F1@0 B0@0 F2@0 B1@0 B2@0");
  EXPECT_EQ(text(make_schedule("1f1b", chunks(2, 1, 3)).value()[1]),
            "F0@1 B0@1 F1@1 B1@1 F2@1 B2@1");
  EXPECT_EQ(text(make_schedule("interleaved", chunks(2, 2, 2)).value()[1]),
            "F0@1 F1@1 F0@3 B0@3 F1@3 B1@3 B0@1 B1@1");
}

}  // namespace
}  // namespace tessera
