// Tests predictions: against the evaluation of the run that made the weights, under plans, and for
// several shapes with one set of weights.
#include "tessera/runtime/evaluation/predicting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "tessera/data/array_file.h"
#include "tessera/data/npy_file.h"
#include "tessera/data/test_files.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/testing.h"
#include "tessera/state/source.h"

namespace tessera::predicting_test {
namespace {

using testing::relative_error;

class Predicting : public TestFiles {
 protected:
  static constexpr int64_t kSamples = 24;
  static std::string model(int64_t image) {
    return "resnet:layers=18,width=2,channels=1,classes=3,ghost=4,running=0.5,image=" +
           std::to_string(image);
  }
  // Returns images whose brightness tells the class.
  DataConfig data(int64_t image) const {
    const int64_t pixels = image * image;
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int64_t i = 0; i < kSamples; ++i) {
      y.push_back(i % 3);
      for (int64_t k = 0; k < pixels; ++k)
        x.push_back(static_cast<float>(i % 3) + 0.3F * static_cast<float>((i * 37 + k * 11) % 7));
    }
    DataConfig config;
    const std::string size = std::to_string(image);
    config.arrays = {{"images", path("x" + size + ".npy")}, {"targets", path("y.npy")}};
    EXPECT_TRUE(write_npy(config.arrays["images"], x, {kSamples, 1, image, image}));
    EXPECT_TRUE(write_npy(config.arrays["targets"], y, {kSamples}));
    return config;
  }
  // Trains for some steps; the last evaluation sees every sample once.
  TrainingSummary train() const {
    RunConfig c;
    c.model = model(16);
    c.data = data(16);
    c.batch = 8;
    c.steps = 6;
    c.precision = "float64";
    c.optimizer.lr = 1e-2;
    c.eval = {c.data, 6, kSamples / 8, 0};
    c.checkpoint.dir = path("checkpoints");
    const auto summary = run_training(c, {});
    EXPECT_TRUE(summary) << summary.error().message;
    return summary.value_or(TrainingSummary{});
  }
  PredictConfig config(int64_t image) const {
    PredictConfig c;
    c.model = model(image);
    c.weights = path("checkpoints");
    c.data = data(image);
    c.precision = "float64";
    c.batch = 8;
    return c;
  }
};

TEST_F(Predicting, AgreesWithTheEvaluationOfTheRunThatMadeTheWeights) {
  const TrainingSummary run = train();
  const auto made = predict(config(16));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->samples, kSamples);
  EXPECT_EQ(made->width, 3);
  EXPECT_NEAR(made->loss, *run.eval_loss, 1e-9);
  EXPECT_EQ(made->accuracy, *run.eval_accuracy);
  // The predictions are in the order of the file.
  for (int64_t i = 0; i < kSamples; ++i)
    EXPECT_EQ(made->targets[static_cast<size_t>(i)], static_cast<double>(i % 3));
}

TEST_F(Predicting, OfASampleDependOnNeitherBatchNorPlan) {
  train();
  const auto expected = predict(config(16));
  ASSERT_TRUE(expected) << expected.error().message;
  for (const char* plan : {"data_parallel(2)", "one_f_one_b(pp=2,micro_batches=2)", "fsdp(2)"}) {
    PredictConfig c = config(16);
    c.plan = plan;
    const auto made = predict(c);
    ASSERT_TRUE(made) << plan << ": " << made.error().message;
    EXPECT_LT(relative_error(made->outputs, expected->outputs), 1e-9) << plan;
    EXPECT_NEAR(made->loss, expected->loss, 1e-9) << plan;
  }
  PredictConfig other = config(16);
  other.batch = 20;  // does not divide the samples: the second batch begins anew behind the last
  other.model = "resnet:layers=18,width=2,channels=1,classes=3,ghost=20,running=0.5,image=16";
  const auto made = predict(other);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_LT(relative_error(made->outputs, expected->outputs), 1e-9);
}

TEST_F(Predicting, ImagesOfAnySizeTakeTheSameWeights) {
  train();
  double before = 0;
  for (const int64_t image : {8, 16, 24, 40}) {
    const auto made = predict(config(image));
    ASSERT_TRUE(made) << image << ": " << made.error().message;
    EXPECT_EQ(made->outputs.size(), static_cast<size_t>(3 * kSamples));
    EXPECT_GT(made->multiply_adds, before);
    before = made->multiply_adds;
  }
}

