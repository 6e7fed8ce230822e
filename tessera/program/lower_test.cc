// Lowering: the contents of a rank's program under each kind of plan. The verifier checks
// that programs are right.
#include "tessera/program/lower.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/graph/transform.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/verify/verify.h"

namespace tessera::lower_test {
namespace {

template <class Body>
std::vector<const Body*> all_of(const std::vector<Instruction>& block) {
  std::vector<const Body*> out;
  for (const Instruction& instruction : block) {
    if (const auto* body = std::get_if<Body>(&instruction.body)) out.push_back(body);
  }
  return out;
}
template <class Body>
int position(const std::vector<Instruction>& block, const std::function<bool(const Body&)>& is) {
  for (size_t i = 0; i < block.size(); ++i) {
    const auto* body = std::get_if<Body>(&block[i].body);
    if (body != nullptr && is(*body)) return static_cast<int>(i);
  }
  return -1;
}

Lowering lowering_of(const Graph& graph, const std::string& plan) {
  const auto text =
      plan.find("mesh") != std::string::npos ? Result<std::string>(plan) : emit_recipe(plan, graph);
  EXPECT_TRUE(text.has_value()) << plan;
  const auto prepared = prepare(graph, *parse_plan(*text, "plan.toml"));
  EXPECT_TRUE(prepared.has_value()) << prepared.error().message;
  auto lowering = Lowering::create(std::make_shared<Graph>(prepared->graph), prepared->plan);
  EXPECT_TRUE(lowering.has_value()) << lowering.error().message;
  return std::move(*lowering);
}
void expect_accepted(const TestPrograms& lowered) {
  const auto rejections = verify(lowered.graph, lowered.programs);
  EXPECT_TRUE(rejections.empty()) << (rejections.empty() ? "" : rejections[0].to_string());
}
Graph transformer(TestModel model = {}) { return trained(test_transformer(model)); }

// ---- a rank alone
struct Sizes {
  size_t buffers = 0, instructions = 0, groups = 0;
  std::vector<std::string> shapes;
  friend bool operator==(const Sizes&, const Sizes&) = default;
};
Sizes sizes(const Program& program) {
  Sizes out{program.buffers.size(), 0, program.groups.size(), {}};
  for (const auto& [ref, block] : program.blocks) out.instructions += block.size();
  for (const Buffer& buffer : program.buffers) {
    out.shapes.push_back(fmt::format("{} {}", buffer.name, Box::whole(buffer.shape).to_string()));
  }
  return out;
}

TEST(Lowering, of_a_rank_does_not_grow_with_the_mesh) {
  TestModel model;
  std::optional<Sizes> small;
  for (const int64_t dp : {2, 8, 64}) {
    model.batch = 2 * 2 * dp;
    const Lowering lowering = lowering_of(
        transformer(model), fmt::format("megatron(tp=2, pp=2, dp={}, micro_batches=2)", dp));
    const auto program = lowering.lower(3);
    ASSERT_TRUE(program.has_value());
    if (!small) small = sizes(*program);
    EXPECT_EQ(sizes(*program), *small) << dp;
    for (const Group& group : program->groups) {
      const bool replicas =
          std::find(group.axes.begin(), group.axes.end(), "dp") != group.axes.end();
      EXPECT_LE(group.members.size(), static_cast<size_t>(replicas ? 2 * dp : 2)) << dp;
    }
    EXPECT_EQ(lowering.roles().size(), 2U) << "one a stage";
  }
}

TEST(Lowering, of_a_rank_outside_the_mesh_is_an_error) {
  const Lowering lowering = lowering_of(transformer(), "data_parallel(2)");
  EXPECT_FALSE(lowering.lower(2).has_value());
}

// ---- roles
// Returns the text of a program up to origins, groups and peers.
std::string text_shape(const Program& program) {
  std::string out = fmt::format("stage {}", program.stages[0].value);
  for (const Buffer& buffer : program.buffers) out += Box::whole(buffer.shape).to_string();
  const auto view = [&](const View& v) {
    for (const Interval& dim : v.box.dims) out += fmt::format(" {}", dim.size);
    out += ";";
  };
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      out += fmt::format("\n{} ", instruction.body.index());
      if (const auto* compute = std::get_if<Compute>(&instruction.body)) {
        out += compute->kind;
        for (const View& input : compute->inputs) view(input);
        for (const Output& output : compute->outputs) view(output.view);
      } else if (const auto* issue = std::get_if<Issue>(&instruction.body)) {
        for (const Transfer& transfer : issue->transfers) {
          if (issue->kind == CollectiveKind::kReduce) continue;  // each member is root of one step
          if (transfer.in) view(*transfer.in);
          if (transfer.out) view(*transfer.out);
        }
      }
    }
  }
  return out;
}

