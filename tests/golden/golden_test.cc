// Golden programs: the table of docs/theory/lowering.md section 4, C[m,n] = A[m,k] B[k,n] under
// each of its plans, as the text of one rank's program. TESSERA_REWRITE_GOLDEN=1 writes the files
// anew; read the differences before you keep them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "tessera/graph/builder.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/lower.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"
#include "tessera/test/source_dir.h"

namespace tessera::golden_test {
namespace {

// C = A B, loss = sum of the squares of C; plain gradient descent on A and B.
Graph product(int64_t m, int64_t n, int64_t k) {
  GraphBuilder g("product");
  const Init init{Init::Kind::kNormal, 1};
  const auto a = g.parameter("A", {{"m", m}, {"k", k}}, init);
  const auto b = g.parameter("B", {{"k", k}, {"n", n}}, init);
  const auto c = g.op1("C", "einsum", {a, b}, {{"spec", std::string("m k+, k n -> m n")}});
  const auto square = g.op1("square", "mul", {c, c});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {square}, {{"dims", std::string("m n")}, {"factor", 0.5}});
  const auto forward = g.finish();
  EXPECT_TRUE(forward.has_value());
  OptimizerSpec descent;
  descent.kind = "sgd";
  descent.momentum = 0;
  descent.weight_decay = 0;
  descent.clip_norm = 0;
  const auto graph = differentiate(*forward, descent);
  EXPECT_TRUE(graph.has_value());
  return *graph;
}

struct Golden {
  std::string name;
  int64_t m, n, k;
  int rank;  // whose program is kept
  std::string plan;
};

std::string rest_of(const std::string& over_m, const std::string& over_n) {
  std::string out;
  for (const auto& [dim, over] : {std::pair{"m", over_m}, std::pair{"n", over_n}}) {
    if (over.empty()) continue;
    out += fmt::format("  {{ ops = \"{{square,loss}}\", dim = \"{}\", over = {} }},\n", dim, over);
  }
  return out;
}

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
      {"m_over_dp", 4, 2, 2, 1,
       "mesh = { dp = 2 }\nsplit = [\n  { ops = \"C\", dim = \"m\", over = \"dp\" },\n" +
           rest_of("\"dp\"", "") + "]\n"},
      {"n_over_tp", 2, 4, 2, 1,
       "mesh = { tp = 2 }\nsplit = [\n  { ops = \"C\", dim = \"n\", over = \"tp\" },\n" +
           rest_of("", "\"tp\"") + "]\n"},
      {"k_over_tp", 2, 2, 4, 1,
       "mesh = { tp = 2 }\nsplit = [\n  { ops = \"C\", dim = \"k\", over = \"tp\" },\n]\n"},
      {"summa", 4, 4, 4, 1,
       "mesh = { row = 2, col = 2 }\nsplit = [\n"
       "  { ops = \"C\", dim = \"m\", over = \"row\" },\n"
       "  { ops = \"C\", dim = \"n\", over = \"col\" },\n"
       "  { ops = \"C\", dim = \"k\", over = \"time:2\" },\n" +
           rest_of("\"row\"", "\"col\"") +
           "]\nstore = [\n  { tensors = \"A\", over = \"col\" },\n"
           "  { tensors = \"B\", over = \"row\" },\n]\n"},
      {"cannon", 3, 3, 3, 5,
       "mesh = { row = 3, col = 3 }\nsplit = [\n"
       "  { ops = \"C\", dim = \"m\", over = \"row\" },\n"
       "  { ops = \"C\", dim = \"n\", over = \"col\" },\n"
       "  { ops = \"C\", dim = \"k\", over = \"time:3\", order = \"rotated\", skew = [\"row\", "
       "\"col\"] },\n" +
           rest_of("\"row\"", "\"col\"") +
           "]\nstore = [\n  { tensors = \"A\", over = \"col\" },\n"
           "  { tensors = \"B\", over = \"row\" },\n]\n"},
      {"summa_with_depth", 8, 4, 4, 5,
       "mesh = { depth = 2, row = 2, col = 2 }\nsplit = [\n"
       "  { ops = \"C\", dim = \"m\", over = [\"depth\", \"row\"] },\n"
       "  { ops = \"C\", dim = \"n\", over = \"col\" },\n"
       "  { ops = \"C\", dim = \"k\", over = \"time:2\" },\n" +
           rest_of("[\"depth\", \"row\"]", "\"col\"") +
           "]\nstore = [\n  { tensors = \"A\", over = \"col\" },\n"
           "  { tensors = \"B\", over = \"row\" },\n]\n"},
      {"three_dims", 4, 2, 4, 3,
       "mesh = { x = 2, y = 2, z = 2 }\nsplit = [\n"
       "  { ops = \"C\", dim = \"m\", over = \"x\" },\n"
       "  { ops = \"C\", dim = \"n\", over = \"y\" },\n"
       "  { ops = \"C\", dim = \"k\", over = \"z\" },\n" +
           rest_of("[\"x\", \"z\"]", "\"y\"") +
           "]\nstore = [\n  { tensors = \"A\", over = \"y\", dim = \"k\" },\n"
           "  { tensors = \"B\", over = \"x\", dim = \"k\" },\n]\n"},
  };
  return all;
}

class ProductUnder : public testing::TestWithParam<Golden> {};

TEST_P(ProductUnder, its_plan_lowers_to_the_golden_program) {
  const Golden& golden = GetParam();
  const auto plan = parse_plan(golden.plan, golden.name);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto prepared = prepare(product(golden.m, golden.n, golden.k), *plan);
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  const auto graph = std::make_shared<const Graph>(prepared->graph);
  const auto lowering = Lowering::create(graph, prepared->plan);
  ASSERT_TRUE(lowering.has_value()) << lowering.error().message;
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(prepared->plan.ranks); ++rank) {
    programs.push_back(*lowering->lower(rank));
  }
  const auto rejections = verify(*graph, programs);
  EXPECT_TRUE(rejections.empty()) << (rejections.empty() ? "" : rejections[0].to_string());
  std::string text = "// C[m,n] = A[m,k] B[k,n]\n";
  std::istringstream lines(golden.plan);
  for (std::string line; std::getline(lines, line);) text += "// " + line + "\n";
  text += to_text(programs[static_cast<size_t>(golden.rank)], *graph);

  const std::string path = TESSERA_SOURCE_DIR "/tests/golden/" + golden.name + ".program";
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream kept;
  kept << file.rdbuf();
  EXPECT_EQ(text, kept.str()) << path << "; if it is meant: TESSERA_REWRITE_GOLDEN=1";
}

INSTANTIATE_TEST_SUITE_P(Plans, ProductUnder, testing::ValuesIn(goldens()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tessera::golden_test
