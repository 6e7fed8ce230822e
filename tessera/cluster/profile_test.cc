#include "tessera/cluster/profile.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "tessera/base/text.h"

namespace tessera::profile_test {
namespace {

Profile example() {
  Profile profile;
  profile.device = "a \"test\"\n machine";
  profile.version = "tessera 0.1.0";
  profile.date = "2026-11-21";
  profile.ranks = 2;
  profile.scalars = {{"host.issue_s", 5e-6}, {"overlap.compute_slowdown", 1.15}};
  profile.families["matmul.float32.nn"] = {
      {"batch", "m", "n", "k"}, {{{1, 64, 64, 64}, 1e-5, 0.1}, {{1, 64, 64, 128}, 2e-5, 0}}};
  profile.families["empty"] = {{"elements"}, {}};
  return profile;
}

std::string error_of(const std::string& json) {
  const auto profile = parse_profile(json, "p.json");
  return profile ? "accepted" : profile.error().message;
}
std::string with(const std::string& from, const std::string& to) {
  std::string text = to_json(example());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Profile, RoundTrip) {
  const std::string json = to_json(example());
  const auto again = parse_profile(json, "p.json");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(*again, example());
  EXPECT_EQ(to_json(*again), json);
  EXPECT_EQ(*parse_profile(to_json(Profile{}), "p.json"), Profile{});
}

TEST(Profile, SamplesAreSorted) {
  Profile profile = example();
  std::swap(profile.families["matmul.float32.nn"].samples[0],
            profile.families["matmul.float32.nn"].samples[1]);
  EXPECT_EQ(*parse_profile(to_json(profile), "p.json"), example());
}

TEST(Profile, ErrorsAreOneLineWithThePlace) {
  EXPECT_EQ(error_of("{"),
            "p.json: expected the JSON object that tessera profile writes, found text that is not "
            "JSON");
  EXPECT_EQ(error_of("{}"),
            "p.json: expected 'format' to be an integer of at least 1, found nothing");
  EXPECT_EQ(error_of(with("\"format\":1", "\"format\":2")),
            "p.json: expected format 1, found 2; measure anew: tessera profile");
  EXPECT_EQ(error_of(with("\"ranks\":2", "\"ranks\":0")),
            "p.json: expected 'ranks' to be an integer of at least 1, found 0");
  EXPECT_EQ(error_of(with("5e-06", "\"fast\"")),
            "p.json: expected 'scalars.host.issue_s' to be a number, found \"fast\"");
  EXPECT_EQ(error_of(with("[1.0,64.0,64.0,64.0]", "[64]")),
            "p.json: expected 'families.matmul.float32.nn.samples[0].size' to be 4 numbers (batch, "
            "m, n, k), found [64]");
  EXPECT_EQ(error_of(with("1e-05", "0")),
            "p.json: expected 'families.matmul.float32.nn.samples[0].seconds' to be a number above "
            "0, found 0");
  EXPECT_EQ(error_of(with("\"samples\":[]", "\"samples\":3")),
            "p.json: expected 'families.empty.samples' to be a list, found 3");
}

TEST(Profile, DefaultPath) {
  setenv("TESSERA_PROFILE", "/x/p.json", 1);
  EXPECT_EQ(default_profile_path(), "/x/p.json");
  unsetenv("TESSERA_PROFILE");
  EXPECT_TRUE(default_profile_path().ends_with("/.local/share/tessera/profile.json"));
}

RC_GTEST_PROP(Profile, AnyTextIsAnsweredInOneLine, ()) {
  std::string json = to_json(example());
  const auto at = *rc::gen::inRange<size_t>(0, json.size());
  json[at] = *rc::gen::elementOf(std::string("\"{}[]:,0x-. "));
  const auto profile = parse_profile(json, "p.json");
  const std::string message = profile ? "p.json: " : profile.error().message;
  RC_ASSERT(message.starts_with("p.json: "));
  RC_ASSERT(message.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace tessera::profile_test
