// Tests sparse products whose rows lie on several ranks, which exchange the rows that their random
// edges name: they equal the serial run, forward and backward, and move the bytes of their halos.
#include "tessera/runtime/cached_rows/row_exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/models/nn.h"
#include "tessera/runtime/session.h"

namespace tessera::row_exchange_test {
namespace {

constexpr int64_t kNodes = 13, kEdges = 40;

struct Form {
  std::string sampler = "none", reduce = "sum";
  int64_t width = 0, each_step = 0;
  bool weighted = true;
  DType dtype = DType::kFloat64;
};

// Makes two layers of products with the rows of dense products. Edges are random numbers: rows
// overlap, are empty if the end lies before the begin, and name nodes that do not exist.
Model network(const Form& form) {
  GraphBuilder g("network");
  const Dim nodes{"nodes", kNodes}, edges{"edges", kEdges}, in{"in", 4}, hidden{"hidden", 6},
      out{"out", 3};
  std::vector<TensorId> ids;
  for (const char* name : {"begin", "end"}) ids.push_back(g.input(name, {nodes}, DType::kInt64));
  ids.push_back(g.input("columns", {edges}, DType::kInt64));
  TensorId values;
  if (form.weighted) values = g.parameter("values", {edges}, normal(1), form.dtype);
  TensorId x = g.input("x", {nodes, in}, form.dtype);
  int64_t layer = 0;
  for (const auto& [from, to] : {std::pair{in, hidden}, {hidden, out}}) {
    const TensorId weight =
        g.parameter(fmt::format("weight{}", layer), {from, to}, normal(0.5), form.dtype);
    x = g.op1(fmt::format("dense{}", layer), "einsum", {x, weight},
              {{"spec", fmt::format("nodes {0}+, {0} {1} -> nodes {1}", from.name, to.name)}});
    std::vector<TensorId> operands{ids[0], ids[1], ids[2], x};
    if (form.weighted) operands.push_back(values);
    x = g.op1(fmt::format("product{}", layer), "spmm", operands,
              {{"sampler", form.sampler},
               {"reduce", form.reduce},
               {"width", form.width},
               {"seed", layer},
               {"each_step", form.each_step}});
    ++layer;
  }
  const TensorId square = g.op1("square", "mul", {x, x});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {square}, {{"dims", std::string("nodes out")}, {"factor", 0.1}});
  Model model;
  model.graph = *g.finish();
  model.family = model.spec = "network";
  model.batch = kNodes;
  model.inputs = {
      {"begin", kEdges, "begins"}, {"end", kEdges + 5, "ends"}, {"columns", kNodes + 2, "columns"}};
  return model;
}

VerifyReport verified(const Form& form, const std::string& plan) {
  VerifyConfig config;
  config.steps = 3;
  config.precision = std::string(dtype_name(form.dtype));
  config.optimizer.clip = 0;
  const auto report = verify_model(network(form), plan, config);
  EXPECT_TRUE(report.has_value()) << (report ? "" : report.error().message);
  return report.value_or(VerifyReport{});
}

std::string plan_of(int64_t ranks, const std::string& mesh = "", const std::string& splits = "") {
  return fmt::format(
      "mesh = {{ dp = {}{} }}\nsplit = [{{ ops = \"*\", dim = \"nodes\", over = \"dp\" }}{}]\n",
      ranks, mesh, splits);
}

TEST(RowExchange, computes_what_the_serial_run_computes_and_sends_the_halos_alone) {
  for (const std::string sampler : {"none", "bucket", "stride", "quadratic", "permutation"}) {
    for (const std::string reduce : {"sum", "mean"}) {
      for (const bool weighted : {true, false}) {
        const Form form{sampler, reduce, sampler == "none" ? 0 : 3, 1, weighted};
        for (const int64_t ranks : {2, 3, 4, 6}) {
          SCOPED_TRACE(fmt::format("{} {} {} on {}", sampler, reduce, weighted, ranks));
          const VerifyReport report = verified(form, plan_of(ranks));
          EXPECT_TRUE(report.ok) << report.why;
          EXPECT_EQ(report.bytes_predicted, report.bytes_counted);
          ASSERT_TRUE(report.bytes_by_kind.contains("exchange"));
          EXPECT_FALSE(report.bytes_by_kind.contains("all_gather"));
          EXPECT_FALSE(report.bytes_by_kind.contains("reduce_scatter"));
          // Forward counts twice if the gradient of the values reads the rows again.
          const int64_t times = weighted ? 3 : 2, columns = 6 + 3;
          EXPECT_LT(report.bytes_by_kind.at("exchange"),
                    3 * times * (ranks - 1) * kNodes * columns * 8);
        }
      }
    }
  }
}

TEST(RowExchange, works_in_narrow_dtypes_and_beside_another_axis) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Form form;
    form.dtype = dtype;
    const VerifyReport report = verified(form, plan_of(3));
    // The loss is one number, which alone may be off by a rounding of bfloat16.
    EXPECT_LE(report.loss_error, 2 * report.tolerances.loss) << dtype_name(dtype);
    EXPECT_LE(report.gradients_error, report.tolerances.gradients) << report.worst_gradient;
    EXPECT_LE(report.parameters_error, report.tolerances.parameters) << report.worst_parameter;
    EXPECT_EQ(report.bytes_predicted, report.bytes_counted);
    EXPECT_TRUE(report.bytes_by_kind.contains("exchange"));
  }
  const std::string hidden = ", { ops = \"*\", dim = \"hidden\", over = \"tp\" }";
  const VerifyReport report = verified({}, plan_of(2, ", tp = 2", hidden));
  EXPECT_TRUE(report.ok) << report.why;
  EXPECT_TRUE(report.bytes_by_kind.contains("exchange"));
}

TEST(RowExchange, of_more_ranks_than_nodes) {
  const VerifyReport report = verified({}, plan_of(kNodes + 3));
  EXPECT_TRUE(report.ok) << report.why;
}

}  // namespace
}  // namespace tessera::row_exchange_test
