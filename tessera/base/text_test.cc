#include "tessera/base/text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace tessera {
namespace {

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split_text("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split_text("", ','), std::vector<std::string>{""});
  EXPECT_EQ(split_text("a,", ','), (std::vector<std::string>{"a", ""}));
}

TEST(Text, TrimRemovesBlanksAtBothEnds) {
  EXPECT_EQ(trim(" \t a b\n"), "a b");
  EXPECT_EQ(trim("  "), "");
}

TEST(Text, SaysSharesAsPercent) {
  EXPECT_EQ(percent(0.1234), "12.3 %");
  EXPECT_EQ(percent(-0.1234, 0), "-12 %");
  EXPECT_EQ(signed_percent(0.05), "+5.0 %");
}

TEST(Text, LowersLettersAlone) { EXPECT_EQ(lower_case("GPT-3 XL"), "gpt-3 xl"); }

TEST(Text, JoinPutsTheSeparatorBetween) {
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Text, NearestIsTheSmallestEditDistance) {
  EXPECT_EQ(nearest("layer", {"heads", "layers", "vocab"}), "layers");
  EXPECT_EQ(nearest("hiden", {"heads", "hidden"}), "hidden");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("fdsp", {"ddp", "fsdp"}), "fsdp");  // two letters swapped
  EXPECT_EQ(nearest("hedas", {"seq", "heads"}), "heads");
}

TEST(Glob, WithoutMagicMatchesOnlyItself) {
  EXPECT_TRUE(glob_match("embed.token", "embed.token"));
  EXPECT_FALSE(glob_match("embed", "embed.token"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
}

TEST(Glob, StarTakesAnyCharactersDotsToo) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("blocks.*", "blocks.3.attn.q"));
  EXPECT_TRUE(glob_match("*.attn.*", "blocks.3.attn.q"));
  EXPECT_FALSE(glob_match("*.attn", "blocks.3.attn.q"));
  EXPECT_TRUE(glob_match("a*b*c", "axxbyybzc"));
}

TEST(Glob, QuestionMarkTakesOneCharacter) {
  EXPECT_TRUE(glob_match("ln_?", "ln_1"));
  EXPECT_FALSE(glob_match("ln_?", "ln_12"));
  EXPECT_FALSE(glob_match("ln_?", "ln_"));
}

TEST(Glob, NumberRangeTakesWholeNumbers) {
  EXPECT_TRUE(glob_match("blocks.[8-11].*", "blocks.8.ln"));
  EXPECT_TRUE(glob_match("blocks.[8-11].*", "blocks.11.ln"));
  EXPECT_FALSE(glob_match("blocks.[8-11].*", "blocks.12.ln"));
  EXPECT_FALSE(glob_match("blocks.[8-11].*", "blocks.1.ln"));
  EXPECT_FALSE(glob_match("blocks.[0-1]*", "blocks.10"));
  EXPECT_FALSE(glob_match("*[0-5].ln", "blocks.15.ln"));
  EXPECT_TRUE(glob_match("*[0-15].ln", "blocks.15.ln"));
  EXPECT_TRUE(glob_match("[3]", "3"));
  EXPECT_TRUE(glob_match("[0-1,8-9].a", "9.a"));
  EXPECT_FALSE(glob_match("[0-1,8-9].a", "2.a"));
}

TEST(Glob, BracketsThatHoldNoRangeAreLiteral) {
  EXPECT_TRUE(glob_match("[a]*", "[a]b"));
  EXPECT_TRUE(glob_match("[0-", "[0-"));
}

TEST(Glob, BracesHoldAlternativesThatAreGlobs) {
  EXPECT_TRUE(glob_match("{embed,head,loss}*", "head"));
  EXPECT_TRUE(glob_match("{embed*,head}", "embed.token"));
  EXPECT_FALSE(glob_match("{embed,head}", "embed.token"));
  EXPECT_TRUE(glob_match("blocks.{[0-1],[4-5,7]}.{attn.{q,k,v},mlp.*}", "blocks.7.attn.k"));
  EXPECT_TRUE(glob_match("blocks.{[0-1],[4-5,7]}.{attn.{q,k,v},mlp.*}", "blocks.0.mlp.up"));
  EXPECT_FALSE(glob_match("blocks.{[0-1],[4-5,7]}.{attn.{q,k,v},mlp.*}", "blocks.6.mlp.up"));
  EXPECT_FALSE(glob_match("blocks.{[0-1],[4-5,7]}.{attn.{q,k,v},mlp.*}", "blocks.0.attn.out"));
  EXPECT_TRUE(glob_match("a{,b}c", "ac"));
  EXPECT_TRUE(glob_match("a,b", "a,b"));
  EXPECT_TRUE(glob_match("{a*", "{abc"));
}

