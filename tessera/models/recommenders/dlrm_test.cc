// dlrm: sizes of the benchmark's model, dims, errors.
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"

namespace tessera::dlrm_test {
namespace {

// The tables and bags of MLPerf's recommendation benchmark of 2023 (docs/theory/zionex-dlrm.md
// section 2), and its layers.
const std::string kRows =
    "40000000-39060-17295-7424-20265-3-7122-1543-63-40000000-3067956-405282-10-2209-11938-155-4-"
    "976-14-40000000-40000000-40000000-590152-12973-108-36";
const std::string kBags = "3-2-1-2-6-1-1-1-1-7-3-8-1-6-9-5-1-1-1-12-100-27-10-3-1-1";
const std::string kBenchmark = "dlrm:dense=13,rows=" + kRows + ",bags=" + kBags +
                               ",width=128,bottom=512-256-128,top=1024-1024-512-256-1";

int64_t count(const Graph& graph, std::string_view prefix) {
  int64_t elements = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && tensor.name.starts_with(prefix))
      elements += tensor.elements();
  }
  return elements;
}

int64_t dense(std::vector<int64_t> widths) {
  int64_t elements = 0;
  for (size_t i = 1; i < widths.size(); ++i) elements += (widths[i - 1] + 1) * widths[i];
  return elements;
}

TEST(Dlrm, HasTheParametersOfTheBenchmark) {
  const auto cross = build_model(kBenchmark + ",interaction=cross,layers=3,rank=512", 1);
  ASSERT_TRUE(cross) << cross.error().message;
  EXPECT_EQ(count(cross->graph, "tables."), 204'184'588LL * 128);
  EXPECT_EQ(count(cross->graph, "bottom."), dense({13, 512, 256, 128}));
  const int64_t flat = 27 * 128;
  EXPECT_EQ(count(cross->graph, "interaction."), 3 * (2 * flat * 512 + flat));
  EXPECT_EQ(count(cross->graph, "top."), dense({flat, 1024, 1024, 512, 256, 1}));
  const auto dot = build_model(kBenchmark, 1);
  ASSERT_TRUE(dot) << dot.error().message;
  EXPECT_EQ(count(dot->graph, "top."), dense({128 + 27 * 26 / 2, 1024, 1024, 512, 256, 1}));
  EXPECT_EQ(count(dot->graph, "interaction."), 0);
}

TEST(Dlrm, ReadsBagsOfIdsAndSaysWhichThereAre) {
  const auto model = build_model("dlrm:rows=7-5,bags=3-1,width=4,bottom=4,top=1", 6);
  ASSERT_TRUE(model) << model.error().message;
  const Graph& graph = model->graph;
  const auto dims_of = [&](const char* name) {
    return describe(graph.tensor(graph.find_tensor(name)).dims);
  };
  EXPECT_EQ(dims_of("ids.0"), "[batch=6, fields=1, bag=3]");
  EXPECT_EQ(dims_of("tables.1"), "[batch=6, fields=1, width=4]");
  EXPECT_EQ(dims_of("interaction.fields"), "[batch=6, fields=3, width=4]");
  EXPECT_EQ(dims_of("interaction.join"), "[batch=6, fields=1, others=7]") << "4 and 3 pairs";
  ASSERT_EQ(model->inputs.size(), 3U);
  EXPECT_EQ(model->inputs[0].values, 7);
  EXPECT_EQ(model->inputs[0].mask, InputRule::Mask::kBag);
  EXPECT_EQ(model->inputs[1].mask, InputRule::Mask::kNone) << "a bag of one is full";
  EXPECT_EQ(model->inputs[2].values, 2);
}

TEST(Dlrm, RefusesLayersThatDoNotFit) {
  const auto error_of = [](std::string_view spec) {
    const auto model = build_model(spec, 1);
    return model ? "" : model.error().message;
  };
  EXPECT_EQ(error_of("dlrm:rows=7-5,bags=3-1-2"),
            "model 'dlrm': bags=3-1-2 must be one number or 2, one a table");
  EXPECT_EQ(error_of("dlrm:width=8,bottom=16-4"),
            "model 'dlrm': bottom=16-4 must end with width=8");
  EXPECT_EQ(error_of("dlrm:top=16-2"), "model 'dlrm': top=16-2 must end with 1, the logit");
}

}  // namespace
}  // namespace tessera::dlrm_test
