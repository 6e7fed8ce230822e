// Compares the kinds of images and grids with PyTorch's functions of the same meaning and with sums
// written out, in float64. kernels_test.cc tests their gradients by finite differences.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "tessera/graph/builder.h"
#include "tessera/models/vision/images.h"
#include "tessera/runtime/kernels/test_torch_values.h"
#include "tessera/runtime/testing.h"

namespace tessera {
namespace {

using testing::relative_error;
using testing::tensor_of;
using testing::values_of;
using testing::Workspace;
using Values = std::vector<double>;
using Build = std::function<TensorId(GraphBuilder&)>;

// Runs a graph of float64 inputs (random) and returns its tensors on request.
struct Executed {
  explicit Executed(const Build& build) {
    GraphBuilder g("run");
    const TensorId y = build(g);
    result = y;
    auto built = g.finish();
    EXPECT_TRUE(built.has_value()) << (built ? "" : built.error().message);
    graph = std::make_unique<Graph>(built.value_or(Graph()));
    work = std::make_unique<Workspace>(*graph, 5);
    work->initialise();
    for (const Tensor& tensor : graph->tensors()) {
      if (!tensor.producer.valid() && tensor.dtype == DType::kFloat64) work->randomise(tensor.id);
    }
  }
  Values of(std::string_view name) { return work->get(graph->find_tensor(name)); }
  Values y() {
    work->run();
    return work->get(result);
  }
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Workspace> work;
  TensorId result;
};

TensorId map(GraphBuilder& g, const char* name, std::vector<Dim> dims) {
  return g.input(name, std::move(dims), DType::kFloat64);
}

TEST(ImageValues, DilatedConvolutionsOfGroupsAreSumsOverTheChannelsOfTheGroup) {
  constexpr int64_t kIn = 4, kOut = 6, kGroups = 2, kHeight = 7, kWidth = 6, kDilation = 2;
  Executed run([&](GraphBuilder& g) {
    const TensorId x = map(g, "x", {{"b", 2}, {"c", kIn}, {"y", kHeight}, {"x", kWidth}});
    const TensorId w = map(g, "w", {{"o", kOut}, {"i", kIn / kGroups}, {"h", 3}, {"v", 2}});
    return g.op1("op", "conv", {x, w},
                 {{"padding", "2 0"}, {"dilation", "2 2"}, {"groups", kGroups}});
  });
  const Values x = run.of("x"), w = run.of("w"), y = run.y();
  const int64_t rows = kHeight, columns = kWidth - kDilation;
  Values expected;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          double sum = 0;
          for (int64_t i = 0; i < kIn / kGroups; ++i) {
            const int64_t channel = o / (kOut / kGroups) * (kIn / kGroups) + i;
            for (int64_t h = 0; h < 3; ++h) {
              for (int64_t v = 0; v < 2; ++v) {
                const int64_t row = r - 2 + h * kDilation, column = c + v * kDilation;
                if (row < 0 || row >= kHeight) continue;
                sum += x[static_cast<size_t>(((b * kIn + channel) * kHeight + row) * kWidth +
                                             column)] *
                       w[static_cast<size_t>(((o * (kIn / kGroups) + i) * 3 + h) * 2 + v)];
              }
            }
          }
          expected.push_back(sum);
        }
      }
    }
  }
  EXPECT_LT(relative_error(y, expected), 1e-13);
}

TEST(ImageValues, MeansWithoutPaddingAreThoseOfPyTorch) {
  Executed run([](GraphBuilder& g) {
    return g.op1(
        "op", "avg_pool", {map(g, "x", {{"b", 2}, {"c", 3}, {"y", 7}, {"x", 6}})},
        {{"kernel", "3 4"}, {"stride", "2 1"}, {"padding", "1 2"}, {"count_padding", int64_t{0}}});
  });
  const at::Tensor x = tensor_of(run.of("x"), {2, 3, 7, 6});
  EXPECT_LT(
      relative_error(run.y(), values_of(at::avg_pool2d(x, {3, 4}, {2, 1}, {1, 2}, false, false))),
      1e-14);
}

