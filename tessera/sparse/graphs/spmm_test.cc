#include "tessera/sparse/graphs/spmm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <tuple>

#include "tessera/base/philox.h"
#include "tessera/sparse/graphs/test_power_law.h"

namespace tessera::sparse::spmm_test {
namespace {

constexpr Sampler kSamplers[] = {Sampler::kNone, Sampler::kBucket, Sampler::kStride,
                                 Sampler::kQuadratic, Sampler::kPermutation};
constexpr Instructions kAll[] = {Instructions::kPlain, Instructions::kAvx2, Instructions::kAvx512};

std::vector<Instructions> present() {
  std::vector<Instructions> list;
  for (const Instructions instructions : kAll) {
    if (supported(instructions)) {
      list.push_back(instructions);
    } else {
      std::cout << "not tested: " << instructions_name(instructions)
                << ", which this machine lacks\n";
    }
  }
  return list;
}

// A matrix with memory around its elements that must not be touched: four rows' strides before and
// behind, and gaps between the rows.
template <class T>
struct Guarded {
  Guarded(int64_t rows_, int64_t columns_, int64_t gap = 3)
      : rows(rows_),
        columns(columns_),
        stride(columns_ + gap),
        memory(static_cast<size_t>((rows_ + 8) * stride), kGuard) {}
  Matrix<T> out() { return {memory.data() + 4 * stride, rows, columns, stride}; }
  Matrix<const T> in() const { return {memory.data() + 4 * stride, rows, columns, stride}; }
  T& at(int64_t i, int64_t j) { return memory[static_cast<size_t>((i + 4) * stride + j)]; }
  const T& at(int64_t i, int64_t j) const {
    return memory[static_cast<size_t>((i + 4) * stride + j)];
  }
  bool guarded() const {
    for (size_t k = 0; k < memory.size(); ++k) {
      const int64_t i = static_cast<int64_t>(k) / stride - 4;
      const int64_t j = static_cast<int64_t>(k) % stride;
      const bool inside = i >= 0 && i < rows && j < columns;
      if (!inside && memory[k] != kGuard) return false;
    }
    return true;
  }
  friend bool operator==(const Guarded& a, const Guarded& b) {
    return a.memory.size() == b.memory.size() &&
           std::memcmp(a.memory.data(), b.memory.data(), a.memory.size() * sizeof(T)) == 0;
  }
  static constexpr T kGuard = T(-12345.5);
  int64_t rows, columns, stride;
  std::vector<T> memory;
};

template <class T>
Guarded<T> random_matrix(int64_t rows, int64_t columns, uint64_t stream) {
  Guarded<T> out(rows, columns);
  const Philox random{11, stream};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      out.at(i, j) = static_cast<T>(random.normal(static_cast<uint64_t>(i * columns + j)));
  }
  return out;
}

// Rows of 0, 1, S - 1, S, S + 1 and many edges for the widths that the tests use.
CsrGraph with_degrees(const std::vector<int64_t>& degrees, int64_t columns, bool valued) {
  CsrGraph graph;
  graph.column_count = columns;
  const Philox random{3, 1};
  for (const int64_t degree : degrees) {
    for (int64_t k = 0; k < degree; ++k) {
      graph.columns.push_back(static_cast<int32_t>((graph.rows() * 13 + k * 7) % columns));
      if (valued) graph.values.push_back(static_cast<float>(random.normal(graph.columns.size())));
    }
    graph.offsets.push_back(graph.edges());
  }
  return graph;
}
const std::vector<int64_t> kDegrees = {0, 1, 3, 4, 5, 15, 16, 17, 0, 60, 31, 32, 33, 2, 400, 0};
constexpr int64_t kColumns = 97;  // a prime, so k * 7 reaches every column
CsrGraph test_graph(bool valued) {
  std::vector<int64_t> degrees = kDegrees;
  for (int64_t& degree : degrees) degree = std::min(degree, kColumns);
  return with_degrees(degrees, kColumns, valued);
}

template <class T>
std::vector<T> values_of(const CsrGraph& graph) {
  return {graph.values.begin(), graph.values.end()};
}

// The factor of a row, by the definition in spmm.h.
double factor(const SpmmOptions& options, int64_t degree) {
  const double used = static_cast<double>(sampled_count(options.sampling, degree));
  if (options.reduce == Reduce::kMean)
    return used + options.norm_bias == 0 ? 0 : 1 / (used + options.norm_bias);
  return options.rescale && used > 0 ? static_cast<double>(degree) / used : 1;
}

// Returns the graph of the sampled edges, by slot. Its columns are in the order of the slots, and
// quadratic samples may hold an edge twice.
CsrGraph sampled_csr(const CsrGraph& graph, const Sampling& sampling) {
  CsrGraph out;
  out.column_count = graph.column_count;
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < graph.rows(); ++row) {
    const int64_t degree = graph.degree(row);
    positions.resize(static_cast<size_t>(sampled_count(sampling, degree)));
    sampled_positions(sampling, row, degree, positions.data());
    for (const int32_t position : positions) {
      const int64_t edge = graph.offsets[static_cast<size_t>(row)] + position;
      out.columns.push_back(graph.columns[static_cast<size_t>(edge)]);
      if (!graph.values.empty()) out.values.push_back(graph.value(edge));
    }
    out.offsets.push_back(out.edges());
  }
  return out;
}

