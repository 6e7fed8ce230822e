#include "tessera/program/program.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

Annotation bound(const std::string& text, std::vector<int64_t> sizes) {
  Annotation annotation = *parse_annotation(text);
  EXPECT_EQ(annotation.dims.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) annotation.dims.own()[i].size = sizes[i];
  return annotation;
}

TEST(Project, takes_the_dims_of_the_operand) {
  const Annotation a = bound("m k+, k+ n -> m n", {8, 4, 6});
  const Box box({{2, 3}, {1, 2}, {0, 6}});
  EXPECT_EQ(project(a, a.inputs[0], box), Box({{2, 3}, {1, 2}}));
  EXPECT_EQ(project(a, a.inputs[1], box), Box({{1, 2}, {0, 6}}));
  EXPECT_EQ(project(a, a.outputs[0], box), Box({{2, 3}, {0, 6}}));
}

TEST(Project, first_of_a_bracket_moves) {
  const Annotation a = bound("(h p) w -> h p w", {4, 3, 5});
  EXPECT_EQ(project(a, a.inputs[0], Box({{1, 2}, {0, 3}, {0, 5}})), Box({{3, 6}, {0, 5}}));
  const Annotation unit = bound("(h p) w -> h p w", {1, 3, 5});
  EXPECT_EQ(project(unit, unit.inputs[0], Box({{0, 1}, {1, 2}, {0, 5}})), Box({{1, 2}, {0, 5}}));
}

TEST(Project, causal_keys_end_at_the_last_query) {
  const Annotation a = bound("b q d^, b kv^<q d^ -> b q d^", {2, 8, 4, 8});
  const Box box({{0, 2}, {2, 2}, {0, 4}, {0, 8}});
  EXPECT_EQ(project(a, a.inputs[1], box), Box({{0, 2}, {0, 4}, {0, 4}}));
}

TEST(Project, windows_need_the_halo_and_no_padding) {
  auto a = parse_annotation("b y~3/2/1 -> b y");
  ASSERT_TRUE(a && bind_sizes(*a, {{2, 8}}, {{2, 4}}));
  const auto input = [&](Interval y) {
    return project(*a, a->inputs[0], Box({{0, 2}, y})).dims[1];
  };
  EXPECT_EQ(input({0, 2}), (Interval{0, 4}));
  EXPECT_EQ(input({1, 2}), (Interval{1, 5}));
  EXPECT_EQ(input({2, 2}), (Interval{3, 5}));
  EXPECT_EQ(input({0, 4}), (Interval{0, 8})) << "all positions: the whole dim";
  EXPECT_EQ(input({4, 0}).size, 0);
  EXPECT_EQ(project(*a, a->outputs[0], Box({{0, 2}, {1, 2}})).dims[1], (Interval{1, 2}));
}

TEST(Project, windows_belong_to_one_operand) {
  auto a = parse_annotation("b o y^, b c y~1/2/0 -> o c");
  ASSERT_TRUE(a && bind_sizes(*a, {{2, 3, 4}, {2, 5, 8}}, {{3, 5}}));
  const Box all({{0, 2}, {0, 3}, {0, 4}, {0, 5}});
  EXPECT_EQ(project(*a, a->inputs[0], all).dims[2], (Interval{0, 4})) << "plain positions";
  EXPECT_EQ(project(*a, a->inputs[1], all).dims[2], (Interval{0, 8})) << "also what no window sees";
  auto scatter = parse_annotation("b y^ -> b y~3/2/1");
  ASSERT_TRUE(scatter && bind_sizes(*scatter, {{2, 4}}, {{2, 8}}));
  EXPECT_EQ(project(*scatter, scatter->outputs[0], Box({{0, 2}, {0, 4}})).dims[1],
            (Interval{0, 8}));
}

TEST(MicroBatch, regions_move_along_the_named_dim) {
  Program program;
  program.micro_batch_dim = "batch";
  program.micro_batch_size = 4;
  Tensor tensor;
  tensor.dims = {{"seq", 3}, {"batch", 8}};
  EXPECT_EQ(micro_batch_dim_of(program, tensor), 1);
  EXPECT_EQ(at_micro_batch(program, Box({{0, 3}, {0, 2}}), 1, 1), Box({{0, 3}, {4, 2}}));
  tensor.dims = {{"seq", 3}};
  EXPECT_EQ(micro_batch_dim_of(program, tensor), -1);
  EXPECT_EQ(at_micro_batch(program, Box({{0, 3}}), -1, 1), Box({{0, 3}}));
}

TEST(VolumeOf, counts_a_block_by_its_runs_and_last_once) {
  Graph graph;
  Tensor x;
  x.name = "x";
  x.dims = {{"batch", 8}};
  graph.add_tensor(x);
  Program program;
  program.groups = {Group{PlaceId(0), {}, {0, 1}, 0}};
  Buffer buffer;
  buffer.id = BufferId(0);
  buffer.shape = {8};
  program.buffers = {buffer};
  const Box whole({{0, 8}});
  const View view{BufferId(0), whole};
  Issue issue;
  issue.kind = CollectiveKind::kAllReduce;
  issue.combiner = Combiner::kSum;
  issue.transfers = {{TensorId(0), {whole, whole}, {whole, whole}, view, view}};
  program.block(BlockKind::kBackward) = {
      {issue, When::kLast, {}}, {Send{1, 1, 0, TensorId(0), whole, view}, When::kAlways, {}}};
  program.schedule = {{BlockKind::kBackward, 0}, {BlockKind::kBackward, 1}};
  const Volume found = volume(program, graph);
  EXPECT_EQ(found.by_kind.at("all_reduce"), (Traffic{32, 2}));
  EXPECT_EQ(found.by_kind.at("send"), (Traffic{64, 2}));
  EXPECT_EQ(found.bytes(), 96);
  EXPECT_EQ(volume(program, graph, [](const Tensor& t) { return t.name != "x"; }).bytes(), 0);
}

}  // namespace
}  // namespace tessera