TEST(ImageValues, OtherSizesAreThoseOfPyTorch) {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{8, 9}, {2, 3}, {7, 2}, {12, 1}}) {
    for (const auto& [mode, corners] :
         {std::pair<const char*, bool>{"linear", false}, {"linear", true}, {"nearest", false}}) {
      Executed run(
          [&, height = height, width = width, mode = mode, corners = corners](GraphBuilder& g) {
            return g.op1("op", "resize", {map(g, "x", {{"b", 2}, {"c", 2}, {"y", 4}, {"x", 3}})},
                         {{"dims", "y=" + std::to_string(height) + " x=" + std::to_string(width)},
                          {"mode", std::string(mode)},
                          {"corners", int64_t{corners}}});
          });
      const at::Tensor x = tensor_of(run.of("x"), {2, 2, 4, 3});
      const at::Tensor expected = std::string(mode) == "nearest"
                                      ? at::upsample_nearest2d(x, {height, width})
                                      : at::upsample_bilinear2d(x, {height, width}, corners);
      EXPECT_LT(relative_error(run.y(), values_of(expected)), 1e-13)
          << height << " x " << width << " " << mode << " " << corners;
    }
  }
  Executed run([](GraphBuilder& g) {
    return g.op1("op", "resize", {map(g, "x", {{"b", 2}, {"c", 2}, {"z", 3}, {"y", 4}, {"x", 2}})},
                 {{"dims", "z=6 y=2 x=5"}});
  });
  const at::Tensor x = tensor_of(run.of("x"), {2, 2, 3, 4, 2});
  EXPECT_LT(relative_error(run.y(), values_of(at::upsample_trilinear3d(x, {6, 2, 5}, false))),
            1e-13);
}

// PyTorch orders the coordinates of a point from the last dim to the first.
TEST(ImageValues, GridsAtPointsAreThoseOfPyTorch) {
  Executed plane([](GraphBuilder& g) {
    const TensorId grid = map(g, "grid", {{"b", 2}, {"c", 3}, {"y", 4}, {"x", 5}});
    const TensorId points = map(g, "points", {{"b", 2}, {"n", 40}, {"k", 2}});
    return g.op1("op", "grid_sample", {grid, points}, {{"dims", "y x"}});
  });
  plane.work->randomise(plane.graph->find_tensor("points"), -1.3, 1.3);
  const at::Tensor grid = tensor_of(plane.of("grid"), {2, 3, 4, 5});
  const at::Tensor points = tensor_of(plane.of("points"), {2, 1, 40, 2}).flip({3});
  const at::Tensor sampled = at::grid_sampler_2d(grid, points, 0, 0, true);
  EXPECT_LT(relative_error(plane.y(), values_of(sampled.reshape({2, 3, 40}).transpose(1, 2))),
            1e-13);

  Executed volume([](GraphBuilder& g) {
    const TensorId of = map(g, "grid", {{"c", 2}, {"z", 3}, {"y", 4}, {"x", 2}});
    return g.op1("op", "grid_sample", {of, map(g, "points", {{"n", 30}, {"k", 3}})},
                 {{"dims", "x y z"}});
  });
  volume.work->randomise(volume.graph->find_tensor("points"), -1.3, 1.3);
  const at::Tensor cube = tensor_of(volume.of("grid"), {1, 2, 3, 4, 2});
  const at::Tensor places = tensor_of(volume.of("points"), {1, 1, 1, 30, 3});
  const at::Tensor inside = at::grid_sampler_3d(cube, places, 0, 0, true);
  EXPECT_LT(relative_error(volume.y(), values_of(inside.reshape({2, 30}).transpose(0, 1))), 1e-13);
}

