#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "tessera/base/text.h"
#include "tessera/graph/graph.h"
#include "tessera/graph/test_graphs.h"

namespace tessera::text_test {
namespace {

void expect_round_trip(const Graph& graph) {
  const std::string text = to_text(graph);
  auto parsed = parse_graph(text, "round_trip.graph");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(*parsed == graph);
  EXPECT_EQ(to_text(*parsed), text);
}

TEST(GraphTextTest, PrintThenParseGivesAnEqualGraph) {
  expect_round_trip(Graph{});
  expect_round_trip(test_graphs::mlp());
  for (const char* optimizer : {"adamw", "sgd", "none"}) {
    OptimizerSpec spec;
    spec.kind = optimizer;
    auto graph = differentiate(test_graphs::transformer(3), spec);
    ASSERT_TRUE(graph) << graph.error().message;
    expect_round_trip(*graph);
  }
}

TEST(GraphTextTest, OddNamesAndNumbersSurvive) {
  GraphBuilder g("a \"quoted\\ name");
  const TensorId x = g.input("odd, name (1)", {{"a", 2}}, DType::kFloat64);
  const TensorId y = g.op1("path with blanks", "scale", {x}, {{"factor", 1e20}});
  const TensorId z = g.op1("z", "dropout", {y}, {{"p", 0.1}, {"key", "a\nb \"c\" \\n"}});
  g.buffer("buckets", {{"a", 4}, {"b", 4}}, {Init::Kind::kDistanceBuckets, 0, {32, 128, 1}},
           DType::kInt64);
  g.buffer("rising", {{"a", 4}}, {Init::Kind::kOnes, 0.1, {8192}}, DType::kFloat64);
  g.buffer("turned", {{"a", 4}, {"b", 2}}, {Init::Kind::kRotaryCos, 1e4, {0, 5, 6, 7}},
           DType::kFloat64);
  g.op1("above", "clamp", {z}, {{"min", 1.0}});  // max is infinite
  g.op1("below", "clamp", {z}, {{"max", 1.0}});
  g.op1("tiny", "scale", {z}, {{"factor", -std::numeric_limits<double>::denorm_min()}});
  auto graph = g.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  expect_round_trip(*graph);
}

TEST(GraphTextTest, PublishedDimsSurvive) {
  GraphBuilder g("published");
  const std::vector<Dim> dims{{"a", 2}, {"b", 3}, {"c", 4}};
  for (const char* text : {"(a b) c", "c (b a)", "() a b c", "(a b c)", "a b c", "c b a"}) {
    const TensorId p = g.parameter(text, dims, Init{Init::Kind::kZeros});
    g.publish(p, text);
    EXPECT_EQ(published_text(g.tensor(p)), text);
    EXPECT_EQ(g.tensor(p).published.empty(), std::string_view(text) == "a b c");
  }
  auto graph = g.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  expect_round_trip(*graph);
  for (const char* text : {"", "a b", "a b c a", "(a b c", "a b) c", "((a) b) c", "a b d"}) {
    const auto parsed = parse_published(text, dims);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message,
              std::string("expected published dims that name each dim of [a=2, b=3, c=4] once, "
                          "found '") +
                  text + "'");
  }
}

RC_GTEST_PROP(GraphTextProperty, NumbersReadBackExactly, (double factor, double value)) {
  GraphBuilder g("numbers");
  const TensorId x = g.parameter("x", {}, Init{Init::Kind::kConstant, value});
  g.op1("y", "scale", {x}, {{"factor", factor}});
  auto graph = g.finish();
  RC_ASSERT(graph.has_value());
  auto parsed = parse_graph(to_text(*graph));
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(*parsed == *graph);
}

TEST(GraphTextTest, MirrorsOfOtherPhasesAreNamedWithTheirPhase) {
  auto graph = differentiate(test_graphs::mlp(), {});
  ASSERT_TRUE(graph);
  for (const Op& op : graph->ops()) {
    if (op.phase == Phase::kUpdate && op.path == "clip.coefficient")
      graph->op(op.id).mirror = OpId(size_t{7});
  }
  EXPECT_NE(to_text(*graph).find("mirror=backward:\""), std::string::npos);
  expect_round_trip(*graph);
}

const char* const kHeader =
    "graph \"g\"\n"
    "# a comment\n"
    "\n"
    "input %x [a=2, b=3] float32\n"
    "activation %y [a=2, b=3] float32\n";

std::string error_of(const std::string& lines) {
  auto graph = parse_graph(kHeader + lines, "bad.graph");
  EXPECT_FALSE(graph) << lines;
  return graph ? "" : graph.error().message;
}

TEST(GraphTextTest, ErrorsNameFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"tensor %z",
       "bad.graph:6: column 1: expected 'graph', 'loss', a role or a phase, found 'tensor'"},
      {"input z", "bad.graph:6: column 7: expected a tensor (%name), found 'z'"},
      {"input %x [] float32", "bad.graph:6: tensor 'x' is declared twice"},
      {"input %z [a] float32", "bad.graph:6: column 12: expected '=', found ']'"},
      {"input %z [a=2 b=3] float32", "bad.graph:6: column 15: expected ',', found 'b=3]'"},
      {"input %z [] halb",
       "bad.graph:6: expected a dtype (float64, float32, bfloat16, float16, int64, int32, uint8, "
       "bool), found 'halb'"},
      {"input %z [] float32 init=gauss",
       "bad.graph:6: expected an init (none, zeros, ones, constant, normal, uniform, rotary_cos, "
       "rotary_sin, distance_buckets, window_pairs, window_regions, learning_rate, step), found "
       "'gauss'"},
      {"buffer %z [a=2, b=2] int64 init=window_pairs",
       "bad.graph:6: column 45: expected '(', found the "
       "end of the line"},
      {"input %z [] float32 of=%none", "bad.graph:6: tensor 'none' is not declared"},
      {"input %z [] float32 big",
       "bad.graph:6: column 21: expected init=, recompute=, trained=, published=, of=, update_of= "
       "or "
       "the end of the line, found 'big'"},
      {"forward op y %y = gelu(%x) : a b -> a b",
       "bad.graph:6: column 12: expected a path in quotes, found 'y'"},
      {"forward op \"y %y = gelu(%x)", "bad.graph:6: column 12: a quote is not closed"},
      {"forward op \"y\" %q = gelu(%x) : a b -> a b",
       "bad.graph:6: tensor 'q' is not declared above"},
      {"forward op \"y\" mirror=\"z\" %y = gelu(%x) : a b -> a b",
       "bad.graph:6: forward op 'z' is not declared above"},
      {"forward op \"y\" %y = gelu(%x) : a b, -> a", "bad.graph:6: expected 2 inputs, found 1"},
      {"forward op \"y\" %y = gelu(%x) : a b > a",
       "bad.graph:6: annotation column 5: unexpected character '>'"},
      {"forward op \"y\" %y = gelu(%x) : a b -> b a",
       "bad.graph:6: dim 'b' is 3 in input 0 but 2 in output 0"},
      {"forward op \"y\" %y = gelu(%x) {p=x} : a b -> a b", nullptr},
      {"forward op \"y\" %y = geluu(%x) : a b -> a b",
       "bad.graph:6: op 'y' (geluu): expected an op kind (docs/reference/ops.md), found 'geluu'; "
       "nearest: 'gelu'"},
      {"forward op \"y\" %y = gelu(%x) : a^ b -> a b",
       "bad.graph:6: op 'y' (gelu): expected the annotation 'a b -> a b', found 'a^ b -> a b'"},
      {"", "bad.graph:5: tensor 'y': expected an op that makes this activation, found none"},
      {"loss %x", nullptr},
  };
  for (const auto& [lines, message] : cases) {
    const std::string error = error_of(lines);
    if (message != nullptr) {
      EXPECT_EQ(error, message) << lines;
    }
  }
}

