// Compares updates by rows with the dense optimizers under a mask, written out element by element
// in float64: random tables, bags and look-ups, with empty bags, repeated ids and one hot row.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "tessera/graph/builder.h"
#include "tessera/graph/transform.h"
#include "tessera/runtime/testing.h"

namespace tessera::row_update_test {
namespace {

using Values = std::vector<double>;

constexpr double kRate = 0.05, kEps = 1e-8, kBeta1 = 0.9, kBeta2 = 0.95, kClip = 0.7;
constexpr double kStep = 3;

struct LookUp {
  int64_t samples = 1, bag = 1;
  bool bags = true, mean = false, weighted = false;
  Values ids, dy, weights;
};

struct Case {
  int64_t rows = 1, width = 1;
  std::vector<LookUp> look_ups;
};

Case random_case(std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  Case out;
  out.rows = random() % 8 == 0 ? 5000 : up_to(40);  // more than one digit of the sort
  out.width = up_to(9);
  std::normal_distribution<double> normal;
  for (int64_t k = up_to(3); k > 0; --k) {
    LookUp one;
    one.samples = up_to(12);
    one.bags = random() % 4 != 0;
    one.bag = one.bags ? up_to(5) : 1;
    one.mean = one.bags && random() % 2 == 0;
    one.weighted = !one.mean && random() % 2 == 0;
    const bool hot = random() % 3 == 0;
    const auto row = static_cast<double>(random() % out.rows);
    for (int64_t s = 0; s < one.samples; ++s) {
      const int64_t there = one.bags ? static_cast<int64_t>(random() % (one.bag + 1)) : 1;
      for (int64_t i = 0; i < one.bag; ++i) {
        const double id = hot && random() % 2 == 0 ? row : static_cast<double>(random() % out.rows);
        one.ids.push_back(i < there ? id : -1);
        one.weights.push_back(one.weighted ? normal(random) : 1);
      }
      for (int64_t w = 0; w < out.width; ++w) one.dy.push_back(normal(random));
    }
    out.look_ups.push_back(std::move(one));
  }
  return out;
}

// The gradient with the table's dims, and which rows were looked up.
struct Dense {
  Values gradient;
  std::vector<bool> touched;
};
Dense dense_of(const Case& of) {
  Dense out{Values(static_cast<size_t>(of.rows * of.width)),
            std::vector<bool>(static_cast<size_t>(of.rows))};
  for (const LookUp& one : of.look_ups) {
    for (int64_t s = 0; s < one.samples; ++s) {
      double there = 0;
      for (int64_t i = 0; i < one.bag; ++i)
        there += one.ids[static_cast<size_t>(s * one.bag + i)] >= 0 ? 1 : 0;
      for (int64_t i = 0; i < one.bag; ++i) {
        const auto id = static_cast<int64_t>(one.ids[static_cast<size_t>(s * one.bag + i)]);
        if (id < 0) continue;
        out.touched[static_cast<size_t>(id)] = true;
        for (int64_t w = 0; w < of.width; ++w) {
          out.gradient[static_cast<size_t>(id * of.width + w)] +=
              one.dy[static_cast<size_t>(s * of.width + w)] *
              one.weights[static_cast<size_t>(s * one.bag + i)] / (one.mean ? there : 1);
        }
      }
    }
  }
  return out;
}

// Runs the op of that kind on the case, with states as given; returns its outputs.
std::vector<Values> run_op(const char* kind, const Case& of, const std::vector<Values>& tables,
                           bool state_a_row, const std::vector<double>& scalars,
                           bool expanded = false) {
  GraphBuilder g("rows");
  const Dim rows{"rows", of.rows}, width{"width", of.width};
  std::vector<TensorId> inputs;
  std::vector<Values> values;
  const auto add = [&](const std::vector<Dim>& dims, DType dtype, const Values& value) {
    inputs.push_back(g.input("x" + std::to_string(inputs.size()), dims, dtype));
    values.push_back(value);
  };
  for (size_t i = 0; i < tables.size(); ++i) {
    const bool numbers = i > 0 && state_a_row;
    add(numbers ? std::vector<Dim>{rows} : std::vector<Dim>{rows, width}, DType::kFloat64,
        tables[i]);
  }
  std::string modes;
  for (const LookUp& one : of.look_ups) {
    const Dim samples{"samples", one.samples};
    add(one.bags ? std::vector<Dim>{samples, {"bag", one.bag}} : std::vector<Dim>{samples},
        DType::kInt64, one.ids);
    add({samples, width}, DType::kFloat64, one.dy);
    if (one.weighted) {
      add(one.bags ? std::vector<Dim>{samples, {"bag", one.bag}} : std::vector<Dim>{samples},
          DType::kFloat64, one.weights);
    }
    modes += one.mean ? "mean " : one.weighted ? "weighted " : "sum ";
  }
  for (const double scalar : scalars) add({}, DType::kFloat64, {scalar});
  Attributes attributes = {{"modes", modes}};
  if (std::string(kind) == "row_adam") attributes["beta2"] = kBeta2;
  const std::vector<TensorId> outputs = g.op("op", kind, inputs, attributes);
  auto built = g.finish();
  EXPECT_TRUE(built) << kind << ": " << (built ? "" : built.error().message);
  if (!built) return {};
  std::vector<std::string> names;
  for (const TensorId output : outputs) names.push_back(built->tensor(output).name);
  if (expanded) {
    auto taken_apart = expand_ops(*built, {OpId(0)});
    EXPECT_TRUE(taken_apart) << (taken_apart ? "" : taken_apart.error().message);
    if (!taken_apart) return {};
    built = *taken_apart;
  }
  testing::Workspace work(*built, 1);
  for (size_t i = 0; i < inputs.size(); ++i)
    work.set(built->find_tensor("x" + std::to_string(i)), values[i]);
  work.run();
  std::vector<Values> out;
  for (const std::string& name : names) out.push_back(work.get(built->find_tensor(name)));
  return out;
}

Values random_values(std::mt19937& random, size_t size, bool positive = false) {
  std::normal_distribution<double> normal;
  Values out(size);
  for (double& value : out) value = positive ? std::abs(normal(random)) : normal(random);
  return out;
}

void expect_near(const Values& found, const Values& wanted, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], 1e-12 * std::max(1.0, std::abs(wanted[i])))
        << what << ", element " << i;
  }
}