void expect_roles_are_the_texts(const Graph& graph, const std::string& plan) {
  const Lowering lowering = lowering_of(graph, plan);
  std::map<std::string, int64_t> texts;
  const int64_t ranks = lowering.plan().ranks;
  for (int rank = 0; rank < ranks; ++rank) ++texts[text_shape(*lowering.lower(rank))];
  const std::vector<RankClass> roles = lowering.roles();
  std::set<std::string> seen;
  for (const RankClass& role : roles) {
    const std::string text = text_shape(*lowering.lower(role.representative));
    EXPECT_TRUE(seen.insert(text).second) << plan << ": two roles for one text";
    EXPECT_EQ(texts[text], role.ranks) << plan << ": rank " << role.representative;
  }
  EXPECT_EQ(roles.size(), texts.size()) << plan;
}

TEST(Roles, of_even_plans_are_one_a_stage) {
  const Graph graph = transformer();
  for (const char* plan :
       {"serial()", "data_parallel(4)", "zero(3, 4)", "tensor_parallel(2)", "summa(2)",
        "one_f_one_b(2, 4)", "megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=2)"}) {
    expect_roles_are_the_texts(graph, plan);
  }
}

// Two heads over two rows, walked in two steps: each rank has all of one step.
TEST(Roles, of_rows_that_hold_the_steps_of_a_loop_are_one_a_stage) {
  TestModel two;
  two.heads = 2;
  two.head_dim = 4;
  expect_roles_are_the_texts(transformer(two), "summa(2)");
  EXPECT_EQ(lowering_of(transformer(two), "summa(2)").roles().size(), 1);
}

TEST(Roles, of_uneven_plans_are_the_distinct_texts) {
  const Graph graph = transformer();
  expect_roles_are_the_texts(graph, "data_parallel(3)");    // batch 8 = 3 + 3 + 2
  expect_roles_are_the_texts(graph, "tensor_parallel(3)");  // heads 4, ffn 16, vocab 12
  expect_roles_are_the_texts(graph, "megatron(tp=3, dp=3)");
  const std::string nested = "split = [{ ops = \"*\", dim = \"batch\", over = [\"a\", \"b\"] }]\n";
  expect_roles_are_the_texts(graph, "mesh = { a = 3, b = 2 }\n" + nested);  // 2 1, 2 1, 1 1
  TestModel seven;
  seven.batch = 7;
  expect_roles_are_the_texts(transformer(seven), "mesh = { a = 2, b = 2 }\n" + nested);  // 2 2, 2 1
}

TEST(Roles, of_causal_attention_over_a_cut_sequence_differ_by_the_keys_they_read) {
  expect_roles_are_the_texts(
      transformer(),
      "mesh = { cp = 2, dp = 2 }\nsplit = [\n  { ops = \"*\", dim = \"seq\", over = \"cp\" },\n"
      "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n]\n");
}

// ---- gradients and micro-batches
constexpr const char* kReplicas =
    "mesh = { dp = 2 }\nmicro_batches = 2\nbucket_bytes = 0\n"
    "split = [{ ops = \"*\", dim = \"batch\", over = \"dp\" }]\n";

TEST(Gradients, accumulate_over_micro_batches_in_a_buffer_of_the_step) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), kReplicas);
  const Program& program = lowered.programs[0];
  int found = 0;
  for (const Compute* compute : all_of<Compute>(program.block(BlockKind::kBackward))) {
    for (const Output& output : compute->outputs) {
      if (!lowered.graph.tensor(output.tensor).name.ends_with(".weight")) continue;
      EXPECT_EQ(output.write, Write::kAddExceptFirst);
      EXPECT_EQ(program.buffer(output.view.buffer).lifetime, Lifetime::kStep);
      ++found;
    }
  }
  EXPECT_EQ(found, 2);
}

TEST(Gradients, are_reduced_right_after_their_last_contribution_and_waited_for_in_the_update) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), kReplicas);
  const auto& backward = lowered.programs[0].block(BlockKind::kBackward);
  for (const std::string weight : {"up.weight", "down.weight"}) {
    const TensorId gradient = lowered.graph.find_tensor("grad." + weight);
    const int made = position<Compute>(
        backward, [&](const Compute& compute) { return compute.outputs[0].tensor == gradient; });
    const int issued = position<Issue>(
        backward, [&](const Issue& issue) { return issue.transfers[0].tensor == gradient; });
    ASSERT_GE(made, 0);
    ASSERT_GT(issued, made);
    for (int i = made + 1; i < issued; ++i) {
      EXPECT_TRUE(std::holds_alternative<Free>(backward[static_cast<size_t>(i)].body));
    }
    const Instruction& issue = backward[static_cast<size_t>(issued)];
    EXPECT_EQ(issue.when, When::kLast);
    const int handle = std::get<Issue>(issue.body).handle;
    const auto waits_here = [&](const Wait& wait) { return wait.handle == handle; };
    EXPECT_EQ(position<Wait>(backward, waits_here), -1);
    const auto& update = lowered.programs[0].block(BlockKind::kUpdate);
    EXPECT_GE(position<Wait>(update, waits_here), 0);
  }
}

