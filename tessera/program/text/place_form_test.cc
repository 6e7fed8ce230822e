// Place texts as text: they print and parse back, and a broken rule is named.
#include "tessera/program/text/place_form.h"
#include "tessera/program/text/test_place_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/program/decisions.h"
#include "tessera/program/place_check.h"
#include "tessera/program/test_programs.h"

namespace tessera::place_form_test {
namespace {

using testing::HasSubstr;

constexpr const char* kShared =
    "mesh = { dp = 2 }\nmicro_batches = 2\n"
    "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
    "store = [ { tensors = \"role:parameter\", over = \"dp\" } ]\n";
constexpr const char* kStages =
    "mesh = { pp = 2 }\nmicro_batches = 2\nstage = [ { ops = \"{up,act}\", at = 0 }, { ops = "
    "\"{down,square,loss}\", at = 1 } ]\n";

class PlaceForm : public testing::Test {
 protected:
  void lower(const char* plan) {
    const auto parsed = parse_plan(plan, "plan.toml");
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    const auto prepared = prepare(trained(test_perceptron()), *parsed);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    lowering.emplace(*Lowering::create(std::make_shared<Graph>(prepared->graph), prepared->plan));
    text = to_text(lowering->texts(), PlaceId(0), lowering->graph());
  }
  void replace(const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << "\n" << text;
    text.replace(at, from.size(), to);
  }
  // Returns the line that begins so, without indentation, and its end.
  std::string line(const std::string& begin) const {
    const size_t at = text.find("  " + begin);
    EXPECT_NE(at, std::string::npos) << begin << "\n" << text;
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) + 1 - at);
  }
  // Returns the verdict of the rules, or of the parser, on the text.
  std::string verdict() const {
    const auto parsed = parse_place_text(text, lowering->graph(), "text");
    if (!parsed) return parsed.error().message;
    std::vector<PlaceText> texts = lowering->texts();
    texts[0] = *parsed;
    const Status sound = check(texts, PlaceId(0), lowering->graph(), lowering->plan());
    return sound ? "sound" : sound.error().message;
  }

  std::optional<Lowering> lowering;
  std::string text;
};

TEST_F(PlaceForm, parses_back) {
  for (const char* plan : {kShared, kStages}) {
    lower(plan);
    EXPECT_EQ(verdict(), "sound");
    std::vector<PlaceText> texts = lowering->texts();
    for (size_t place = 0; place < texts.size(); ++place) {
      const std::string printed = to_text(texts, PlaceId(place), lowering->graph(), true);
      const auto parsed = parse_place_text(printed, lowering->graph());
      ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
      texts[place] = *parsed;
      EXPECT_EQ(to_text(texts, PlaceId(place), lowering->graph(), true), printed);
    }
  }
}

TEST_F(PlaceForm, a_wait_that_is_missing_is_named) {
  lower(kShared);
  replace(line("wait #"), "");
  EXPECT_THAT(verdict(), testing::ContainsRegex("#[0-9]+ (is issued again|writes)|while #[0-9]+"));
}

TEST_F(PlaceForm, a_wait_too_many_is_named) {
  lower(kShared);
  const std::string wait = line("wait #");
  replace(wait, wait + wait);
  EXPECT_THAT(verdict(), HasSubstr("which is not in flight"));
}

TEST_F(PlaceForm, a_handle_is_issued_by_one_instruction) {
  lower(kShared);
  const std::string issue = line("issue #");
  replace(issue, issue + issue);
  EXPECT_THAT(verdict(), HasSubstr("is used by another instruction"));
}

TEST_F(PlaceForm, what_a_collective_brings_is_read_behind_its_wait) {
  lower(kShared);
  const std::string wait = line("wait #"), compute = line("compute \"up\"");
  replace(wait, "");
  replace(compute, compute + wait);
  EXPECT_THAT(verdict(), HasSubstr(" while #"));
}

TEST_F(PlaceForm, first_and_last_stand_in_blocks_that_run_again) {
  lower(kShared);
  const size_t update = text.find("update {\n") + 9;
  text.insert(update + 2, "last ");
  EXPECT_THAT(verdict(), HasSubstr("only in blocks that run once a micro-batch"));
}

TEST_F(PlaceForm, reductions_and_only_they_have_a_combiner) {
  lower(kShared);
  replace(" all_gather over", " all_gather by sum over");
  EXPECT_THAT(verdict(), HasSubstr("a combiner if and only if parts are reduced"));
}

TEST_F(PlaceForm, a_view_lies_in_its_buffer) {
  lower(kShared);
  const size_t buffer = text.find("buffer %0 ");
  const size_t cut = text.find("[in: ", buffer);
  const std::string whole = text.substr(cut, text.find(']', cut) + 1 - cut);
  ASSERT_THAT(whole, HasSubstr("dp")) << "the parameter rests in shards";
  replace(" %0 ->", " %0[in: -, ffn: -] ->");
  EXPECT_THAT(verdict(), HasSubstr("lies outside"));
}

TEST_F(PlaceForm, errors_name_the_line) {
  lower(kStages);
  EXPECT_EQ(parse_place_text("place 0\nmesh 0 from 0 axes []\nhome \"up.wight\" %0\n",
                             lowering->graph(), "text")
                .error()
                .message,
            "text:3: unknown tensor 'up.wight', did you mean 'up.weight'?");
  EXPECT_EQ(parse_place_text("buffer", lowering->graph(), "text").error().message,
            "text:1: expected 'place N', found 'buffer'");
  replace("send #", "ship #");
  EXPECT_THAT(verdict(), HasSubstr("unknown instruction 'ship #"));
}

TEST_F(PlaceForm, decisions_say_where_tensors_rest_and_how_often_they_move) {
  lower(kShared);
  const std::string decisions = to_text(decisions_of(*lowering), *lowering);
  EXPECT_THAT(decisions, HasSubstr("op \"up\" in forward, place 0: (\"x\" [batch: dp, in: -], "
                                   "\"up.weight\" [in: -, ffn: -]) -> (\"up\" [batch: dp"));
  EXPECT_THAT(decisions, HasSubstr("tensor \"up.weight\"\n  rests at place 0 in the device tier: "
                                   "[in: dp, ffn: -]\n  brought at place 0 in forward, each "
                                   "micro-batch: all_gather over dp to [in: -, ffn: -]"));
}

}  // namespace
}  // namespace tessera::place_form_test