TEST(RowUpdateTest, IsTheDenseStepOfTheRowsThatWereLookedUp) {
  std::mt19937 random(20261124);
  for (int n = 0; n < 5000; ++n) {
    const Case one = random_case(random);
    const Dense dense = dense_of(one);
    const auto rows = static_cast<size_t>(one.rows), width = static_cast<size_t>(one.width);
    const Values p = random_values(random, rows * width),
                 first = random_values(random, rows * width),
                 second = random_values(random, rows * width, true),
                 a_row = random_values(random, rows, true);
    const std::string what = "case " + std::to_string(n);
    Values sgd = p, adagrad = p, adagrad_sum = second, rowwise = p, rowwise_sum = a_row, adam = p,
           m = first, v = second;
    double squares = 0;
    for (size_t r = 0; r < rows; ++r) {
      if (!dense.touched[r]) continue;
      double mean = 0;
      for (size_t i = r * width; i < (r + 1) * width; ++i) {
        const double g = kClip * dense.gradient[i];
        squares += dense.gradient[i] * dense.gradient[i];
        mean += g * g / static_cast<double>(width);
        sgd[i] -= kRate * g;
        adagrad_sum[i] += g * g;
        adagrad[i] -= kRate * g / (std::sqrt(adagrad_sum[i]) + kEps);
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
        adam[i] -= kRate * (m[i] / (1 - std::pow(kBeta1, kStep))) /
                   (std::sqrt(v[i] / (1 - std::pow(kBeta2, kStep))) + kEps);
      }
      rowwise_sum[r] += mean;
      for (size_t i = r * width; i < (r + 1) * width; ++i)
        rowwise[i] -= kRate * kClip * dense.gradient[i] / (std::sqrt(rowwise_sum[r]) + kEps);
    }
    const auto made = run_op("row_sgd", one, {p}, false, {kRate, kClip});
    ASSERT_EQ(made.size(), 1U);
    expect_near(made[0], sgd, what + " row_sgd");
    const auto ada = run_op("row_adagrad", one, {p, second}, false, {kRate, kClip, 0});
    ASSERT_EQ(ada.size(), 2U);
    expect_near(ada[0], adagrad, what + " row_adagrad");
    expect_near(ada[1], adagrad_sum, what + " row_adagrad sum");
    const auto wise = run_op("rowwise_adagrad", one, {p, a_row}, true, {kRate, kClip});
    ASSERT_EQ(wise.size(), 2U);
    expect_near(wise[0], rowwise, what + " rowwise_adagrad");
    expect_near(wise[1], rowwise_sum, what + " rowwise_adagrad sum");
    // Three ops compute this step too; a cut of the width makes their sums in parts.
    const auto apart = run_op("rowwise_adagrad", one, {p, a_row}, true, {kRate, kClip}, true);
    ASSERT_EQ(apart.size(), 2U);
    expect_near(apart[0], rowwise, what + " rowwise_adagrad taken apart");
    expect_near(apart[1], rowwise_sum, what + " rowwise_adagrad taken apart, sum");
    const auto moments = run_op("row_adam", one, {p, first, second}, false, {kRate, kStep, kClip});
    ASSERT_EQ(moments.size(), 3U);
    expect_near(moments[0], adam, what + " row_adam");
    expect_near(moments[1], m, what + " row_adam m");
    expect_near(moments[2], v, what + " row_adam v");
    const auto sum = run_op("row_sum_squares", one, {p}, false, {});
    ASSERT_EQ(sum.size(), 1U);
    expect_near(sum[0], {squares}, what + " row_sum_squares");
  }
}