// Builds a group norm over the channels of each of `groups` groups and the maps, from the ops that
// docs/reference/ops.md names.
TensorId group_norm(GraphBuilder& g, TensorId x, int64_t channels, int64_t groups, double eps) {
  const std::string group = "group=" + std::to_string(groups);
  const std::string names = group + " inside=" + std::to_string(channels / groups);
  const auto filled = [&](const char* name, double value) {
    return g.op1(name, "fill", {}, {{"value", value}, {"dims", group}, {"dtype", "float64"}});
  };
  const TensorId apart = g.op1("groups", "ungroup", {x}, {{"dim", "c"}, {"names", names}});
  const std::vector<TensorId> normed =
      g.op("normed", "batch_norm", {apart, filled("one", 1), filled("zero", 0)},
           {{"dims", "inside y x"}, {"eps", eps}});
  const TensorId together = g.op1("together", "group", {normed.empty() ? TensorId() : normed[0]},
                                  {{"first", int64_t{1}}, {"count", int64_t{2}}, {"name", "c"}});
  const TensorId weight = g.input("weight", {{"c", channels}}, DType::kFloat64);
  const TensorId bias = g.input("bias", {{"c", channels}}, DType::kFloat64);
  return g.op1("norm", "add", {g.op1("scaled", "mul", {together, weight}), bias});
}

TEST(ImageValues, NormsOfGroupsOfChannelsAreThoseOfPyTorch) {
  constexpr int64_t kChannels = 6;
  for (const int64_t groups : {1, 3, 6}) {
    Executed run([groups](GraphBuilder& g) {
      const TensorId x = map(g, "x", {{"b", 2}, {"c", kChannels}, {"y", 3}, {"x", 4}});
      return group_norm(g, x, kChannels, groups, 0.1);
    });
    const at::Tensor x = tensor_of(run.of("x"), {2, kChannels, 3, 4});
    const at::Tensor gamma = tensor_of(run.of("weight"), {kChannels}),
                     beta = tensor_of(run.of("bias"), {kChannels});
    EXPECT_LT(
        relative_error(run.y(), values_of(at::group_norm(x, groups, gamma, beta, 0.1, false))),
        1e-13)
        << groups;
  }
}

TEST(ImageValues, MaximaAndMeansAtScatteredPlaces) {
  const Values ids = {0, 2, 2, 5, 0, 2};
  for (const bool mean : {false, true}) {
    Executed run([mean](GraphBuilder& g) {
      const TensorId x = map(g, "x", {{"k", 6}, {"h", 2}});
      const TensorId at = g.input("ids", {{"k", 6}}, DType::kInt64);
      if (mean) return scatter_mean(g, "mean", x, at, "v", "v=4 h=2");
      return g.op1("op", "scatter_max", {x, at}, {{"dim", "v"}, {"dims", "v=4 h=2"}});
    });
    run.work->set(run.graph->find_tensor("ids"), ids);
    const Values x = run.of("x"), y = run.y();
    for (size_t place = 0; place < 4; ++place) {
      for (size_t h = 0; h < 2; ++h) {
        double most = -std::numeric_limits<double>::infinity(), sum = 0, count = 0;
        for (size_t k = 0; k < ids.size(); ++k) {
          if (static_cast<size_t>(ids[k]) != place) continue;
          most = std::max(most, x[k * 2 + h]);
          sum += x[k * 2 + h];
          ++count;
        }
        const double expected = !mean ? most : count > 0 ? sum / count : 0;
        if (std::isinf(expected)) {
          EXPECT_EQ(y[place * 2 + h], expected);
        } else {
          EXPECT_NEAR(y[place * 2 + h], expected, 1e-14);
        }
      }
    }
  }
}