// Returns the dense matrix that the product multiplies by: scale_i * sum of the values of the slots
// that have the column. It is the oracle, together with dense products by their definition.
std::vector<std::vector<double>> dense(const CsrGraph& graph, const SpmmOptions& options) {
  const CsrGraph sampled = sampled_csr(graph, options.sampling);
  std::vector<std::vector<double>> a(graph.rows(), std::vector<double>(graph.column_count, 0));
  for (int64_t row = 0; row < graph.rows(); ++row) {
    for (int64_t e = sampled.offsets[row]; e < sampled.offsets[row + 1]; ++e)
      a[row][sampled.columns[e]] += factor(options, graph.degree(row)) * sampled.value(e);
  }
  return a;
}

std::vector<SpmmOptions> all_options() {
  std::vector<SpmmOptions> list;
  for (const Sampler sampler : kSamplers) {
    for (const int64_t width : {1, 4, 16, 32, 1000}) {
      if (sampler == Sampler::kNone && width > 1) continue;
      const Sampling sampling{sampler, sampler == Sampler::kNone ? 0 : width, 5};
      list.push_back({Reduce::kSum, sampling, 0, false});
      list.push_back({Reduce::kSum, sampling, 0, true});
      list.push_back({Reduce::kMean, sampling, 0, false});
      list.push_back({Reduce::kMean, sampling, 1, false});
    }
  }
  return list;
}
std::string_view name_of(Reduce reduce) { return reduce == Reduce::kSum ? "sum" : "mean"; }
std::string describe(const SpmmOptions& options, int64_t features) {
  return std::string(name_of(options.reduce)) + " " +
         std::string(sampler_name(options.sampling.sampler)) + " width " +
         std::to_string(options.sampling.width) + " bias " + std::to_string(options.norm_bias) +
         (options.rescale ? " rescaled" : "") + ", " + std::to_string(features) + " features";
}

// The tolerance is relative to the sum of the magnitudes that were added: some hundreds of
// additions in T.
template <class T>
double tolerance() {
  return sizeof(T) == 4 ? 2e-5 : 1e-13;
}

template <class T>
class Spmm : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Spmm, Types);

