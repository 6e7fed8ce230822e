// Tests the disk tier and the copies beside the instructions.
#include "tessera/runtime/arrays/tier_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>

#include "tessera/comm/threads.h"
#include "tessera/compile/compile.h"
#include "tessera/runtime/step/interpreter.h"

namespace tessera {
namespace {

std::vector<std::byte> pattern(int64_t bytes, int seed) {
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed));
  return out;
}

TEST(DiskFile, writes_touch_no_neighbour) {
  for (const bool direct : {true, false}) {
    auto created = DiskFile::create(3 << 20);
    ASSERT_TRUE(created.has_value()) << created.error().message;
    DiskFile disk = std::move(*created);
    if (!direct) {
      std::string path = "/tmp/tessera_test.XXXXXX";
      const int file = mkstemp(path.data());
      ASSERT_GE(file, 0);
      unlink(path.c_str());
      ASSERT_EQ(ftruncate(file, 3 << 20), 0);
      disk = DiskFile::adopt(file, false);
    }
    std::vector<std::byte> expected(3 << 20);
    int seed = 0;
    // These are whole blocks, parts of a block, across blocks, and across the aligned buffer's end.
    for (const auto& [offset, bytes] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 4096},
                                                  {64, 100},
                                                  {4090, 12},
                                                  {8192, 5000},
                                                  {(1 << 20) - 8, 4112},
                                                  {4096, 2 << 20},
                                                  {77, 1}}) {
      const auto data = pattern(bytes, ++seed);
      ASSERT_TRUE(disk.write(offset, data.data(), bytes).has_value());
      std::copy(data.begin(), data.end(), expected.begin() + offset);
      std::vector<std::byte> found(expected.size());
      ASSERT_TRUE(disk.read(0, found.data(), 3 << 20).has_value());
      EXPECT_EQ(found, expected) << offset << " " << bytes;
      std::vector<std::byte> part(static_cast<size_t>(bytes));
      ASSERT_TRUE(disk.read(offset, part.data(), bytes).has_value());
      EXPECT_EQ(part, data);
    }
  }
}

TEST(DiskFile, a_full_disk_and_a_short_file_are_faults_of_one_line) {
  DiskFile full = DiskFile::adopt(open("/dev/full", O_RDWR | O_CLOEXEC), false);
  const auto data = pattern(4096, 1);
  const Status written = full.write(8192, data.data(), 4096);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().message,
            "disk tier: expected to write 4096 bytes at 8192, wrote 0: No space left on device");

  std::string path = "/tmp/tessera_test.XXXXXX";
  const int file = mkstemp(path.data());
  unlink(path.c_str());
  DiskFile half = DiskFile::adopt(file, false);
  ASSERT_TRUE(half.write(0, data.data(), 100).has_value());
  std::vector<std::byte> into(4096);
  const Status read = half.read(0, into.data(), 4096);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().message,
            "disk tier: expected to read 4096 bytes at 0, got 100: the file ends");

  setenv("TMPDIR", "/nowhere", 1);
  const auto none = DiskFile::create(4096);
  unsetenv("TMPDIR");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(none.error().message.starts_with("disk tier: /nowhere/tessera."));
}

TEST(Copier, runs_jobs_in_order_and_stops_at_the_first_that_fails) {
  std::vector<int> order;
  Copier copier;
  const Copier::Job first = [&] {
    order.push_back(1);
    return Status();
  };
  const Copier::Job bad = [&]() -> Status {
    order.push_back(2);
    return fault("no room\nand more");
  };
  const Copier::Job last = [&] {
    order.push_back(3);
    return Status();
  };
  for (int round = 0; round < 100; ++round)
    ASSERT_TRUE(copier.wait(copier.submit(&first)).has_value());
  order.clear();
  copier.submit(&first);
  copier.submit(&bad);
  const Status status = copier.wait(copier.submit(&last));
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "no room");
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// Copies a box of a matrix in memory to and from a box of one on disk, set and added.
TEST(TierCopy, boxes_travel_between_memory_and_disk) {
  const kernels::ThreadScope scope(1);
  auto created = DiskFile::create(8192);
  ASSERT_TRUE(created.has_value());
  DiskFile disk = std::move(*created);
  std::vector<double> on_disk(8 * 6), memory(5 * 7, -1.0);
  std::iota(on_disk.begin(), on_disk.end(), 0.0);
  const auto bytes = static_cast<int64_t>(on_disk.size() * sizeof(double));
  ASSERT_TRUE(disk.write(4096, reinterpret_cast<std::byte*>(on_disk.data()), bytes).has_value());
  // Rows 2..4, columns 1..3 of the 8 x 6 matrix; rows 1..3, columns 2..4 of the 5 x 7 one.
  const TierArray there{{nullptr, DType::kFloat64, {3, 3}, {6, 1}}, 4096 + (2 * 6 + 1) * 8};
  const TierArray here{
      {reinterpret_cast<std::byte*>(&memory[1 * 7 + 2]), DType::kFloat64, {3, 3}, {7, 1}}, -1};
  const auto at = [](int i, int j) { return (2.0 + i) * 6 + 1 + j; };
  const auto run = [&](const TierArray& from, const TierArray& to, bool add) {
    EXPECT_TRUE(prepare_tier_copy(from, to, add, disk)().has_value());
  };
  const auto expect_memory = [&](double factor) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j)
        EXPECT_EQ(memory[static_cast<size_t>((1 + i) * 7 + 2 + j)], factor * at(i, j));
    }
    EXPECT_EQ(memory[7 + 1], -1.0) << "what lies beside it is left alone";
  };
  run(there, here, false);
  expect_memory(1);
  run(there, here, true);
  expect_memory(2);
  run(here, there, true);
  run(there, here, false);
  expect_memory(3);
  run(here, there, false);
  std::vector<double> found(on_disk.size());
  ASSERT_TRUE(disk.read(4096, reinterpret_cast<std::byte*>(found.data()), bytes).has_value());
  EXPECT_EQ(found[2 * 6], on_disk[2 * 6]);
  EXPECT_EQ(found[2 * 6 + 1], 3 * on_disk[2 * 6 + 1]);
}

// A disk fails in the middle of a step: the fault names rank, op and tensor.
TEST(TierCopy, a_failing_disk_is_a_fault_that_names_rank_op_and_tensor) {
  const auto compiled =
      compile({"mlp:in=8,hidden=16,out=4,layers=2", "offload(zero=0,to=disk)", 8});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
  const auto programs = lower_and_verify(*compiled->lowering);
  ASSERT_TRUE(programs.has_value()) << programs.error().message;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const Status status = comm::run_threads(1, {}, [&](comm::Communicator& world) {
    auto executor = RankExecutor::create(compiled->graph(), (*programs)[0], world, {});
    ASSERT_TRUE(executor.has_value()) << executor.error().message;
    (*executor)->initialise();
    const rlimit small{0, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    (*executor)->run_step(1, [](const Tensor&, const Box&, const kernels::Array& to) {
      int64_t n = 1;
      for (const int64_t size : to.shape) n *= size;
      std::memset(to.data, 0, static_cast<size_t>(n * dtype_bytes(to.dtype)));
    });
  });
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(status.has_value());
  const std::string& message = status.error().message;
  EXPECT_TRUE(message.starts_with("rank 0: op optimizer.layers.")) << message;
  EXPECT_NE(message.find(", tensor "), std::string::npos) << message;
  EXPECT_NE(message.find(": disk tier: expected to write "), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("File too large")) << message;
}

}  // namespace
}  // namespace tessera
