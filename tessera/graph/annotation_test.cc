#include "tessera/graph/annotation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace tessera {
namespace {

Annotation parsed(std::string_view text) {
  auto annotation = parse_annotation(text);
  EXPECT_TRUE(annotation) << text << ": " << (annotation ? "" : annotation.error().message);
  return annotation ? *annotation : Annotation{};
}

std::string error_of(std::string_view text) {
  auto annotation = parse_annotation(text);
  EXPECT_FALSE(annotation) << text;
  return annotation ? "" : annotation.error().message;
}

const OpDim& dim(const Annotation& annotation, std::string_view name) {
  const int index = annotation.find(name);
  EXPECT_GE(index, 0) << name;
  return annotation.dims[static_cast<size_t>(index)];
}

TEST(AnnotationTest, MatrixProductHasAReductionDim) {
  const Annotation a = parsed("b s k+, k+ n -> b s n");
  ASSERT_EQ(a.dims.size(), 4u);
  EXPECT_EQ(dim(a, "k").mark, Mark::kReduction);
  EXPECT_EQ(dim(a, "b").mark, Mark::kSpatial);
  EXPECT_TRUE(a.reduces(a.find("k"), 0));
  EXPECT_FALSE(a.reduces(a.find("n"), 0));
  EXPECT_EQ(to_string(a), "b s k+, k n -> b s n");
}

TEST(AnnotationTest, ADimThatAnOutputLacksIsAReductionWithoutAMark) {
  EXPECT_EQ(to_string(parsed("m k, k n -> m n")), "m k+, k n -> m n");
  EXPECT_EQ(to_string(parsed("b h -> b h, h")), "b+ h -> b h, h");
}

TEST(AnnotationTest, OutputsNameTheirCombiner) {
  const Annotation a = parsed("b s v+, b s -> b s {logsumexp}, b s");
  EXPECT_EQ(a.outputs[0].combiner, Combiner::kLogSumExp);
  EXPECT_EQ(a.outputs[1].combiner, Combiner::kSum);
  EXPECT_EQ(to_string(a), "b s v+, b s -> b s {logsumexp}, b s");
  EXPECT_EQ(to_string(parsed("a -> a {sum}")), "a -> a");
}

TEST(AnnotationTest, FrozenAndCausalMarksHoldForTheWholeOp) {
  const Annotation a = parsed("b q h g d^, b kv^<q h d, b kv h d -> b q h g d, b q h g");
  EXPECT_EQ(dim(a, "d").mark, Mark::kFrozen);
  EXPECT_EQ(dim(a, "kv").mark, Mark::kFrozen);
  EXPECT_EQ(dim(a, "kv").causal_of, a.find("q"));
  EXPECT_EQ(to_string(a), "b q h g d^, b kv^<q h d, b kv h d -> b q h g d, b q h g");
  EXPECT_EQ(parsed("q kv, kv<q d -> q d"), parsed("q kv+<q, kv d -> q d"));
}

TEST(AnnotationTest, OnlyTheFirstDimOfABracketMayBeSplit) {
  Annotation a = parsed("(h p) w -> h p w");
  EXPECT_EQ(dim(a, "h").mark, Mark::kSpatial);
  EXPECT_EQ(dim(a, "p").mark, Mark::kFrozen);
  EXPECT_TRUE(dim(a, "p").hidden);
  EXPECT_EQ(to_string(a), "(h p) w -> h p w");
}

TEST(AnnotationTest, BehindDimsOfSizeOneTheNextDimOfABracketMayBeSplit) {
  Annotation a = parsed("(g h p) -> g h p");
  ASSERT_TRUE(bind_sizes(a, {{24}}, {{1, 4, 6}}));
  EXPECT_EQ(dim(a, "h").mark, Mark::kSpatial);
  EXPECT_EQ(dim(a, "p").mark, Mark::kFrozen);
  EXPECT_EQ(dim(parsed("(1 h p) -> h p"), "h").mark, Mark::kSpatial);
}

TEST(AnnotationTest, AnExplicitFreezeInABracketStays) {
  Annotation a = parsed("(g h^) -> g h");
  EXPECT_FALSE(dim(a, "h").hidden);
  EXPECT_EQ(to_string(a), "(g h^) -> g h");
  ASSERT_TRUE(bind_sizes(a, {{4}}, {{1, 4}}));
  EXPECT_EQ(dim(a, "h").mark, Mark::kFrozen);
}

TEST(AnnotationTest, NumbersAreFrozenDimsOfThatSize) {
  const Annotation a = parsed("h 3 -> h 3^");
  EXPECT_EQ(dim(a, "3").mark, Mark::kFrozen);
  EXPECT_EQ(dim(a, "3").size, 3);
  EXPECT_EQ(to_string(a), "h 3 -> h 3");
  EXPECT_EQ(parsed("2 2 -> 2").dims.size(), 2u);
}

TEST(AnnotationTest, WindowsBelongToTheTensorDimThatIsReadThroughThem) {
  Annotation a = parsed("b i+ y~3/2/1, o i 3 -> b o y");
  EXPECT_EQ(*dim(a, "y").window, (Window{3, 2, 1}));
  EXPECT_TRUE(a.inputs[0].is_windowed(2));
  EXPECT_FALSE(a.outputs[0].is_windowed(2));
  EXPECT_EQ(to_string(a), "b i+ y~3/2/1, o i 3 -> b o y");
  ASSERT_TRUE(bind_sizes(a, {{2, 5, 8}, {7, 5, 3}}, {{2, 7, 4}}));
  EXPECT_EQ(dim(a, "y").size, 4);  // (8 + 2 - 3) / 2 + 1
  EXPECT_EQ(dim(a, "y").window_extent, 8);
}

TEST(AnnotationTest, ScalarsAndNoOperands) {
  EXPECT_EQ(to_string(parsed("a b ->")), "a+ b+ -> ()");
  EXPECT_EQ(to_string(parsed("a, , () -> a")), "a, (), () -> a");
  EXPECT_EQ(parsed("-> a").inputs.size(), 0u);
  EXPECT_EQ(to_string(parsed("-> a")), "-> a");
  EXPECT_EQ(parsed("() -> ()").inputs.size(), 1u);
}

TEST(AnnotationTest, ErrorsNameTheColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"a b", "annotation column 4: expected ',' or '->', found the end"},
      {"a ! b", "annotation column 3: unexpected character '!'"},
      {"a a -> b", "annotation column 3: dim 'a' occurs twice in one operand"},
      {"(a b) a -> b", "annotation column 7: dim 'a' occurs twice in one operand"},
      {"a+ -> a", "annotation column 2: dim 'a' is marked + but every output has it"},
      {"a+, a^ -> ()", "annotation column 6: dim 'a' is marked both + and ^"},
      {"3x -> x", "annotation column 1: a dim name cannot start with a digit"},
      {"0 x -> x", "annotation column 1: expected a size of at least 1, found 0"},
      {"3+ x -> x", "annotation column 2: a number takes no mark: it is frozen"},
      {"a {max} -> a", "annotation column 3: only an output may name a combiner"},
      {"a -> b {mean}",
       "annotation column 9: expected a combiner (sum, max, logsumexp, moments, weighted), found "
       "'mean'"},
      {"a -> b {max", "annotation column 12: expected '}', found the end"},
      {"(a (b)) -> a", "annotation column 4: brackets do not nest"},
      {"(a -> a", "annotation column 4: expected a dim or ')', found '->'"},
      {"a () -> a", "annotation column 4: expected a dim, found ')'"},
      {"a -> a -> a", "annotation column 8: expected ',' or the end, found '->'"},
      {"k<q -> k", "annotation column 3: 'q' is not another dim of the op"},
      {"k<k -> k", "annotation column 3: 'k' is not another dim of the op"},
      {"k<a, k<b, a b -> k a b", "annotation column 8: dim 'k' has two different query dims"},
      {"y~3/2 -> y", "annotation column 7: expected '/', found '->'"},
      {"y~3/0/1 -> y", "annotation column 5: window value 0 is out of range"},
      {"y~3/1/1, y~5/1/1 -> y", "annotation column 11: dim 'y' has two different windows"},
      {"(y~3/1/1 b) -> y b", "annotation column 3: a window dim cannot stand in brackets"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of(text), message) << text;
}

