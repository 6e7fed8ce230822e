// Checks how much work instructions are: every kind has a rule, pieces add up to the op, causal
// boxes count the scores that the mask leaves.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/cost/op_cost.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/program/test_programs.h"

namespace tessera {
namespace {

TEST(OpWork, every_kind_has_a_rule) {
  std::set<WorkClass> classes;
  for (const KindInfo* kind : all_kinds()) classes.insert(*kind->work);
  EXPECT_EQ(classes.size(), 11U);
}

// The work that one step of all ranks computes, by op.
struct Total {
  double flops = 0, points = 0;
};
std::map<OpId, Total> totals_of(const TestPrograms& lowered) {
  std::map<OpId, Total> totals;
  for (const Program& program : lowered.programs) {
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto* compute = std::get_if<Compute>(&instruction.body);
        if (compute == nullptr) continue;
        const auto runs =
            static_cast<double>(instruction.when == When::kAlways ? program.runs(ref) : int64_t{1});
        Total& total = totals[compute->op];
        total.flops += runs * work_of(lowered.graph, program, *compute).flops;
        total.points += runs * static_cast<double>(compute->box.volume());
      }
    }
  }
  return totals;
}
double points_of(const Op& op) {
  double points = 1;
  for (const OpDim& dim : op.annotation.dims) points *= static_cast<double>(dim.size);
  return points;
}

struct Counted {
  int ops = 0, attention = 0;
};
// Checks every op that computes nothing twice.
Counted expect_pieces_add_up(const Graph& graph, const std::string& plan) {
  const TestPrograms lowered = lower_all(graph, plan);
  Counted counted;
  for (const auto& [id, total] : totals_of(lowered)) {
    const Op& op = lowered.graph.op(id);
    const bool attention = op.kind.starts_with("attention");
    if (total.points > points_of(op) || (!attention && total.points < points_of(op))) continue;
    const auto flops = static_cast<double>(op_flops(op));
    EXPECT_NEAR(total.flops, flops, 1e-9 * flops) << plan << ": " << op.path;
    ++counted.ops;
    counted.attention += attention ? 1 : 0;
  }
  return counted;
}

TEST(OpWork, of_pieces_adds_up_to_the_op) {
  TestModel model;
  model.seq = 16;
  const Graph graph = trained(test_transformer(model));
  for (const char* plan :
       {"serial", "data_parallel(2)", "megatron(tp=2)", "megatron(tp=2, micro_batches=4)",
        "megatron(tp=2, pp=2, dp=2, micro_batches=2)", "fsdp(2)"}) {
    const Counted counted = expect_pieces_add_up(graph, plan);
    EXPECT_GE(counted.ops, 40) << plan;
    EXPECT_EQ(counted.attention, 4) << plan;
  }
}

TEST(OpWork, of_attention_over_a_ring_adds_up_to_half) {
  TestModel model;
  model.seq = 16;
  const Graph graph = trained(test_transformer(model));
  for (const char* plan : {"ring_attention(2)", "ring_attention(4)", "ulysses(2)"}) {
    EXPECT_EQ(expect_pieces_add_up(graph, plan).attention, 4) << plan;
  }
}

// ---- causal boxes
// -------------------------------------------------------------------------------
struct Core {
  Graph graph;
  Op op;
};
Core causal_core(int64_t queries, int64_t keys, const std::string& order) {
  GraphBuilder g("core");
  const Dim batch{"batch", 1}, heads{"heads", 1}, group{"group", 1}, d{"head_dim", 2};
  const auto q = g.input("q", {batch, {"seq", queries}, heads, group, d}, DType::kFloat32);
  const auto k = g.input("k", {batch, {"seq", keys}, heads, d}, DType::kFloat32);
  const auto v = g.input("v", {batch, {"seq", keys}, heads, d}, DType::kFloat32);
  g.op("core", "attention", {q, k, v}, {{"causal", int64_t{1}}, {"order", order}});
  Core core{g.graph(), {}};
  core.op = core.graph.ops().at(0);
  return core;
}