TEST(ImageValues, TheNearestCodeIsTheFirstOfEqualOnes) {
  constexpr size_t kPoints = 40, kCodes = 9, kWidth = 3;
  Executed run([](GraphBuilder& g) {
    const TensorId z = map(g, "z", {{"n", kPoints}, {"w", kWidth}});
    const TensorId codes = map(g, "codes", {{"k", kCodes}, {"w", kWidth}});
    return vector_quantised(g, "nearest", z, codes).straight;
  });
  Values codes = run.of("codes");
  for (size_t i = 0; i < kWidth; ++i) codes[7 * kWidth + i] = codes[2 * kWidth + i];
  run.work->set(run.graph->find_tensor("codes"), codes);
  const Values z = run.of("z");
  Values expected, ids;
  for (size_t n = 0; n < kPoints; ++n) {
    size_t nearest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t k = 0; k < kCodes; ++k) {
      double distance = 0;
      for (size_t i = 0; i < kWidth; ++i)
        distance += std::pow(z[n * kWidth + i] - codes[k * kWidth + i], 2);
      if (distance < least) {
        least = distance;
        nearest = k;
      }
    }
    ids.push_back(static_cast<double>(nearest));
    for (size_t i = 0; i < kWidth; ++i) expected.push_back(codes[nearest * kWidth + i]);
  }
  EXPECT_LT(relative_error(run.y(), expected), 1e-14);
  EXPECT_EQ(run.of("nearest.ids"), ids);
  // A codebook in pieces gives the same places, also for ties.
  for (const char* path : {"nearest.score", "nearest.place"}) {
    for (const Op& op : run.graph->ops()) {
      if (op.path == path) run.work->run_in_pieces(op, op.annotation.find("k"), 4);
    }
  }
  for (const Op& op : run.graph->ops()) {
    if (op.path == "nearest.ids") run.work->run(op);
  }
  EXPECT_EQ(run.of("nearest.ids"), ids);
}

// The loss is the sum of the estimate's elements times weights, plus half of the codes that were
// chosen: z gets only the weights, each code a half for each of its points.
TEST(ImageValues, TheStraightThroughGradientGoesToThePointsAlone) {
  GraphBuilder g("straight");
  const std::vector<Dim> dims = {{"n", 5}, {"w", 2}};
  const TensorId z = g.parameter("z", dims, {Init::Kind::kNormal, 1}, DType::kFloat64),
                 codes = g.parameter("codes", {{"k", 3}, {"w", 2}}, {Init::Kind::kNormal, 1},
                                     DType::kFloat64);
  const Quantised nearest = vector_quantised(g, "nearest", z, codes);
  const TensorId weights = g.input("weights", dims, DType::kFloat64);
  const TensorId weighed = g.op1("weigh", "mul", {nearest.straight, weights});
  const TensorId half = g.op1("half", "scale", {nearest.codes}, {{"factor", 0.5}});
  const TensorId both = g.op1("both", "add", {weighed, half});
  g.graph().loss = g.op1("loss", "reduce_sum", {both}, {{"dims", "n w"}});
  OptimizerSpec none;
  none.kind = "none";
  auto forward = g.finish();
  ASSERT_TRUE(forward) << forward.error().message;
  auto graph = differentiate(*forward, none);
  ASSERT_TRUE(graph) << graph.error().message;
  Workspace work(*graph);
  work.initialise();
  work.randomise(graph->find_tensor("weights"));
  work.run();
  EXPECT_EQ(work.get(graph->find_tensor("grad.z")), work.get(graph->find_tensor("weights")));
  Values expected(6);
  for (const double id : work.get(graph->find_tensor("nearest.ids"))) {
    for (const size_t i : {0, 1}) expected[2 * static_cast<size_t>(id) + i] += 0.5;
  }
  EXPECT_EQ(work.get(graph->find_tensor("grad.codes")), expected);
}

// Equal largest elements share the gradient, as torch.scatter_reduce with amax shares it.
TEST(ImageValues, EqualMaximaShareTheGradient) {
  GraphBuilder g("ties");
  const TensorId x = g.parameter("x", {{"k", 4}}, {Init::Kind::kOnes}, DType::kFloat64);
  const TensorId ids = g.input("ids", {{"k", 4}}, DType::kInt64);
  const TensorId y = g.op1("op", "scatter_max", {x, ids}, {{"dim", "v"}, {"dims", "v=2"}});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "v"}});
  OptimizerSpec none;
  none.kind = "none";
  auto forward = g.finish();
  ASSERT_TRUE(forward) << forward.error().message;
  auto graph = differentiate(*forward, none);
  ASSERT_TRUE(graph) << graph.error().message;
  Workspace work(*graph);
  work.set(graph->find_tensor("x"), {3, 3, 1, 2});
  work.set(graph->find_tensor("ids"), {0, 0, 0, 1});
  work.run();
  EXPECT_EQ(work.get(graph->find_tensor("grad.x")), (Values{0.5, 0.5, 0, 1}));
}

}  // namespace
}  // namespace tessera
