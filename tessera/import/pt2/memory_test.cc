#include "tessera/import/pt2/memory.h"

#include <gtest/gtest.h>

namespace tessera::pt2 {
namespace {

Node node(const std::string& operand, const std::vector<std::string>& outputs) {
  Node out;
  out.arguments.emplace("self", TensorArg{operand});
  out.outputs = outputs;
  return out;
}

TEST(MemoryTest, WhatSharesElementsWithAnOpInPlaceIsStale) {
  Memory memory;
  const Node view = node("x", {"v"}), again = node("v", {"w"}), write = node("v", {"v_1"}),
             copy = node("x", {"c"});
  memory.add(view, "select");
  memory.add(again, "view");
  memory.add(copy, "clone");
  EXPECT_EQ(memory.changed("x"), nullptr);
  memory.add(write, "add_");
  for (const char* name : {"x", "v", "w"}) EXPECT_EQ(memory.changed(name), &write) << name;
  for (const char* name : {"v_1", "c", "other"}) EXPECT_EQ(memory.changed(name), nullptr) << name;
}

TEST(MemoryTest, PartsOfOneTensorShareItAndListsAreViewedOneByOne) {
  Memory memory;
  const Node parts = node("x", {"a", "", "b"});
  memory.add(parts, "split");
  const Node write = node("a", {"a_1"});
  memory.add(write, "relu_");
  EXPECT_EQ(memory.changed("b"), &write);
  Node pair;
  pair.arguments.emplace("tensors", TensorsArg{{"p", "q"}});
  pair.outputs = {"p_1", "q_1"};
  memory.add(pair, "broadcast_tensors");
  const Node other = node("q", {"q_2"});
  memory.add(other, "mul_");
  EXPECT_EQ(memory.changed("q_1"), &other);
  EXPECT_EQ(memory.changed("p_1"), nullptr);
}

TEST(MemoryTest, ABufferThatChangesIsReadByNothingButItsChanges) {
  Memory memory;
  memory.add_buffer("count");
  const Node once = node("count", {"count_1"}), twice = node("count_1", {"count_2"});
  memory.add(once, "add_");
  EXPECT_EQ(memory.changed("count_1", false), nullptr);
  memory.add(twice, "add_");
  EXPECT_EQ(memory.changed("count_2"), &twice);
}

TEST(MemoryTest, TiedTensorsAreOne) {
  Memory memory;
  memory.tie("head", "table");
  const Node write = node("head", {"head_1"});
  memory.add(write, "mul_");
  EXPECT_EQ(memory.changed("table"), &write);
  EXPECT_TRUE(Memory::in_place("add_"));
  EXPECT_FALSE(Memory::in_place("__and__"));
}

}  // namespace
}  // namespace tessera::pt2
