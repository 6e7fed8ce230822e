#include "tessera/graph/annotation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace tessera::annotation_test {
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

TEST(AnnotationTest, WindowsAreReadFromEitherSide) {
  const std::string text = "b x~-3/2/1, b x~~3/2/1 -> b x";
  Annotation a = parsed(text);
  EXPECT_EQ(to_string(a), text);
  EXPECT_EQ(a.inputs[0].window_use(1), WindowUse::kOver);
  EXPECT_EQ(a.inputs[1].window_use(1), WindowUse::kBeside);
  ASSERT_TRUE(bind_sizes(a, {{2, 4}, {2, 8}}, {{2, 8}}));
  EXPECT_EQ(dim(a, "x").size, 8);
  EXPECT_EQ(dim(a, "x").window_extent, 4);
  // Elements 2 and 3 lie under the windows at 1 (elements 1 to 3) and 2 (elements 3 to 5).
  EXPECT_EQ(a.window_read(a.inputs[0], 1)->of({2, 2}), (Interval{1, 2}));
  EXPECT_EQ(a.window_read(a.inputs[1], 1)->of({2, 2}), (Interval{1, 5}));
  EXPECT_FALSE(a.window_read(a.outputs[0], 1));

  Annotation wrong = parsed(text);
  const Status bound = bind_sizes(wrong, {{2, 5}, {2, 8}}, {{2, 8}});
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().message, "dim 'x' of 8 has 4 windows, found 5 in input 0");
}

// Compares with the definition of windows: which windows hold which elements, one by one.
RC_GTEST_PROP(AnnotationProperty, WindowsReadWhatTheirDefinitionSays, ()) {
  const Window w{*rc::gen::inRange<int64_t>(1, 7), *rc::gen::inRange<int64_t>(1, 5), 0};
  Window window = w;
  window.padding = *rc::gen::inRange<int64_t>(0, w.kernel);
  const int64_t elements = *rc::gen::inRange<int64_t>(w.kernel, 20);
  const int64_t positions = (elements + 2 * window.padding - w.kernel) / w.stride + 1;
  const auto holds = [&](int64_t position, int64_t element) {
    const int64_t begin = position * window.stride - window.padding;
    return begin <= element && element < begin + window.kernel;
  };
  const auto piece_of = [](int64_t size) {
    const int64_t begin = *rc::gen::inRange<int64_t>(0, size);
    return Interval{begin, *rc::gen::inRange<int64_t>(1, size - begin + 1)};
  };
  const auto hull = [](const std::set<int64_t>& hit) {
    return hit.empty() ? Interval{} : Interval{*hit.begin(), *hit.rbegin() - *hit.begin() + 1};
  };
  // The read covers at least the hull, and no more than what lies between.
  const auto same = [](Interval read, Interval expected) {
    return expected.empty() ? read.empty() : read == expected;
  };
  const Interval of_positions = piece_of(positions), of_elements = piece_of(elements);
  std::set<int64_t> under, over, beside;
  for (int64_t p = 0; p < positions; ++p) {
    bool held = false;
    for (int64_t e = 0; e < elements; ++e) {
      if (!holds(p, e)) continue;
      if (of_positions.begin <= p && p < of_positions.end()) under.insert(e);
      held = held || (of_elements.begin <= e && e < of_elements.end());
    }
    if (held) over.insert(p);
    for (int64_t e = 0; held && e < elements; ++e) {
      if (holds(p, e)) beside.insert(e);
    }
  }
  const auto read = [&](WindowUse use, int64_t size, int64_t extent, Interval piece) {
    return WindowRead{window, use, size, extent}.of(piece);
  };
  if (of_positions.size < positions)
    RC_ASSERT(same(read(WindowUse::kUnder, positions, elements, of_positions), hull(under)));
  if (of_elements.size < elements) {
    RC_ASSERT(same(read(WindowUse::kOver, elements, positions, of_elements), hull(over)));
    RC_ASSERT(same(read(WindowUse::kBeside, elements, elements, of_elements), hull(beside)));
  }
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

// Makes a random annotation text, with marks at random occurrences.
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
}  // namespace tessera::annotation_test