RC_GTEST_PROP(OpWork, of_a_causal_box_is_what_the_mask_leaves, ()) {
  const int64_t keys = *rc::gen::inRange<int64_t>(1, 20);
  const std::string order = *rc::gen::element<std::string>("", "zigzag:4", "striped:3");
  const int64_t queries = order.empty() ? *rc::gen::inRange<int64_t>(1, keys + 1) : keys;
  const Core core = causal_core(queries, keys, order);
  const auto piece = [](int64_t size) {
    const int64_t begin = *rc::gen::inRange<int64_t>(0, size);
    return Interval{begin, *rc::gen::inRange<int64_t>(1, size - begin + 1)};
  };
  const Interval q = piece(queries), k = piece(keys);
  Compute compute;
  compute.op = core.op.id;
  for (const OpDim& dim : core.op.annotation.dims) compute.box.dims.push_back({0, dim.size});
  compute.box.dims[static_cast<size_t>(core.op.annotation.find("seq"))] = q;
  compute.box.dims[static_cast<size_t>(core.op.annotation.find("kv"))] = k;
  const auto positions = [&](Interval interval, int64_t size) {
    std::vector<int64_t> out;
    for (const OpRun& run : runs_of(*parse_order(order), size, interval)) {
      for (int64_t i = 0; i < run.size; ++i) out.push_back(run.first + i * run.stride);
    }
    return out;
  };
  double seen = 0;
  for (const int64_t query : positions(q, queries)) {
    for (const int64_t key : positions(k, keys)) {
      const int64_t at = query + keys - queries;
      seen += key < at ? 1 : key == at ? .5 : 0;
    }
  }
  const OpWork work = work_of(core.graph, Program(), compute);
  RC_ASSERT(std::abs(work.visible * static_cast<double>(q.size * k.size) - seen) < 1e-9);
}

Compute whole(const Op& op) {
  Compute compute;
  compute.op = op.id;
  compute.kind = op.kind;
  for (const OpDim& dim : op.annotation.dims) compute.box.dims.push_back({0, dim.size});
  return compute;
}

// 6 maps of 9 x 9, 5 x 5 positions, 8 channels to 16: the products that im2col would make.
TEST(OpWork, a_convolution_is_its_implicit_product) {
  GraphBuilder g("conv");
  const Dim batch{"batch", 2}, sample{"sample", 3};
  const auto x = g.parameter("x", {batch, sample, {"c", 8}, {"y", 9}, {"x", 9}}, {});
  const auto w = g.parameter("w", {{"o", 16}, {"c", 8}, {"kh", 3}, {"kw", 3}}, {});
  const auto y = g.op1("op", "conv", {x, w}, {{"stride", "2"}, {"padding", "1"}});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "batch sample o y x"}});
  OptimizerSpec none;
  none.kind = "none";
  const auto graph = differentiate(*g.finish(), none);
  ASSERT_TRUE(graph) << graph.error().message;
  const auto expect = [&](std::string_view path, double m, double n, double k) {
    const auto found = std::find_if(graph->ops().begin(), graph->ops().end(),
                                    [&](const Op& op) { return op.path == path; });
    ASSERT_NE(found, graph->ops().end()) << path;
    const Op& op = *found;
    const Compute compute = whole(op);
    const OpWork work = work_of(*graph, Program(), compute);
    EXPECT_EQ(work.kind, WorkClass::kConvolution) << path;
    EXPECT_EQ(work.batch, 1) << path;
    EXPECT_EQ(work.m, m) << path;
    EXPECT_EQ(work.n, n) << path;
    EXPECT_EQ(work.k, k) << path;
    EXPECT_EQ(work.flops, 2 * m * n * k) << path;
    EXPECT_FALSE(work.winograd) << "its stride is 2";
  };
  expect("op", 150, 16, 72);
  expect("op.dx", 150, 8, 144);
  expect("op.dw", 16, 72, 150);
}

// Blocks without a number, such as heads that predict tokens further ahead, stay in 16 bits where
// blocks with a number are narrowed.
TEST(OpWork, only_numbered_blocks_are_blocks) {
  GraphBuilder g("paths");
  const auto x = g.input("x", {{"a", 2}, {"b", 3}}, DType::kBFloat16);
  for (const char* path : {"blocks.3.up", "blocks.mtp_0_1.up", "blocks", "head"})
    g.op1(path, "relu", {x});
  const Graph& graph = g.graph();
  std::string marks;
  for (const Op& op : graph.ops()) marks += work_of(graph, Program(), whole(op)).block ? '1' : '0';
  EXPECT_EQ(marks, "1000");
}

