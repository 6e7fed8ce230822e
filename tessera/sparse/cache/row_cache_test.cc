#include "tessera/sparse/cache/test_row_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "tessera/sparse/cache/replay.h"

namespace tessera::sparse::row_cache_test {
namespace {

using ::testing::ElementsAre;

// ---- training on rows: weights of integers, and the state of the optimizer behind them

constexpr int kDim = 3;
struct Optimizer {
  const char* name;
  int row_floats;
  std::function<void(float* row, const float* gradient)> update;
};

const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> kOptimizers = {
      {"sgd", kDim,
       [](float* row, const float* gradient) {
         for (int i = 0; i < kDim; ++i) row[i] -= 2 * gradient[i];
       }},
      {"adagrad", 2 * kDim,
       [](float* row, const float* gradient) {
         for (int i = 0; i < kDim; ++i) {
           row[kDim + i] += gradient[i] * gradient[i];
           row[i] -= gradient[i] / (std::sqrt(row[kDim + i]) + 1e-8F);
         }
       }},
  };
  return kOptimizers;
}

void init_row(int64_t row, std::byte* out, int floats) {
  for (int i = 0; i < floats; ++i) {
    const auto value = i < kDim ? static_cast<float>((row * 7 + i * 3) % 11 - 5) : 0.0F;
    std::memcpy(out + i * sizeof(float), &value, sizeof value);
  }
}

RowInit init_of(const Optimizer& optimizer) {
  return
      [floats = optimizer.row_floats](int64_t row, std::byte* out) { init_row(row, out, floats); };
}

// Makes a step: each row's gradients are summed over its look-ups, then the row is updated once.
// The gradient depends on the weights, so an outdated row shows.
void train(std::span<const int64_t> ids, int64_t step, const Optimizer& optimizer,
           const std::function<std::byte*(size_t position)>& row_at) {
  std::map<int64_t, std::vector<float>> gradients;
  std::map<int64_t, std::byte*> rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) continue;
    std::byte* bytes = rows[ids[i]] = row_at(i);
    std::vector<float> row(static_cast<size_t>(optimizer.row_floats));
    std::memcpy(row.data(), bytes, row.size() * sizeof(float));
    auto& gradient = gradients[ids[i]];
    gradient.resize(kDim);
    for (size_t k = 0; k < kDim; ++k) {
      gradient[k] += std::trunc(std::fmod(row[k], 5.0F)) + static_cast<float>((step + k + i) % 3);
    }
  }
  for (const auto& [id, gradient] : gradients) {
    std::vector<float> row(static_cast<size_t>(optimizer.row_floats));
    std::memcpy(row.data(), rows[id], row.size() * sizeof(float));
    optimizer.update(row.data(), gradient.data());
    std::memcpy(rows[id], row.data(), row.size() * sizeof(float));
  }
}

std::vector<std::byte> contents(RowStore& store) {
  std::vector<std::byte> bytes(static_cast<size_t>(store.rows() * store.row_bytes()));
  for (int64_t row = 0; row < store.rows(); ++row) {
    EXPECT_TRUE(store.read(row, bytes.data() + row * store.row_bytes()));
  }
  return bytes;
}

std::vector<std::byte> train_uncached(const LookupTrace& trace, int64_t rows,
                                      const Optimizer& optimizer) {
  const RowShape shape{rows, optimizer.row_floats * static_cast<int64_t>(sizeof(float))};
  MemoryRows store(shape, init_of(optimizer));
  std::vector<std::byte> table = contents(store);
  for (int64_t step = 0; step < trace.batches(); ++step) {
    const auto ids = trace.batch(step);
    train(ids, step, optimizer, [&](size_t i) { return table.data() + ids[i] * shape.row_bytes; });
  }
  return table;
}

struct How {
  CacheOptions cache;
  int64_t prefetched = 0;  // batches that begin ahead
  int64_t window = 0;
  double warm = 0;
  bool threads = false;  // rows move beside the step
};