// ZeRO-1 in a narrow dtype: a gradient lies behind a cast's, but leaves the last backward pass in
// the shards in which it is used, once.
TEST(Gradients, of_narrow_copies_are_scattered_in_the_last_run_where_the_update_wants_shards) {
  const std::string plan = "zero(stage=1, dp=4, micro_batches=2)";
  Precision precision;
  precision.compute = DType::kBFloat16;
  const Graph forward = test_transformer();
  const auto graph = training_graph(forward, *load_plan(plan, forward), precision, {});
  ASSERT_TRUE(graph) << graph.error().message;
  const TestPrograms lowered = lower_all(*graph, plan);
  expect_accepted(lowered);
  size_t scattered = 0;
  for (const Instruction& instruction : lowered.programs[0].block(BlockKind::kBackward)) {
    const auto* issue = std::get_if<Issue>(&instruction.body);
    if (issue == nullptr) continue;
    EXPECT_EQ(issue->kind, CollectiveKind::kReduceScatter);
    EXPECT_EQ(instruction.when, When::kLast);
    scattered += issue->transfers.size();
  }
  EXPECT_GT(scattered, 10U);
  // Only the tied table waits: its gradient is the sum of two, and travels once.
  for (const Issue* issue : all_of<Issue>(lowered.programs[0].block(BlockKind::kUpdate))) {
    if (issue->kind != CollectiveKind::kReduceScatter) continue;
    ASSERT_EQ(issue->transfers.size(), 1U);
    EXPECT_EQ(lowered.graph.tensor(issue->transfers[0].tensor).name, "grad.embed.token.weight");
  }
}

TEST(Gradients, of_one_micro_batch_are_reduced_in_every_run) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), "data_parallel(2)");
  for (const Instruction& instruction : lowered.programs[0].block(BlockKind::kBackward)) {
    EXPECT_EQ(instruction.when, When::kAlways);
  }
}

int64_t bucket_bytes(const TestPrograms& lowered, const Issue& issue) {
  int64_t bytes = 0;
  for (const Transfer& transfer : issue.transfers) {
    bytes += transfer.hold[0].volume() * dtype_bytes(lowered.graph.tensor(transfer.tensor).dtype);
  }
  return bytes;
}

TEST(Gradients, are_joined_in_buckets_up_to_the_size_of_the_plan) {
  for (const int64_t limit : {0, 256, 1024, 1 << 20}) {
    const TestPrograms lowered = lower_all(
        transformer(), fmt::format("mesh = {{ dp = 2 }}\nbucket_bytes = {}\nsplit = [{{ ops = "
                                   "\"*\", dim = \"batch\", over = \"dp\" }}]\n",
                                   limit));
    size_t issues = 0, transfers = 0;
    for (const Issue* issue : all_of<Issue>(lowered.programs[0].block(BlockKind::kBackward))) {
      ++issues;
      transfers += issue->transfers.size();
      if (issue->transfers.size() > 1) {
        EXPECT_LE(bucket_bytes(lowered, *issue), limit);
      }
    }
    if (limit == 0) {
      EXPECT_EQ(issues, transfers);
    }
    if (limit == 256) {
      EXPECT_LT(issues, transfers);
    }
    if (limit == 1 << 20) {
      EXPECT_EQ(issues, 1U);
    }
    expect_accepted(lowered);
  }
}

TEST(Zero, stage_2_scatters_the_parts_of_each_micro_batch_into_the_shard) {
  const TestPrograms lowered =
      lower_all(trained(test_perceptron()), "megatron(dp=2, zero=2, micro_batches=2)");
  const Program& program = lowered.programs[0];
  for (const Instruction& instruction : program.block(BlockKind::kBackward)) {
    if (const auto* issue = std::get_if<Issue>(&instruction.body)) {
      EXPECT_EQ(issue->kind, CollectiveKind::kReduceScatter);
      EXPECT_EQ(instruction.when, When::kAlways);
    }
  }
  const auto copies = all_of<Copy>(program.block(BlockKind::kBackward));
  EXPECT_EQ(copies.size(), 2U);
  for (const Copy* copy : copies) {
    EXPECT_EQ(copy->write, Write::kAddExceptFirst);
    const Tensor& gradient = lowered.graph.tensor(copy->tensor);
    EXPECT_EQ(2 * program.buffer(copy->to.buffer).bytes(), gradient.bytes());
    EXPECT_EQ(program.buffer(copy->to.buffer).lifetime, Lifetime::kStep);
  }
  for (const Buffer& buffer : program.buffers) {  // no whole gradient lives across micro-batches
    const Tensor& tensor = lowered.graph.tensor(buffer.tensor);
    if (tensor.role == Role::kGradient && buffer.lifetime == Lifetime::kStep &&
        !tensor.dims.empty()) {
      EXPECT_LT(buffer.bytes(), tensor.bytes()) << buffer.name;
    }
  }
}