// Sizes of a scan: tokens, heads that share B and C, heads of each, head_dim, state.
struct ScanSizes {
  int64_t tokens, groups, group, head_dim, state, chunk;
};
Graph scan_graph(const ScanSizes& s) {
  GraphBuilder g("scan");
  const Dim batch{"batch", 1}, seq{"seq", s.tokens}, heads{"heads", s.groups}, n{"state", s.state},
      group{"group", s.group}, p{"head_dim", s.head_dim};
  const auto input = [&](const char* name, std::vector<Dim> dims) {
    return g.parameter(name, std::move(dims), {}, DType::kBFloat16);
  };
  const auto y =
      g.op1("op", "state_scan",
            {input("x", {batch, seq, heads, group, p}), input("dt", {batch, seq, heads, group}),
             input("a", {heads, group}), input("b", {batch, seq, heads, n}),
             input("c", {batch, seq, heads, n}), input("d", {heads, group})},
            {{"chunk", s.chunk}});
  g.graph().loss = g.op1("loss", "reduce_sum", {y}, {{"dims", "batch seq heads group head_dim"}});
  OptimizerSpec none;
  none.kind = "none";
  return *differentiate(*g.finish(), none);
}
OpWork scan_work(const Graph& graph, std::string_view kind) {
  for (const Op& op : graph.ops()) {
    if (op.kind != kind) continue;
    Compute compute = whole(op);
    Program program;
    for (const std::vector<TensorId>* operands : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *operands) {
        View view;
        view.buffer = BufferId(program.buffers.size());
        for (const int64_t size : graph.tensor(id).shape()) view.box.dims.push_back({0, size});
        Buffer buffer;
        buffer.dtype = graph.tensor(id).dtype;
        program.buffers.push_back(buffer);
        if (operands == &op.inputs) {
          compute.inputs.push_back(view);
        } else {
          compute.outputs.emplace_back().view = view;
        }
      }
    }
    return work_of(graph, program, compute);
  }
  return {};
}

// Computed by hand: a head and token has Q P + 4 P N flops, a group and token Q N; the states of
// chunks go to memory four times, two of them in float32.
TEST(OpWork, a_scan_is_its_chunks) {
  const Graph graph = scan_graph({512, 2, 4, 16, 32, 64});
  const OpWork forward = scan_work(graph, "state_scan");
  EXPECT_EQ(forward.kind, WorkClass::kScan);
  EXPECT_EQ(forward.flops, 512 * (8 * 16 * (64 + 4 * 32) + 2 * 64 * 32));
  const double states = 16. * 32 / 64;
  EXPECT_NEAR(forward.bytes_read + forward.bytes_written,
              512 * (8 * (6 * 16 + 12 * states + 26) + 2 * (8 * 32 + 8 * 64)), 1);
  const OpWork backward = scan_work(graph, "state_scan_grad");
  EXPECT_TRUE(backward.backward);
  EXPECT_EQ(backward.flops, 512 * (8 * 16 * (3 * 64 + 10 * 32) + 3 * 2 * 64 * 32));
  EXPECT_GT(backward.bytes_read + backward.bytes_written,
            2 * (forward.bytes_read + forward.bytes_written));
}

// vLLM's pull request 27299, on one H100: 128 heads of 64 numbers, one group, state 128, chunks of
// 256: 10.7 to 12.9 million tokens a second at 8192 tokens and more.
TEST(OpWork, a_scan_takes_what_was_measured_on_hopper) {
  Device device;
  device.generation = Generation::named("hopper");
  device.peak = {{"fp32", 67e12}, {"bf16", 989e12}};
  device.memory_rate = 3350e9;
  device.units = 132;
  const OpWork work = scan_work(scan_graph({16384, 1, 128, 64, 128, 256}), "state_scan");
  const double rate = 16384 / OpCosts(device, Style(), nullptr).cost(work).kernel_s;
  EXPECT_GT(rate, 10.7e6);
  EXPECT_LT(rate, 12.9e6);
}

}  // namespace
}  // namespace tessera