TEST_F(Predicting, SamplesWithoutATargetDoNotCount) {
  train();
  const auto all = predict(config(16));
  ASSERT_TRUE(all) << all.error().message;
  PredictConfig c = config(16);
  std::vector<int64_t> y;
  int64_t right = 0, count = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    y.push_back(i % 4 == 0 ? -1 : i % 3);
    if (y.back() < 0) continue;
    const auto first = all->outputs.begin() + 3 * i;
    ++count;
    if (std::max_element(first, first + 3) - first == y.back()) ++right;
  }
  ASSERT_TRUE(write_npy(c.data.arrays["targets"], y, {kSamples}));
  const auto some = predict(c);
  ASSERT_TRUE(some) << some.error().message;
  EXPECT_EQ(some->accuracy, static_cast<double>(right) / static_cast<double>(count));
  ASSERT_TRUE(write_npy(c.data.arrays["targets"], std::vector<int64_t>(kSamples, -1), {kSamples}));
  const auto none = predict(c);
  ASSERT_TRUE(none) << none.error().message;
  ASSERT_TRUE(none->accuracy.has_value());
  EXPECT_TRUE(std::isnan(*none->accuracy));
}

TEST_F(Predicting, AnInputIsWhatTheFileHolds) {
  train();
  for (const std::string plan : {"serial", "spatial(h=2)"}) {
    PredictConfig c = config(16);
    c.plan = plan;
    const auto images = open_array_file({c.data.arrays["images"], ""});
    ASSERT_TRUE(images);
    ASSERT_EQ((*images)->number(), Number::kFloat32);
    std::vector<float> held(static_cast<size_t>((*images)->elements()));
    ASSERT_TRUE(
        (*images)->read(Box::whole((*images)->shape()), reinterpret_cast<std::byte*>(held.data())));
    c.tensor = "images";
    const auto made = predict(c);
    ASSERT_TRUE(made) << plan << ": " << made.error().message;
    EXPECT_EQ(made->width, 16 * 16);
    EXPECT_EQ(made->outputs, std::vector<double>(held.begin(), held.end())) << plan;
    c.tensor = "targets";
    const auto targets = predict(c);
    ASSERT_TRUE(targets) << plan << ": " << targets.error().message;
    EXPECT_EQ(targets->outputs, targets->targets) << plan;
  }
}

TEST_F(Predicting, OfAnHdf5FileAreThoseOfItsArrays) {
  if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
  train();
  PredictConfig c = config(16);
  const auto expected = predict(c);
  ASSERT_TRUE(expected) << expected.error().message;
  const auto images = open_array_file({c.data.arrays["images"], ""}),
             targets = open_array_file({c.data.arrays["targets"], ""});
  ASSERT_TRUE(images && targets);
  c.data = DataConfig();
  c.data.hdf5 = {path("all.h5"), "images", "classes"};
  ASSERT_TRUE(
      write_hdf5(c.data.hdf5.file, {{"images", images->get()}, {"classes", targets->get()}}));
  const auto made = predict(c);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->outputs, expected->outputs);
  EXPECT_EQ(made->accuracy, expected->accuracy);
}

TEST_F(Predicting, WrongInputIsOneLine) {
  train();
  const auto error = [&](const std::function<void(PredictConfig&)>& change) {
    PredictConfig c = config(16);
    change(c);
    const auto made = predict(c);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(
      error([](PredictConfig& c) { c.data = DataConfig{"random"}; }),
      "evaluate: expected data of arrays or of the nodes of a graph, found other data or none");
  const std::string wide = error([](PredictConfig& c) {
    c.model = "resnet:layers=18,width=4,channels=1,classes=3,ghost=4,running=0.5,image=16";
  });
  EXPECT_NE(wide.find("expected the shape [4, 1, 7, 7] of 'embed.conv.weight', found [2, 1, 7, 7]"),
            std::string::npos)
      << wide;
}

// ---- frozen parts
TEST_F(Predicting, APartOfAModelIsThatOfAnotherRunAndStaysSo) {
  train();
  RunConfig c;
  c.model = "resnet:layers=18,width=2,channels=1,classes=5,ghost=4,running=0.5,image=16";
  c.data = data(16);
  c.batch = 8;
  c.steps = 3;
  c.precision = "float64";
  c.weights = path("checkpoints");
  c.weights_of = "{embed,blocks}";
  c.optimizer.groups = {{"{embed,blocks}", 1, std::nullopt, "none", ""}};
  c.checkpoint.dir = path("frozen");
  std::map<std::string, std::vector<double>> losses;
  for (const char* plan : {"serial", "data_parallel(2)", "fsdp(2)"}) {
    std::filesystem::remove_all(c.checkpoint.dir);
    c.plan = plan;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& step) { losses[plan].push_back(step.loss); };
    const auto summary = run_training(c, callbacks);
    ASSERT_TRUE(summary) << plan << ": " << summary.error().message;
    const auto before = open_source(path("checkpoints")), after = open_source(path("frozen"));
    ASSERT_TRUE(before && after);
    for (const SourceArray& array : (*after)->arrays()) {
      EXPECT_FALSE(array.name.starts_with("optimizer.") &&
                   array.name.find("blocks") != std::string::npos)
          << array.name;
      if (!array.name.ends_with(".weight") && !array.name.ends_with(".bias")) continue;
      if (array.name.starts_with("optimizer.") || array.name.starts_with("head")) continue;
      const SourceArray* old = (*before)->find(array.name);
      ASSERT_NE(old, nullptr) << array.name;
      const auto values = [&](const TensorSource& source, const SourceArray& one) {
        Box whole = Box::whole(one.shape);
        std::vector<double> numbers(static_cast<size_t>(whole.volume()));
        EXPECT_TRUE(
            source.read(one, whole, DType::kFloat64, reinterpret_cast<std::byte*>(numbers.data())));
        return numbers;
      };
      EXPECT_EQ(values(**after, array), values(**before, *old)) << array.name;
    }
    for (size_t i = 0; i < losses[plan].size(); ++i)
      EXPECT_NEAR(losses[plan][i], losses["serial"][i], 1e-9) << plan;
  }
  EXPECT_NE(losses["serial"][0], losses["serial"][2]);
  c.checkpoint.dir = "";
  c.weights_of = "encoder";
  const auto wrong = run_training(c, {});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("weights_of: expected a pattern of the model's parameters, "
                                       "found 'encoder', which none has"),
            std::string::npos)
      << wrong.error().message;
  c.weights_of = "";
  c.optimizer.groups = {{"*", 1, std::nullopt, "none", ""}};
  const auto idle = run_training(c, {});
  ASSERT_FALSE(idle);
  EXPECT_NE(idle.error().message.find("expected a parameter that is trained"), std::string::npos)
      << idle.error().message;
}