void train_cached(RowStore& store, const LookupTrace& trace, const Optimizer& optimizer,
                  const How& how) {
  auto made = RowCache::make(store, how.cache);
  ASSERT_TRUE(made) << made.error().message;
  RowCache& cache = **made;
  ASSERT_TRUE(cache.warm(how.warm));
  int64_t announced = 0, begun = 0;
  std::deque<CacheBatch> open;
  const int64_t batches = trace.batches();
  for (int64_t step = 0; step < batches; ++step) {
    const auto begin_next = [&] {
      for (; announced < std::min(batches, begun + 1 + how.window); ++announced) {
        ASSERT_TRUE(cache.announce(trace.batch(announced)));
      }
      ASSERT_TRUE(cache.begin(trace.batch(begun++), open.emplace_back()));
    };
    if (begun == step) {
      begin_next();
      ASSERT_TRUE(cache.move(open.back()));
    }
    const CacheBatch& now = open.front();
    const auto compute = [&] {
      train(trace.batch(step), step, optimizer, [&](size_t i) { return cache.row(now.places[i]); });
    };
    const auto fetch = [&] {
      for (size_t i = 1; i < open.size(); ++i) {
        if (open[i].number == begun - 1) {
          EXPECT_TRUE(cache.move(open[i]));
        }
      }
    };
    const bool ahead = begun < batches && begun <= step + how.prefetched;
    while (begun + 1 < batches && begun + 1 <= step + how.prefetched) {
      begin_next();
      ASSERT_TRUE(cache.move(open.back()));
    }
    if (ahead) begin_next();
    if (ahead && how.threads) {
      std::thread mover(fetch);
      compute();
      mover.join();
    } else {
      if (ahead) fetch();
      compute();
    }
    ASSERT_TRUE(cache.finish(now, true));
    ASSERT_EQ(cache.index().violation(), "");
    open.pop_front();
  }
  EXPECT_EQ(cache.index().open(), 0);  // no row stays pinned
  ASSERT_TRUE(cache.flush());
}

template <class T>
T draw(T begin, T end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(begin, end));
}

LookupTrace random_trace(int64_t rows) {
  LookupTrace trace;
  const auto batches = draw<int64_t>(1, 20);
  const auto most = draw<size_t>(1, 30);
  for (int64_t i = 0; i < batches; ++i) {
    std::vector<int64_t> ids(draw<size_t>(0, most + 1));
    for (int64_t& id : ids) id = std::min(draw<int64_t>(-1, rows), draw<int64_t>(-1, rows));
    trace.add(ids);
  }
  return trace;
}

RC_GTEST_PROP(RowCacheProperty, TrainingEqualsTrainingWithoutACacheToTheBit, ()) {
  const auto rows = draw<int64_t>(1, 40);
  const LookupTrace trace = random_trace(rows);
  const std::vector<int64_t> counts = trace.counts(rows);
  How how;
  how.cache = {.rows = rows, .slots = draw<int64_t>(1, rows + 1), .counts = counts};
  how.window = draw<int64_t>(0, 6);
  how.prefetched = draw<int64_t>(0, 5);
  how.warm = draw(0, 2) == 0 ? 0 : 0.7;
  how.threads = draw(0, 8) == 0;
  for (const Optimizer& optimizer : optimizers()) {
    const std::vector<std::byte> expected = train_uncached(trace, rows, optimizer);
    for (const std::string& policy : cache_policy_names()) {
      how.cache.policy = policy;
      MemoryRows store({rows, optimizer.row_floats * 4}, init_of(optimizer));
      train_cached(store, trace, optimizer, how);
      RC_LOG() << policy << " " << optimizer.name << "\n";
      RC_ASSERT(contents(store) == expected);
    }
  }
}

// ---- files

