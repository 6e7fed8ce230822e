// Golden texts of plans of each sort, at the interfaces of lowering: the decisions, the place text
// and one rank's program, in a file each. TESSERA_REWRITE_GOLDEN=1 writes the files anew; read the
// differences before you keep them. For every plan of the matrix, place texts must also obey their
// rules, and print and parse back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "matrix_cases.h"
#include "support/borders.h"
#include "tessera/program/decisions.h"
#include "tessera/program/place_check.h"
#include "tessera/program/text/place_form.h"
#include "tessera/program/text/test_place_parse.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = TESSERA_SOURCE_DIR "/tests/golden/" + file;
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream kept(path);
  std::stringstream content;
  content << kept.rdbuf();
  EXPECT_EQ(text, content.str()) << path << "; if it is meant: TESSERA_REWRITE_GOLDEN=1";
}

void expect_sound_and_printable(const Lowering& lowering) {
  for (size_t place = 0; place < lowering.texts().size(); ++place) {
    const Status sound = check(lowering.texts(), PlaceId(place), lowering.graph(), lowering.plan());
    EXPECT_TRUE(sound.has_value()) << sound.error().message;
    const std::string text = to_text(lowering.texts(), PlaceId(place), lowering.graph(), true);
    const auto parsed = parse_place_text(text, lowering.graph());
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    std::vector<PlaceText> texts = lowering.texts();
    texts[place] = *parsed;
    EXPECT_EQ(to_text(texts, PlaceId(place), lowering.graph(), true), text);
  }
}

class BorderOf : public testing::TestWithParam<Border> {};

TEST_P(BorderOf, lowering_prints_the_golden_texts) {
  const Border& border = GetParam();
  const auto compiled = compile(border);
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
  const Graph& graph = compiled->graph();
  const auto rejections = verify(graph, compiled->programs);
  EXPECT_TRUE(rejections.empty()) << (rejections.empty() ? "" : rejections[0].to_string());
  expect_sound_and_printable(*compiled->lowering);

  std::string plan;
  std::istringstream lines(border.plan);
  for (std::string line; std::getline(lines, line);) plan += "// " + line + "\n";
  const PlaceId place = compiled->lowering->plan().places_of(border.rank)[0];
  expect_golden(border.name + ".decisions",
                plan + to_text(decisions_of(*compiled->lowering), *compiled->lowering));
  expect_golden(border.name + ".place", plan + to_text(compiled->lowering->texts(), place, graph));
  expect_golden(border.name + ".program",
                plan + to_text(compiled->programs[static_cast<size_t>(border.rank)], graph));
}

INSTANTIATE_TEST_SUITE_P(Plans, BorderOf, testing::ValuesIn(borders()),
                         [](const auto& test) { return test.param.name; });

TEST(PlaceTexts, of_the_matrix_obey_their_rules_and_parse_back) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases.has_value()) << cases.error().message;
  size_t compared = 0;
  for (const MatrixCase& one : *cases) {
    SCOPED_TRACE(one.spec + " under " + one.plan);
    const bool file = one.plan.ends_with(".toml");
    const std::string plan = (file ? std::string(TESSERA_SOURCE_DIR "/") : "") + one.plan;
    const auto compiled = compile_model(one.spec, one.batch, plan, {}, false);
    ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
    expect_sound_and_printable(*compiled->lowering);
    ++compared;
  }
  EXPECT_GT(compared, 400U);
}

}  // namespace
}  // namespace tessera
