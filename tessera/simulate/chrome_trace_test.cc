#include "tessera/simulate/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/simulate/test_simulations.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Json entries(const std::string& phase) {
  const Json trace = Json::parse(to_chrome_trace(test_simulation()));
  Json out = Json::array();
  for (const Json& entry : trace["traceEvents"]) {
    if (entry["ph"] == phase) out.push_back(entry);
  }
  return out;
}

TEST(InstructionId, text_form_and_back) {
  TraceEvent event;
  event.block = BlockRef(BlockKind::kForward, 1);
  event.micro_batch = 3;
  event.instruction = 17;
  EXPECT_EQ(instruction_id(event), "forward@1:3:17");
  TraceEvent back;
  ASSERT_TRUE(parse_instruction_id("forward@1:3:17", back));
  EXPECT_EQ(back, event);
  ASSERT_TRUE(parse_instruction_id("update:0:2", back));
  EXPECT_EQ(back.block, BlockRef(BlockKind::kUpdate));
  for (const char* wrong : {"", "forward", "forward:1", "forwards:1:2", "forward:x:2",
                            "forward@:1:2", "forward:-1:2", "forward:1:2:3"}) {
    EXPECT_FALSE(parse_instruction_id(wrong, back)) << wrong;
  }
}

TEST(ChromeTrace, slices_of_ranks_lanes_and_channels) {
  const Json slices = entries("X");
  ASSERT_EQ(slices.size(), 6u);
  EXPECT_EQ(slices[0]["pid"], 0);
  EXPECT_EQ(slices[0]["ts"], 0.0);
  EXPECT_EQ(slices[0]["dur"], 1000.0);
  EXPECT_EQ(slices[0]["name"], "block.0.up");
  EXPECT_EQ(slices[0]["cat"], "matmul");
  EXPECT_EQ(slices[0]["args"]["id"], "forward:0:3");
  EXPECT_NE(slices[0]["tid"], slices[1]["tid"]);
  EXPECT_EQ(slices[5]["args"]["id"], "forward@1:0:2");
}

TEST(ChromeTrace, ranks_and_lanes_have_names) {
  std::vector<std::string> names;
  for (const Json& entry : entries("M")) {
    if (entry["args"].contains("name")) names.push_back(entry["args"]["name"]);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"rank 0 and 1 like it", "rank 1 and 1 like it", "compute",
                                      "collective 2", "message", "compute", "message"}));
}

TEST(ChromeTrace, an_arrow_from_the_send_to_the_receive) {
  const Json from = entries("s"), to = entries("f");
  ASSERT_EQ(from.size(), 1u);
  ASSERT_EQ(to.size(), 1u);
  EXPECT_EQ(from[0]["id"], to[0]["id"]);
  EXPECT_EQ(from[0]["pid"], 0);
  EXPECT_EQ(to[0]["pid"], 1);
  EXPECT_EQ(from[0]["ts"], 1000.0);
  EXPECT_EQ(to[0]["ts"], 1499.999);  // inside the receive's slice
}

TEST(ChromeTrace, an_arrow_through_the_members_of_a_collective) {
  Simulation s = test_simulation();
  TraceEvent& first = s.events[3];
  ASSERT_EQ(first.lane, Lane::kCollective);
  first.match = 8;
  for (const int32_t rank : {1, 2}) {
    TraceEvent member = first;
    member.rank = rank;
    member.start_s += rank * 1e-4;
    s.events.push_back(member);
  }
  std::vector<Json> steps;
  const Json trace = Json::parse(to_chrome_trace(s));
  for (const Json& entry : trace["traceEvents"]) {
    if (entry.value("cat", "") == "collective") steps.push_back(entry);
  }
  ASSERT_EQ(steps.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const Json& step = steps[static_cast<size_t>(rank)];
    EXPECT_EQ(step["ph"], std::string(1, "stf"[rank]));
    EXPECT_EQ(step["pid"], rank);
    EXPECT_EQ(step["id"], 8);
    EXPECT_EQ(step["ts"], 2000.0 + 100 * rank);
  }
}