TEST(Zero, stage_1_keeps_state_in_shards_and_gathers_what_is_updated) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), "zero(1, 2)");
  const Program& program = lowered.programs[1];
  for (const Home& home : program.homes) {
    const Tensor& tensor = lowered.graph.tensor(home.tensor);
    const int64_t pieces = tensor.role == Role::kOptimizerState ? 2 : 1;
    EXPECT_EQ(pieces * home.region.volume(), tensor.elements()) << tensor.name;
  }
  const auto issues = all_of<Issue>(program.block(BlockKind::kUpdate));
  EXPECT_TRUE(std::any_of(issues.begin(), issues.end(), [](const Issue* issue) {
    return issue->kind == CollectiveKind::kAllGather;
  }));
}

// Returns the handles of the block's issues of one kind, by position, and where each is awaited
// (-1: elsewhere).
std::vector<std::pair<int, int>> issued_and_awaited(const std::vector<Instruction>& block,
                                                    CollectiveKind kind) {
  std::vector<std::pair<int, int>> found;
  for (size_t i = 0; i < block.size(); ++i) {
    const auto* issue = std::get_if<Issue>(&block[i].body);
    if (issue == nullptr || issue->kind != kind) continue;
    const auto waits = [&](const Wait& wait) { return wait.handle == issue->handle; };
    found.emplace_back(static_cast<int>(i), position<Wait>(block, waits));
  }
  return found;
}

constexpr const char* kSharded =
    "mesh = { dp = 2 }\nbucket_bytes = 0\n"
    "split = [{ ops = \"*\", dim = \"batch\", over = \"dp\" }]\n"
    "store = [{ tensors = \"role:gradient\", over = \"dp\" },\n"
    "         { tensors = \"role:parameter\", over = \"dp\" }";

TEST(Zero, stage_3_makes_narrow_copies_once_in_shards_and_gathers_these) {
  const auto narrow = apply_precision(test_perceptron(), DType::kFloat32, std::nullopt);
  ASSERT_TRUE(narrow.has_value());
  const TestPrograms lowered = lower_all(
      trained(*narrow), std::string(kSharded) + ",\n { tensors = \"*\", recompute = true }]\n");
  expect_accepted(lowered);
  const Program& program = lowered.programs[0];
  size_t casts = 0, gathered = 0;
  for (const auto& [ref, block] : program.blocks) {
    for (const Compute* compute : all_of<Compute>(block)) {
      const Op& op = lowered.graph.op(compute->op);
      if (op.kind != "cast" || lowered.graph.tensor(op.inputs[0]).role != Role::kParameter)
        continue;
      EXPECT_EQ(ref, BlockRef(BlockKind::kPrologue)) << op.path;
      EXPECT_EQ(2 * program.buffer(compute->outputs[0].view.buffer).bytes(),
                lowered.graph.tensor(op.outputs[0]).bytes());
      ++casts;
    }
    for (const Issue* issue : all_of<Issue>(block)) {
      if (issue->kind != CollectiveKind::kAllGather) continue;
      for (const auto& transfer : issue->transfers) {
        EXPECT_EQ(lowered.graph.tensor(transfer.tensor).dtype, DType::kFloat32);
        ++gathered;
      }
    }
  }
  EXPECT_EQ(casts, 2U);
  EXPECT_GE(gathered, 3U);  // both in the forward pass, the second also in the backward pass
}

TEST(Zero, stage_3_prefetches_the_narrow_copies_of_a_unit_beside_the_unit_before) {
  const auto narrow = apply_precision(test_perceptron(), DType::kFloat32, std::nullopt);
  ASSERT_TRUE(narrow.has_value());
  const TestPrograms lowered =
      lower_all(trained(*narrow), "prefetch = { units = \"{up,down}\", ahead = 1 }\n" +
                                      std::string(kSharded) + "]\n");
  expect_accepted(lowered);
  const auto& forward = lowered.programs[0].block(BlockKind::kForward);
  const int first = position<Compute>(
      forward, [&](const Compute& compute) { return lowered.graph.op(compute.op).path == "up"; });
  const auto gathers = issued_and_awaited(forward, CollectiveKind::kAllGather);
  ASSERT_EQ(gathers.size(), 2U);
  EXPECT_LT(gathers[1].first, first);
  EXPECT_GT(gathers[1].second, first);
}