TYPED_TEST(Spmm, plain_product_is_the_dense_product_of_the_sampled_matrix) {
  using T = TypeParam;
  for (const bool valued : {false, true}) {
    const CsrGraph graph = test_graph(valued);
    const std::vector<T> values = values_of<T>(graph);
    for (const SpmmOptions& options : all_options()) {
      const auto a = dense(graph, options);
      for (const int64_t features : {1, 5}) {
        const Guarded<T> x = random_matrix<T>(kColumns, features, 1);
        const Guarded<T> dy = random_matrix<T>(graph.rows(), features, 2);
        Guarded<T> y(graph.rows(), features);
        Guarded<T> dx(kColumns, features);
        std::vector<T> dvalues(graph.edges() + 1, T(77));
        const auto view = view_of<T>(graph, values);
        ASSERT_TRUE(spmm(view, options, x.in(), y.out(), 1, Instructions::kPlain));
        ASSERT_TRUE(spmm_grad_x(view, options, dy.in(), dx.out(), 1, Instructions::kPlain));
        ASSERT_TRUE(spmm_grad_values(view, options, dy.in(), x.in(), dvalues.data(), 1,
                                     Instructions::kPlain));
        ASSERT_TRUE(y.guarded() && dx.guarded()) << describe(options, features);
        ASSERT_EQ(dvalues.back(), T(77));
        const auto close = [&](double found, double wanted, double magnitude) {
          return std::abs(found - wanted) <= tolerance<T>() * (magnitude + 1e-30);
        };
        for (int64_t j = 0; j < features; ++j) {
          for (int64_t i = 0; i < graph.rows(); ++i) {
            double sum = 0, magnitude = 0;
            for (int64_t c = 0; c < kColumns; ++c) {
              sum += a[i][c] * x.at(c, j);
              magnitude += std::abs(a[i][c] * x.at(c, j));
            }
            ASSERT_TRUE(close(y.at(i, j), sum, magnitude)) << describe(options, features) << i;
          }
          for (int64_t c = 0; c < kColumns; ++c) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < graph.rows(); ++i) {
              sum += a[i][c] * dy.at(i, j);
              magnitude += std::abs(a[i][c] * dy.at(i, j));
            }
            ASSERT_TRUE(close(dx.at(c, j), sum, magnitude)) << describe(options, features) << c;
          }
        }
        // A value's gradient is the number of slots with the edge, times the factor, times the
        // scalar product.
        for (int64_t i = 0; i < graph.rows(); ++i) {
          const int64_t degree = graph.degree(i);
          std::vector<int32_t> positions(sampled_count(options.sampling, degree));
          sampled_positions(options.sampling, i, degree, positions.data());
          for (int64_t k = 0; k < degree; ++k) {
            const int64_t e = graph.offsets[i] + k;
            const double times =
                static_cast<double>(std::count(positions.begin(), positions.end(), k));
            double sum = 0, magnitude = 0;
            for (int64_t j = 0; j < features; ++j) {
              sum += dy.at(i, j) * x.at(graph.columns[e], j);
              magnitude += std::abs(dy.at(i, j) * x.at(graph.columns[e], j));
            }
            const double scale = times * factor(options, degree);
            ASSERT_TRUE(close(dvalues[e], scale * sum, scale * magnitude))
                << describe(options, features);
          }
        }
      }
    }
  }
}

