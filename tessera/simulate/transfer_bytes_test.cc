// Bytes that follow from facts of lists of boxes are those that are added up over the members.
#include "tessera/simulate/transfer_bytes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/program/communication.h"

namespace tessera {
namespace {

using Boxes = std::vector<Box>;

class Transfers : public testing::Test {
 protected:
  int64_t any(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }
  // Returns boxes of an array of two dims: all equal, cut (perhaps unevenly, perhaps along both
  // dims), only one that is not empty, or anything.
  SharedBoxes boxes(int64_t members) {
    const Box whole({{0, 7}, {0, 6}});
    Boxes out(static_cast<size_t>(members), whole);
    const int64_t sort = any(5), pieces = members % 2 == 0 ? 2 : 1;
    for (int64_t m = 0; m < members; ++m) {
      Box& box = out[static_cast<size_t>(m)];
      if (sort == 1) box.dims[0] = split_interval({0, 7}, members, m);
      if (sort == 2) {
        box.dims[0] = split_interval({0, 7}, members / pieces, m / pieces);
        box.dims[1] = split_interval({0, 6}, pieces, m % pieces);
      }
      if (sort == 3 && m != members / 2) box = Box({{0, 0}, {0, 0}});
      if (sort == 4) box = Box({{any(4), any(4)}, {any(3), any(4)}});
    }
    return out;
  }
  std::mt19937_64 random_{5};
};

TEST_F(Transfers, send_what_is_added_up_over_members) {
  TransferBytes bytes;
  std::vector<Issue> issues;  // their lists keep their addresses
  for (int i = 0; i < 3000; ++i) {
    const int64_t members = 1 + any(6);
    Issue issue;
    issue.dtype = any(2) == 0 ? DType::kFloat32 : DType::kBFloat16;
    if (any(2) == 0) issue.combiner = any(4) == 0 ? Combiner::kMoments : Combiner::kSum;
    issue.kind = issue.combiner && any(2) == 0 ? CollectiveKind::kAllReduce
                 : any(2) == 0                 ? CollectiveKind::kAllGather
                                               : CollectiveKind::kExchange;
    for (int64_t transfers = 1 + any(2); transfers > 0; --transfers)
      issue.transfers.push_back({TensorId(0), boxes(members), boxes(members), {}, {}});
    issues.push_back(std::move(issue));
    const Issue& made = issues.back();
    int64_t busiest = 0, held = 0, needed = 0;
    for (const Transfer& transfer : made.transfers) {
      int64_t hold = 0, need = 0;
      for (const Box& box : transfer.hold) hold = std::max(hold, box.volume());
      for (const Box& box : transfer.need) need = std::max(need, box.volume());
      held += hold;
      needed += need;
    }
    for (size_t m = 0; m < static_cast<size_t>(members); ++m) {
      SCOPED_TRACE(fmt::format("case {}, member {} of {}", i, m, members));
      const int64_t sent = sent_traffic(made, m).bytes;
      EXPECT_EQ(bytes.sent(made, m), sent);
      int64_t taken = 0;
      for (const Transfer& transfer : made.transfers) {
        const Box& need = transfer.need[m];
        taken += need.volume() - intersect(need, transfer.hold[m]).volume();
      }
      busiest = std::max({busiest, sent, taken * dtype_bytes(made.dtype)});
    }
    const int64_t exchanged = members > 1 ? busiest * members / (members - 1) : 0;
    EXPECT_EQ(bytes.whole(made), made.kind == CollectiveKind::kExchange ? exchanged
                                 : made.kind == CollectiveKind::kAllGather
                                     ? needed * dtype_bytes(made.dtype)
                                     : held * dtype_bytes(made.dtype));
  }
}

}  // namespace
}  // namespace tessera