// ---- losses of several tasks, added with weights
constexpr const char* kTasks = R"(graph "tasks"
input %images [batch=4, channels=2, height=6, width=6] float32
input %targets [batch=4, height=6, width=6] int64
input %amounts [batch=4, outputs=2] float32
parameter %conv.weight [inner=3, channels=2, kernel_height=3, kernel_width=3] float32 init=normal(0.3)
parameter %voxel.weight [inner=3, classes=4] float32 init=normal(0.3)
parameter %amount.weight [inner=3, outputs=2] float32 init=normal(0.3)
activation %conv [batch=4, inner=3, height=6, width=6] float32
forward op "conv" %conv = conv(%images, %conv.weight) {padding="1"}
activation %act [batch=4, inner=3, height=6, width=6] float32
forward op "act" %act = relu(%conv)
activation %voxel [batch=4, height=6, width=6, classes=4] float32
forward op "voxel" %voxel = einsum(%act, %voxel.weight) {spec="batch inner+ height width, inner classes -> batch height width classes"}
activation %loss.lse [batch=4, height=6, width=6] float32
activation %loss.picked [batch=4, height=6, width=6] float32
forward op "loss.cross_entropy" %loss.lse, %loss.picked = cross_entropy(%voxel, %targets)
activation %loss.each [batch=4, height=6, width=6] float32
forward op "loss.each" %loss.each = sub(%loss.lse, %loss.picked)
activation %loss.classes [] float32
forward op "loss.classes" %loss.classes = reduce_sum(%loss.each) {dims="batch height width", factor=0.00486111111111}
activation %pool [batch=4, inner=3] float32
forward op "pool" %pool = reduce_sum(%act) {dims="height width", factor=0.02777777777777}
activation %amount [batch=4, outputs=2] float32
forward op "amount" %amount = einsum(%pool, %amount.weight) {spec="batch inner+, inner outputs -> batch outputs"}
activation %loss.difference [batch=4, outputs=2] float32
forward op "loss.difference" %loss.difference = sub(%amount, %amounts)
activation %loss.square [batch=4, outputs=2] float32
forward op "loss.square" %loss.square = mul(%loss.difference, %loss.difference)
activation %loss.amounts [] float32
forward op "loss.amounts" %loss.amounts = reduce_sum(%loss.square) {dims="batch outputs", factor=0.0375}
activation %loss [] float32
forward op "loss" %loss = add(%loss.classes, %loss.amounts)
loss %loss
)";

// A class for each pixel has 0.7 of a mean cross entropy, two numbers have 0.3 of a mean square
// error.
TEST_F(Predicting, LossesThatAreAddedWithWeightsEqualTheSerialRun) {
  VerifyConfig config;
  config.model = write("tasks.graph", kTasks);
  config.batch = 4;
  const std::string spatial = write("spatial.toml", R"(mesh = { h = 2, w = 2 }
split = [ { ops = "*", dim = "height", over = "h" }, { ops = "*", dim = "width", over = "w" } ]
)");
  for (const std::string& plan :
       {std::string("data_parallel(2)"), std::string("data_parallel(2,micro_batches=2)"),
        std::string("zero(stage=3, dp=2)"), spatial}) {
    config.plan = plan;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

}  // namespace
}  // namespace tessera::predicting_test
