// Compares bags of rows with PyTorch's embedding_bag: sums, means and weighted sums, and the
// gradients of table and weights that its autograd gives, in float64.
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <optional>
#include <random>

#include "tessera/graph/builder.h"
#include "tessera/runtime/kernels/test_torch_values.h"
#include "tessera/runtime/testing.h"

namespace tessera::bag_values_test {
namespace {

using testing::relative_error;
using testing::tensor_of;
using testing::values_of;
using Values = std::vector<double>;

struct Bags {
  int64_t rows = 1, width = 1, samples = 1, bag = 1;
  Values ids, weights, table, dy;  // an id of -1: none
};

Bags random_bags(std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  std::normal_distribution<double> normal;
  Bags out;
  out.rows = up_to(20);
  out.width = up_to(9);
  out.samples = up_to(8);
  out.bag = up_to(5);
  const auto hot = static_cast<double>(random() % out.rows);
  for (int64_t place = 0; place < out.samples * out.bag; ++place) {
    const double id = random() % 3 == 0 ? hot : static_cast<double>(random() % out.rows);
    out.ids.push_back(random() % 4 == 0 ? -1 : id);
    out.weights.push_back(normal(random));
  }
  for (int64_t i = 0; i < out.rows * out.width; ++i) out.table.push_back(normal(random));
  for (int64_t i = 0; i < out.samples * out.width; ++i) out.dy.push_back(normal(random));
  return out;
}

// Runs the op of that kind on operands that are given by name.
Values run_op(const Bags& of, const char* kind, const std::vector<std::string>& operands,
              const Attributes& attributes) {
  GraphBuilder g("bags");
  const Dim samples{"samples", of.samples}, bag{"bag", of.bag}, width{"width", of.width};
  std::vector<TensorId> inputs;
  for (const std::string& name : operands) {
    const std::vector<Dim> dims = name == "table" ? std::vector<Dim>{{"rows", of.rows}, width}
                                  : name == "dy"  ? std::vector<Dim>{samples, width}
                                                  : std::vector<Dim>{samples, bag};
    inputs.push_back(g.input(name, dims, name == "ids" ? DType::kInt64 : DType::kFloat64));
  }
  const TensorId y = g.op1("op", kind, inputs, attributes);
  auto graph = g.finish();
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  if (!graph) return {};
  testing::Workspace work(*graph, 1);
  for (size_t i = 0; i < operands.size(); ++i) {
    work.set(inputs[i], operands[i] == "ids"     ? of.ids
                        : operands[i] == "table" ? of.table
                        : operands[i] == "dy"    ? of.dy
                                                 : of.weights);
  }
  work.run();
  return work.get(y);
}

TEST(BagValues, AreThoseOfPyTorch) {
  std::mt19937 random(20261126);
  for (int n = 0; n < 200; ++n) {
    const Bags bags = random_bags(random);
    for (const char* mode : {"sum", "mean", "weighted"}) {
      const bool mean = std::string(mode) == "mean", weighted = std::string(mode) == "weighted";
      // PyTorch stores bags one behind the other, without places that have no id.
      std::vector<int64_t> ids, offsets;
      Values weights;
      for (int64_t s = 0; s < bags.samples; ++s) {
        offsets.push_back(static_cast<int64_t>(ids.size()));
        for (int64_t i = 0; i < bags.bag; ++i) {
          const auto at = static_cast<size_t>(s * bags.bag + i);
          if (bags.ids[at] < 0) continue;
          ids.push_back(static_cast<int64_t>(bags.ids[at]));
          weights.push_back(bags.weights[at]);
        }
      }
      const auto count = static_cast<int64_t>(ids.size());
      const at::Tensor table = tensor_of(bags.table, {bags.rows, bags.width}).requires_grad_(true);
      const at::Tensor of_ids = tensor_of(weights, {count}).requires_grad_(weighted);
      const at::Tensor y = std::get<0>(at::embedding_bag(
          table, at::tensor(ids, at::kLong), at::tensor(offsets, at::kLong), false, mean ? 1 : 0,
          false, weighted ? std::optional<at::Tensor>(of_ids) : std::optional<at::Tensor>()));
      torch::autograd::backward({y}, {tensor_of(bags.dy, {bags.samples, bags.width})});
      const std::string what = std::string(mode) + ", case " + std::to_string(n);

      std::vector<std::string> forward = {"ids", "table"}, backward = {"ids", "dy"};
      if (weighted) forward.emplace_back("weights");
      if (weighted) backward.emplace_back("weights");
      Attributes attributes = {{"mode", std::string(mean ? "mean" : "sum")}};
      EXPECT_LT(
          relative_error(run_op(bags, "embedding_bag", forward, attributes), values_of(y.detach())),
          1e-13)
          << what;
      attributes["rows"] = bags.rows;
      attributes["rows_name"] = std::string("rows");
      const Values gradient =
          table.grad().defined() ? values_of(table.grad()) : Values(bags.table.size());
      EXPECT_LT(relative_error(run_op(bags, "embedding_bag_grad", backward, attributes), gradient),
                1e-13)
          << what;
      if (!weighted) continue;
      const Values own = run_op(bags, "embedding_bag_weights_grad", {"ids", "table", "dy"}, {});
      Values there;
      for (size_t i = 0; i < own.size(); ++i) {
        if (bags.ids[i] >= 0) there.push_back(own[i]);
        EXPECT_TRUE(bags.ids[i] >= 0 || own[i] == 0) << what;
      }
      const Values theirs =
          of_ids.grad().defined() ? values_of(of_ids.grad()) : Values(there.size());
      EXPECT_LT(relative_error(there, theirs), 1e-13) << what;
    }
  }
}

}  // namespace
}  // namespace tessera::bag_values_test