TEST(RowUpdateTest, RowsThatNobodyLooksUpKeepTheirBits) {
  std::mt19937 random(7);
  for (int n = 0; n < 50; ++n) {
    const Case one = random_case(random);
    const Dense dense = dense_of(one);
    const auto size = static_cast<size_t>(one.rows * one.width);
    const Values p = random_values(random, size), sum = random_values(random, size, true);
    const auto made = run_op("row_adagrad", one, {p, sum}, false, {kRate});
    ASSERT_EQ(made.size(), 2U);
    for (size_t i = 0; i < size; ++i) {
      if (dense.touched[i / static_cast<size_t>(one.width)]) continue;
      ASSERT_EQ(made[0][i], p[i]);
      ASSERT_EQ(made[1][i], sum[i]);
    }
  }
}

TEST(RowUpdateTest, ASkippedStepKeepsAllBits) {
  std::mt19937 random(8);
  const Case one = random_case(random);
  const auto size = static_cast<size_t>(one.rows * one.width);
  const Values p = random_values(random, size), sum = random_values(random, size, true);
  const auto made = run_op("row_adagrad", one, {p, sum}, false, {kRate, kClip, 1});
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0], p);
  EXPECT_EQ(made[1], sum);
}

// A table of 16 bits whose rows are all looked up once and move by 0.3 of the distance between two
// of its numbers.
std::vector<int> op_dims_of_table(const Op& op) {
  const auto& dims = op.annotation.inputs[0].dims;
  return {dims[0][0], dims[1][0]};
}

