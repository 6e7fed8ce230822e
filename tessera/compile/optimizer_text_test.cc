#include "tessera/compile/optimizer_text.h"

#include <gtest/gtest.h>

#include "tessera/compile/compile.h"

namespace tessera {
namespace {

std::string refusal(const std::string& text) {
  const auto spec = parse_optimizer_text(text);
  return spec ? "" : spec.error().message;
}

TEST(OptimizerText, NamesAnOptimizerAndThoseOfSomeParameters) {
  EXPECT_EQ(parse_optimizer_text("")->kind, "adamw");
  EXPECT_EQ(parse_optimizer_text("lion")->kind, "lion");
  const OptimizerSpec spec = parse_optimizer_text("sgd,tables.*=row_adam,tables.0=sgd").value();
  EXPECT_EQ(spec.kind, "sgd");
  ASSERT_EQ(spec.groups.size(), 2U);
  EXPECT_EQ(spec.groups[0].parameters, "tables.*");
  EXPECT_EQ(spec.groups[0].kind, "row_adam");
  EXPECT_EQ(spec.groups[0].rate, 1);
  EXPECT_EQ(spec.groups[1].parameters, "tables.0");
}

TEST(OptimizerText, ErrorsNameThePart) {
  EXPECT_TRUE(refusal("adamv").starts_with("optimizer: unknown 'adamv', did you mean 'adamw'? ("));
  EXPECT_TRUE(refusal("sgd,tables.*=row_adm")
                  .starts_with("optimizer: unknown 'row_adm', did you mean 'row_adam'? ("));
  for (const std::string part : {"tables", "=sgd", ""}) {
    EXPECT_EQ(refusal("sgd," + part),
              "optimizer: expected PATTERN=OPTIMIZER behind the first, as "
              "tables.*=rowwise_adagrad, found '" +
                  part + "'");
  }
}

// The optimizer's states are part of the memory that a step needs.
TEST(OptimizerText, DecidesWhichStatesAProgramHas) {
  const auto states = [](const std::string& text) {
    CompileTexts texts{"dlrm:rows=40-30,width=4,bottom=4,top=4-1", "serial", 4};
    texts.optimizer = parse_optimizer_text(text).value();
    const Compiled compiled = compile(texts).value();
    int64_t elements = 0;
    for (const Tensor& tensor : compiled.graph().tensors()) {
      const bool rests = tensor.role == Role::kOptimizerState && !tensor.update_of.valid();
      elements += rests ? tensor.elements() : 0;
    }
    return elements;
  };
  const int64_t rows = 40 + 30, tables = rows * 4, dense = states("sgd") - tables;
  EXPECT_EQ(states("adamw"), 2 * (tables + dense));
  EXPECT_EQ(states("row_sgd"), dense);  // the momentum of the others
  EXPECT_EQ(states("adamw,tables.*=row_sgd"), 2 * dense);
  EXPECT_EQ(states("adamw,tables.*=rowwise_adagrad"), 2 * dense + rows);
}

}  // namespace
}  // namespace tessera