TEST(Zero, sharded_gradients_travel_beside_what_makes_the_next_ones) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), std::string(kSharded) + "]\n");
  expect_accepted(lowered);
  const auto& backward = lowered.programs[0].block(BlockKind::kBackward);
  const auto scatters = issued_and_awaited(backward, CollectiveKind::kReduceScatter);
  ASSERT_EQ(scatters.size(), 2U);
  EXPECT_GT(scatters[0].second, scatters[1].first);
}

// The sums over micro-batches are those of the narrow copies' gradients; they rest in shards too.
TEST(Zero, sums_gradients_of_narrow_copies_in_shards) {
  const auto narrow = apply_precision(test_perceptron(), DType::kFloat32, std::nullopt);
  ASSERT_TRUE(narrow.has_value());
  const auto of_step = [&](const std::string& entries) {
    const TestPrograms lowered = lower_all(
        trained(*narrow), "micro_batches = 2\n" + std::string(kSharded) + entries + "]\n");
    expect_accepted(lowered);
    const Program& program = lowered.programs[0];
    int64_t bytes = 0;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.lifetime == Lifetime::kStep &&
          lowered.graph.is_parameter_gradient(buffer.tensor) &&
          buffer.name.find(".cast") != std::string::npos)
        bytes += buffer.bytes();
    }
    int each_time = 0;
    for (const Instruction& instruction : program.block(BlockKind::kBackward)) {
      const auto* issue = std::get_if<Issue>(&instruction.body);
      each_time += issue != nullptr && issue->kind == CollectiveKind::kReduceScatter &&
                   instruction.when == When::kAlways;
    }
    return std::pair{bytes, each_time};
  };
  const auto shards = of_step(""), whole = of_step(",\n{ tensors = \"grad.*.cast\", over = [] }");
  EXPECT_EQ(shards.second, 2) << "up and down, in each micro-batch";
  EXPECT_EQ(whole.second, 0);
  EXPECT_GE(whole.first, 2 * shards.first);
  EXPECT_GT(shards.first, 0);
}

TEST(Gradients, complete_the_norms_of_all_blocks_by_one_collective) {
  const TestPrograms lowered =
      lower_all(transformer({.layers = 3}), "megatron(tp=2, micro_batches=2)");
  expect_accepted(lowered);
  const auto issues = all_of<Issue>(lowered.programs[0].block(BlockKind::kUpdate));
  ASSERT_EQ(issues.size(), 1U);
  EXPECT_GT(issues[0]->transfers.size(), 3U);
}

TEST(Gradients, completed_by_two_collectives_are_awaited_between_them_in_the_update_alone) {
  const TestPrograms lowered =
      lower_all(transformer(),
                "mesh = { dp = 2, sp = 2 }\nbucket_bytes = 0\nsplit = [\n"
                "  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n"
                "  { ops = \"*\", dim = \"seq\", over = \"sp\" },\n]\n"
                "store = [{ tensors = \"optimizer.*\", over = \"dp\" },\n"
                "         { tensors = \"role:parameter\", over = \"dp\" }]\n");
  expect_accepted(lowered);
  const auto& backward = lowered.programs[0].block(BlockKind::kBackward);
  int begun = 0;
  for (const Issue* issue : all_of<Issue>(backward)) {
    const Tensor& tensor = lowered.graph.tensor(issue->transfers[0].tensor);
    if (tensor.role != Role::kGradient || !tensor.of.valid() ||
        lowered.graph.tensor(tensor.of).role != Role::kParameter) {
      continue;
    }
    const auto waits = [&](const Wait& wait) { return wait.handle == issue->handle; };
    EXPECT_EQ(position<Wait>(backward, waits), -1) << tensor.name;
    ++begun;
  }
  EXPECT_GT(begun, 0);
}

