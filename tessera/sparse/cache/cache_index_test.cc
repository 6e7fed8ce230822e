#include "tessera/sparse/cache/cache_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tessera/sparse/cache/replay.h"
#include "tessera/sparse/cache/test_naive_cache.h"

namespace tessera::sparse::cache_index_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CacheIndex make(const CacheOptions& options) {
  auto index = CacheIndex::make(options);
  EXPECT_TRUE(index) << index.error().message;
  return std::move(*index);
}

// Serves a batch from its begin to its end; returns how many of its rows had a place.
int64_t serve(CacheIndex& index, const std::vector<int64_t>& ids, bool changed = true) {
  CacheBatch batch;
  EXPECT_TRUE(index.begin(ids, batch));
  EXPECT_EQ(index.violation(), "");
  index.finish(batch, changed);
  EXPECT_EQ(index.violation(), "");
  return std::ssize(batch.used) - std::ssize(batch.in);
}

// docs/strategies/row-cache.md section 8, the first worked case.
TEST(CacheIndexTest, LfuOfTheOriginalsOwnTest) {
  for (const char* policy : {"lfu", "lfu-forgetting"}) {
    CacheIndex index = make({.rows = 5, .slots = 3, .policy = policy});
    EXPECT_EQ(index.warm(1.0).size(), 3U);
    serve(index, {2});
    serve(index, {1, 2});
    serve(index, {0, 2});
    for (int i = 0; i < 4; ++i) serve(index, {0, 1, 2});
    for (int i = 0; i < 4; ++i) serve(index, {0, 2});
    for (int i = 0; i < 4; ++i) serve(index, {0});
    serve(index, {0, 1, 2});
    std::vector<int64_t> hits;
    for (const auto& ids : std::vector<std::vector<int64_t>>{{0, 1, 2}, {3}, {2}, {4}, {2}, {0}}) {
      hits.push_back(serve(index, ids));
    }
    EXPECT_THAT(hits, ElementsAre(3, 0, 1, 0, 1, 1)) << policy;
    EXPECT_EQ(index.place_of(1), -1);
    EXPECT_EQ(index.place_of(3), -1);
    EXPECT_GE(index.place_of(4), 0);
  }
}

// docs/strategies/row-cache.md section 8, the second worked case.
TEST(CacheIndexTest, DatasetOfTheOriginalsWorkedCase) {
  const std::vector<int64_t> counts{4, 2, 1, 3, 1};
  CacheIndex index = make({.rows = 5, .slots = 3, .policy = "dataset", .counts = counts});
  const std::vector<RowMove> warmed = index.warm(0.7);
  ASSERT_EQ(warmed.size(), 3U);
  EXPECT_EQ(warmed[0].row, 0);
  EXPECT_EQ(warmed[1].row, 1);
  EXPECT_EQ(warmed[2].row, 3);
  const int32_t place = index.place_of(1);
  CacheBatch first, second;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{1}, first));  // changes row 1
  EXPECT_THAT(index.finish(first, true), IsEmpty());
  ASSERT_TRUE(index.begin(std::vector<int64_t>{2, 0}, second));
  EXPECT_THAT(second.out, ElementsAre(RowMove{1, place}));
  EXPECT_THAT(second.in, ElementsAre(RowMove{2, place}));
}

TEST(CacheIndexTest, OnlyChangedRowsAreWrittenBack) {
  CacheIndex index = make({.rows = 10, .slots = 2, .policy = "lru"});
  serve(index, {0, 1}, /*changed=*/false);
  serve(index, {2, 3}, /*changed=*/true);
  EXPECT_EQ(index.counts().rows_out, 0);
  CacheBatch batch;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{4, 5}, batch));
  EXPECT_EQ(batch.out.size(), 2U);
  index.finish(batch, /*changed=*/false);
  EXPECT_THAT(index.flush(), IsEmpty());
  EXPECT_EQ(index.counts().rows_out, 2);
}

