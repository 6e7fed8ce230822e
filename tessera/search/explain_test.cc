#include "tessera/search/explain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/search/plan_search.h"
#include "tessera/search/test_questions.h"

namespace tessera::explain_test {
namespace {

PlanBlock row_of(const std::string& first, const std::string& last, int64_t units) {
  PlanBlock out;
  out.first = first;
  out.last = last;
  out.units = units;
  out.chosen = "tp: heads ffn";
  out.passes_s = 2e-3;
  out.activation_bytes = 3e6;
  out.resting_bytes = 40e6;
  return out;
}

TEST(Explain, ARowSaysWhatItsNextBestWouldCostAndWhatDecides) {
  PlanAnswer answer;
  answer.blocks = {row_of("embed", "embed", 1), row_of("blocks.0", "blocks.3", 4),
                   row_of("head", "head", 1), row_of("loss", "loss", 1)};
  PlanBlock& slower = answer.blocks[1];
  slower.next = "tp: seq";
  slower.next_s = 2.5e-3;
  slower.next_activation_bytes = 1e6;
  PlanBlock& larger = answer.blocks[2];  // faster, with more activations
  larger.next = "whole";
  larger.next_s = 1e-3;
  larger.next_activation_bytes = 4e6;
  PlanBlock& surrounded = answer.blocks[3];  // faster and not larger
  surrounded.next = "tp: batch";
  surrounded.next_s = 1e-3;
  surrounded.next_activation_bytes = 3e6;
  EXPECT_EQ(
      explanation_text(answer),
      "\nBlocks (both passes; of one unit of the row):\n"
      "  embed\n"
      "      tp: heads ffn\n"
      "      2 ms a micro-batch each, 2.86 MiB of activations, 38.1 MiB at rest\n"
      "  blocks.0 to blocks.3 (4)\n"
      "      tp: heads ffn\n"
      "      2 ms a micro-batch each, 2.86 MiB of activations, 38.1 MiB at rest\n"
      "      next best tp: seq: 2.5 ms, 0.95 MiB of activations (25.0 % slower)\n"
      "  head\n"
      "      tp: heads ffn\n"
      "      2 ms a micro-batch each, 2.86 MiB of activations, 38.1 MiB at rest\n"
      "      next best whole: 1 ms, 3.81 MiB of activations (memory binds)\n"
      "  loss\n"
      "      tp: heads ffn\n"
      "      2 ms a micro-batch each, 2.86 MiB of activations, 38.1 MiB at rest\n"
      "      next best tp: batch: 1 ms, 2.86 MiB of activations (what lies around it decides)\n");
}

TEST(Explain, ChangesOfTheMachineAreSharesOfTheStep) {
  PlanAnswer answer;
  answer.simulated.resize(1);
  answer.simulated[0].step_s = 2;
  answer.best = 0;
  answer.with_twice_memory.emplace();
  answer.with_twice_memory->step_s = 1.5;
  answer.with_twice_memory->call = "megatron(tp=2)";
  answer.with_twice_rates.emplace();
  answer.with_twice_rates->step_s = 1.999;
  answer.with_twice_rates->call = "fsdp()";
  const std::string text = explanation_text(answer);
  EXPECT_NE(text.find("  with twice the memory: 1.5 s, 25.0 % less: megatron(tp=2)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  with twice the rates of all links: 1.999 s, no gain: fsdp()\n"),
            std::string::npos)
      << text;
}

// The costs of rows are those of the pricer, and the next best way is the fastest of the others.
TEST(Explain, RowsHaveThePricesOfTheirUnits) {
  const auto asked = ask("gpt:layers=4,hidden=256,heads=4,seq=64,vocab=512", "dgx-a100:1", 8);
  const auto search = PlanSearch::begin(asked->question).value();
  Choice choice;
  choice.axes = {{"dp", 1, {"batch"}}, {"tp", 2, {"heads", "ffn", "vocab"}}};
  choice.micro_batches = 2;
  const std::vector<std::vector<ChoiceAxis>> offered = {
      {choice.axes[1]}, {{"tp", 2, {"batch"}}}, {{"tp", 2, {"seq"}}}};
  const std::vector<PlanBlock> rows = explain_blocks(
      asked->question, search->forward(), search->fold(), search->pricer(), choice, offered);
  ASSERT_FALSE(rows.empty());
  int64_t units = 0;
  for (const PlanBlock& row : rows) units += row.units;
  EXPECT_EQ(units, std::ssize(search->fold().units));
  const auto blocks =
      std::find_if(rows.begin(), rows.end(), [](const PlanBlock& row) { return row.units > 1; });
  ASSERT_NE(blocks, rows.end());
  EXPECT_EQ(blocks->first, "blocks.0");
  EXPECT_EQ(blocks->last, "blocks.3");
  EXPECT_EQ(blocks->chosen, "tp: heads ffn");
  size_t second = 0;  // unit of the second block
  while (search->fold().units[second].run < 0) ++second;
  ++second;
  const auto stand_in = static_cast<size_t>(search->fold().units[second].stand_in);
  const auto price = [&](const std::vector<ChoiceAxis>& axes, const char* recompute) {
    const UnitPrice& unit = (*search->pricer().price({axes, 4, recompute}))->units[stand_in];
    return unit.forward_s + unit.backward_s;
  };
  EXPECT_DOUBLE_EQ(blocks->passes_s, price({choice.axes[1]}, "none"));
  const std::vector<double> others = {price(offered[1], "none"), price(offered[2], "none"),
                                      price({choice.axes[1]}, "selective"),
                                      price({choice.axes[1]}, "full")};
  EXPECT_DOUBLE_EQ(blocks->next_s, *std::min_element(others.begin(), others.end()));
}

}  // namespace
}  // namespace tessera::explain_test