struct Narrow {
  explicit Narrow(DType dtype, const std::string& rounding, double start, double step) {
    GraphBuilder g("narrow");
    const Dim rows{"rows", kRows}, width{"width", kWidth};
    inputs = {g.input("p", {rows, width}, dtype),
              g.input("ids", {{"samples", kRows}}, DType::kInt64),
              g.input("dy", {{"samples", kRows}, width}, DType::kFloat32),
              g.input("lr", {}, DType::kFloat32)};
    output = g.op1("op", "row_sgd", inputs, {{"modes", "sum"}, {"rounding", rounding}});
    auto built = g.finish();
    EXPECT_TRUE(built) << (built ? "" : built.error().message);
    graph = built.value_or(Graph());
    Values ids;
    for (int64_t row = 0; row < kRows; ++row) ids.push_back(static_cast<double>(row));
    work = std::make_unique<testing::Workspace>(graph, 7);
    work->set(inputs[0], Values(kRows * kWidth, start));
    work->set(inputs[1], ids);
    work->set(inputs[2], Values(kRows * kWidth, -step));
    work->set(inputs[3], {1});
  }
  Values of_step(int64_t step) {
    work->context().step = step;
    work->run();
    return work->get(output);
  }
  static constexpr int64_t kRows = 96, kWidth = 10;  // rows that are no whole number of blocks
  std::vector<TensorId> inputs;
  TensorId output;
  Graph graph;
  std::unique_ptr<testing::Workspace> work;
};

TEST(RowUpdateTest, StochasticRoundingKeepsTheMean) {
  struct Point {
    DType dtype;
    double start, apart;  // a number of the type, and how far from it the next one is
  };
  const std::vector<Point> points = {
      {DType::kBFloat16, 1.5, 0x1p-7}, {DType::kBFloat16, -1.5, 0x1p-7},
      {DType::kFloat16, 1.5, 0x1p-10}, {DType::kFloat16, -3.0, 0x1p-9},
      {DType::kFloat16, 0, 0x1p-24},   {DType::kFloat16, 0x1p-24, 0x1p-24}};
  for (const Point& point : points) {
    for (const double share : {0.3, -0.3, 0.8}) {
      const double step = share * point.apart;
      Narrow nearest(point.dtype, "nearest", point.start, step);
      const double rounded = point.start + (share > 0.5 ? std::copysign(point.apart, share) : 0);
      EXPECT_EQ(nearest.of_step(1), Values(Narrow::kRows * Narrow::kWidth, rounded));
      Narrow stochastic(point.dtype, "stochastic", point.start, step);
      double moved = 0;
      int64_t count = 0;
      std::vector<Values> steps;
      for (int64_t n = 1; n <= 4; ++n) {
        steps.push_back(stochastic.of_step(n));
        for (const double value : steps.back()) {
          const double by = (value - point.start) / point.apart;
          EXPECT_TRUE(by == 0 || by == std::copysign(1, share)) << value;
          moved += std::abs(by);
          ++count;
        }
      }
      const double p = std::abs(share), n = static_cast<double>(count);
      EXPECT_NEAR(moved / n, p, 5 * std::sqrt(p * (1 - p) / n)) << point.start << " " << share;
      EXPECT_EQ(stochastic.of_step(1), steps[0]);  // the step and the index alone decide
      EXPECT_NE(steps[1], steps[0]);
    }
  }
}

TEST(RowUpdateTest, StochasticRoundingIsTheSameUnderEveryCut) {
  Narrow table(DType::kBFloat16, "stochastic", 1.5, 0.3 * 0x1p-7);
  const Values whole = table.of_step(5);
  const Op& op = table.graph.op(table.graph.tensor(table.output).producer);
  for (const int dim : op_dims_of_table(op)) {
    for (const int64_t pieces : {2, 3, 7}) {
      table.work->set(table.inputs[0], Values(whole.size(), 1.5));
      table.work->run_in_pieces(op, dim, pieces);
      EXPECT_EQ(table.work->get(table.output), whole) << dim << " in " << pieces;
    }
  }
}

TEST(RowUpdateTest, WideTablesAreNotRounded) {
  Narrow nearest(DType::kFloat32, "nearest", 1.5, 0.1),
      stochastic(DType::kFloat32, "stochastic", 1.5, 0.1);
  EXPECT_EQ(nearest.of_step(1), stochastic.of_step(1));
}

}  // namespace
}  // namespace tessera::row_update_test
