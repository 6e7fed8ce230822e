// Compares convolutions, pools and batch norms with sums written out element by element
// (docs/reference/ops.md), in float64. kernels_test.cc tests their gradients by finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "tessera/graph/builder.h"
#include "tessera/runtime/testing.h"

namespace tessera::convolution_values_test {
namespace {

using testing::relative_error;
using testing::Workspace;
using Values = std::vector<double>;

// Runs one op on random inputs.
struct OneOp {
  OneOp(const char* kind, const std::vector<std::vector<Dim>>& inputs, const Attributes& attributes)
      : graph(make(kind, inputs, attributes)) {
    workspace = std::make_unique<Workspace>(graph, 3);
    for (size_t i = 0; i < inputs.size(); ++i) workspace->randomise(id(i));
  }
  static Graph make(const char* kind, const std::vector<std::vector<Dim>>& inputs,
                    const Attributes& attributes) {
    GraphBuilder g("one");
    std::vector<TensorId> ids;
    for (size_t i = 0; i < inputs.size(); ++i)
      ids.push_back(g.input("x" + std::to_string(i), inputs[i], DType::kFloat64));
    g.op("op", kind, ids, attributes);
    auto built = g.finish();
    EXPECT_TRUE(built.has_value()) << (built ? "" : built.error().message);
    return built.value_or(Graph());
  }
  TensorId id(size_t i) const { return graph.find_tensor("x" + std::to_string(i)); }
  Values in(size_t i) const { return workspace->get(id(i)); }
  Values out(size_t i = 0) {
    workspace->run();
    return workspace->get(graph.ops().at(0).outputs[i]);
  }
  Graph graph;
  std::unique_ptr<Workspace> workspace;
};

// A map of `size` elements a dim read through windows at `at`: f(offset in the map, in the window).
struct Frame {
  std::vector<int64_t> size, kernel, stride, padding, positions;
  Frame(std::vector<int64_t> s, std::vector<int64_t> k, std::vector<int64_t> st,
        std::vector<int64_t> p)
      : size(std::move(s)), kernel(std::move(k)), stride(std::move(st)), padding(std::move(p)) {
    for (size_t d = 0; d < size.size(); ++d)
      positions.push_back((size[d] + 2 * padding[d] - kernel[d]) / stride[d] + 1);
  }
  static size_t volume(const std::vector<int64_t>& sizes) {
    int64_t volume = 1;
    for (const int64_t n : sizes) volume *= n;
    return static_cast<size_t>(volume);
  }
  template <class F>
  void each(size_t position, F&& f) const {
    for (size_t element = 0; element < volume(kernel); ++element) {
      auto p = static_cast<int64_t>(position), e = static_cast<int64_t>(element);
      int64_t offset = 0, step = 1;
      bool inside = true;
      for (size_t d = size.size(); d-- > 0;) {
        const int64_t at = p % positions[d] * stride[d] - padding[d] + e % kernel[d];
        inside = inside && at >= 0 && at < size[d];
        offset += at * step;
        step *= size[d];
        p /= positions[d];
        e /= kernel[d];
      }
      if (inside) f(static_cast<size_t>(offset), element);
    }
  }
  std::string text(const std::vector<int64_t>& numbers) const {
    std::string out;
    for (const int64_t n : numbers) out += (out.empty() ? "" : " ") + std::to_string(n);
    return out;
  }
  Attributes attributes(bool pool) const {
    Attributes out = {{"stride", text(stride)}, {"padding", text(padding)}};
    if (pool) out["kernel"] = text(kernel);
    return out;
  }
  std::vector<Dim> dims(std::vector<Dim> lead, const std::vector<int64_t>& sizes) const {
    for (size_t d = 0; d < sizes.size(); ++d)
      lead.push_back({std::string(1, static_cast<char>('x' + d)), sizes[d]});
    return lead;
  }
};

const std::vector<Frame>& frames() {
  static const std::vector<Frame> all = {{{7, 6}, {3, 2}, {2, 1}, {1, 0}},
                                         {{5, 5}, {1, 1}, {2, 2}, {0, 0}},
                                         {{4, 3}, {1, 1}, {1, 1}, {0, 0}},
                                         {{5, 9}, {1, 1}, {1, 1}, {0, 0}},
                                         {{4, 5, 3}, {1, 1, 1}, {1, 1, 2}, {0, 0, 0}},
                                         {{3, 6, 5}, {2, 3, 2}, {1, 2, 1}, {1, 1, 0}}};
  return all;
}

TEST(ConvolutionValues, SumsOverChannelsAndWindows) {
  constexpr size_t kMaps = 6, kIn = 4, kOut = 3;
  for (const Frame& frame : frames()) {
    OneOp one("conv",
              {frame.dims({{"b", 2}, {"s", 3}, {"c", kIn}}, frame.size),
               frame.dims({{"o", kOut}, {"c", kIn}}, frame.kernel)},
              frame.attributes(false));
    const Values x = one.in(0), w = one.in(1);
    const size_t positions = Frame::volume(frame.positions), size = Frame::volume(frame.size),
                 kernel = Frame::volume(frame.kernel);
    Values expected(kMaps * kOut * positions);
    for (size_t map = 0; map < kMaps; ++map) {
      for (size_t o = 0; o < kOut; ++o) {
        for (size_t p = 0; p < positions; ++p) {
          double& y = expected[(map * kOut + o) * positions + p];
          for (size_t c = 0; c < kIn; ++c) {
            frame.each(p, [&](size_t at, size_t element) {
              y += x[(map * kIn + c) * size + at] * w[(o * kIn + c) * kernel + element];
            });
          }
        }
      }
    }
    EXPECT_LT(relative_error(one.out(), expected), 1e-13);
  }
}

TEST(ConvolutionValues, PoolsTakeTheLargestTheMeanOrTheSum) {
  constexpr size_t kMaps = 6;
  for (const Frame& frame : frames()) {
    if (frame.kernel.front() == 1) continue;
    const auto dims = frame.dims({{"b", 2}, {"c", 3}}, frame.size);
    OneOp largest("max_pool", {dims}, frame.attributes(true));
    OneOp mean("avg_pool", {dims}, frame.attributes(true));
    OneOp sum("sum_pool", {dims}, frame.attributes(true));
    const Values x = largest.in(0), z = mean.in(0), s = sum.in(0);
    const size_t positions = Frame::volume(frame.positions), size = Frame::volume(frame.size);
    Values expected_largest(kMaps * positions, -std::numeric_limits<double>::infinity()),
        expected_mean(kMaps * positions), expected_sum(kMaps * positions);
    for (size_t map = 0; map < kMaps; ++map) {
      for (size_t p = 0; p < positions; ++p) {
        frame.each(p, [&](size_t at, size_t) {
          double& most = expected_largest[map * positions + p];
          most = std::max(most, x[map * size + at]);
          expected_sum[map * positions + p] += s[map * size + at];
          expected_mean[map * positions + p] +=
              z[map * size + at] / static_cast<double>(Frame::volume(frame.kernel));
        });
      }
    }
    EXPECT_EQ(largest.out(), expected_largest);
    EXPECT_LT(relative_error(mean.out(), expected_mean), 1e-13);
    EXPECT_LT(relative_error(sum.out(), expected_sum), 1e-13);
  }
}

void expect_statistics_for_each_group_and_channel(int64_t samples, int64_t height, int64_t width) {
  constexpr size_t kGroups = 2, kChannels = 4;
  const auto count = static_cast<size_t>(samples);
  const auto pixels = static_cast<size_t>(height * width);
  OneOp one("batch_norm",
            {{{"b", kGroups}, {"s", samples}, {"c", kChannels}, {"y", height}, {"x", width}},
             {{"c", kChannels}},
             {{"c", kChannels}}},
            {{"dims", std::string("s y x")}, {"eps", 0.1}});
  const Values x = one.in(0), gamma = one.in(1), beta = one.in(2);
  Values y(x.size()), means, rstds;
  for (size_t b = 0; b < kGroups; ++b) {
    for (size_t c = 0; c < kChannels; ++c) {
      std::vector<size_t> elements;
      for (size_t s = 0; s < count; ++s) {
        for (size_t p = 0; p < pixels; ++p)
          elements.push_back(((b * count + s) * kChannels + c) * pixels + p);
      }
      const auto n = static_cast<double>(elements.size());
      double mean = 0, variance = 0;
      for (const size_t e : elements) mean += x[e] / n;
      for (const size_t e : elements) variance += (x[e] - mean) * (x[e] - mean) / n;
      means.push_back(mean);
      rstds.push_back(1 / std::sqrt(variance + 0.1));
      for (const size_t e : elements) y[e] = (x[e] - mean) * rstds.back() * gamma[c] + beta[c];
    }
  }
  EXPECT_LT(relative_error(one.out(0), y), 1e-13);
  EXPECT_LT(relative_error(one.out(1), means), 1e-12);
  EXPECT_LT(relative_error(one.out(2), rstds), 1e-13);
}

TEST(ConvolutionValues, BatchNormHasStatisticsForEachGroupAndChannel) {
  expect_statistics_for_each_group_and_channel(3, 5, 2);  // rows of a map
  expect_statistics_for_each_group_and_channel(6, 1, 1);  // rows along the samples
  expect_statistics_for_each_group_and_channel(3, 1, 2);  // no rows
}

}  // namespace
}  // namespace tessera::convolution_values_test
