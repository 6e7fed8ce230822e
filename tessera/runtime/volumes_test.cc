// Trains on volumes from files: every plan and both kinds of file give equal samples in one order,
// and each rank reads only its part of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/base/permutation.h"
#include "tessera/data/array_file.h"
#include "tessera/data/test_files.h"
#include "tessera/runtime/session.h"
#include "tessera/test/all_cases.h"

namespace tessera::volumes_test {
namespace {

constexpr int64_t kSamples = 10, kBatch = 4, kSteps = 4, kChannels = 2, kWidth = 16;
constexpr int64_t kVoxels = kChannels * kWidth * kWidth * kWidth, kOutputs = 3;

class Volumes : public TestFiles {
 protected:
  Volumes() {
    std::vector<int16_t> x(kSamples * kVoxels);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int16_t>(i * 7919 % 1001) - 500;
    std::vector<float> y(kSamples * kOutputs);
    for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 7) / 7;
    config_.model = "cosmoflow:width=16,channels=2,filters=2,outputs=3,dropout=0";
    config_.data = DataConfig();
    config_.data.arrays = {
        {"volume", write("x.npy", npy("<i2", "(10, 2, 16, 16, 16)", bytes_of(x)))},
        {"targets", write("y.npy", npy("<f4", "(10, 3)", bytes_of(y)))}};
    config_.data.scale = 0.002;
    config_.batch = kBatch;
    config_.steps = kSteps;
    config_.precision = "float64";
    config_.optimizer.lr = 1e-2;
    config_.optimizer.warmup = 1;
  }

  // Writes the arrays as datasets too.
  void pack() {
    const auto volumes = open_array_file({path("x.npy"), ""});
    const auto labels = open_array_file({path("y.npy"), ""});
    ASSERT_TRUE(volumes && labels);
    ASSERT_TRUE(write_hdf5(path("u.h5"), {{"volumes", volumes->get()}, {"labels", labels->get()}}));
    config_.data.arrays.clear();
    config_.data.hdf5 = {path("u.h5"), "volumes", "labels"};
  }

  struct Ran {
    std::vector<double> losses;
    TrainingSummary summary;
  };
  Ran run(const std::string& plan) {
    Ran out;
    config_.plan = plan;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) { out.losses.push_back(report.loss); };
    const auto summary = run_training(config_, callbacks);
    EXPECT_TRUE(summary) << plan << ": " << (summary ? "" : summary.error().message);
    if (summary) out.summary = *summary;
    return out;
  }

  RunConfig config_;
};

// Bytes of int16 volumes and float32 labels.
constexpr int64_t kVolumeBytes = kSteps * kBatch * kVoxels * 2;
constexpr int64_t kLabelBytes = kSteps * kBatch * kOutputs * 4;

TEST_F(Volumes, OfAGeneratorTrainAlikeUnderEveryPlanAndKept) {
  config_.model = "cosmoflow:width=8,channels=1,filters=2,outputs=1,dropout=0";
  const std::string universes = "universes(width=16,samples=10,seed=3,cut=2):";
  config_.data = DataConfig();
  config_.data.arrays = {{"volume", universes + "volumes"}, {"targets", universes + "parameters"}};
  const std::vector<double> serial = run("serial").losses;
  ASSERT_EQ(serial.size(), static_cast<size_t>(kSteps));
  EXPECT_NE(serial.front(), serial.back());
  for (const int64_t store : {0, 1 << 20}) {
    config_.data.store_bytes = store;
    for (const char* plan : {"serial", "spatial(d=2)", "spatial(d=2, h=2)", "data_parallel(2)"}) {
      const std::vector<double> losses = run(plan).losses;
      ASSERT_EQ(losses.size(), serial.size()) << plan;
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], serial[i], 1e-10 * serial[i]) << plan << ", store " << store;
    }
  }
}