TEST(CacheIndexTest, PaddingHasNoPlaceAndDuplicatesShareOne) {
  CacheIndex index = make({.rows = 10, .slots = 4, .policy = "lfu"});
  CacheBatch batch;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{7, -1, 7, 3, -1}, batch));
  EXPECT_EQ(batch.places[0], batch.places[2]);
  EXPECT_EQ(batch.places[1], -1);
  EXPECT_EQ(batch.places[4], -1);
  EXPECT_EQ(batch.used.size(), 2U);
  EXPECT_EQ(index.counts().lookups, 3);
  EXPECT_EQ(index.counts().lookup_misses, 3);
  EXPECT_EQ(index.counts().row_misses, 2);
  index.finish(batch, true);
  ASSERT_TRUE(index.begin({}, batch));  // a batch without rows
  EXPECT_THAT(batch.used, IsEmpty());
  index.finish(batch, true);
}

TEST(CacheIndexTest, ABatchBeyondTheSlotsIsServedFromTheOverflow) {
  const std::vector<int64_t> counts{1, 9, 2, 8, 3, 7};
  CacheIndex index = make({.rows = 6, .slots = 2, .policy = "dataset", .counts = counts});
  CacheBatch batch;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{0, 1, 2, 3, 4, 5}, batch));
  EXPECT_EQ(index.violation(), "");
  EXPECT_EQ(index.counts().overflow_rows, 4);
  EXPECT_LT(index.place_of(1), 2);  // the most frequent two have slots
  EXPECT_LT(index.place_of(3), 2);
  const std::vector<RowMove> out = index.finish(batch, true);
  EXPECT_EQ(index.violation(), "");
  ASSERT_EQ(out.size(), 4U);
  EXPECT_EQ(out[0].row, 0);
  EXPECT_EQ(out[3].row, 5);
  EXPECT_EQ(serve(index, {1, 3}), 2);
}

TEST(CacheIndexTest, RowsOfOpenBatchesStay) {
  CacheIndex index = make({.rows = 20, .slots = 4, .policy = "lru"});
  CacheBatch now, next, third;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{0, 1, 2}, now));
  ASSERT_TRUE(index.begin(std::vector<int64_t>{2, 3, 4}, next));  // one slot is left for two rows
  EXPECT_EQ(next.in.size(), 2U);
  EXPECT_THAT(next.out, IsEmpty());
  EXPECT_EQ(index.counts().overflow_rows, 1);
  EXPECT_EQ(next.places[0], now.places[2]);
  EXPECT_THAT(index.finish(now, true), IsEmpty());
  ASSERT_TRUE(index.begin(std::vector<int64_t>{5, 6}, third));  // in the places of 0 and 1
  EXPECT_EQ(third.out.size(), 2U);
  EXPECT_GE(index.place_of(2), 0);
  EXPECT_EQ(index.finish(next, true).size(), 1U);
  index.finish(third, true);
  EXPECT_EQ(index.violation(), "");
}

TEST(CacheIndexTest, LookaheadKeepsWhatTheWindowUses) {
  const std::vector<int64_t> counts{9, 9, 1, 9, 9};
  CacheIndex index = make({.rows = 5, .slots = 2, .policy = "lookahead", .counts = counts});
  ASSERT_TRUE(index.announce(std::vector<int64_t>{1, 2}));
  ASSERT_TRUE(index.announce(std::vector<int64_t>{3}));
  ASSERT_TRUE(index.announce(std::vector<int64_t>{2}));
  serve(index, {1, 2});
  serve(index, {3});  // evicts 1, although 2 is the rarest row
  EXPECT_EQ(serve(index, {2}), 1);
  EXPECT_EQ(index.announced(), 0);
}

TEST(CacheIndexTest, OptionsThatCannotBeAreRefused) {
  const auto error = [](const CacheOptions& options) {
    const auto index = CacheIndex::make(options);
    return index ? "" : index.error().message;
  };
  EXPECT_EQ(error({.rows = 0, .slots = 1}),
            "cache: expected 1 to 4294967294 rows of the table, found 0");
  EXPECT_EQ(error({.rows = 5, .slots = 0}), "cache: expected 1 to 536870912 slots, found 0");
  EXPECT_EQ(error({.rows = 5, .slots = 1, .policy = "fifo"}),
            "expected a cache policy: dataset, lfu, lfu-forgetting, lru, lookahead, belady, found "
            "'fifo'");
  const std::vector<int64_t> few{1, 2}, negative{1, -1, 3};
  EXPECT_EQ(error({.rows = 3, .slots = 1, .counts = few}),
            "cache: expected counts of 3 rows, found 2");
  EXPECT_EQ(error({.rows = 3, .slots = 1, .counts = negative}),
            "cache: expected counts of at least 0, found -1 for row 1");
  CacheIndex index = make({.rows = 3, .slots = 1});
  CacheBatch batch;
  const auto status = index.begin(std::vector<int64_t>{0, 3}, batch);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "cache: expected ids below 3 (rows of the table), found 3 at position 1");
  EXPECT_EQ(index.open(), 0);
  EXPECT_EQ(index.counts().batches, 0);
}

