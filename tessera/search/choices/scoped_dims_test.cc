#include "tessera/search/choices/scoped_dims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/compile/compile.h"
#include "tessera/models/model.h"
#include "tessera/search/price/fold.h"

namespace tessera {
namespace {

using DimList = std::vector<std::string>;

Model mixture() {
  return build_model("mixtral:layers=2,hidden=32,heads=2,seq=16,vocab=64,ffn=32,experts=4", 8)
      .value();
}

const Op& op_at(const Graph& graph, std::string_view path) {
  const auto found = std::find_if(graph.ops().begin(), graph.ops().end(),
                                  [&](const Op& op) { return op.path == path; });
  EXPECT_NE(found, graph.ops().end()) << path;
  return *found;
}

TEST(ScopedDims, AScopeIsAPathInABlockOrItsFirstWords) {
  const Model model = mixture();
  const Op& router = op_at(model.graph, "blocks.1.moe.router");
  EXPECT_EQ(path_in_block(router), "moe.router");
  EXPECT_TRUE(is_in_scope(router, "moe"));
  EXPECT_TRUE(is_in_scope(router, "moe.router"));
  EXPECT_FALSE(is_in_scope(router, "mo"));
  EXPECT_FALSE(is_in_scope(router, "moe.router.more"));
  EXPECT_FALSE(is_in_scope(router, "blocks"));
  EXPECT_EQ(path_in_block(op_at(model.graph, "embed.token")), "embed.token");
}

TEST(ScopedDims, AnEntryWithAScopeIsMeantThereAlone) {
  const Model model = mixture();
  const ChoiceAxis axis{"tp", 2, {"moe.router/batch", "experts", "batch"}};
  EXPECT_EQ(dim_to_cut(op_at(model.graph, "blocks.0.moe.router"), axis), "batch");
  EXPECT_EQ(dim_to_cut(op_at(model.graph, "blocks.0.moe.gate"), axis), "experts");
  EXPECT_EQ(dim_to_cut(op_at(model.graph, "blocks.0.attn.q"), axis), "batch");
}

TEST(ScopedDims, EditsAreOfOtherDimsOfTheListEachResultOnce) {
  const Model model = mixture();
  const ChoiceAxis axis{"tp", 2, {"experts", "batch"}};
  const std::vector<DimList> edits = scoped_edits(model.graph, axis);
  const DimList router = {"moe.router/batch", "experts", "batch"};
  EXPECT_EQ(std::count(edits.begin(), edits.end(), router), 1);
  std::set<std::string> cuts = {cuts_of(model.graph, {axis})};
  for (const DimList& list : edits) {
    EXPECT_EQ(list.size(), 3U);
    EXPECT_TRUE(cuts.insert(cuts_of(model.graph, {{"tp", 2, list}})).second) << list.front();
  }
  EXPECT_TRUE(scoped_edits(model.graph, {"tp", 2, {"batch"}}).empty());
}

// The plan's text says the same as the list.
TEST(ScopedDims, APlanCutsPartsOfABlockOtherwise) {
  const Model model = mixture();
  const Fold fold = fold_layers(model.graph).value();
  Choice choice;
  choice.axes = {{"dp", 1, {"batch"}}, {"tp", 2, {"moe.router/batch", "experts", "batch"}}};
  const std::string text = write_plan(choice, model.graph, fold.units, "a test").value();
  Compiler compiler;
  const auto whole = compiler.model(model.spec, 8).value();
  const auto lowering = compiler.lower(forward_of(whole), parse_plan(text).value());
  ASSERT_TRUE(lowering) << text << lowering.error().message;
  const std::map<std::string, std::string> expected = {{"blocks.1.moe.router", "batch"},
                                                       {"blocks.1.moe.gate", "experts"}};
  for (const auto& [path, dim] : expected) {
    const Op& op = op_at((*lowering)->graph(), path);
    const OpPlan& plan = (*lowering)->plan().ops[op.id.index()];
    for (size_t d = 0; d < op.annotation.dims.size(); ++d)
      EXPECT_EQ(!plan.dims[d].axes.empty(), op.annotation.dims[d].name == dim) << path;
  }
}

}  // namespace
}  // namespace tessera