class RowFiles : public ::testing::Test {
 protected:
  RowFiles() {
    path_ = (std::filesystem::temp_directory_path() /
             ("tessera_rows_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string();
    std::filesystem::remove(path_);
  }
  ~RowFiles() override { std::filesystem::remove(path_); }
  std::string open_error(RowShape shape) {
    const auto file = FileRows::open(path_, shape);
    return file ? "" : file.error().message;
  }
  std::string path_;
};

TEST_F(RowFiles, TrainingThroughACacheEqualsTrainingInMemory) {
  const Optimizer& adagrad = optimizers()[1];
  const RowShape shape{50, adagrad.row_floats * 4};
  LookupTrace trace;
  for (int64_t step = 0; step < 40; ++step) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 12; ++i)
      ids.push_back((step * step + i * (step + 3)) % (20 + step / 2));
    trace.add(ids);
  }
  const std::vector<std::byte> expected = train_uncached(trace, shape.rows, adagrad);
  {
    auto store = FileRows::open(path_, shape, init_of(adagrad));
    ASSERT_TRUE(store) << store.error().message;
    const How how{{.rows = shape.rows, .slots = 9, .policy = "lookahead"}, 1, 3, 0, true};
    train_cached(**store, trace, adagrad, how);
    EXPECT_EQ(contents(**store), expected);
  }
  auto again = FileRows::open(path_, shape, init_of(adagrad));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(contents(**again), expected);
}