// ---- stages
TEST(Stages, send_a_tied_table_once_a_step_and_get_its_gradient_back) {
  GraphBuilder g("tied");
  const Init init{Init::Kind::kNormal, 0.02};
  const auto ids = g.input("ids", {{"batch", 8}}, DType::kInt64);
  const auto table = g.parameter("table", {{"vocab", 6}, {"hidden", 4}}, init, DType::kFloat64);
  auto x = g.op1("embed", "embedding", {ids, table});
  x = g.op1("act", "gelu", {x});
  x = g.op1("head", "einsum", {x, table},
            {{"spec", std::string("batch hidden+, vocab hidden -> batch vocab")}});
  x = g.op1("square", "mul", {x, x});
  g.graph().loss =
      g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch vocab")}, {"factor", 0.1}});
  const TestPrograms lowered = lower_all(trained(*g.finish()),
                                         "mesh = { pp = 2 }\nmicro_batches = 4\nstage = [\n"
                                         "  { ops = \"{embed,act}\", at = 0 },\n"
                                         "  { ops = \"{head,square,loss}\", at = 1 },\n]\n");
  const auto sends = [&](int rank, BlockKind block) {
    std::set<std::string> names;
    for (const Send* send :
         all_of<Send>(lowered.programs[static_cast<size_t>(rank)].block(block))) {
      names.insert(lowered.graph.tensor(send->tensor).name);
    }
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(sends(0, BlockKind::kPrologue), Names{"table"});
  EXPECT_EQ(sends(0, BlockKind::kForward), Names{"act"});
  EXPECT_EQ(sends(1, BlockKind::kBackward), Names{"grad.act"});
  EXPECT_EQ(sends(1, BlockKind::kUpdate), Names{"grad.table.from.head"});
  // At home, with its state, on the first stage alone.
  for (const Home& home : lowered.programs[1].homes) {
    EXPECT_EQ(lowered.graph.tensor(home.tensor).name.find("table"), std::string::npos);
  }
  expect_accepted(lowered);
}

TEST(Stages, send_the_sum_of_gradients_not_its_terms) {
  const TestPrograms lowered = lower_all(transformer(), "gpipe(2, 4)");
  const auto sends = all_of<Send>(lowered.programs[1].block(BlockKind::kBackward));
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_EQ(lowered.graph.tensor(sends[0]->tensor).name, "grad.blocks.0.mlp.residual");
}

TEST(Stages, keep_as_many_slots_as_micro_batches_are_in_flight) {
  const TestPrograms gpipe = lower_all(transformer(), "gpipe(2, 4)");
  EXPECT_EQ(gpipe.programs[0].slots(), 4);
  const TestPrograms one = lower_all(transformer(), "one_f_one_b(2, 4)");
  EXPECT_EQ(one.programs[0].slots(), 2);
  EXPECT_EQ(one.programs[1].slots(), 1);
}

// ---- transforms of the graph
TEST(Recompute, keeps_nothing_of_an_activation_between_forward_and_backward) {
  const std::string mesh =
      "mesh = { dp = 2 }\nsplit = [{ ops = \"*\", dim = \"batch\", over = \"dp\" }]\n";
  const TestPrograms kept = lower_all(transformer(), mesh);
  const TestPrograms again =
      lower_all(transformer(),
                mesh + "store = [{ tensors = \"blocks.*.mlp.{up,act}\", recompute = true }]\n");
  const auto crosses = [](const TestPrograms& lowered, const std::string& name) {
    for (const Buffer& buffer : lowered.programs[0].buffers) {
      if (buffer.name == name && buffer.lifetime == Lifetime::kMicroBatch) return true;
    }
    return false;
  };
  EXPECT_TRUE(crosses(kept, "blocks.0.mlp.act"));
  EXPECT_FALSE(crosses(again, "blocks.0.mlp.act"));
  EXPECT_FALSE(crosses(again, "blocks.0.mlp.up"));
  const auto& backward = again.programs[0].block(BlockKind::kBackward);
  EXPECT_GE(position<Compute>(backward, [](const Compute& c) { return c.kind == "gelu"; }), 0);
  expect_accepted(again);
}

TEST(Recompute, of_an_expanded_op_makes_all_its_parts_again_once) {
  const TestPrograms lowered =
      lower_all(transformer(),
                "mesh = { tp = 2 }\nsplit = [{ ops = \"final.ln\", dim = \"hidden\", over = "
                "\"tp\" }]\nstore = [{ tensors = \"{blocks.1.mlp.residual,final.ln}\", "
                "recompute = true }]\n");
  int made = 0;
  for (const Op& op : lowered.graph.ops()) made += op.path == "final.ln.moments@recompute" ? 1 : 0;
  EXPECT_EQ(made, 1);
  expect_accepted(lowered);
}

TEST(Expansion, merges_the_moments_of_a_split_norm) {
  const TestPrograms lowered =
      lower_all(transformer(),
                "mesh = { tp = 2 }\nsplit = [{ ops = \"final.ln\", dim = \"hidden\", over = "
                "\"tp\" }]\n");
  bool found = false;
  for (const Issue* issue : all_of<Issue>(lowered.programs[0].block(BlockKind::kForward))) {
    found = found || issue->combiner == Combiner::kMoments;
  }
  EXPECT_TRUE(found);
  expect_accepted(lowered);
}

// Parts may be added up behind a linear op, but only if they lie as the op may be cut: a running
// sum over tokens takes all of them.
TEST(LinearOps, work_on_parts_that_are_cut_as_they_may_be) {
  GraphBuilder g("running");
  const auto tokens = g.input("tokens", {{"batch", 4}, {"seq", 4}}, DType::kInt64);
  const auto weight = g.parameter("weight", {{"vocab", 6}, {"hidden", 4}},
                                  {Init::Kind::kNormal, 0.02}, DType::kFloat64);
  const auto embedded = g.op1("embed", "embedding", {tokens, weight});
  const auto sums =
      g.op1("sums", "cumsum", {embedded}, {{"dim", std::string("seq")}, {"reverse", int64_t{0}}});
  const auto square = g.op1("square", "mul", {sums, sums});
  g.graph().loss = g.op1("loss", "reduce_sum", {square},
                         {{"dims", std::string("batch seq hidden")}, {"factor", 1.0 / 64}});
  const auto forward = g.finish();
  ASSERT_TRUE(forward.has_value()) << forward.error().message;
  for (const std::string dim : {"seq", "batch"}) {
    expect_accepted(lower_all(trained(*forward),
                              "mesh = { a = 2, b = 2 }\nsplit = [\n"
                              "{ ops = \"embed\", dim = \"vocab\", over = \"a\" },\n"
                              "{ ops = \"embed\", dim = \"" +
                                  dim + "\", over = \"b\" }]\n"));
  }
}

// ---- loops
constexpr const char* kSquare =
    "mesh = {{ row = 2, col = 2 }}\nsplit = [\n"
    "  {{ ops = \"*\", dim = \"batch\", over = \"row\" }},\n"
    "  {{ ops = \"up\", dim = \"ffn\", over = \"col\" }},\n"
    "  {{ ops = \"act\", dim = \"ffn\", over = \"col\" }},\n"
    "  {{ ops = \"{{down,square,loss}}\", dim = \"out\", over = \"col\" }},\n"
    "  {{ ops = \"down\", dim = \"ffn\", over = \"time:2\"{} }},\n"
    "]\nstore = [{{ tensors = \"down.weight\", over = \"row\" }}]\n";

TEST(Loops, broadcast_if_aligned_and_permute_if_rotated) {
  const auto kinds = [](const TestPrograms& lowered) {
    std::set<std::string> out;
    for (const Issue* issue : all_of<Issue>(lowered.programs[0].block(BlockKind::kForward))) {
      out.insert(std::string(collective_name(issue->kind)));
    }
    return out;
  };
  const Graph graph = trained(test_perceptron());
  const TestPrograms aligned = lower_all(graph, fmt::format(kSquare, ""));
  EXPECT_EQ(kinds(aligned), std::set<std::string>{"broadcast"});
  expect_accepted(aligned);
  const TestPrograms rotated =
      lower_all(graph, fmt::format(kSquare, ", order = \"rotated\", skew = [\"row\", \"col\"]"));
  EXPECT_EQ(kinds(rotated), std::set<std::string>{"permute"});
  expect_accepted(rotated);
}

constexpr const char* kRing =
    "mesh = {{ cp = 2 }}\nsplit = [\n  {{ ops = \"*\", dim = \"seq\", over = \"cp\" }},\n"
    "  {{ ops = \"blocks.*.attn.core\", dim = \"kv\", over = \"time:2\"{} }},\n]\n";

// Rank r of a ring computes the chunks that its queries see.
TEST(Loops, over_keys_leave_out_what_no_query_of_the_rank_sees) {
  for (const std::string order :
       {"", ", order = \"rotated\", skew = \"-cp\"", ", order = \"rotated\", skew = \"cp\""}) {
    const TestPrograms lowered = lower_all(transformer(), fmt::format(kRing, order));
    expect_accepted(lowered);
    for (const Program& program : lowered.programs) {
      int chunks = 0;
      for (const Compute* compute : all_of<Compute>(program.block(BlockKind::kForward))) {
        chunks += compute->kind == "attention" ? 1 : 0;
      }
      EXPECT_EQ(chunks, 2 * (program.rank + 1)) << "of two blocks" << order;
    }
  }
}

TEST(Loops, whose_parts_travel_are_rejected_if_a_rank_does_not_add_its_part) {
  TestPrograms lowered =
      lower_all(transformer(), fmt::format(kRing, ", order = \"rotated\", skew = \"-cp\""));
  expect_accepted(lowered);
  auto& backward = lowered.programs[1].block(BlockKind::kBackward);
  const int add =
      position<Copy>(backward, [](const Copy& copy) { return copy.write == Write::kAdd; });
  ASSERT_GE(add, 0);
  backward.erase(backward.begin() + add);
  EXPECT_FALSE(verify(lowered.graph, lowered.programs).empty());
}

TEST(Loops, fetch_the_next_step_before_they_compute) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), fmt::format(kSquare, ""));
  const auto& forward = lowered.programs[0].block(BlockKind::kForward);
  const OpId down = lowered.graph.tensor(lowered.graph.find_tensor("down")).producer;
  int issued = 0, computed = 0;
  for (const Instruction& instruction : forward) {
    if (instruction.cause != down) continue;
    if (std::holds_alternative<Issue>(instruction.body)) ++issued;
    if (!std::holds_alternative<Compute>(instruction.body)) continue;
    EXPECT_EQ(issued, 4) << "two operands, two steps: all under way at step " << computed;
    ++computed;
  }
  EXPECT_EQ(computed, 2);
}