std::string bind_error(std::string_view text, const std::vector<std::vector<int64_t>>& inputs,
                       const std::vector<std::vector<int64_t>>& outputs) {
  Annotation a = parsed(text);
  auto status = bind_sizes(a, inputs, outputs);
  EXPECT_FALSE(status) << text;
  return status ? "" : status.error().message;
}

TEST(AnnotationTest, BindingChecksSizes) {
  EXPECT_EQ(bind_error("m k, k n -> m n", {{2, 3}, {4, 5}}, {{2, 5}}),
            "dim 'k' is 3 in input 0 but 4 in input 1");
  EXPECT_EQ(bind_error("m k -> m", {{2}}, {{2}}), "input 0: expected 2 dims, found shape [2]");
  EXPECT_EQ(bind_error("m -> m", {{2}, {3}}, {{2}}), "expected 1 inputs, found 2");
  EXPECT_EQ(bind_error("m 3 -> m", {{2, 4}}, {{2}}),
            "dim '3' is 3 in the annotation but 4 in input 0");
  EXPECT_EQ(bind_error("(a b) -> a b", {{12}}, {{3, 5}}),
            "input 0: bracket (a b) expected size 15, found size 12");
  EXPECT_EQ(bind_error("(a b) c -> a c", {{12, 2}}, {{5, 2}}),
            "input 0: bracket (a b) expected a multiple of 5, found size 12");
  EXPECT_EQ(bind_error("(a b) -> ()", {{12}}, {{}}), "the size of dim 'a' is unknown");
  EXPECT_EQ(bind_error("y~5/1/0 -> y", {{3}}, {{1}}),
            "dim 'y': size 3 in input 0 is smaller than its window");
}