TYPED_TEST(Spmm, every_instruction_set_gives_the_bits_of_the_plain_loops) {
  using T = TypeParam;
  const std::vector<Instructions> sets = present();
  for (const bool valued : {false, true}) {
    const CsrGraph graph = test_graph(valued);
    const std::vector<T> values = values_of<T>(graph);
    const auto view = view_of<T>(graph, values);
    for (const SpmmOptions& options : all_options()) {
      // Fewer features than a register has, a register, more, a whole stretch of eight registers,
      // and beyond.
      for (const int64_t features : {1, 3, 4, 7, 8, 15, 16, 17, 31, 64, 71, 100, 128, 131, 257}) {
        const Guarded<T> x = random_matrix<T>(kColumns, features, 1);
        const Guarded<T> dy = random_matrix<T>(graph.rows(), features, 2);
        const auto run = [&](Instructions instructions) {
          auto result = std::tuple(Guarded<T>(graph.rows(), features),
                                   Guarded<T>(kColumns, features), std::vector<T>(graph.edges()));
          auto& [y, dx, dvalues] = result;
          EXPECT_TRUE(spmm(view, options, x.in(), y.out(), 1, instructions));
          EXPECT_TRUE(spmm_grad_x(view, options, dy.in(), dx.out(), 1, instructions));
          EXPECT_TRUE(
              spmm_grad_values(view, options, dy.in(), x.in(), dvalues.data(), 1, instructions));
          EXPECT_TRUE(y.guarded() && dx.guarded());
          return result;
        };
        const auto plain = run(Instructions::kPlain);
        for (const Instructions instructions : sets) {
          ASSERT_TRUE(run(instructions) == plain)
              << instructions_name(instructions) << " " << describe(options, features);
        }
      }
    }
  }
}

TYPED_TEST(Spmm, threads_change_no_bit_of_products_that_are_large_enough_to_be_shared) {
  using T = TypeParam;
  const CsrGraph graph = power_law_graph({.nodes = 3000, .edges = 100000, .seed = 9}).value();
  const auto view = view_of<T>(graph, {});
  constexpr int64_t kFeatures = 72;
  const Guarded<T> x = random_matrix<T>(graph.rows(), kFeatures, 1);
  for (const Sampler sampler : kSamplers) {
    const SpmmOptions options{
        Reduce::kMean, {sampler, sampler == Sampler::kNone ? 0 : 20, 3}, 0, false};
    Guarded<T> y(graph.rows(), kFeatures), dx(graph.rows(), kFeatures);
    std::vector<T> dvalues(graph.edges());
    ASSERT_TRUE(spmm(view, options, x.in(), y.out(), 1));
    ASSERT_TRUE(spmm_grad_x(view, options, x.in(), dx.out(), 1));
    ASSERT_TRUE(spmm_grad_values(view, options, x.in(), x.in(), dvalues.data(), 1));
    for (const int threads : {2, 3, 7}) {
      Guarded<T> y2(graph.rows(), kFeatures), dx2(graph.rows(), kFeatures);
      std::vector<T> dvalues2(graph.edges());
      ASSERT_TRUE(spmm(view, options, x.in(), y2.out(), threads));
      ASSERT_TRUE(spmm_grad_x(view, options, x.in(), dx2.out(), threads));
      ASSERT_TRUE(spmm_grad_values(view, options, x.in(), x.in(), dvalues2.data(), threads));
      EXPECT_TRUE(y2 == y && dx2 == dx && dvalues2 == dvalues) << threads << sampler_name(sampler);
    }
  }
}

// Fused sampling equals the product over the stored sampled graph, bit for bit.
TYPED_TEST(Spmm, sampling_as_it_goes_is_the_product_of_the_stored_sample) {
  using T = TypeParam;
  const CsrGraph graph = test_graph(true);
  const std::vector<T> values = values_of<T>(graph);
  const Guarded<T> x = random_matrix<T>(kColumns, 33, 1);
  for (SpmmOptions options : all_options()) {
    if (options.rescale) continue;  // the stored sample does not know the degrees
    const CsrGraph sampled = sampled_csr(graph, options.sampling);
    const std::vector<T> sampled_values = values_of<T>(sampled);
    Guarded<T> fused(graph.rows(), 33), stored(graph.rows(), 33);
    ASSERT_TRUE(spmm(view_of<T>(graph, values), options, x.in(), fused.out()));
    options.sampling = {};
    ASSERT_TRUE(spmm(view_of<T>(sampled, sampled_values), options, x.in(), stored.out()));
    EXPECT_TRUE(fused == stored) << describe(options, 33);
  }
}