TEST(Loops, of_products_with_one_input_fetch_it_once) {
  const TestPrograms lowered = lower_all(transformer(), "summa(2)");
  int fetched = 0;
  for (const Issue* issue : all_of<Issue>(lowered.programs[0].block(BlockKind::kForward))) {
    fetched += lowered.graph.tensor(issue->transfers[0].tensor).name == "blocks.0.ln_1.y" ? 1 : 0;
  }
  EXPECT_EQ(fetched, 2) << "one a step for query, key and value together";
  expect_accepted(lowered);
}

TEST(Loops, add_the_terms_of_a_gradient_before_they_are_reduced) {
  const TestPrograms lowered = lower_all(transformer(), "summa(2)");
  int terms = 0;
  for (const Compute* compute : all_of<Compute>(lowered.programs[0].block(BlockKind::kBackward))) {
    for (const Output& output : compute->outputs) {
      if (lowered.graph.tensor(output.tensor).name != "grad.blocks.0.ln_1.y") continue;
      EXPECT_EQ(output.terms, 3);
      EXPECT_EQ(output.write, terms < 2 ? Write::kSet : Write::kAdd)
          << "the first term's steps set";
      ++terms;
    }
  }
  EXPECT_EQ(terms, 3 * 2);
}

// An embedding whose weight is the head's too.
Graph tied() {
  GraphBuilder g("tied");
  const Dim batch{"batch", 4}, seq{"seq", 2}, hidden{"hidden", 5}, vocab{"vocab", 12};
  const auto tokens = g.input("tokens", {batch, seq}, DType::kInt64);
  const auto weight =
      g.parameter("weight", {vocab, hidden}, {Init::Kind::kNormal, 0.02}, DType::kFloat64);
  const auto x = g.op1("embed", "embedding", {tokens, weight});
  const auto h =
      g.op1("head", "einsum", {x, weight},
            {{"spec", std::string("batch seq hidden+, vocab hidden -> batch seq vocab")}});
  const auto square = g.op1("square", "mul", {h, h});
  g.graph().loss = g.op1("loss", "reduce_sum", {square},
                         {{"dims", std::string("batch seq vocab")}, {"factor", 1.0 / 96}});
  return g.finish().value();
}

