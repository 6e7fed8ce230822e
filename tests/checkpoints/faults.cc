// The fault campaign; see checkpoints.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoints.h"
#include "runs.h"
#include "support/seed.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/test_memory_storage.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kEvery = 2;

enum class Levels : uint8_t { kWaiting, kAsynchronous, kTwo };

RunConfig config_of(Levels levels) {
  RunConfig config;
  config.model = "gpt:layers=1,hidden=16,heads=2,seq=6,vocab=30,dropout=0.1";
  config.data = {"random"};
  config.plan = "megatron(dp=2,zero=1)";
  config.batch = 4;
  config.steps = 7;
  config.checkpoint = {{"d", kEvery, 1, levels == Levels::kWaiting ? 0 : 1}};
  if (levels == Levels::kTwo) config.checkpoint.fast = {"d/fast", 1, 1, 0};
  return config;
}

class Campaign {
 public:
  explicit Campaign(Levels levels) : config_(config_of(levels)) {
    const TrainedRun run = train(config_, &undisturbed_);
    EXPECT_TRUE(run.end) << run.end.error().message;
    losses_ = run.losses;
  }
  int64_t operations() const { return undisturbed_.operations(); }

  void stop(const Failure& failure, const std::vector<Survivors>& ways) {
    MemoryStorage storage(failure);
    const TrainedRun stopped = train(config_, &storage);
    SCOPED_TRACE(fmt::format("operation {} of {}, asynchronous {}, fast '{}'", failure.at,
                             operations(), config_.checkpoint.asynchronous,
                             config_.checkpoint.fast.dir));
    // Other threads run beside, so the failing operation may be a run's last: nothing is lost then.
    if (!stopped.end) {
      ++stopped_;
      EXPECT_EQ(stopped.end.error().code, ErrorCode::kFault);
    }
    ++tried_;
    for (const Survivors survivors : ways) {
      SCOPED_TRACE(fmt::format("survivors {}", static_cast<int>(survivors)));
      storage.restore_to("d", folder_.path("d"), survivors);
      const int64_t done = stopped.losses.empty() ? 0 : stopped.losses.rbegin()->first;
      go_on(done);
      fs::remove_all(folder_.path("d"));
    }
  }

  // Nearly every operation that fails must stop the run.
  void expect_that_runs_stopped() const { EXPECT_GE(10 * stopped_, 9 * tried_); }

 private:
  void go_on(int64_t done) {
    RunConfig config = config_;
    config.checkpoint.dir = folder_.path("d");
    if (!config.checkpoint.fast.dir.empty()) config.checkpoint.fast.dir = folder_.path("d/fast");
    config.resume = true;
    const TrainedRun run = train(config);
    ASSERT_TRUE(run.end) << run.end.error().message;
    const int64_t from = run.end->checkpoints.resumed_from;
    // The checkpoint being written is lost, and with it at most the steps since the one before. If
    // saves run beside training, the steps that began before the save was committed are lost, too.
    const bool fast = !config.checkpoint.fast.dir.empty();  // saved every step; steps wait for it
    EXPECT_GE(from, done - (fast ? 1 : config.checkpoint.asynchronous == 0 ? kEvery : 2 * kEvery));
    for (int64_t step = from + 1; step <= config.steps; ++step)
      EXPECT_EQ(run.losses.at(step), losses_.at(step)) << "step " << step;
    EXPECT_EQ(run.losses.size(), static_cast<size_t>(config.steps - from));
  }

  RunConfig config_;
  MemoryStorage undisturbed_;
  std::map<int64_t, double> losses_;
  int tried_ = 0, stopped_ = 0;
  TemporaryFolder folder_;
};

// Changes, cuts, empties or removes a random file of a checkpoint's folder.
std::string damage_a_file(const std::string& checkpoint, std::mt19937_64& random) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  const fs::path& file = files[random() % files.size()];
  const auto size = static_cast<uint64_t>(fs::file_size(file));
  const uint64_t at = random() % size;
  switch (random() % 4) {
    case 0: fs::remove(file); return fmt::format("{} removed", file.string());
    case 1: fs::resize_file(file, at); return fmt::format("{} cut at {}", file.string(), at);
    case 2: fs::resize_file(file, 0); return fmt::format("{} emptied", file.string());
    default: break;
  }
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(static_cast<std::streamoff>(at));
  const int byte = bytes.get();
  bytes.seekp(static_cast<std::streamoff>(at));
  bytes.put(static_cast<char>(byte ^ (1 << (random() % 8))));
  return fmt::format("{}: byte {} of {} changed", file.string(), at, size);
}

}  // namespace

void expect_stopped_runs_end_as_undisturbed_ones(int points) {
  for (const Levels levels : {Levels::kWaiting, Levels::kAsynchronous, Levels::kTwo}) {
    Campaign campaign(levels);
    const int64_t operations = campaign.operations();
    ASSERT_GT(operations, 40);
    const std::vector<Survivors> every(std::begin(kEverySurvivors), std::end(kEverySurvivors));
    const int64_t tried = points == 0 ? operations : (points + 2) / 3;
    for (int64_t i = 0; i < tried; ++i) {
      const int64_t at = 1 + i * operations / tried;
      const auto way = every[static_cast<size_t>(i) % every.size()];
      campaign.stop({.at = at}, points == 0 ? every : std::vector<Survivors>{way});
      if (points == 0) campaign.stop({.at = at, .kind = Failure::Kind::kFull}, {Survivors::kAll});
    }
    campaign.expect_that_runs_stopped();
  }
}

void expect_damaged_checkpoints_are_passed_over(int cases) {
  SCOPED_TRACE(seed_text());
  std::mt19937_64 random(test_seed(/*fixed=*/4));
  const std::vector<std::string> plans{"serial", "fsdp(3)", "tensor_parallel(2)",
                                       "megatron(dp=2,pp=1,zero=2)"};
  TemporaryFolder folder;
  RunConfig config = config_of(Levels::kWaiting);
  config.precision = "float64";
  config.checkpoint.keep = 2;
  config.checkpoint.dir = folder.path("whole");
  const TrainedRun undisturbed = train(config);
  ASSERT_TRUE(undisturbed.end) << undisturbed.end.error().message;
  for (int i = 0; i < cases; ++i) {
    const std::string dir = folder.path("damaged");
    fs::copy(folder.path("whole"), dir, fs::copy_options::recursive);
    RunConfig again = config;
    again.checkpoint.dir = dir;
    again.resume = true;
    again.plan = plans[random() % plans.size()];
    SCOPED_TRACE(again.plan + ": " + damage_a_file(checkpoint_path(dir, config.steps), random));
    const TrainedRun run = train(again);
    ASSERT_TRUE(run.end) << run.end.error().message;
    EXPECT_EQ(run.end->checkpoints.resumed_from, config.steps - 1);  // kEvery divides it
    ASSERT_EQ(run.losses.size(), 1U);
    const double expected = undisturbed.losses.at(config.steps);
    EXPECT_NEAR(run.losses.at(config.steps), expected, 1e-9 * expected);
    EXPECT_TRUE(fs::exists(folder.path("damaged") + "/damaged-" +
                           fs::path(checkpoint_path(dir, config.steps)).filename().string()));
    fs::remove_all(dir);
  }
}

}  // namespace tessera
