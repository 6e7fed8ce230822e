#include "tessera/base/json_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(JsonText, NestingIsBounded) {
  EXPECT_EQ(json_depth(""), 0);
  EXPECT_EQ(json_depth(R"({"a": [1, {"b": []}], "c": 2})"), 4);
  EXPECT_EQ(json_depth(R"(["[[[[", "\"[["])"), 1);
  const auto nested = [](int depth) {
    const auto count = static_cast<size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  EXPECT_TRUE(parse_json(nested(kMostJsonDepth)));
  EXPECT_FALSE(parse_json(nested(kMostJsonDepth + 1)));
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')));
  EXPECT_FALSE(parse_ordered_json(nested(300'000)));
  EXPECT_FALSE(parse_json("{\"a\":"));
  EXPECT_FALSE(parse_json("]]]]"));
}

TEST(JsonText, IsWrittenWhateverBytesItsTextsHave) {
  EXPECT_EQ(dumped(nlohmann::json{{"a\xff", "b\x80\n\x1b"}}),
            "{\"a\xef\xbf\xbd\":\"b\xef\xbf\xbd\\n\\u001b\"}");
  EXPECT_EQ(dumped(nlohmann::ordered_json{{"b", 1}, {"a", {1.5, nullptr}}}),
            R"({"b":1,"a":[1.5,null]})");
  EXPECT_EQ(dumped(nlohmann::ordered_json{{"b", 1}}, 2), "{\n  \"b\": 1\n}");
}

TEST(JsonText, ValuesAreShownShort) {
  const auto json = *parse_json(R"({"a": [1], "b": null, "c": "x\ny", "d": 1.5, "e": true})");
  EXPECT_EQ(shown(json), "an object");
  EXPECT_EQ(shown(json["a"]), "a list");
  EXPECT_EQ(shown(json["b"]), "none");
  EXPECT_EQ(shown(json["c"]), "\"x\\ny\"");
  EXPECT_EQ(shown(json["d"]), "1.5");
  EXPECT_EQ(shown(json["e"]), "true");
  EXPECT_EQ(shown(nlohmann::json(std::string(100, 'z'))).size(), 40U);
}

}  // namespace
}  // namespace tessera