TEST_F(RowFiles, TakeTheDiskOnlyForRowsThatWereWritten) {
  constexpr int64_t kRows = 4'000'000, kBytes = 1024;  // 4 GB, if it were full
  auto store = FileRows::open(path_, {kRows, kBytes}, [](int64_t row, std::byte* out) {
    std::fill_n(out, kBytes, static_cast<std::byte>(row % 251));
  });
  ASSERT_TRUE(store) << store.error().message;
  std::vector<std::byte> row(kBytes);
  ASSERT_TRUE((*store)->read(kRows - 1, row.data()));
  EXPECT_EQ(row[0], static_cast<std::byte>((kRows - 1) % 251));
  for (int64_t i = 0; i < 100; ++i) ASSERT_TRUE((*store)->write(i * 39'999, row.data()));
  ASSERT_TRUE((*store)->read(39'999 * 7, row.data()));
  EXPECT_EQ(row[5], static_cast<std::byte>((kRows - 1) % 251));
  ASSERT_TRUE((*store)->read(39'999 * 7 + 1, row.data()));
  EXPECT_EQ(row[5], static_cast<std::byte>((39'999 * 7 + 1) % 251));
  EXPECT_LT((*store)->disk_bytes(), 2'000'000);
  EXPECT_GT((*store)->disk_bytes(), 100'000);
}

TEST_F(RowFiles, WrongFilesAreOneLine) {
  EXPECT_EQ(open_error({0, 4}), "'" + path_ +
                                    "': expected at least one row of at least one byte, below 2^62 "
                                    "bytes in all, found 0 rows of 4 bytes");
  ASSERT_EQ(open_error({10, 4}), "");
  EXPECT_EQ(open_error({10, 8}), "'" + path_ + "': expected 10 rows of 8 bytes, found 10 of 4");
  std::filesystem::resize_file(path_, 4096 + 40);
  EXPECT_EQ(open_error({10, 4}), "'" + path_ + "': expected 4138 bytes, found 4136");
  std::ofstream(path_) << "no rows at all, but a text of more than 24 bytes";
  EXPECT_EQ(open_error({10, 4}),
            "'" + path_ + "': expected a file of rows (TSRROWS1), found another head");
  path_ += "/x";
  EXPECT_EQ(open_error({10, 4}), "cannot open '" + path_ + "': Not a directory");
  path_.resize(path_.size() - 2);
}

TEST_F(RowFiles, AFileThatWasCutOffIsAFaultThatNamesTheRow) {
  auto store = FileRows::open(path_, {10, 4});
  ASSERT_TRUE(store);
  auto cache = RowCache::make(**store, {.rows = 10, .slots = 2, .policy = "lru"});
  ASSERT_TRUE(cache);
  std::filesystem::resize_file(path_, 4096 + 20);
  CacheBatch batch;
  ASSERT_TRUE((*cache)->begin(std::vector<int64_t>{3, 8}, batch));
  const Status status = (*cache)->move(batch);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFault);
  EXPECT_EQ(status.error().message, "cannot read row 8 of '" + path_ + "': the file ends before");
}

TEST_F(RowFiles, AFullDiskIsAFaultOfOneLine) {
  const auto file = FileRows::open("/dev/full", {10, 4});
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kFault);
  EXPECT_EQ(file.error().message, "cannot write '/dev/full': No space left on device");
  // The size exceeds that of any file, and the file that was begun is removed.
  const auto large = FileRows::open(path_, {int64_t{1} << 60, 2});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kFault);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// A store whose disk fills up.
class FullStore : public MemoryRows {
 public:
  using MemoryRows::MemoryRows;
  Status write(int64_t row, const std::byte*) override {
    return fault("cannot write row " + std::to_string(row) + ": No space left on device");
  }
};

TEST(RowCacheTest, FaultsOfTheStoreAreReturned) {
  FullStore store({6, 16});
  auto cache = RowCache::make(store, {.rows = 6, .slots = 2, .policy = "lru"});
  ASSERT_TRUE(cache);
  CacheBatch batch;
  ASSERT_TRUE((*cache)->begin(std::vector<int64_t>{0, 1, 2}, batch));
  ASSERT_TRUE((*cache)->move(batch));
  const Status overflow = (*cache)->finish(batch, true);
  ASSERT_FALSE(overflow);
  EXPECT_EQ(overflow.error().message, "cannot write row 2: No space left on device");
  ASSERT_TRUE((*cache)->begin(std::vector<int64_t>{3}, batch));
  const Status moved = (*cache)->move(batch);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "cannot write row 1: No space left on device");
}

TEST(RowCacheTest, CountsBytesBothWays) {
  MemoryRows store({6, 16});
  auto cache = RowCache::make(store, {.rows = 6, .slots = 2, .policy = "lru"});
  ASSERT_TRUE(cache);
  ASSERT_TRUE((*cache)->warm(0.5));  // row 0
  for (const int64_t first : {0, 2, 4}) {
    CacheBatch batch;
    ASSERT_TRUE((*cache)->begin(std::vector<int64_t>{first, first + 1}, batch));
    ASSERT_TRUE((*cache)->move(batch));
    ASSERT_TRUE((*cache)->finish(batch, first == 2));
  }
  EXPECT_EQ((*cache)->bytes_in(), 6 * 16);
  EXPECT_EQ((*cache)->bytes_out(), 2 * 16);
  const auto other = RowCache::make(store, {.rows = 5, .slots = 2});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "cache: expected the 6 rows of the store, found 5");
}

// ---- traces

TEST(LookupTraceTest, ReadsABatchALine) {
  const auto trace = parse_lookup_trace("# ids\n1 2\t3\n\n  7\n", "t.txt");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->batches(), 2);
  EXPECT_THAT(trace->batch(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(trace->batch(1), ElementsAre(7));
  EXPECT_EQ(trace->rows(), 8);
  EXPECT_THAT(trace->counts(8), ElementsAre(0, 1, 1, 1, 0, 0, 0, 1));
  const auto error = [](std::string_view text) {
    return parse_lookup_trace(text, "t.txt").error().message;
  };
  EXPECT_EQ(error("1 2\n3 x4 5\n"), "t.txt:2: expected an id from 0 to 4294967293, found 'x4'");
  EXPECT_EQ(error("1 -2\n"), "t.txt:1: expected an id from 0 to 4294967293, found '-2'");
  EXPECT_EQ(error("# nothing\n"), "t.txt: expected a batch of ids a line, found no line");
}

}  // namespace
}  // namespace tessera::sparse::row_cache_test