TYPED_TEST(Spmm, a_width_above_the_largest_degree_is_no_sampling_bit_for_bit) {
  using T = TypeParam;
  const CsrGraph graph = test_graph(true);
  const std::vector<T> values = values_of<T>(graph);
  const Guarded<T> x = random_matrix<T>(kColumns, 20, 1);
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMean}) {
    Guarded<T> whole(graph.rows(), 20);
    ASSERT_TRUE(spmm(view_of<T>(graph, values), {reduce, {}, 0, false}, x.in(), whole.out()));
    for (const Sampler sampler : kSamplers) {
      Guarded<T> y(graph.rows(), 20);
      const SpmmOptions options{reduce, {sampler, kColumns, 4}, 0, reduce == Reduce::kSum};
      ASSERT_TRUE(spmm(view_of<T>(graph, values), options, x.in(), y.out()));
      EXPECT_TRUE(y == whole) << sampler_name(sampler);
    }
  }
}

// The worked example of the specification: the mean of the columns that the stride picks.
TEST(SpmmExamples, mean_of_a_sampled_row) {
  CsrGraph graph;
  graph.column_count = 10;
  graph.columns = {5, 2, 9, 4, 7, 1, 8, 0, 3, 6};
  graph.offsets = {0, 10};
  std::vector<float> b(10);
  for (size_t c = 0; c < b.size(); ++c) b[c] = static_cast<float>(c);
  float y = 0;
  const Matrix<const float> x{b.data(), 10, 1, 1};
  ASSERT_TRUE(spmm(view_of(graph), {Reduce::kMean, {Sampler::kStride, 4, 0}}, x, {&y, 1, 1, 1}));
  EXPECT_EQ(y, 3.5F);
  ASSERT_TRUE(spmm(view_of(graph), {Reduce::kMean, {}}, x, {&y, 1, 1, 1}));
  EXPECT_EQ(y, 4.5F);
}

// With integers, the mean over many seeds has the full mean as its expectation, for the sampled
// mean and for the rescaled sum; without rescaling the sum is low by the share that was taken.
TEST(SpmmExamples, permutation_samples_are_unbiased_in_the_product) {
  constexpr int64_t kDegree = 50;
  const CsrGraph graph = with_degrees({kDegree}, kColumns, true);
  const std::vector<double> values = values_of<double>(graph);
  const Guarded<double> x = random_matrix<double>(kColumns, 1, 6);
  const auto product = [&](const SpmmOptions& options) {
    double y = 0;
    EXPECT_TRUE(spmm(view_of<double>(graph, values), options, x.in(), {&y, 1, 1, 1}));
    return y;
  };
  for (const auto& [reduce, rescale] : {std::pair(Reduce::kMean, false), {Reduce::kSum, true}}) {
    const double whole = product({reduce, {}, 0, false});
    constexpr uint64_t kSeeds = 20000;
    double sum = 0, squares = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const double y = product({reduce, {Sampler::kPermutation, 8, seed}, 0, rescale});
      sum += y;
      squares += y * y;
    }
    const double mean = sum / kSeeds;
    const double error = std::sqrt((squares / kSeeds - mean * mean) / kSeeds);
    EXPECT_NEAR(mean, whole, 4 * error) << name_of(reduce);
    EXPECT_LT(error, 0.02 * std::abs(whole) + 0.1);  // the test says something
  }
}