TEST(AnnotationTest, OneUnknownOfABracketIsInferred) {
  Annotation a = parsed("(a b), (b c) -> a");
  ASSERT_TRUE(bind_sizes(a, {{6}, {10}}, {{3}}));
  EXPECT_EQ(dim(a, "b").size, 2);
  EXPECT_EQ(dim(a, "c").size, 5);
}

// A random annotation text: marks are written at random occurrences.
rc::Gen<std::string> annotation_text() {
  return rc::gen::exec([]() {
    const int count = *rc::gen::inRange(1, 6);
    const std::vector<std::string> names = {"batch", "seq", "h", "d_1", "kv.2", "_x"};
    auto operand = [&](bool output) {
      std::string text;
      std::vector<int> left;
      for (int i = 0; i < count; ++i) left.push_back(i);
      bool open = false;
      const int rank = *rc::gen::inRange(0, count + 1);
      for (int i = 0; i < rank; ++i) {
        const auto pick = static_cast<size_t>(*rc::gen::inRange(0, static_cast<int>(left.size())));
        const bool begins = !open && *rc::gen::arbitrary<bool>();
        if (begins) {
          text += " (";
          open = true;
        } else {
          text += ' ';
        }
        const int which = left[pick];
        text += names[static_cast<size_t>(which)];
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(pick));
        if (which % 3 == 0 && *rc::gen::arbitrary<bool>()) text += '^';
        if (which == 4 && count > 4 && *rc::gen::arbitrary<bool>()) text += "<batch";
        if (!open && which == 1 && !output && *rc::gen::arbitrary<bool>()) text += "~3/1/1";
        if (open && *rc::gen::arbitrary<bool>()) {
          text += ')';
          open = false;
        }
      }
      if (open) text += ')';
      if (*rc::gen::inRange(0, 4) == 0) text += " 7";
      if (output && *rc::gen::inRange(0, 3) == 0) text += " {max}";
      return text;
    };
    std::string text;
    const int inputs = *rc::gen::inRange(1, 4);
    for (int i = 0; i < inputs; ++i) text += (i > 0 ? "," : "") + operand(false);
    text += " ->";
    const int outputs = *rc::gen::inRange(1, 3);
    for (int i = 0; i < outputs; ++i) text += (i > 0 ? "," : "") + operand(true);
    return text;
  });
}

RC_GTEST_PROP(AnnotationProperty, PrintThenParseIsTheIdentity, ()) {
  const std::string text = *annotation_text();
  auto first = parse_annotation(text);
  RC_PRE(first.has_value());  // a causal pair may name a dim that no operand has
  const std::string printed = to_string(*first);
  auto second = parse_annotation(printed);
  RC_ASSERT(second.has_value());
  RC_ASSERT(*first == *second);
  RC_ASSERT(to_string(*second) == printed);
}

}  // namespace
}  // namespace tessera