TEST_F(Volumes, TrainAlikeUnderEveryPlanFromEitherKindOfFile) {
  const std::vector<double> serial = run("serial").losses;
  ASSERT_EQ(serial.size(), static_cast<size_t>(kSteps));
  EXPECT_NE(serial.front(), serial.back());
  for (const bool hdf5 : {false, true}) {
    if (hdf5 && !have_hdf5()) continue;
    if (hdf5) pack();
    for (const char* plan :
         {"serial", "spatial(d=2)", "spatial(h=2, w=2)", "spatial(w=3, dp=2)", "filter_parallel(2)",
          "split_brain(2)", "spatial(d=2, pp=2, micro_batches=2)", "zero(3, 4)"}) {
      const std::vector<double> losses = run(plan).losses;
      ASSERT_EQ(losses.size(), serial.size()) << plan;
      for (size_t i = 0; i < serial.size(); ++i)
        EXPECT_NEAR(losses[i], serial[i], 1e-11 * serial[i]) << plan << (hdf5 ? " hdf5" : "");
    }
  }
}

// A rank reads a piece of the depth, and its neighbours' planes under the first convolution's
// windows.
TEST_F(Volumes, EachRankReadsItsPieceAndTheHaloAlone) {
  if (have_hdf5()) pack();
  constexpr int64_t kPlane = kVolumeBytes / kWidth;
  const TrainingSummary serial = run("serial").summary;
  EXPECT_EQ(serial.data_bytes_read, kVolumeBytes + kLabelBytes);
  for (const int64_t d : {2, 4}) {
    const TrainingSummary found = run(fmt::format("spatial(d={})", d)).summary;
    EXPECT_EQ(found.data_bytes_read, kVolumeBytes + 2 * (d - 1) * kPlane + kLabelBytes) << d;
    const int64_t halo = d == 2 ? kPlane : 2 * kPlane;
    EXPECT_EQ(found.data_bytes_read_of_a_rank, kVolumeBytes / d + halo + kLabelBytes / d) << d;
  }
  // Replicas and channels divide what they read without a rest.
  for (const char* plan : {"data_parallel(2)", "channel_parallel(2)"}) {
    const TrainingSummary found = run(plan).summary;
    EXPECT_EQ(found.data_bytes_read, kVolumeBytes + kLabelBytes) << plan;
    EXPECT_EQ(found.data_bytes_read_of_a_rank, (kVolumeBytes + kLabelBytes) / 2) << plan;
  }
}

// Samples are equal to the last bit under any plan, with and without a store.
TEST_F(Volumes, AStoreGivesWhatFilesGive) {
  config_.data.shift = 2;
  config_.data.flip = true;
  for (const char* plan :
       {"spatial(h=2, w=2)", "spatial(w=3, dp=2)", "spatial(d=2, pp=2, micro_batches=2)"}) {
    config_.data.store_bytes = 0;
    const std::vector<double> files = run(plan).losses;
    config_.data.store_bytes = 1 << 20;
    const Ran store = run(plan);
    EXPECT_EQ(store.losses, files) << plan;
    // Ten samples are read once, though the run takes 16: more than a pass.
    EXPECT_EQ(store.summary.data_bytes_read, kSamples * (kVoxels * 2 + kOutputs * 4)) << plan;
  }
}

// A rank reads 1 / ranks of the files, and nothing in later passes.
TEST_F(Volumes, EachRankReadsItsShareOnce) {
  if (have_hdf5()) pack();
  config_.data.store_bytes = 1 << 20;
  constexpr int64_t kAll = kSamples * (kVoxels * 2 + kOutputs * 4);
  for (const auto& [plan, ranks] : std::vector<std::pair<std::string, int64_t>>{
           {"serial", 1}, {"spatial(d=2)", 2}, {"data_parallel(2)", 2}, {"spatial(d=2, h=2)", 4}}) {
    for (const int64_t steps : {int64_t{1}, kSteps}) {
      if (!all_cases() && steps == kSteps && ranks != 2) continue;
      config_.steps = steps;
      const TrainingSummary found = run(plan).summary;
      EXPECT_EQ(found.data_bytes_read, kAll) << plan;
      // The labels of ten samples are shared by 4 ranks as 3, 3, 2 and 2.
      const int64_t labels = (kSamples + ranks - 1) / ranks * kOutputs * 4;
      EXPECT_EQ(found.data_bytes_read_of_a_rank, kSamples * kVoxels * 2 / ranks + labels) << plan;
      EXPECT_EQ(found.data_bytes_kept_of_a_rank, found.data_bytes_read_of_a_rank) << plan;
    }
  }
}