// ---- random traces

// Draws from the whole range in every case: rapidcheck's own sizes grow from case to case.
template <class T>
T draw(T begin, T end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(begin, end));
}

struct Case {
  LookupTrace trace;
  int64_t rows = 0, slots = 0, window = 0;
  std::vector<int64_t> counts;
  std::vector<bool> changed;
};

Case random_case(int64_t most_rows, int64_t most_batches, bool fits) {
  Case one;
  one.rows = draw<int64_t>(1, most_rows + 1);
  one.window = draw<int64_t>(0, 8);
  const int64_t batches = draw<int64_t>(1, most_batches + 1);
  const int64_t most = draw<int64_t>(1, one.rows + 1);
  for (int64_t i = 0; i < batches; ++i) {
    const auto size = draw<size_t>(0, static_cast<size_t>(most) + 1);
    // The smaller of two draws makes small numbers frequent.
    const auto id = [&] { return draw<int64_t>(-1, one.rows); };
    std::vector<int64_t> ids;
    for (size_t k = 0; k < size; ++k) ids.push_back(std::min(id(), id()));
    for (size_t k = 0; k < size; ++k) {
      if (draw(0, 2) == 0) ids.push_back(ids[k]);
    }
    one.trace.add(ids);
    one.changed.push_back(*rc::gen::arbitrary<bool>());
  }
  one.slots = draw<int64_t>(fits ? most : 1, one.rows + 1);
  one.counts = one.trace.counts(one.rows);
  if (draw<int>(0, 3) == 0) one.counts.clear();
  return one;
}

CacheCounts run(const Case& one, const std::string& policy) {
  CacheIndex index =
      make({.rows = one.rows, .slots = one.slots, .policy = policy, .counts = one.counts});
  const int64_t batches = one.trace.batches();
  const int64_t window = index.policy().whole_future ? batches : one.window;
  int64_t announced = 0;
  CacheBatch batch;
  for (int64_t i = 0; i < batches; ++i) {
    for (; announced < std::min(batches, i + 1 + window); ++announced) {
      RC_ASSERT(index.announce(one.trace.batch(announced)).has_value());
    }
    RC_ASSERT(index.begin(one.trace.batch(i), batch).has_value());
    RC_ASSERT(index.violation() == "");
    index.finish(batch, one.changed[static_cast<size_t>(i)]);
    RC_ASSERT(index.violation() == "");
  }
  return index.counts();
}

RC_GTEST_PROP(CacheIndexProperty, CountsAreThoseOfTheNaiveCache, ()) {
  const Case one = random_case(24, 30, /*fits=*/false);
  for (const std::string& policy : cache_policy_names()) {
    const CacheCounts expected =
        NaiveCache(one.trace, policy, one.slots, one.counts, one.window).run(one.changed);
    const CacheCounts found = run(one, policy);
    RC_LOG() << policy << ": misses " << found.row_misses << ", naive " << expected.row_misses
             << "; out " << found.rows_out << ", naive " << expected.rows_out << "\n";
    RC_ASSERT(found == expected);
  }
}