// Tries all ways to match, by the definition of a glob.
bool glob_oracle(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  const char c = pattern[0];
  if (c == '{') {
    const size_t close = pattern.find('}');
    for (const std::string& part : split_text(pattern.substr(1, close - 1), ',')) {
      if (glob_oracle(part + std::string(pattern.substr(close + 1)), text)) return true;
    }
    return false;
  }
  if (c == '*' && glob_oracle(pattern.substr(1), text)) return true;
  if (text.empty()) return false;
  if (c == '*') return glob_oracle(pattern, text.substr(1));
  return (c == '?' || c == text[0]) && glob_oracle(pattern.substr(1), text.substr(1));
}

RC_GTEST_PROP(Glob, AgreesWithTheDefinition, ()) {
  using Pieces = std::vector<std::string>;
  const auto pieces = *rc::gen::container<Pieces>(
      rc::gen::element<std::string>("a", "b", "*", "?", "{a,b}", "{ab,*b,}", "{a?,b*}"));
  const auto letters = *rc::gen::container<std::string>(rc::gen::element('a', 'b'));
  const std::string pattern =
      join(Pieces(pieces.begin(),
                  pieces.begin() + static_cast<long>(std::min<size_t>(6, pieces.size()))),
           "");
  const std::string_view text = std::string_view(letters).substr(0, 8);
  RC_ASSERT(glob_match(pattern, text) == glob_oracle(pattern, text));
}

RC_GTEST_PROP(Glob, AnyTextMatchesItselfBetweenStars, (const std::string& text)) {
  RC_ASSERT(glob_match("*", text));
  glob_match(text, text);  // any text is a pattern; must only end
}

TEST(Glob, ManyStarsStayFast) {
  std::string pattern;
  for (int i = 0; i < 40; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(400, 'a')));
}

TEST(Parse, IntegersTakeTheWholeText) {
  EXPECT_EQ(parse_int(" 42 ").value(), 42);
  EXPECT_EQ(parse_int("-7").value(), -7);
  EXPECT_EQ(parse_int("12x").error().message, "expected an integer, found '12x'");
  EXPECT_EQ(parse_int("").error().message, "expected an integer, found ''");
  EXPECT_EQ(parse_int("99999999999999999999").error().message,
            "expected an integer below 2^63, found '99999999999999999999'");
}

TEST(Parse, NumbersAreFinite) {
  EXPECT_EQ(parse_double("1e-5").value(), 1e-5);
  EXPECT_EQ(parse_double("0.5x").error().message, "expected a number, found '0.5x'");
  EXPECT_FALSE(parse_double("nan"));
  EXPECT_FALSE(parse_double("1e999"));
}

TEST(Text, BytesShowUnitAndExactCount) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1), "1 byte");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB (1,024 bytes)");
  EXPECT_EQ(format_bytes(1610612736), "1.50 GiB (1,610,612,736 bytes)");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB (-2,048 bytes)");
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("tessera_text_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST_F(Files, WriteThenReadGivesTheContent) {
  const std::string content = std::string("a\0b\n", 4) + std::string(200000, 'x');
  ASSERT_TRUE(write_file(path("x"), "old"));
  ASSERT_TRUE(write_file(path("x"), content));
  EXPECT_EQ(read_file(path("x")).value(), content);
}

TEST_F(Files, WriteLeavesNoTemporaryFile) {
  ASSERT_TRUE(write_file(path("x"), "1"));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1U);
}