// A loop over the vocabulary of a tied head leaves its pieces of the weight in two blocks, so the
// ops that join their gradients cut them by blocks. The values that these ops fetch are then held
// by blocks too.
TEST(Loops, fetch_pieces_from_where_they_are_cut_alike) {
  const Graph forward = tied();
  for (const std::string order : {"nested", "rotated"}) {
    const std::string plan =
        "mesh = { a = 2, b = 2 }\n"
        "loop = [{ ops = \"head\", dim = \"vocab\", steps = 3 }]\n"
        "split = [{ ops = \"head\", dim = \"seq\", over = \"a\" },\n"
        "{ ops = \"head\", dim = \"vocab\", over = [\"b\", \"time:2\"], skew = [\"-a\"], "
        "order = \"" +
        order + "\" }]\n";
    const auto looped = shape_forward(forward, parse_plan(plan).value(), std::nullopt);
    ASSERT_TRUE(looped.has_value()) << looped.error().message;
    expect_accepted(lower_all(trained(*looped), plan));
  }
}

// The op that cuts the weight for the looped head stands before the embedding in the graph, but at
// a later stage: the weight is at home with the embedding all the same.
TEST(Loops, leave_a_parameter_at_home_at_the_earliest_stage_that_reads_it) {
  const std::string plan =
      "mesh = { b = 2 }\n"
      "loop = [{ ops = \"head\", dim = \"vocab\", steps = 2 },\n"
      "{ ops = \"embed\", dim = \"seq\", steps = 2 }]\n"
      "store = [{ tensors = \"weight\", over = \"b\" }]\n"
      "stage = [{ ops = \"embed\", at = 0, mesh = { b = 2 } },\n"
      "{ ops = \"{head,square,loss}\", at = 1, mesh = { a = 1 } }]\n";
  const auto looped = shape_forward(tied(), parse_plan(plan).value(), std::nullopt);
  ASSERT_TRUE(looped.has_value()) << looped.error().message;
  expect_accepted(lower_all(trained(*looped), plan));
}

}  // namespace
}  // namespace tessera::lower_test