// Replica n mod 2 keeps sample n. A sample that the other replica takes moves; the pieces of a
// volume that is cut in space stay where they are, except for a plane under the windows at the
// border.
TEST_F(Volumes, SamplesMoveToTheReplicasThatTakeThem) {
  int64_t elsewhere = 0;
  for (int64_t place = 0; place < kSteps * kBatch; ++place) {
    const int64_t sample =
        permuted(place % kSamples, kSamples, config_.seed, "data", place / kSamples);
    elsewhere += sample % 2 != place % kBatch / (kBatch / 2) ? 1 : 0;
  }
  ASSERT_GT(elsewhere, 0);
  config_.data.store_bytes = 1 << 20;
  EXPECT_EQ(run("serial").summary.data_bytes_moved, 0);
  EXPECT_EQ(run("data_parallel(2)").summary.data_bytes_moved,
            elsewhere * (kVoxels * 2 + kOutputs * 4));
  constexpr int64_t kPlanes = kVolumeBytes / kWidth * 2;
  EXPECT_EQ(run("spatial(d=2)").summary.data_bytes_moved, kPlanes + elsewhere * kOutputs * 4);
}

TEST_F(Volumes, AStoreThatDoesNotFitIsOneLine) {
  const auto error = [&](const std::string& plan, int64_t bytes) {
    config_.plan = plan;
    config_.data.store_bytes = bytes;
    const auto failed = run_training(config_, {});
    return failed ? std::string("it fits") : failed.error().message;
  };
  constexpr int64_t kAll = kSamples * (kVoxels * 2 + kOutputs * 4);
  EXPECT_EQ(error("serial", kAll), "it fits");
  EXPECT_EQ(error("serial", kAll - 1),
            "data.store: expected at least 160.12 KiB (163,960 bytes), which rank 0 keeps of the "
            "samples, found 160.12 KiB (163,959 bytes)");
  EXPECT_EQ(error("data_parallel(2)", kAll / 2), "it fits");
  EXPECT_EQ(error("data_parallel(2)", 1000),
            "data.store: expected at least 80.06 KiB (81,980 bytes), which rank 0 keeps of the "
            "samples, found 1000 bytes");
}

// A plan that begins in the middle of the run reads nothing anew.
TEST_F(Volumes, AStoreOutlivesAChangeOfThePlan) {
  config_.changes = {{2, "data_parallel(2)"}};
  const std::vector<double> files = run("spatial(d=2)").losses;
  config_.data.store_bytes = 1 << 20;
  const Ran store = run("spatial(d=2)");
  EXPECT_EQ(store.losses, files);
  EXPECT_EQ(store.summary.data_bytes_read, kSamples * (kVoxels * 2 + kOutputs * 4));
}

TEST_F(Volumes, WrongDatasetsAreOneLine) {
  if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
  pack();
  const auto error = [&] {
    const auto failed = run_training(config_, {});
    EXPECT_FALSE(failed);
    return failed ? "" : failed.error().message;
  };
  const std::string file = path("u.h5");
  config_.data.hdf5.inputs = "volume";
  EXPECT_EQ(error(), "data: '" + file + "': expected a dataset 'volume', found labels, volumes");
  config_.data.hdf5.inputs = "labels";
  EXPECT_EQ(error(),
            "data: '" + file +
                ":labels': expected the shape [samples, 2, 16, 16, 16] for the input 'volume', "
                "found [10, 3]");
  config_.data.hdf5 = {path("v.h5"), "volumes", "labels"};
  EXPECT_EQ(error(), "data: cannot read '" + path("v.h5") + "': No such file or directory");
  config_.model = "dlrm:dense=3,rows=7-5,bags=1,width=4,bottom=6-4,top=5-1";
  EXPECT_NE(
      error().find("expected a model with one input and its targets for the keys 'inputs' and "
                   "'labels', found"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::volumes_test