// A pipe gets the content and remains a pipe; a link remains a link.
TEST_F(Files, WritesIntoPipesAndThroughLinks) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_TRUE(write_file(path("pipe"), "abc"));
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 3);
  ::close(reader);
  EXPECT_STREQ(got, "abc");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  ASSERT_TRUE(write_file(path("x"), "old"));
  std::filesystem::create_symlink(path("x"), path("link"));
  ASSERT_TRUE(write_file(path("link"), "new"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("x")).value(), "new");
  EXPECT_TRUE(write_file("/dev/null", "gone"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

// /dev/shm holds files as other folders do, and no devices.
TEST_F(Files, OfAMemoryFileSystemAreReplaced) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const std::string file = "/dev/shm/tessera_text_test." + std::to_string(::getpid());
  EXPECT_TRUE(write_file(file, "a long content"));
  EXPECT_TRUE(write_file(file, "new"));
  EXPECT_EQ(read_file(file).value(), "new");
  std::filesystem::remove(file);
}

TEST_F(Files, ErrorsNameThePathAndTheCause) {
  const auto missing = read_file(path("none"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(missing.error().message,
            "cannot read '" + path("none") + "': No such file or directory");
  EXPECT_EQ(read_file(folder_.string()).error().message,
            "cannot read '" + folder_.string() + "': Is a directory");
  const auto unwritable = write_file(path("no/such/x"), "1");
  ASSERT_FALSE(unwritable);
  EXPECT_EQ(unwritable.error().code, ErrorCode::kFault);
  EXPECT_EQ(unwritable.error().message,
            "cannot write '" + path("no/such/x") + "': No such file or directory");
}

using Arguments = std::vector<std::pair<std::string, std::string>>;

TEST(ParseCall, AcceptsTheThreeForms) {
  EXPECT_EQ(parse_call("serial")->name, "serial");
  EXPECT_TRUE(parse_call("serial()")->arguments.empty());
  const auto recipe = parse_call(" megatron( tp=2, pp = 4 ) ");
  ASSERT_TRUE(recipe);
  EXPECT_EQ(recipe->name, "megatron");
  EXPECT_EQ(recipe->arguments, (Arguments{{"tp", "2"}, {"pp", "4"}}));
  const auto model = parse_call("gpt:layers=24,hidden=1024");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->name, "gpt");
  EXPECT_EQ(model->arguments, (Arguments{{"layers", "24"}, {"hidden", "1024"}}));
}

TEST(ParseCall, ValuesMayHoldBracketsAndPositionalArgumentsHaveNoKey) {
  const auto call = parse_call("with(megatron(tp=2,pp=2), mesh=[2,2], x={a,(b,c)})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->arguments,
            (Arguments{{"", "megatron(tp=2,pp=2)"}, {"mesh", "[2,2]"}, {"x", "{a,(b,c)}"}}));
}

TEST(ParseCall, QuotedValuesMayHoldAnything) {
  const auto call = parse_call("f(\"a=1,(b;c\", x=\"]\")");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->arguments, (Arguments{{"", "\"a=1,(b;c\""}, {"x", "\"]\""}}));
}

RC_GTEST_PROP(ParseCall, AnyTextIsACallOrAnError, (const std::string& tail)) {
  for (const std::string start : {"f(", "f:", ""}) {
    const auto call = parse_call(start + tail);
    const bool said = call.has_value() ? !call->name.empty() : !call.error().message.empty();
    RC_ASSERT(said);
  }
}

TEST(ParseCall, ErrorsSayWhatWasExpected) {
  const auto message = [](std::string_view text) { return parse_call(text).error().message; };
  EXPECT_EQ(message("f(a=1"), "'f(a=1': expected ')' at the end");
  EXPECT_EQ(message("f(a=[1)"), "'a=[1': expected ']' before the end");
  EXPECT_EQ(message("f(a=\"1)"), "'a=\"1': expected '\"' before the end");
  EXPECT_EQ(message("f(a=1])"), "'a=1]': found ']' without its opening bracket");
  EXPECT_EQ(message("f(a=1,,b=2)"),
            "'f(a=1,,b=2)': expected key=value between the commas, found nothing");
  EXPECT_EQ(message("f:a="), "'f:a=': expected a value after 'a='");
  EXPECT_EQ(message("f:a=1,a=2"), "'f:a=1,a=2': 'a' is given twice");
  EXPECT_EQ(message("f:=1"), "'f:=1': expected key=value, found '=1'");
  EXPECT_EQ(message(""), "expected name, name(key=value, ...) or name:key=value,..., found ''");
}

}  // namespace
}  // namespace tessera
