// Mutation tests of the verifier over real, lowered programs: every change that makes a program
// wrong is rejected, and by the rule that is meant to. A class of mutations that is generated for
// no plan, or a rule that rejects none of a class that it should, is a failure: a test that tries
// nothing proves nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <map>
#include <set>

#include "support/borders.h"
#include "support/mutate.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/verify.h"

namespace tessera {
namespace {

// Rejections by class and rule.
using Counts = std::map<std::string, std::map<std::string, int>>;

constexpr std::array kRules{"operand", "coverage", "instruction", "tier",
                            "message", "order",    "lifetime",    "memory"};

struct Pin {
  std::set<std::string> rules;     // each rejects some of the class
  std::set<std::string> may = {};  // reject some of it under some plans
};

// By class of mutation: the rules that reject it. No other rule does, under any plan, and no class
// is missing here.
const std::map<std::string, Pin>& pins() {
  static const std::map<std::string, Pin> all = {
      {"add_to_set", {{"operand"}, {"coverage", "instruction"}}},
      {"all_gather_to_all_reduce", {{"instruction"}}},
      {"all_reduce_to_all_gather", {{"coverage", "operand"}}},
      {"backward_before_forward", {{"lifetime"}}},
      {"drop_codec", {{"instruction"}, {"message"}}},
      {"drop_collective", {{"coverage", "lifetime", "operand"}}},
      {"drop_compute", {{"coverage", "lifetime"}, {"operand"}}},
      {"drop_copy", {{"lifetime"}, {"operand"}}},
      {"drop_load", {{"lifetime"}}},
      {"drop_one_side", {{"lifetime", "message", "operand", "order"}, {"coverage"}}},
      {"drop_run", {{"lifetime", "message", "operand", "order"}, {"coverage"}}},
      {"drop_wait", {{"lifetime"}}},
      {"duplicate_compute", {{"coverage", "operand"}}},
      {"duplicate_one_side", {{"instruction"}}},
      {"first_add", {{"lifetime"}}},
      {"forget_accumulation", {{"coverage", "operand"}}},
      {"free_too_early", {{"lifetime"}}},
      {"overlapping_offset", {{"lifetime", "memory"}}},
      {"read_before_write", {{"lifetime"}, {"operand"}}},
      {"reduce_before_last_micro_batch", {{"lifetime"}}},
      {"set_to_add", {{"lifetime"}, {"instruction"}}},
      {"shared_residual", {{"instruction"}}},
      {"small_arena", {{"memory"}}},
      {"swap_collectives", {{"lifetime", "message"}, {"operand"}}},
      {"swap_gradient", {{"lifetime", "operand", "tier"}}},
      {"swap_operands", {{"lifetime", "operand"}, {"instruction"}}},
      {"wrong_box", {{"instruction", "operand"}}},
      {"wrong_codec", {{"message"}}},
      {"wrong_combiner", {{"coverage"}, {"instruction"}}},
      {"wrong_constant", {{"instruction"}}},
      {"wrong_constant_everywhere", {{"instruction"}}},
      {"wrong_group", {{"message"}, {"operand"}}},
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

// Every mutation is rejected; by which rule.
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
                           "offload(dp=2,zero=2,to=disk,activations=true,micro_batches=2)"}) {
    const TestPrograms lowered = lower_all(trained(test_transformer()), plan);
    add(count_rejections(lowered.graph, lowered.programs, plan, 12));
  }
  std::cout << table(all);
  for (const auto& [kind, pin] : pins()) {
    for (const std::string& rule : pin.rules)
      EXPECT_GT(all[kind][rule], 0) << "'" << rule << "' rejects none of '" << kind << "'";
  }
}

}  // namespace
}  // namespace tessera