// The trace is long enough that candidates for eviction are given up and found anew.
TEST(CacheIndexTest, CountsOfALongTraceAreThoseOfTheNaiveCache) {
  Case one;
  one.rows = 2000;
  one.slots = 400;
  one.window = 3;
  one.trace = make_trace({.rows = one.rows, .batches = 250, .batch = 300, .exponent = 0.9});
  one.counts = one.trace.counts(one.rows);
  one.changed.assign(250, true);
  for (const char* policy : {"dataset", "lfu", "lfu-forgetting", "lru", "lookahead"}) {
    const CacheCounts expected =
        NaiveCache(one.trace, policy, one.slots, one.counts, one.window).run(one.changed);
    EXPECT_EQ(run(one, policy), expected) << policy;
    EXPECT_GT(expected.rows_out, 10'000) << policy;
  }
}

// Returns the least number of rows that must be read, over all choices of victims.
int64_t fewest_reads(const Case& one, int64_t batch, const std::set<int64_t>& cached,
                     std::map<std::pair<int64_t, std::set<int64_t>>, int64_t>& known) {
  if (batch == one.trace.batches()) return 0;
  const auto key = std::pair(batch, cached);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  std::set<int64_t> used;
  for (const int64_t id : one.trace.batch(batch)) {
    if (id >= 0) used.insert(id);
  }
  std::vector<int64_t> others;  // cached, and not used now
  int64_t misses = 0;
  for (const int64_t row : used) misses += cached.count(row) == 0 ? 1 : 0;
  for (const int64_t row : cached) {
    if (used.count(row) == 0) others.push_back(row);
  }
  int64_t best = std::numeric_limits<int64_t>::max();
  const auto room = one.slots - std::ssize(used);
  for (uint32_t kept = 0; kept < 1U << others.size(); ++kept) {
    std::set<int64_t> after = used;
    for (size_t i = 0; i < others.size(); ++i) {
      if ((kept >> i & 1) != 0) after.insert(others[i]);
    }
    if (std::ssize(after) - std::ssize(used) > room) continue;
    best = std::min(best, misses + fewest_reads(one, batch + 1, after, known));
  }
  return known[key] = best;
}

RC_GTEST_PROP(CacheIndexProperty, BeladyReadsNoMoreThanAnyChoiceWhileBatchesFit, ()) {
  const Case one = random_case(6, 8, /*fits=*/true);
  std::map<std::pair<int64_t, std::set<int64_t>>, int64_t> known;
  RC_ASSERT(run(one, "belady").rows_in == fewest_reads(one, 0, {}, known));
}

RC_GTEST_PROP(CacheIndexProperty, NoPolicyMissesLessThanBelady, ()) {
  const Case one = random_case(40, 40, /*fits=*/true);
  const int64_t least = run(one, "belady").row_misses;
  for (const std::string& policy : cache_policy_names()) {
    RC_ASSERT(run(one, policy).row_misses >= least);
  }
}

RC_GTEST_PROP(CacheIndexProperty, MoreSlotsMissNoMore, ()) {
  Case one = random_case(30, 30, /*fits=*/true);
  for (const char* policy : {"dataset", "belady"}) {
    Case more = one;
    more.slots = std::min(one.rows, one.slots + draw<int64_t>(1, 5));
    RC_ASSERT(run(more, policy).row_misses <= run(one, policy).row_misses);
  }
}

// Several open batches end in any order, and some announcements do not come true.
RC_GTEST_PROP(CacheIndexProperty, InvariantsHoldForOpenBatchesAndWrongAnnouncements, ()) {
  const int64_t rows = draw<int64_t>(1, 30);
  CacheIndex index = make({.rows = rows,
                           .slots = draw<int64_t>(1, 12),
                           .policy = *rc::gen::elementOf(cache_policy_names())});
  std::map<int64_t, int> holders;  // by row, the number of open batches that use it
  std::vector<CacheBatch> open;
  const auto ids = [&] {
    std::vector<int64_t> list(draw<size_t>(0, 20));
    for (int64_t& id : list) id = draw<int64_t>(-1, rows);
    return list;
  };
  for (int step = 0; step < 60; ++step) {
    const int choice = draw<int>(0, 5);
    if (choice == 0) RC_ASSERT(index.announce(ids()).has_value());
    if (choice <= 2 && std::ssize(open) < CacheIndex::kMostOpen) {
      const std::vector<int64_t> wanted = ids();
      RC_ASSERT(index.begin(wanted, open.emplace_back()).has_value());
      for (size_t i = 0; i < wanted.size(); ++i) {
        RC_ASSERT(open.back().places[i] == (wanted[i] < 0 ? -1 : index.place_of(wanted[i])));
      }
    }
    if (choice >= 3 && !open.empty()) {
      const auto which = draw<size_t>(0, open.size());
      index.finish(open[which], *rc::gen::arbitrary<bool>());
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    }
    RC_ASSERT(index.violation() == "");
    std::set<int32_t> places;
    for (const CacheBatch& batch : open) {
      for (const int32_t place : batch.places) {
        if (place >= 0) places.insert(place);
      }
      for (const int32_t place : batch.used) RC_ASSERT(places.count(place) == 1U);
    }
  }
}

TEST(CacheIndexTest, LiesInMemoryThatIsGiven) {
  std::vector<uint32_t> memory(10 + 2 * 3, 7);
  const auto bytes = std::as_writable_bytes(std::span(memory));
  EXPECT_EQ(std::ssize(bytes), CacheIndex::memory_bytes(10, 3));
  CacheIndex given = make({.rows = 10, .slots = 3, .policy = "lru", .memory = bytes});
  CacheIndex own = make({.rows = 10, .slots = 3, .policy = "lru"});
  CacheBatch a, b;
  for (const std::vector<int64_t>& ids :
       std::vector<std::vector<int64_t>>{{1, 2}, {3, 4}, {1, 9, 4}, {2, -1, 2}, {0, 1, 2, 3, 4}}) {
    ASSERT_TRUE(given.begin(ids, a));
    ASSERT_TRUE(own.begin(ids, b));
    EXPECT_EQ(a.places, b.places);
    EXPECT_EQ(given.finish(a, true), own.finish(b, true));
    EXPECT_EQ(given.violation(), "");
  }
  EXPECT_EQ(given.counts(), own.counts());
  EXPECT_EQ(given.index_bytes(), own.index_bytes());
}

// A batch beside the announced ones leaves the window alone.
TEST(CacheIndexTest, ABatchOutOfTurnDoesNotBeginTheAnnouncedOne) {
  CacheIndex index = make({.rows = 10, .slots = 4, .policy = "lookahead"});
  ASSERT_TRUE(index.announce(std::vector<int64_t>{1, 2}));
  ASSERT_TRUE(index.announce(std::vector<int64_t>{3}));
  CacheBatch batch;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{7, 8}, batch, false));
  index.finish(batch, false);
  EXPECT_EQ(index.announced(), 2);
  ASSERT_TRUE(index.begin(std::vector<int64_t>{1, 2}, batch));
  EXPECT_EQ(index.announced(), 1);
  index.finish(batch, true);
  EXPECT_EQ(index.violation(), "");
}