TEST(GraphTextTest, TablesOfIntegersFitTheirSizes) {
  const auto error = [](const std::string& dims, const std::string& init) {
    const auto graph = parse_graph("graph \"g\"\nbuffer %z " + dims + " init=" + init + "\n");
    return graph ? std::string() : graph.error().message;
  };
  EXPECT_EQ(error("[a=4, b=4] int64", "window_pairs(2)"), "");
  EXPECT_EQ(error("[a=4, b=8] int64", "window_regions(2 1 2)"), "");
  EXPECT_EQ(error("[a=4, b=8] int64", "distance_buckets(8 16 1)"), "");
  for (const auto& [dims, init] : std::vector<std::pair<std::string, std::string>>{
           {"[a=4, b=4] float32", "window_pairs(2)"},
           {"[a=4, b=3] int64", "window_pairs(2)"},
           {"[a=4] int64", "window_pairs(2)"},
           {"[a=4, b=4] int64", "window_regions(2 1 0)"},
           {"[a=4, b=4] int64", "window_regions(2 2 2)"},
           {"[a=4, b=4] int64", "distance_buckets(6 16 1)"},
           {"[a=4, b=4] int64", "distance_buckets(8 4 1)"}}) {
    EXPECT_NE(error(dims, init).find("tensor 'z': expected a table of "), std::string::npos)
        << dims << " " << init << ": " << error(dims, init);
  }
}

