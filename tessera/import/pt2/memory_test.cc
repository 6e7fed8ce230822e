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
  EXPECT_TRUE(memory.add(view, "select"));
  EXPECT_TRUE(memory.add(again, "view"));
  EXPECT_TRUE(memory.add(copy, "clone"));
  EXPECT_EQ(memory.read("x", "sum"), nullptr);
  EXPECT_TRUE(memory.add(write, "add_"));
  for (const char* name : {"x", "v", "w"}) EXPECT_EQ(memory.read(name, "sum"), &write) << name;
  for (const char* name : {"v_1", "c", "other"})
    EXPECT_EQ(memory.read(name, "sum"), nullptr) << name;
}

TEST(MemoryTest, PartsOfOneTensorShareItAndListsAreViewedOneByOne) {
  Memory memory;
  const Node parts = node("x", {"a", "", "b"});
  EXPECT_TRUE(memory.add(parts, "split"));
  const Node write = node("a", {"a_1"});
  EXPECT_TRUE(memory.add(write, "relu_"));
  EXPECT_EQ(memory.read("b", "sum"), &write);
  Node pair;
  pair.arguments.emplace("tensors", TensorsArg{{"p", "q"}});
  pair.outputs = {"p_1", "q_1"};
  EXPECT_TRUE(memory.add(pair, "broadcast_tensors"));
  const Node other = node("q", {"q_2"});
  EXPECT_TRUE(memory.add(other, "mul_"));
  EXPECT_EQ(memory.read("q_1", "sum"), &other);
  EXPECT_EQ(memory.read("p_1", "sum"), nullptr);
}

TEST(MemoryTest, ABufferThatChangesIsReadByNothingButItsChanges) {
  Memory memory;
  memory.add_lasting("count");
  const Node once = node("count", {"count_1"}), twice = node("count_1", {"count_2"});
  EXPECT_TRUE(memory.add(once, "add_"));
  EXPECT_EQ(memory.read("count_1", "add_"), nullptr);
  EXPECT_TRUE(memory.add(twice, "add_"));
  EXPECT_EQ(memory.read("count_2", "sum"), &twice);
}

TEST(MemoryTest, WhatLastsIsNotChangedAfterItWasRead) {
  Memory memory;
  memory.add_lasting("center");
  const Node view = node("center", {"center_1"}), write = node("center_1", {"center_2"});
  EXPECT_EQ(memory.read("center", "view"), nullptr);
  EXPECT_TRUE(memory.add(view, "view"));
  EXPECT_EQ(memory.read("center_1", "add_"), nullptr);
  EXPECT_FALSE(memory.add(write, "add_"));
}

TEST(MemoryTest, WhatGetsItsNewElementsMayBeRead) {
  Memory memory;
  const Node part = node("x", {"p"}), other = node("x", {"q"}), write = node("p", {"p_1"});
  EXPECT_TRUE(memory.add(part, "slice"));
  EXPECT_TRUE(memory.add(other, "view"));
  EXPECT_TRUE(memory.add(write, "copy_"));
  memory.renew("x");
  EXPECT_EQ(memory.read("x", "sum"), nullptr);
  EXPECT_EQ(memory.read("q", "sum"), &write);
}

TEST(MemoryTest, TiedTensorsAreOne) {
  Memory memory;
  memory.tie("head", "table");
  const Node write = node("head", {"head_1"});
  EXPECT_TRUE(memory.add(write, "mul_"));
  EXPECT_EQ(memory.read("table", "sum"), &write);
  EXPECT_TRUE(Memory::in_place("add_"));
  EXPECT_FALSE(Memory::in_place("__and__"));
}

}  // namespace
}  // namespace tessera::pt2
