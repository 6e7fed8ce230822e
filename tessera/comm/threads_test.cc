// Tests the threads back end against the brute-force reference of testing.h, and in faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <deque>
#include <new>
#include <stdexcept>

#include "tessera/base/doing.h"
#include "tessera/comm/region.h"
#include "tessera/comm/testing.h"

namespace tessera::comm {
namespace {

using testing::all_ranks;
using testing::Arrays;
using testing::Case;
using ::testing::HasSubstr;

const Label kLabel = {"blocks.0.mlp.down", "y", "tp"};

// Runs each case as a call of its own. `ahead` calls are in flight at once and are waited for in
// reverse order.
std::vector<std::string> run_cases(const std::vector<Case>& cases, int ranks, size_t ahead) {
  std::vector<std::vector<std::string>> errors(static_cast<size_t>(ranks));
  const Status status = run_threads(ranks, {}, [&](Communicator& comm) {
    const size_t me = static_cast<size_t>(comm.rank());
    const int group = comm.group(all_ranks(ranks));
    for (size_t begin = 0; begin < cases.size(); begin += ahead) {
      std::deque<Arrays> arrays;
      std::vector<Handle> handles;
      const size_t end = std::min(cases.size(), begin + ahead);
      Counters before = comm.counters();
      Counters want = before;
      for (size_t i = begin; i < end; ++i) {
        arrays.emplace_back(cases[i], me);
        handles.push_back(comm.issue(group, {arrays.back().item}, kLabel));
        Traffic& kind = want.collectives[static_cast<size_t>(cases[i].what.kind)];
        const Traffic more = traffic(cases[i].what, me);
        kind = {kind.bytes + more.bytes, kind.messages + more.messages};
      }
      for (size_t k = handles.size(); k-- > 0;) comm.wait(handles[k]);
      for (size_t i = begin; i < end; ++i) errors[me].push_back(arrays[i - begin].error(cases[i]));
      if (comm.counters().collectives != want.collectives) {
        errors[me].push_back(cases[begin].name + ": counters differ from traffic()");
      }
    }
  });
  std::vector<std::string> out;
  if (!status) out.push_back(status.error().message);
  for (const auto& list : errors) {
    for (const std::string& error : list) {
      if (!error.empty()) out.push_back(error);
    }
  }
  return out;
}

class AllCases : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllCases, ::testing::Values(1, 2, 3, 4, 6, 8));

TEST_P(AllCases, AgreeWithBruteForceAndCountTheirTraffic) {
  const auto cases = testing::all_cases(static_cast<size_t>(GetParam()));
  EXPECT_THAT(run_cases(cases, GetParam(), 1), ::testing::IsEmpty());
}
TEST_P(AllCases, MayBeWaitedForInAnotherOrderThanIssued) {
  const auto cases = testing::all_cases(static_cast<size_t>(GetParam()));
  EXPECT_THAT(run_cases(cases, GetParam(), 17), ::testing::IsEmpty());
}

Box random_box(const Box& whole) {
  Box box;
  for (const Interval& dim : whole.dims) {
    const int64_t begin = *rc::gen::inRange<int64_t>(dim.begin, dim.end() + 1);
    box.dims.push_back({begin, *rc::gen::inRange<int64_t>(0, dim.end() - begin + 1)});
  }
  return box;
}

TEST(Threads, MoveAnyBoxesToAnyBoxes) {
  EXPECT_TRUE(rc::check([] {
    const size_t n = *rc::gen::inRange<size_t>(1, 5);
    const size_t rank = *rc::gen::inRange<size_t>(1, 4);
    Box whole;
    for (size_t i = 0; i < rank; ++i) whole.dims.push_back({0, *rc::gen::inRange<int64_t>(1, 7)});
    Case test;
    test.name = "random";
    test.strided = *rc::gen::arbitrary<bool>();
    test.what.kind = CollectiveKind::kExchange;
    if (*rc::gen::arbitrary<bool>()) test.what.combiner = Combiner::kSum;
    for (size_t i = 0; i < n; ++i) {
      test.what.hold.push_back(random_box(whole));
      test.what.need.push_back(random_box(whole));
    }
    RC_ASSERT(run_cases({test}, static_cast<int>(n), 1) == std::vector<std::string>{});
  }));
}

TEST(Threads, ItemsOfABucketShareTheirMessages) {
  const int n = 3;
  const auto list = testing::combinations(Box::whole({7, 2}), DType::kFloat32, Combiner::kSum, 3);
  for (size_t kind : {0, 1}) {
    auto second =
        testing::combinations(Box::whole({2, 5, 3}), DType::kFloat32, Combiner::kSum, 3)[kind];
    const std::vector<Case> cases = {{"a", list[kind]}, {"b", second, true}};
    std::array<std::string, 3> errors;
    std::array<Counters, 3> counted;
    const Status status = run_threads(n, {}, [&](Communicator& comm) {
      const size_t me = static_cast<size_t>(comm.rank());
      Arrays a(cases[0], me), b(cases[1], me);
      comm.wait(comm.issue(comm.group({0, 1, 2}), {a.item, b.item}, kLabel));
      errors[me] = a.error(cases[0]) + b.error(cases[1]);
      counted[me] = comm.counters();
    });
    ASSERT_TRUE(status) << status.error().message;
    for (size_t me = 0; me < 3; ++me) {
      EXPECT_EQ(errors[me], "");
      const Traffic want = bucket_traffic({&cases[0].what, &cases[1].what}, me);
      EXPECT_EQ(counted[me].collectives[static_cast<size_t>(list[kind].kind)], want);
      EXPECT_EQ(want.bytes, traffic(cases[0].what, me).bytes + traffic(cases[1].what, me).bytes);
      EXPECT_EQ(counted[me].total_bytes(), want.bytes);
    }
  }
}

TEST(Threads, AGatherMayGoIntoTheArrayThatHoldsTheOwnShard) {
  const Redistribution what{CollectiveKind::kAllGather,
                            std::nullopt,
                            DType::kFloat64,
                            {Box({{0, 2}, {0, 3}}), Box({{2, 2}, {0, 3}}), Box({{4, 1}, {0, 3}})},
                            std::vector<Box>(3, Box::whole({5, 3}))};
  std::array<std::vector<double>, 3> arrays;
  const Status status = run_threads(3, {}, [&](Communicator& comm) {
    const size_t me = static_cast<size_t>(comm.rank());
    std::vector<double>& array = arrays[me];
    array.assign(15, -1);
    for (int64_t i = what.hold[me].dims[0].begin * 3; i < what.hold[me].dims[0].end() * 3; ++i) {
      array[static_cast<size_t>(i)] = static_cast<double>(i);
    }
    std::byte* data = reinterpret_cast<std::byte*>(array.data());
    const ArrayView in{data + what.hold[me].dims[0].begin * 3 * 8, what.hold[me], {3, 1}};
    const ArrayView out{data, what.need[me], {3, 1}};
    comm.wait(comm.issue(comm.group({0, 1, 2}), {Item{&what, in, out}}, kLabel));
  });
  ASSERT_TRUE(status) << status.error().message;
  for (const std::vector<double>& array : arrays) {
    for (size_t i = 0; i < 15; ++i) EXPECT_EQ(array[i], static_cast<double>(i));
  }
}

TEST(Threads, SubGroupsWorkConcurrently) {
  // A 2 x 2 mesh: rows {0,1} {2,3}, columns {0,2} {1,3}; the columns list their members in reverse.
  const std::vector<std::vector<int>> rows = {{0, 1}, {0, 1}, {2, 3}, {2, 3}};
  const std::vector<std::vector<int>> columns = {{2, 0}, {3, 1}, {2, 0}, {3, 1}};
  const auto what = testing::combinations(Box::whole({5}), DType::kFloat64, Combiner::kSum, 2)[0];
  const Case test = {"sub-group", what};
  std::array<std::string, 4> errors;
  const Status status = run_threads(4, {}, [&](Communicator& comm) {
    const size_t rank = static_cast<size_t>(comm.rank());
    for (int round = 0; round < 50; ++round) {
      const int row = comm.group(rows[rank]);
      const int column = comm.group(columns[rank]);
      Arrays a(test, rank % 2), b(test, rank < 2 ? 1 : 0);
      const Handle first = comm.issue(row, {a.item}, kLabel);
      const Handle second = comm.issue(column, {b.item}, kLabel);
      comm.wait(rank == 0 ? second : first);
      comm.wait(rank == 0 ? first : second);
      errors[rank] += a.error(test) + b.error(test);
    }
  });
  ASSERT_TRUE(status) << status.error().message;
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

ArrayView view_of(std::vector<float>& data) {
  return packed_view(reinterpret_cast<std::byte*>(data.data()),
                     Box::whole({static_cast<int64_t>(data.size())}));
}

TEST(Threads, PointToPointMatchesTagsOutOfOrderAndKeepsOrderWithinATag) {
  Counters sent;
  std::vector<float> got(6);
  const Status status = run_threads(2, {}, [&](Communicator& comm) {
    std::vector<std::vector<float>> data(6, std::vector<float>(3));
    std::vector<Handle> handles;
    for (size_t i = 0; i < 6; ++i) {
      if (comm.rank() == 0) {
        data[i].assign(3, static_cast<float>(i));
        const int64_t tag = static_cast<int64_t>(i % 2);
        handles.push_back(comm.issue_send(1, tag, DType::kFloat32, view_of(data[i]), kLabel));
      } else {  // all of tag 1 first
        handles.push_back(
            comm.issue_recv(0, i < 3 ? 1 : 0, DType::kFloat32, view_of(data[i]), kLabel));
      }
    }
    for (size_t i = 6; i-- > 0;) comm.wait(handles[i]);
    if (comm.rank() == 0) sent = comm.counters();
    if (comm.rank() == 0) return;
    for (size_t i = 0; i < 6; ++i) got[i] = data[i].back();
  });
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(got, ::testing::ElementsAre(1, 3, 5, 0, 2, 4));
  EXPECT_EQ(sent.point_to_point, (Traffic{72, 6}));
  EXPECT_EQ(sent.bytes_by_kind(), (std::map<std::string, int64_t>{{"send", 72}}));
}

TEST(Threads, ABlockedRankMovesItsOtherCallsOn) {
  // Rank 0 waits for a message that rank 1 sends only after it has received rank 0's first message.
  const Status status = run_threads(2, {}, [&](Communicator& comm) {
    std::vector<float> a(4), b(4);
    if (comm.rank() == 0) {
      const Handle first = comm.issue_recv(1, 0, DType::kFloat32, view_of(a), kLabel);
      const Handle second = comm.issue_recv(1, 1, DType::kFloat32, view_of(b), kLabel);
      comm.wait(second);
      comm.wait(first);
    } else {
      comm.wait(comm.issue_send(0, 0, DType::kFloat32, view_of(a), kLabel));
      comm.wait(comm.issue_send(0, 1, DType::kFloat32, view_of(b), kLabel));
    }
  });
  EXPECT_TRUE(status) << status.error().message;
}

TEST(Threads, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  const Status status = run_threads(5, {}, [&](Communicator& comm) {
    for (int round = 1; round <= 100; ++round) {
      arrived.fetch_add(1);
      comm.barrier();
      if (arrived.load() < 5 * round) early = true;
      comm.barrier();
    }
  });
  EXPECT_TRUE(status);
  EXPECT_FALSE(early);
}

const Options kImpatient = {std::chrono::milliseconds(200), {}};

TEST(Threads, ATimeoutNamesTheCallAndTheMissingRanks) {
  const auto what = testing::combinations(Box::whole({8}), DType::kFloat32, Combiner::kSum, 4)[0];
  const Status status = run_threads(4, kImpatient, [&](Communicator& comm) {
    if (comm.rank() == 1 || comm.rank() == 2) return;
    const Case test = {"late", what};
    Arrays arrays(test, static_cast<size_t>(comm.rank()));
    const Handle handle = comm.issue(comm.group({0, 1, 2, 3}), {arrays.item}, kLabel);
    if (comm.rank() == 3) comm.wait(handle);
    if (comm.rank() == 0) {
      try {
        comm.wait(handle);
      } catch (const CommFault& fault) {
        throw CommFault{"secondary: " + fault.message};
      }
    }
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFault);
  EXPECT_THAT(status.error().message,
              ::testing::MatchesRegex("rank [03]: op blocks\\.0\\.mlp\\.down, tensor y, axis tp: "
                                      "no answer from ranks \\{1, 2\\} within 0\\.2 s"));
}

TEST(Threads, ATimeoutOfPointToPointNamesThePeer) {
  const Status status = run_threads(2, kImpatient, [&](Communicator& comm) {
    std::vector<float> data(2);
    if (comm.rank() == 1) comm.wait(comm.issue_recv(0, 5, DType::kFloat32, view_of(data), kLabel));
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(
      status.error().message,
      "rank 1: op blocks.0.mlp.down, tensor y, axis tp: no answer from ranks {0} within 0.2 s");
}

TEST(Threads, ATimeoutOfTheBarrierNamesTheMissing) {
  const Status status = run_threads(3, kImpatient, [](Communicator& comm) {
    if (comm.rank() != 1) comm.barrier();
  });
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              ::testing::MatchesRegex(
                  "rank [02]: op barrier: no answer from ranks \\{1\\} within 0\\.2 s"));
}

TEST(Threads, AnAbortWakesAllAndItsReasonIsTheResult) {
  std::atomic<int> stopped{0};
  const Status status = run_threads(4, {}, [&](Communicator& comm) {
    if (comm.rank() == 2) {
      comm.abort("disk full");
      return;
    }
    try {
      comm.barrier();
    } catch (const CommFault& fault) {
      if (fault.message.find("disk full") != std::string::npos) ++stopped;
      throw;
    }
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "disk full");
  EXPECT_EQ(stopped, 3);
}

TEST(Threads, TheCodeOfWhatARankFoundIsThatOfTheResult) {
  const Status wrong = run_threads(3, {}, [](Communicator& comm) {
    if (comm.rank() == 1) throw CommFault{"a file that is no text", ErrorCode::kInvalidInput};
    comm.barrier();
  });
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "a file that is no text");
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidInput);
  const Status memory = run_threads(2, {}, [](Communicator& comm) {
    const Doing doing("computing", "blocks.0.mlp");
    if (comm.rank() == 1) throw std::bad_alloc();
    comm.barrier();
  });
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().message, "rank 1: memory is exhausted while computing 'blocks.0.mlp'");
  EXPECT_EQ(memory.error().code, ErrorCode::kInvalidInput);
}

TEST(Threads, AnExceptionInOneRankStopsTheOthersAndIsTheResult) {
  const Status status = run_threads(3, {}, [](Communicator& comm) {
    if (comm.rank() == 1) throw std::runtime_error("no such kernel");
    comm.barrier();
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "rank 1: no such kernel");
}

TEST(Threads, MemoryFreedOnTheWayOutOfAFaultIsNotTouchedAnyMore) {  // for the sanitizers
  const auto what = testing::combinations(Box::whole({40'000}), DType::kFloat32, Combiner::kSum, 4);
  for (int round = 0; round < 20; ++round) {
    const Status status = run_threads(4, {}, [&](Communicator& comm) {
      const size_t me = static_cast<size_t>(comm.rank());
      const int group = comm.group({0, 1, 2, 3});
      for (int i = 0;; ++i) {
        if (me == 2 && i == round) throw std::runtime_error("out of memory");
        std::deque<std::vector<float>> memory;
        std::vector<Handle> handles;
        for (const Redistribution& one : what) {
          memory.emplace_back(40'000);
          memory.emplace_back(40'000);
          ArrayView in = view_of(*(memory.end() - 2)), out = view_of(memory.back());
          in.box = one.hold[me];
          out.box = one.need[me];
          handles.push_back(comm.issue(group, {{&one, in, out}}, kLabel));
        }
        for (Handle handle : handles) comm.wait(handle);
      }
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "rank 2: out of memory");
  }
}

TEST(Threads, CallsThatDoNotMatchAreAFaultThatNamesBoth) {
  const Status status = run_threads(2, {}, [](Communicator& comm) {
    const bool first = comm.rank() == 0;
    const auto list = testing::combinations(Box::whole({4}), DType::kFloat32,
                                            first ? Combiner::kSum : Combiner::kMax, 2);
    const Case test = {"mismatch", list[0]};
    Arrays arrays(test, static_cast<size_t>(comm.rank()));
    const Label label = {first ? "loss" : "norm", first ? "a" : "b", "dp"};
    comm.wait(comm.issue(comm.group({0, 1}), {arrays.item}, label));
  });
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("op loss, tensor a, axis dp: all_reduce"));
  EXPECT_THAT(status.error().message, HasSubstr("op norm, tensor b, axis dp: all_reduce"));
}

TEST(Threads, PointToPointOfUnlikeShapesIsAFault) {
  const Status status = run_threads(2, {}, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 3 : 4);
    if (comm.rank() == 0) {
      comm.wait(comm.issue_send(1, 0, DType::kFloat32, view_of(data), {"send", "x", ""}));
    } else {
      comm.wait(comm.issue_recv(0, 0, DType::kFloat32, view_of(data), {"recv", "x", ""}));
    }
  });
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("receive of float32 [0:4]"));
  EXPECT_THAT(status.error().message, HasSubstr("send of float32 [0:3]"));
}

TEST(Threads, ACallThatIsNotWaitedForIsAFault) {
  std::vector<float> data(1);
  const Status status = run_threads(1, {}, [&](Communicator& comm) {
    comm.issue_send(0, 0, DType::kFloat32, view_of(data), kLabel);
  });
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("issued and not waited for"));
}

TEST(Threads, NoRanksIsInvalidInput) {
  const Status status = run_threads(0, {}, [](Communicator&) {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace tessera::comm
