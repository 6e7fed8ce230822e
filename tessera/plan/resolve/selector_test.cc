#include "tessera/plan/resolve/selector.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tessera/base/text.h"

namespace tessera {
namespace {

std::vector<std::string> select(const std::string& pattern, const std::vector<std::string>& paths) {
  PathIndex index(std::vector<std::string_view>(paths.begin(), paths.end()));
  const std::vector<bool>& hit = index.select(pattern);
  std::vector<std::string> out;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (hit[i]) out.push_back(paths[i]);
  }
  return out;
}

const std::vector<std::string> kPaths{
    "embed.token",     "blocks.1.ln_1",    "blocks.1.ln_1@recompute", "blocks.1.ln_1.moments",
    "blocks.1.attn.q", "blocks.10.attn.q", "blocks.10.mlp.up",        "head"};

TEST(Selector, MatchesWholePathsAndDottedPrefixes) {
  EXPECT_EQ(select("blocks.1", kPaths),
            (std::vector<std::string>{"blocks.1.ln_1", "blocks.1.ln_1@recompute",
                                      "blocks.1.ln_1.moments", "blocks.1.attn.q"}));
  EXPECT_EQ(select("blocks.*.attn", kPaths),
            (std::vector<std::string>{"blocks.1.attn.q", "blocks.10.attn.q"}));
  EXPECT_EQ(select("blocks.*.ln_1", kPaths),
            (std::vector<std::string>{"blocks.1.ln_1", "blocks.1.ln_1@recompute",
                                      "blocks.1.ln_1.moments"}));
  EXPECT_EQ(select("{embed,head}", kPaths), (std::vector<std::string>{"embed.token", "head"}));
  EXPECT_EQ(select("blocks.[2-10]", kPaths),
            (std::vector<std::string>{"blocks.10.attn.q", "blocks.10.mlp.up"}));
  EXPECT_EQ(select("*", kPaths), kPaths);
  EXPECT_TRUE(select("bloc", kPaths).empty());
  EXPECT_TRUE(select("attn", kPaths).empty());
}

RC_GTEST_PROP(Glob, EqualsTheSlowMatcher, ()) {
  const auto pattern_pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "b", ".", "*", "?", "1", "12", "[0-5]", "[1-12]", "[7]",
                                    "{a,b1}", "{.a,*b,}", "{", "}", ",", "[", "{a{b,1},c}"));
  const auto text_pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "b", ".", "1", "2", "12", "5", "ab", "c", ",", "}", "["));
  const std::string pattern = join(pattern_pieces, "");
  const std::string text = join(text_pieces, "");
  RC_ASSERT(Glob(pattern).matches(text) == glob_match(pattern, text));
}

RC_GTEST_PROP(Glob, EqualsTheSlowMatcherOnPathsThatMatch, ()) {
  const auto number = *rc::gen::inRange(0, 30);
  const auto tail = *rc::gen::element<std::string>("attn.q", "attn.out", "mlp.up", "ln_1");
  const auto pattern = *rc::gen::element<std::string>("blocks.[0-9].*", "blocks.1[0-9].attn.*",
                                                      "*.{attn,mlp}.{q,up}", "blocks.*.attn.?",
                                                      "*[3-12]*", "*1*.*", "b*[0-29].*n*");
  const std::string text = "blocks." + std::to_string(number) + "." + tail;
  RC_ASSERT(Glob(pattern).matches(text) == glob_match(pattern, text));
}

}  // namespace
}  // namespace tessera
