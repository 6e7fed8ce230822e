// Mutation tests of the verifier over real, lowered programs: every change that makes a program
// wrong is rejected, by the rule that is meant to reject it. The test fails if a class of mutations
// is generated for no plan, or if a rule rejects no mutation of a class that it should reject: a
// test that tries nothing proves nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <map>
#include <set>

#include "support/borders.h"
#include "support/mutate.h"
#include "tessera/models/model.h"
#include "tessera/models/science/graph_network.h"
#include "tessera/plan/load.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/verify/verify.h"

namespace tessera {
namespace {

// Rejections by class and rule.
using Counts = std::map<std::string, std::map<std::string, int>>;

constexpr std::array kRules{"operand", "coverage", "instruction", "tier", "message",
                            "order",   "lifetime", "memory",      "rows"};

struct Pin {
  std::set<std::string> rules;     // each rejects some mutations of the class
  std::set<std::string> may = {};  // reject some of them under some plans
};

// For each class of mutation, the rules that reject it. No other rule does, under any plan, and no
// class is missing here.
const std::map<std::string, Pin>& pins() {
  static const std::map<std::string, Pin> all = {
      {"add_to_set", {{"operand"}, {"coverage", "instruction"}}},
      {"add_again", {{"coverage"}, {"operand"}}},
      {"addend_twice", {{"operand"}}},
      {"all_gather_to_all_reduce", {{"instruction"}}},
      {"all_reduce_to_all_gather", {{"coverage", "operand"}}},
      {"apply_again", {{"operand"}}},
      {"backward_before_forward", {{"lifetime"}, {"operand", "order"}}},
      {"drop_codec", {{"instruction"}, {"message"}}},
      {"drop_collective", {{"coverage", "lifetime", "operand"}}},
      {"drop_compute", {{"coverage", "lifetime"}, {"operand"}}},
      {"drop_copy", {{"lifetime"}, {"operand"}}},
      {"drop_fetch", {{"rows"}}},
      {"drop_load", {{"lifetime"}}},
      {"drop_one_side", {{"lifetime", "message", "operand", "order"}, {"coverage"}}},
      {"drop_release", {{"rows"}}},
      {"drop_run", {{"lifetime", "message", "operand", "order"}, {"coverage"}}},
      {"drop_wait", {{"lifetime"}, {"rows"}}},
      {"duplicate_compute", {{"coverage", "operand"}}},
      {"duplicate_one_side", {{"instruction"}}},
      {"fetch_fewer_rows", {{"rows"}}},
      {"fetch_of_other_table", {{"rows"}}},
      {"factor_of_group", {{"instruction"}}},
      {"first_add", {{"lifetime"}}},
      {"forget_names", {{"message"}}},
      {"forget_accumulation", {{"coverage", "operand"}}},
      {"free_too_early", {{"lifetime"}}},
      {"name_by_other_ids", {{"operand"}}},
      {"name_fewer_rows", {{"rows"}}},
      {"overlapping_offset", {{"lifetime", "memory"}}},
      {"read_before_write", {{"lifetime"}, {"operand"}}},
      {"reduce_again", {{"coverage"}}},
      {"reduce_before_last_micro_batch", {{"lifetime"}}},
      {"release_of_another", {{"rows"}}},
      {"release_too_early", {{"rows"}}},
      {"release_unchanged", {{"rows"}}},
      {"set_to_add", {{"lifetime"}, {"instruction"}}},
      {"shared_residual", {{"instruction"}}},
      {"small_arena", {{"memory"}}},
      {"sum_of_whole", {{"coverage"}}},
      {"swap_collectives", {{"lifetime", "message"}, {"operand"}}},
      {"swap_gradient", {{"lifetime", "operand", "tier"}}},
      {"swap_operands", {{"lifetime", "operand"}, {"instruction"}}},
      {"wrong_box", {{"instruction", "operand"}}},
      {"wrong_codec", {{"message"}}},
      {"wrong_combiner", {{"coverage"}, {"instruction"}}},
      {"wrong_constant", {{"instruction"}}},
      {"wrong_constant_everywhere", {{"instruction"}}},
      {"wrong_group", {{"message"}, {"lifetime", "operand", "order"}}},
      {"wrong_hold", {{"message", "operand"}, {"instruction", "lifetime"}}},
      {"wrong_kind", {{"instruction"}}},
      {"wrong_operand", {{"lifetime", "operand"}, {"tier"}}},
      {"wrong_peer", {{"message"}, {"order"}}},
      {"wrong_region", {{"instruction"}, {"message", "operand"}}},
      {"wrong_tag", {{"order"}}},
      {"wrong_tier", {{"tier"}}},
      {"wrong_wait", {{"lifetime"}}},
  };
  return all;
}

std::string table(const Counts& counts) {
  std::string out = fmt::format("{:32}", "class");
  for (const char* rule : kRules) out += fmt::format(" {:>11}", rule);
  for (const auto& [kind, rules] : counts) {
    out += fmt::format("\n{:32}", kind);
    for (const char* rule : kRules)
      out += fmt::format(" {:>11}", rules.contains(rule) ? rules.at(rule) : 0);
  }
  return out + "\n";
}

// Expects that every mutation is rejected; counts rejections by class and rule.
Counts count_rejections(const Graph& graph, const std::vector<Program>& programs,
                        const std::string& plan, size_t per_kind) {
  Counts counts;
  const auto rejections = verify(graph, programs);
  EXPECT_TRUE(rejections.empty()) << plan << ": " << rejections[0].to_string();
  if (!rejections.empty()) return counts;
  std::set<std::string> accepted;
  for (const Mutation& mutation : mutations(graph, programs, per_kind)) {
    const auto found = verify(graph, mutation.programs);
    if (found.empty()) {
      if (accepted.insert(mutation.kind).second)
        ADD_FAILURE() << plan << ": accepted " << mutation.description;
      continue;
    }
    ++counts[mutation.kind][found[0].rule];
  }
  return counts;
}

void expect_pinned(const Counts& counts, const std::string& plan) {
  EXPECT_GT(counts.size(), 12U) << plan << ": too few classes of mutations were generated";
  for (const auto& [kind, rules] : counts) {
    const auto pin = pins().find(kind);
    if (pin == pins().end()) {
      ADD_FAILURE() << plan << ": '" << kind << "' has no row in the table of rules";
      continue;
    }
    for (const auto& [rule, count] : rules) {
      EXPECT_TRUE(pin->second.rules.contains(rule) || pin->second.may.contains(rule))
          << plan << ": " << count << " of '" << kind << "' rejected by '" << rule
          << "', which is not in the table";
    }
  }
}

void expect_all_rejected(const Graph& graph, const std::string& plan, size_t per_kind) {
  const TestPrograms lowered = lower_all(graph, plan);
  expect_pinned(count_rejections(lowered.graph, lowered.programs, plan, per_kind), plan);
}

class MutationsOf : public testing::TestWithParam<const char*> {};

TEST_P(MutationsOf, perceptron_are_rejected) {
  expect_all_rejected(trained(test_perceptron()), GetParam(), 12);
}
TEST_P(MutationsOf, transformer_are_rejected) {
  expect_all_rejected(trained(test_transformer()), GetParam(), 12);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, MutationsOf,
                         testing::Values("serial()", "data_parallel(2)", "data_parallel(4)"));
INSTANTIATE_TEST_SUITE_P(Zero, MutationsOf,
                         testing::Values("zero(1, 2)", "zero(2, 2)", "zero(3, 2)"));

INSTANTIATE_TEST_SUITE_P(
    Tiers, MutationsOf,
    testing::Values("offload(zero=0,parameters=1,gradients=true)",
                    "offload(dp=2,zero=2,to=disk,activations=true,micro_batches=2)",
                    "offload(dp=2,zero=3,parameters=0.5,gradients=true,micro_batches=2)"));

class TransformerMutationsOf : public testing::TestWithParam<const char*> {};
TEST_P(TransformerMutationsOf, are_rejected) {
  expect_all_rejected(trained(test_transformer()), GetParam(), 12);
}
INSTANTIATE_TEST_SUITE_P(Plans, TransformerMutationsOf,
                         testing::Values("tensor_parallel(2)", "gpipe(2, 4)", "one_f_one_b(2, 4)",
                                         "pipeline(2,4,zb_h1)", "ring_attention(2)", "summa(2)",
                                         "megatron(tp=2, pp=2, dp=2, micro_batches=2)",
                                         "megatron(tp=2, pp=1, dp=2, zero=3, micro_batches=2)"));

// Every sort of plan that recipes write: tensors that travel around rings and along grids,
// interleaved and folded pipelines, slices, experts, and stages with meshes of their own.
struct KindOfPlan {
  const char *name, *model, *plan;
  int64_t batch = 4;
};
constexpr const char* kTwoLayers = "gpt:layers=2,hidden=8,heads=4,seq=4,vocab=6";
constexpr const char* kFourLayers = "gpt:layers=4,hidden=4,heads=2,seq=4,vocab=6";
const std::array kKindsOfPlan{
    KindOfPlan{"nested_rings", kTwoLayers, "ring_attention(4, inner=2, order=none)"},
    KindOfPlan{"ring_of_balanced_tokens", kTwoLayers, "ring_attention(2, zero=2)"},
    KindOfPlan{"rsa", kTwoLayers, "rsa(2)"},
    KindOfPlan{"ulysses", kTwoLayers, "ulysses(2)"},
    KindOfPlan{"ring_ulysses", kTwoLayers, "ring_ulysses(2, 2)"},
    KindOfPlan{"cannon", kTwoLayers, "cannon(2)"},
    KindOfPlan{"cannon_3_by_2", kTwoLayers, "cannon(3, cols=2)", 6},
    KindOfPlan{"tesseract", kTwoLayers, "tesseract(2, 2)"},
    KindOfPlan{"tesseract_zero", kTwoLayers, "tesseract(1, 2, cols=2, zero=3)"},
    KindOfPlan{"three_dims", kTwoLayers, "tensor_parallel_3d(2, 2, 2)", 8},
    KindOfPlan{"experts",
               "mixtral:layers=2,hidden=8,heads=2,kv_heads=1,experts=4,seq=4,vocab=6,ffn=6",
               "expert_parallel(2, dp=2, zero=1)"},
    KindOfPlan{"experts_cut",
               "mixtral:layers=2,hidden=8,heads=2,kv_heads=2,experts=2,seq=4,vocab=6,ffn=6",
               "expert_parallel(2, tp=2, pp=2, micro_batches=2)"},
    KindOfPlan{"interleaved", kFourLayers, "pipeline(2, 4, interleaved, 2)"},
    KindOfPlan{"zero_bubble_v", kFourLayers, "pipeline(2, 4, zb_v)"},
    KindOfPlan{"zero_bubble_2", kTwoLayers, "pipeline(2, 4, zb_h2)"},
    KindOfPlan{"eager", kTwoLayers, "pipeline(2, 4, eager_1f1b)"},
    KindOfPlan{"interlaced", kTwoLayers, "pipeline(2, 2, interlaced)"},
    KindOfPlan{"chimera", kTwoLayers, "chimera(2, dp=2)"},
    KindOfPlan{"slices", kTwoLayers, "token_pipeline(2, 2)"},
    KindOfPlan{"slices_1f1b", kTwoLayers,
               "token_pipeline(2, 3+1, 2, token_1f1b, dp=2, zero=2, recompute=full)"},
    KindOfPlan{"co_shard", kTwoLayers, "co_shard(2, dp=2)"},
    KindOfPlan{"codecs", kTwoLayers,
               "compressed(2, zero=1, pp=2, micro_batches=2, borders=bfloat16)"},
    KindOfPlan{"rows_and_columns",
               "evoformer:layers=1,hidden=4,heads=2,pair=4,pair_heads=2,sequences=4,residues=4,"
               "vocab=5,bins=3,outer=2",
               "dap(2)", 2},
    KindOfPlan{"per_layer", kTwoLayers,
               "per_layer(\"embed:tp4;0:tp2,dp2,sp;1:cp2,dp2,zero3;head:ulysses4\")"},
    KindOfPlan{"two_meshes", kTwoLayers,
               "micro_batches = 2\nstage = [\n"
               "  { ops = \"{embed,blocks.0}\", at = 0, mesh = { dp = 3 } },\n"
               "  { ops = \"{blocks.1,final,head,loss}\", at = 1, mesh = { tp = 2 } },\n]\n"
               "split = [\n  { ops = \"{embed,blocks.0}\", dim = \"batch\", over = \"dp\" },\n"
               "  { ops = \"blocks.1.attn\", dim = \"heads\", over = \"tp\" },\n"
               "  { ops = \"blocks.1.mlp\", dim = \"ffn\", over = \"tp\" },\n]\n",
               6},
};

class MutationsOfKind : public testing::TestWithParam<KindOfPlan> {};

TEST_P(MutationsOfKind, are_rejected) {
  const KindOfPlan& kind = GetParam();
  OptimizerSpec momentum;
  momentum.kind = "sgd";
  const auto compiled = compile_model(kind.model, kind.batch, kind.plan, momentum);
  ASSERT_TRUE(compiled) << compiled.error().message;
  expect_pinned(count_rejections(compiled->graph(), compiled->programs, kind.name, 4), kind.name);
}
INSTANTIATE_TEST_SUITE_P(Plans, MutationsOfKind, testing::ValuesIn(kKindsOfPlan),
                         [](const auto& test) { return std::string(test.param.name); });

// Tables on many ranks, rows of which are on the device and are exchanged, fetched and released.
// The model has two features on tables of their own.
constexpr const char* kTables = "dlrm:dense=2,rows=12-9,width=4,bottom=4,top=4-1,bags=2-3";
constexpr const char* kRowsOnHost =
    "store = [{ tensors = \"{,optimizer.*.}tables.*\", tier = \"host\", cache = { slots = 4 } }]\n";
struct PlanOfTables {
  const char *name, *plan, *optimizer;
  bool cached = false;
};
const std::array kPlansOfTables{
    PlanOfTables{"by_table", "tables(2)", "row_adam"},
    PlanOfTables{"by_row", "tables(2,row)", "rowwise_adagrad"},
    PlanOfTables{"by_column", "tables(2,column)", "rowwise_adagrad"},
    PlanOfTables{"grid", "tables(2,grid,nodes=2)", "row_sgd"},
    PlanOfTables{"cached", "tables(1)", "rowwise_adagrad", true},
    PlanOfTables{"cached_by_table", "tables(2)", "row_adam", true},
    PlanOfTables{"cached_by_row", "tables(2,row)", "adagrad", true},
    PlanOfTables{"cached_micro_batches", "tables(2,micro_batches=2)", "row_sgd", true},
};

Counts count_of_tables(const PlanOfTables& of) {
  OptimizerSpec optimizer;
  optimizer.kind = of.optimizer;
  const auto model = build_model(kTables, 4, DType::kFloat32);
  EXPECT_TRUE(model);
  const auto text = load_plan_text(of.plan, model->graph, "", DType::kFloat32);
  EXPECT_TRUE(text) << of.plan << (text ? "" : text.error().message);
  const auto compiled =
      compile_model(kTables, 4, text->text + (of.cached ? kRowsOnHost : ""), optimizer);
  EXPECT_TRUE(compiled) << of.plan << (compiled ? "" : compiled.error().message);
  if (!compiled) return {};
  return count_rejections(compiled->graph(), compiled->programs, of.name, 6);
}

class MutationsOfTables : public testing::TestWithParam<PlanOfTables> {};

TEST_P(MutationsOfTables, are_rejected) {
  expect_pinned(count_of_tables(GetParam()), GetParam().name);
}
INSTANTIATE_TEST_SUITE_P(Plans, MutationsOfTables, testing::ValuesIn(kPlansOfTables),
                         [](const auto& test) { return std::string(test.param.name); });

// The nodes of a graph lie on several ranks, which exchange the rows that edges name.
TestPrograms cut_nodes(const std::string& sampler) {
  GraphNetworkConfig config;
  config.nodes = 7;
  config.edges = 20;
  config.features = 5;
  config.entries = 9;
  config.classes = 3;
  config.hidden = 4;
  config.sampler = sampler;
  if (sampler != "none") config.widths = {2, 3};
  const auto network = build_graph_network(config);
  EXPECT_TRUE(network);
  return lower_all(
      trained(*network),
      "mesh = { dp = 2 }\nsplit = [{ ops = \"*\", dim = \"nodes\", over = \"dp\" }]\n");
}
Counts count_of_nodes(const std::string& sampler) {
  const TestPrograms lowered = cut_nodes(sampler);
  return count_rejections(lowered.graph, lowered.programs, "nodes sampled by " + sampler, 12);
}

TEST(MutationsOfNodes, are_rejected) {
  for (const std::string sampler : {"none", "permutation"})
    expect_pinned(count_of_nodes(sampler), "nodes sampled by " + sampler);
}

class MutationsOfBorder : public testing::TestWithParam<Border> {};

TEST_P(MutationsOfBorder, are_rejected) {
  const Border& border = GetParam();
  const auto compiled = compile(border);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
  expect_pinned(count_rejections(compiled->graph(), compiled->programs, border.name, 12),
                border.name);
}
INSTANTIATE_TEST_SUITE_P(Plans, MutationsOfBorder, testing::ValuesIn(borders()),
                         [](const auto& test) { return test.param.name; });

// Faults that others' frameworks had and that stopped no run (docs/reference/check.md says where they
// were reported): the class of mutation that makes each, and an op at which it does. Every instance
// there is tried, and rejected by that rule.
struct SilentFault {
  const char *name, *kind, *op, *plan, *rule;
  const char* model = kTwoLayers;
};
constexpr const char* kExperts =
    "mixtral:layers=2,hidden=8,heads=2,kv_heads=2,experts=4,seq=4,vocab=6,ffn=6,balance=0.01";
constexpr const char* kTensorParallel = "megatron(tp=2, pp=1, dp=2)";
constexpr const char* kTwoStages = "megatron(tp=1, pp=2, dp=2, micro_batches=2)";
const std::array kSilentFaults{
    SilentFault{"loss_times_context_parallel", "factor_of_group", "loss.mean.dx.scale",
                "ring_attention(2, dp=2)", "instruction"},
    SilentFault{"loss_times_tensor_parallel", "factor_of_group", "loss.mean.dx.scale",
                kTensorParallel, "instruction"},
    SilentFault{"loss_scaled_twice", "apply_again", "loss.mean.dx.scale", kTensorParallel,
                "operand"},
    SilentFault{"loss_summed_over_its_replicas", "sum_of_whole", "loss.mean", kTensorParallel,
                "coverage"},
    SilentFault{"replicated_norm_counted_by_each", "sum_of_whole", "blocks.0.ln_1.grad",
                kTensorParallel, "coverage"},
    SilentFault{"norm_of_cut_sequence_reduced_twice", "reduce_again", "grad.blocks.0.ln_1.weight",
                "megatron(tp=2, pp=1, sequence_shard=true)", "coverage"},
    SilentFault{"router_loss_times_replicas", "factor_of_group", "moe.aux.dx.scale",
                "expert_parallel(2, tp=2)", "instruction", kExperts},
    SilentFault{"router_loss_summed_over_its_replicas", "sum_of_whole", "moe.balance",
                "expert_parallel(2, tp=2)", "coverage", kExperts},
    SilentFault{"tied_table_takes_one_part_twice", "addend_twice", "embed.token.weight.grad",
                kTwoStages, "operand"},
    SilentFault{"tied_table_adds_a_part_again", "add_again", "embed.token.dtable", kTensorParallel,
                "coverage"},
    SilentFault{"tied_table_reduced_twice", "reduce_again",
                "grad.embed.token.weight.from.embed.token", kTwoStages, "coverage"},
};

class SilentFaults : public testing::TestWithParam<SilentFault> {};

TEST_P(SilentFaults, are_rejected) {
  const SilentFault& fault = GetParam();
  const auto compiled = compile_model(fault.model, 4, fault.plan, {});
  ASSERT_TRUE(compiled) << compiled.error().message;
  constexpr size_t kAll = 100000;
  int tried = 0;
  for (const Mutation& mutation :
       mutations(compiled->graph(), compiled->programs, kAll, {fault.kind})) {
    if (mutation.description.find(fault.op) == std::string::npos) continue;
    ++tried;
    const auto found = verify(compiled->graph(), mutation.programs);
    ASSERT_FALSE(found.empty()) << "accepted " << mutation.description;
    EXPECT_EQ(found[0].rule, fault.rule) << mutation.description << ": " << found[0].to_string();
  }
  EXPECT_GT(tried, 0) << "no instance of " << fault.kind << " at " << fault.op;
}
INSTANTIATE_TEST_SUITE_P(Of, SilentFaults, testing::ValuesIn(kSilentFaults),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(EachRule, rejects_some_of_each_class_that_it_should) {
  Counts all;
  const auto add = [&](const Counts& counts) {
    for (const auto& [kind, rules] : counts) {
      for (const auto& [rule, count] : rules) all[kind][rule] += count;
    }
  };
  for (const Border& border : borders()) {
    const auto compiled = compile(border);
    ASSERT_TRUE(compiled.has_value()) << border.name << ": " << compiled.error().message;
    add(count_rejections(compiled->graph(), compiled->programs, border.name, 12));
  }
  for (const char* plan : {"megatron(tp=2, pp=2, dp=2, micro_batches=2)",
                           "offload(dp=2,zero=2,to=disk,activations=true,micro_batches=2)",
                           // A bucket for each gradient: residuals of equal size can be confused.
                           "mesh = { dp = 2 }\nbucket_bytes = 0\nsplit = [ { ops = \"*\", dim = "
                           "\"batch\", over = \"dp\" } ]\ncompress = [ { tensors = "
                           "\"role:gradient\", with = \"int8\", error_feedback = true } ]\n"}) {
    const TestPrograms lowered = lower_all(trained(test_transformer()), plan);
    add(count_rejections(lowered.graph, lowered.programs, plan, 12));
  }
  for (const PlanOfTables& plan : kPlansOfTables) add(count_of_tables(plan));
  add(count_of_nodes("none"));
  std::cout << table(all);
  for (const auto& [kind, pin] : pins()) {
    for (const std::string& rule : pin.rules)
      EXPECT_GT(all[kind][rule], 0) << "'" << rule << "' rejects none of '" << kind << "'";
  }
}

}  // namespace
}  // namespace tessera
