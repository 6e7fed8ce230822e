// Tests a small vector-quantised auto-encoder under plans that cut the codebook over ranks: the
// nearest codes, the straight-through gradient and the gradient of the codes are those of the
// serial run.
#include <gtest/gtest.h>

#include <fstream>

#include "tessera/graph/builder.h"
#include "tessera/models/vision/images.h"
#include "tessera/runtime/session.h"

namespace tessera::codebook_test {
namespace {

constexpr int64_t kBatch = 6;

// Maps x by a product to points, to their nearest codes, and back. Adds the losses of the codes and
// of the points' distance to them (van den Oord et al., 2017).
Graph auto_encoder() {
  GraphBuilder g("quantiser");
  const DType t = DType::kFloat32;
  const Dim batch{"batch", kBatch}, in{"in", 5}, points{"points", 4}, width{"width", 3};
  const TensorId x = g.input("x", {batch, in}, t);
  const TensorId encoder = g.parameter("encoder.weight", {in, points, width}, normal(0.5), t),
                 codebook = g.parameter("codebook.weight", {{"codes", 7}, width}, normal(0.5), t),
                 decoder = g.parameter("decoder.weight", {points, width, in}, normal(0.5), t);
  const TensorId z = g.op1("encoder", "einsum", {x, encoder},
                           {{"spec", "batch in+, in points width -> batch points width"}});
  const Quantised nearest = vector_quantised(g, "nearest", z, codebook);
  const TensorId y = g.op1("decoder", "einsum", {nearest.straight, decoder},
                           {{"spec", "batch points+ width+, points width in -> batch in"}});
  const auto constant = [&](const char* name, TensorId of) {
    return g.op1(name, "stop_gradient", {of});
  };
  const TensorId rebuilt = mean_square_error(g, "loss.rebuilt", y, x),
                 codes = mean_square_error(g, "loss.codes", nearest.codes, constant("fixed.z", z)),
                 held =
                     mean_square_error(g, "loss.held", z, constant("fixed.codes", nearest.codes));
  const TensorId part = g.op1("loss.part", "scale", {held}, {{"factor", 0.4}});
  g.graph().loss = g.op1("loss", "add_n", {rebuilt, codes, part});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

TEST(Codebook, InPiecesTrainsAsTheWholeOne) {
  const std::string model = ::testing::TempDir() + "/quantiser.graph",
                    plan = ::testing::TempDir() + "/codebook.toml";
  std::ofstream(model) << to_text(auto_encoder());
  for (const auto& [mesh, ranks] :
       {std::pair{"{ c = 2 }", 2}, {"{ c = 3 }", 3}, {"{ c = 4, d = 2 }", 8}}) {
    const bool replicas = ranks == 8;
    std::ofstream(plan)
        << "mesh = " << mesh << "\nsplit = [\n"
        << " { ops = \"nearest.{codes,score,place,code}\", dim = \"codes\", over = \"c\" },\n"
        << (replicas ? " { ops = \"*\", dim = \"batch\", over = \"d\" },\n" : "") << "]\n";
    VerifyConfig config;
    config.model = model;
    config.plan = plan;
    config.batch = kBatch;
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok) << mesh << ": " << report->why;
    EXPECT_EQ(report->ranks, ranks);
  }
}

}  // namespace
}  // namespace tessera::codebook_test