// The gradients are compared with finite differences: the product is linear in x and in the values,
// so the differences are exact up to rounding.
TEST(SpmmExamples, gradients_are_those_of_finite_differences) {
  const CsrGraph graph = test_graph(true);
  std::vector<double> values = values_of<double>(graph);
  Guarded<double> x = random_matrix<double>(kColumns, 3, 1);
  const Guarded<double> dy = random_matrix<double>(graph.rows(), 3, 2);
  for (const SpmmOptions& options : all_options()) {
    Guarded<double> dx(kColumns, 3), y(graph.rows(), 3);
    std::vector<double> dvalues(graph.edges());
    ASSERT_TRUE(spmm_grad_x(view_of<double>(graph, values), options, dy.in(), dx.out()));
    ASSERT_TRUE(
        spmm_grad_values(view_of<double>(graph, values), options, dy.in(), x.in(), dvalues.data()));
    const auto loss = [&] {
      EXPECT_TRUE(spmm(view_of<double>(graph, values), options, x.in(), y.out()));
      double sum = 0;
      for (int64_t i = 0; i < graph.rows(); ++i) {
        for (int64_t j = 0; j < 3; ++j) sum += y.at(i, j) * dy.at(i, j);
      }
      return sum;
    };
    const auto check_one = [&](double& parameter, double gradient) {
      const double before = parameter;
      parameter = before + 0.5;
      const double up = loss();
      parameter = before - 0.5;
      const double difference = up - loss();
      parameter = before;
      EXPECT_NEAR(difference, gradient, 1e-9) << describe(options, 3);
    };
    for (const int64_t i : {0, 14, 96}) check_one(x.at(i, 1), dx.at(i, 1));
    for (const size_t e : {size_t{0}, size_t{40}, values.size() - 1})
      check_one(values[e], dvalues[e]);
  }
}

TEST(SpmmExamples, rows_of_a_part_are_sampled_by_their_number_in_the_whole) {
  const CsrGraph graph = test_graph(false);
  const SpmmOptions options{Reduce::kMean, {Sampler::kPermutation, 4, 8}};
  const Guarded<float> x = random_matrix<float>(kColumns, 6, 1);
  Guarded<float> whole(graph.rows(), 6), part(graph.rows(), 6);
  ASSERT_TRUE(spmm(view_of(graph), options, x.in(), whole.out()));
  for (const int64_t cut : {0, 7, 10}) {
    CsrView<float> view = view_of(graph);
    view.begin += cut;
    view.end += cut;
    view.rows -= cut;
    view.first_row = cut;
    Matrix<float> rest = part.out();
    rest.data += cut * rest.stride;
    rest.rows -= cut;
    ASSERT_TRUE(spmm(view, options, x.in(), rest));
    for (int64_t i = cut; i < graph.rows(); ++i) EXPECT_EQ(part.at(i, 5), whole.at(i, 5));
  }
}

TEST(SpmmExamples, operands_that_do_not_fit_are_refused_and_nothing_is_written) {
  const CsrGraph graph = test_graph(false);
  const Guarded<float> x = random_matrix<float>(kColumns, 6, 1);
  Guarded<float> y(graph.rows(), 6);
  const auto said = [&](const Status& status) {
    EXPECT_EQ(y.at(0, 0), Guarded<float>::kGuard);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(said(spmm(view_of(graph), {Reduce::kSum, {Sampler::kBucket, 0, 0}}, x.in(), y.out())),
            "expected a width above 0 for the sampler bucket, found 0");
  Matrix<const float> bad = x.in();
  bad.rows = 96;
  EXPECT_EQ(said(spmm(view_of(graph), {}, bad, y.out())), "expected x of 97 x 6, found 96 x 6");
  Matrix<float> narrow = y.out();
  narrow.columns = 5;
  EXPECT_EQ(said(spmm(view_of(graph), {}, x.in(), narrow)), "expected y of 16 x 6, found 16 x 5");
  narrow = y.out();
  narrow.stride = 5;
  EXPECT_EQ(said(spmm(view_of(graph), {}, x.in(), narrow)),
            "expected rows of y at least 6 apart, found 5");
  CsrView<float> view = view_of(graph);
  view.edges = 3;
  EXPECT_EQ(said(spmm(view, {}, x.in(), y.out())),
            "expected edges of row 2 inside the 3 edges, found 1 to 4");
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMean})
    EXPECT_EQ(parse_reduce(name_of(reduce)).value(), reduce);
  EXPECT_EQ(parse_reduce("max").error().message, "expected sum or mean, found 'max'");
}

}  // namespace
}  // namespace tessera::sparse::spmm_test