TEST(ChromeTrace, memory_is_a_counter) {
  const Json counters = entries("C");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[1]["args"]["live"], 250);
  EXPECT_EQ(counters[1]["ts"], 1000.0);
}

TEST(ChromeTrace, reads_back_what_it_wrote) {
  const Simulation before = test_simulation();
  const std::string text = to_chrome_trace(before);
  const auto after = parse_chrome_trace(text, "t.json");
  ASSERT_TRUE(after.has_value()) << after.error().message;
  EXPECT_EQ(after->step_time_s, before.step_time_s);
  EXPECT_EQ(after->ranks, 4);
  EXPECT_EQ(after->tokens, 1024);
  ASSERT_EQ(after->events.size(), before.events.size());
  for (size_t i = 0; i < before.events.size(); ++i) {
    TraceEvent a = before.events[i], b = after->events[i];
    EXPECT_EQ(before.labels[static_cast<size_t>(a.label)],
              after->labels[static_cast<size_t>(b.label)]);
    EXPECT_EQ(before.labels[static_cast<size_t>(a.what)],
              after->labels[static_cast<size_t>(b.what)]);
    EXPECT_NEAR(a.start_s, b.start_s, 1e-12);
    EXPECT_NEAR(a.end_s, b.end_s, 1e-12);
    b.start_s = a.start_s, b.end_s = a.end_s, b.label = a.label, b.what = a.what;
    EXPECT_EQ(a, b);
  }
  ASSERT_EQ(after->roles.size(), 2u);
  EXPECT_EQ(after->roles[0].ranks, 2);
  EXPECT_EQ(after->roles[0].memory.timeline.size(), 2u);
  EXPECT_EQ(to_chrome_trace(*after), text);
}

TEST(ChromeTrace, neighbours_do_not_overlap_by_rounding) {
  Simulation s = test_simulation();
  s.events.resize(1);
  s.events[0].start_s = 1.0000000004e-3;
  s.events[0].end_s = 1.0000000016e-3;
  s.events.push_back(s.events[0]);
  s.events[1].start_s = s.events[0].end_s;
  s.events[1].end_s = 2e-3;
  const Json trace = Json::parse(to_chrome_trace(s));
  double end = -1;
  for (const Json& entry : trace["traceEvents"]) {
    if (entry["ph"] != "X") continue;
    EXPECT_GE(entry["ts"].get<double>() + 1e-9, end);
    end = entry["ts"].get<double>() + entry["dur"].get<double>();
  }
}

TEST(ChromeTrace, other_files_are_refused_in_one_line) {
  const auto message = [](const std::string& text) {
    const auto result = parse_chrome_trace(text, "t.json");
    EXPECT_FALSE(result.has_value()) << text;
    return result ? "" : result.error().message;
  };
  EXPECT_EQ(message("nothing"), "t.json: expected a trace that tessera wrote, found no JSON");
  for (const char* text : {"[]", "{}", "3", R"({"traceEvents":[]})",
                           R"({"traceEvents":[],"otherData":{"writer":"other"}})"}) {
    EXPECT_EQ(message(text),
              "t.json: expected a trace that tessera wrote, found other JSON (no "
              "otherData.writer)");
  }
  EXPECT_EQ(message(R"({"traceEvents":[],"otherData":{"writer":"tessera","format":2}})"),
            "t.json: expected trace format 1, found 2");
  std::string text = to_chrome_trace(test_simulation());
  text.replace(text.find("forward:0:3"), 11, "foremost:03");
  EXPECT_NE(message(text).find("t.json: traceEvents[9]: expected an entry as tessera writes it"),
            std::string::npos)
      << message(text);
}

// A text with any one byte damaged gives a trace or a one-line error, never an exception.
TEST(ChromeTrace, damaged_texts_never_throw) {
  const std::string text = to_chrome_trace(test_simulation());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'0', '"', '}', '-', 'x'}) {
      std::string damaged = text;
      damaged[i] = c;
      const auto result = parse_chrome_trace(damaged, "t.json");
      if (result) continue;
      EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tessera
