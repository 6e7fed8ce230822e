// Tests what kinds compute on int64, in whole and in pieces, against PyTorch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/runtime/testing.h"

namespace tessera {
namespace {

using testing::Workspace;

std::vector<double> numbers(const at::Tensor& x) {
  const at::Tensor flat = x.to(at::kDouble).contiguous();
  const auto* begin = flat.data_ptr<double>();
  return {begin, begin + flat.numel()};
}

void expect_equal(const std::vector<double>& found, const std::vector<double>& expected,
                  const char* name) {
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i] - expected[i], 0) << name << " at " << i;
}

// Numbers that float32 does not hold are among the values, because int64 is not computed in it.
TEST(IntegerValues, AreThoseOfPyTorch) {
  constexpr int64_t kLarge = 1 << 25;
  const Dim rows{"rows", 3}, columns{"columns", 5};
  const at::Tensor x = at::arange(15, at::kLong).remainder(4).view({3, 5}).add(kLarge),
                   z = at::arange(5, at::kLong).mul(3).remainder(4).add(kLarge);
  GraphBuilder g("integers");
  const TensorId a = g.input("x", {rows, columns}, DType::kInt64),
                 b = g.input("z", {columns}, DType::kInt64);
  const Attributes along = {{"dim", std::string("columns")}};
  Attributes back = along;
  back["reverse"] = int64_t{1};
  const TensorId same = g.op1("equal", "equal", {a, b});
  g.op1("add", "add", {a, b});
  g.op1("sub", "sub", {a, b});
  g.op1("mul", "mul", {same, b});
  g.op1("where", "where", {same, a, b});
  g.op1("where_number", "where", {same, a}, {{"otherwise", -7.0}, {"negate", int64_t{1}}});
  g.op1("cumsum", "cumsum", {a}, along);
  g.op1("cumsum_back", "cumsum", {a}, back);
  g.op1("most", "reduce_max", {a}, {{"dims", std::string("columns")}});
  g.op1("cast", "cast", {same}, {{"dtype", std::string("float32")}});
  g.op1("broadcast", "broadcast_to", {b}, {{"dims", std::string("rows=3 columns=5")}});
  const Result<Graph> graph = g.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  const at::Tensor is = x.eq(z);
  const std::vector<std::pair<const char*, at::Tensor>> expected = {
      {"equal", is},
      {"add", x + z},
      {"sub", x - z},
      {"mul", is.to(at::kLong) * z},
      {"where", at::where(is, x, z)},
      {"where_number", at::where(is, at::full_like(x, -7), x)},
      {"cumsum", x.cumsum(1)},
      {"cumsum_back", x.flip(1).cumsum(1).flip(1)},
      {"most", x.amax(1)},
      {"cast", is},
      {"broadcast", z.expand({3, 5})},
  };
  for (const bool in_pieces : {false, true}) {
    Workspace work(*graph);
    work.set(graph->find_tensor("x"), numbers(x));
    work.set(graph->find_tensor("z"), numbers(z));
    for (const Op& op : graph->ops()) {
      const int dim = op.annotation.find("rows");
      if (in_pieces && dim >= 0) {
        work.run_in_pieces(op, dim, 2);
      } else {
        work.run(op);
      }
    }
    for (const auto& [name, values] : expected)
      expect_equal(work.get(graph->find_tensor(name)), numbers(values), name);
  }
}

}  // namespace
}  // namespace tessera