// A person may leave out the parts that the kind knows.
TEST(GraphTextTest, AnnotationAndDefaultAttributesMayBeLeftOut) {
  const Graph graph = test_graphs::mlp();
  const std::string full = to_text(graph);
  std::string brief;
  for (const std::string& line : split_text(full, '\n')) {
    const size_t annotation = line.find(" : ");
    brief += line.substr(0, line.starts_with("forward") ? annotation : std::string::npos) + "\n";
  }
  const size_t factor = brief.find(", factor=1.0");
  if (factor != std::string::npos) brief.erase(factor, std::string(", factor=1.0").size());
  EXPECT_LT(brief.size(), full.size());
  const auto parsed = parse_graph(brief, "brief.graph");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(to_text(*parsed), full);
}

// These graphs have no text, or result from a transform that goes wrong.
TEST(GraphVerifyTest, RejectsWhatIsNotWellFormed) {
  const Graph good = test_graphs::mlp();
  auto error_after = [&](auto change) {
    Graph graph = good;
    change(graph);
    auto status = graph.verify();
    EXPECT_FALSE(status);
    return status ? "" : status.error().message;
  };
  auto id = [&](const char* name) { return good.find_tensor(name); };
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("act")).name = "up"; }),
            "two tensors have the name 'up'");
  EXPECT_EQ(error_after([&](Graph& g) { g.op(OpId(size_t{1})).path = "up"; }),
            "two forward ops have the path 'up'");
  EXPECT_EQ(error_after([&](Graph& g) { g.op(OpId(size_t{0})).inputs[0] = id("act"); }),
            "op 'up' (einsum): reads 'act', which a later op makes");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("act")).dims[0].size = 9; }),
            "op 'act' (gelu): expected output 0 to be 'act' [batch=8, ffn=16] float32, found 'act' "
            "[batch=9, ffn=16] float32");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("act")).dtype = DType::kFloat64; }),
            "op 'act' (gelu): expected output 0 to be 'act' [batch=8, ffn=16] float32, found 'act' "
            "[batch=8, ffn=16] float64");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("x")).dims[0].name = "3"; }),
            "tensor 'x': expected a dim name (letters, digits, '_', '.'), found '3'");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("x")).dims[0].name = "in"; }),
            "tensor 'x': dim 'in' occurs twice");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("x")).dims[0].size = 0; }),
            "tensor 'x': expected dim 'batch' to have a size of at least 1, found 0");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("act")).role = Role::kParameter; }),
            "tensor 'act': op 'act' may not make a tensor of role parameter");
  EXPECT_EQ(error_after([&](Graph& g) { g.tensor(id("act")).update_of = id("up"); }),
            "op 'act' (gelu): only an update op may update 'up'");
  EXPECT_EQ(error_after([&](Graph& g) { g.op(OpId(size_t{0})).annotation.dims.own()[0].size = 9; }),
            "op 'up' (einsum): expected the annotation 'batch in+, in ffn, ffn -> batch ffn', "
            "found 'batch in+, in ffn, "
            "ffn -> batch ffn' with other sizes");
  EXPECT_EQ(error_after([&](Graph& g) { g.loss = id("act"); }),
            "expected a scalar loss, found 'act' [batch=8, ffn=16] float32");
  EXPECT_EQ(error_after(
                [&](Graph& g) { g.op(g.tensor(id("loss")).producer).attributes.erase("factor"); }),
            "op 'loss' (reduce_sum): attribute 'factor' is missing or of the wrong type");
}

}  // namespace
}  // namespace tessera::text_test
