#include "tessera/import/pt2/symbols.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::pt2 {
namespace {

using Json = nlohmann::json;

int64_t value(const std::string& text) {
  const auto found = value_of_expression(text, {{"s0", 6}, {"s1", 4}});
  return found ? *found : -1;
}

const std::string kS0 = "Symbol('s0', positive=True, integer=True)",
                  kS1 = "Symbol('s1', positive=True, integer=True)";

TEST(Symbols, ComputeWhatTheFormatWrites) {
  EXPECT_EQ(value(kS0), 6);
  EXPECT_EQ(value("Integer(-3)"), -3);
  EXPECT_EQ(value("Mul(" + kS0 + ", " + kS1 + ")"), 24);
  EXPECT_EQ(value("Add(Integer(1), Mul(Integer(2), " + kS0 + "))"), 13);
  EXPECT_EQ(value("Min(Integer(64), Mul(Integer(64), " + kS1 + "))"), 64);
  EXPECT_EQ(value("Max(" + kS0 + ", " + kS1 + ", Integer(5))"), 6);
  EXPECT_EQ(value("FloorDiv(" + kS0 + ", " + kS1 + ")"), 1);
  EXPECT_EQ(value("Mod(" + kS0 + ", " + kS1 + ")"), 2);
}

TEST(Symbols, RefuseWhatTheyDoNotKnow) {
  for (const std::string text :
       {"", "Integer()", "Symbol('s2', positive=True)", "Sin(Integer(1))", "Mul(Integer(2)",
        "Integer(2))", "FloorDiv(Integer(1), Integer(0))",
        "Mul(Integer(4000000000000000), Integer(4000000000000000))"}) {
    EXPECT_EQ(value(text), -1) << text;
  }
  std::string deep = "Integer(1)";
  for (int i = 0; i < 100; ++i) deep = "Add(" + deep + ", Integer(0))";
  EXPECT_EQ(value(deep), -1);
}

Json size(const std::string& expression, int64_t hint) {
  return {{"as_expr", {{"expr_str", expression}, {"hint", {{"as_int", hint}}}}}};
}

// A program with an input of open batch and length, and nodes that read and check them.
Json program() {
  const Json input = {{"user_input", {{"arg", {{"as_tensor", {{"name", "tokens"}}}}}}}};
  const Json reads = {{"target", "torch.ops.aten.sym_size.int"},
                      {"outputs", {{{"as_sym_int", {{"as_name", "n"}}}}}}};
  const Json check = {{"target", "torch.ops.aten._assert_scalar.default"},
                      {"outputs", Json::array()}};
  const Json view = {
      {"target", "torch.ops.aten.view.default"},
      {"inputs", {{{"arg", {{"as_sym_ints", {{{"as_name", "n"}}, {{"as_int", 8}}}}}}}}},
      {"outputs", {{{"as_tensor", {{"name", "view"}}}}}}};
  return {{"range_constraints", {{"s0", {{"min_val", 2}, {"max_val", 64}}}}},
          {"graph_module",
           {{"signature", {{"input_specs", {input}}}},
            {"graph",
             {{"nodes", {reads, check, view}},
              {"sym_int_values", {{"n", size("Mul(" + kS0 + ", " + kS1 + ")", 24)}}},
              {"tensor_values", {{"tokens", {{"sizes", {size(kS0, 6), size(kS1, 4)}}}}}}}}}}};
}

std::string fixed(Json document, const StatedSizes& stated) {
  const Status done = fix_symbols(document, stated);
  if (!done) return done.error().message;
  const Json& graph = document["graph_module"]["graph"];
  EXPECT_EQ(graph["nodes"].size(), 1U);
  return graph["nodes"][0]["inputs"][0]["arg"]["as_sym_ints"].dump() +
         graph["tensor_values"]["tokens"]["sizes"].dump();
}

TEST(Symbols, BecomeTheSizesOfTheExampleOrThoseStated) {
  EXPECT_EQ(fixed(program(), {}), R"([{"as_int":24},{"as_int":8}][{"as_int":6},{"as_int":4}])");
  EXPECT_EQ(fixed(program(), {{"batch", 2}}),
            R"([{"as_int":8},{"as_int":8}][{"as_int":2},{"as_int":4}])");
  EXPECT_EQ(fixed(program(), {{"batch", 2}, {"seq", 512}}),
            R"([{"as_int":1024},{"as_int":8}][{"as_int":2},{"as_int":512}])");
}

TEST(Symbols, StatedSizesMustBeOpenAndInRange) {
  EXPECT_EQ(fixed(program(), {{"batch", 65}}),
            "batch=65: expected a size from 2 to 64, the range that the module was exported for");
  Json closed = program();
  closed["graph_module"]["graph"]["tensor_values"]["tokens"]["sizes"][1] = {{"as_int", 4}};
  EXPECT_EQ(
      fixed(closed, {{"seq", 8}}),
      "seq=8: expected a module whose seq is open (dynamic_shapes of torch.export), found one "
      "that fixes it");
  // Where the length is a number, no symbol stands for it.
  closed["graph_module"]["graph"]["sym_int_values"]["n"] = size("Mul(" + kS0 + ", Integer(4))", 24);
  EXPECT_EQ(fixed(closed, {{"seq", 4}}), fixed(closed, {}));
}

}  // namespace
}  // namespace tessera::pt2
