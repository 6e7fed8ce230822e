// Mutation tests of the verifier over real, lowered programs: every change that makes a program
// wrong is rejected.
#include <gtest/gtest.h>

#include <map>

#include "tessera/program/mutate.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/verify.h"

namespace tessera {
namespace {

void expect_all_rejected(const Graph& graph, const std::string& plan, size_t per_kind) {
  const TestPrograms lowered = lower_all(graph, plan);
  const auto rejections = verify(lowered.graph, lowered.programs);
  ASSERT_TRUE(rejections.empty()) << plan << ": " << rejections[0].to_string();
  std::map<std::string, int> accepted;
  for (const Mutation& mutation : mutations(lowered.graph, lowered.programs, per_kind)) {
    if (!verify(lowered.graph, mutation.programs).empty()) continue;
    if (accepted[mutation.kind]++ == 0)
      ADD_FAILURE() << plan << ": accepted " << mutation.description;
  }
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
                                         "summa(2)", "megatron(tp=2, pp=2, dp=2, micro_batches=2)",
                                         "megatron(tp=2, pp=1, dp=2, zero=3, micro_batches=2)"));

}  // namespace
}  // namespace tessera