TEST(CacheIndexTest, CountingIsTheSameAsGivenCounts) {
  const std::vector<int64_t> counts = {0, 3, 1, 0, 2};
  CacheIndex given = make({.rows = 5, .slots = 2, .policy = "dataset", .counts = counts});
  CacheIndex counted = make({.rows = 5, .slots = 2, .policy = "dataset"});
  ASSERT_TRUE(counted.count(std::vector<int64_t>{1, 4, -1, 1}));
  ASSERT_TRUE(counted.count(std::vector<int64_t>{1, 2, 4}));
  EXPECT_FALSE(counted.count(std::vector<int64_t>{5}));
  CacheBatch a, b;
  for (const int64_t id : {0, 1, 2, 4, 3, 0, 1}) {
    ASSERT_TRUE(given.begin(std::vector<int64_t>{id}, a));
    ASSERT_TRUE(counted.begin(std::vector<int64_t>{id}, b));
    EXPECT_EQ(a.in, b.in);
    EXPECT_EQ(a.out, b.out);
    given.finish(a, true);
    counted.finish(b, true);
  }
}

// A row that changed at a place of the overflow is written back, too, and no row has a place then.
TEST(CacheIndexTest, AFlushedIndexMayBeCleared) {
  CacheIndex index = make({.rows = 10, .slots = 2, .policy = "lru"});
  CacheBatch first, second;
  ASSERT_TRUE(index.begin(std::vector<int64_t>{1, 2, 3}, first));
  ASSERT_TRUE(index.begin(std::vector<int64_t>{1, 2, 3}, second));
  EXPECT_TRUE(index.finish(first, true).empty());  // all rows are still in use
  const std::vector<RowMove> out = index.flush();
  ASSERT_EQ(out.size(), 3U);
  EXPECT_TRUE(index.flush().empty());
  EXPECT_TRUE(index.finish(second, false).empty());
  index.clear();
  EXPECT_EQ(index.violation(), "");
  for (int64_t row = 0; row < 10; ++row) EXPECT_EQ(index.place_of(row), -1);
  ASSERT_TRUE(index.begin(std::vector<int64_t>{3, 4}, first));
  EXPECT_EQ(first.in.size(), 2U);
}

}  // namespace
}  // namespace tessera::sparse::cache_index_test
