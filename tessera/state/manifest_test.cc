// Oracles: the manifest that was printed, and a list of contradictions with the check that finds
// each.
#include "tessera/state/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/state/checksum.h"

namespace tessera {
namespace {

using testing::HasSubstr;

Box box(std::initializer_list<Interval> dims) { return Box(Box::Dims(dims)); }

Manifest example() {
  Manifest manifest;
  manifest.step = 50;
  manifest.seed = 7;
  manifest.ranks = 2;
  manifest.model = "gpt:layers=2";
  manifest.plan = "# serial\n\"quoted\"\n";
  manifest.run = "steps = 100\n";
  manifest.files = {{"rank-00000.safetensors", 200, 1}, {"rank-00001.safetensors", 100, 2}};
  ManifestTensor weight;
  weight.name = "w";
  weight.role = "parameter";
  weight.shape = {4, 6};
  weight.boxes = {{box({{0, 4}, {0, 2}}), 0, "w[0:4, 0:2]", 11},
                  {box({{0, 1}, {2, 4}}), 0, "w[0:1, 2:6]", 12},
                  {box({{1, 3}, {2, 4}}), 1, "w[1:4, 2:6]", 0xfedcba9876543210U}};
  ManifestTensor scalar;
  scalar.name = "optimizer.loss_scale";
  scalar.role = "optimizer_state";
  scalar.dtype = DType::kFloat64;
  scalar.boxes = {{Box{}, 1, "optimizer.loss_scale", 13}};
  ManifestTensor empty;
  empty.name = "none";
  empty.role = "parameter";
  empty.shape = {0, 3};
  manifest.tensors = {weight, scalar, empty};
  return manifest;
}

// Returns the text with its own checksum in place.
std::string sealed(std::string text) {
  constexpr size_t kBegin = 13, kDigits = 16;
  text.replace(kBegin, kDigits, std::string(kDigits, '0'));
  return text.replace(kBegin, kDigits, checksum_text(checksum(text)));
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(Manifest, WhatIsPrintedIsRead) {
  const auto read = parse_manifest(to_text(example()), "m");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, example());
  EXPECT_EQ(read->bytes(), 300);
}

TEST(Manifest, ContradictionsAreNamed) {
  const std::string text = to_text(example());
  struct Case {
    std::string what, with, message;
  };
  const std::string long_name(100, 'x');
  const std::vector<Case> cases = {
      {"\"version\":1", "\"version\":2",
       "expected format version 1 or older, found 2; a newer Tessera has written it"},
      {"tessera checkpoint", "other",
       "expected the format \"tessera checkpoint\", found \"other\""},
      {"\"step\":50", "\"step\":-50", "manifest.step: expected a whole number, found -50"},
      {"\"step\":50", "\"step\":1e3", "manifest.step: expected a whole number, found 1000.0"},
      {"\"step\":50", "\"stop\":50", "manifest: expected the key step, found none"},
      {"\"model\":\"gpt:layers=2\"", "\"model\":[]",
       "manifest.model: expected a text, found a list"},
      {"\"rank-00001.safetensors\"", "\"../rank\"",
       "expected the name of a file in the folder, found \"../rank\""},
      {"\"rank-00001.safetensors\"", "\"manifest.json\"",
       "expected the name of a file in the folder"},
      {"\"rank-00001.safetensors\"", "\"rank-00000.safetensors\"",
       "expected each once, found rank-00000.safetensors twice"},
      {"\"bytes\":200", "\"bytes\":9223372036854775807", "expected less than 2^63 bytes"},
      {"\"head\":\"0000000000000001\"", "\"head\":\"1\"", "files.head: expected 16 hexadecimal"},
      {"\"dtype\":\"float32\"", "\"dtype\":\"float31\"", "w.dtype: "},
      {"\"shape\":[4,6]", "\"shape\":[4,7]", "w: expected boxes of 28 elements in all, found 24"},
      {"\"shape\":[4,6]", "\"shape\":[4,6,1]", "w: expected boxes of 3 dims, found 2 and 2"},
      {"\"shape\":[4,6]", "\"shape\":[4611686018427387904,6]", "w: expected less than 2^63 bytes"},
      {"\"size\":[4,2]", "\"size\":[5,2]", "w: expected boxes inside of [0:4, 0:6]"},
      {"\"size\":[4,2]", "\"size\":[4,0]", "w: expected boxes inside of [0:4, 0:6]"},
      {"\"offset\":[1,2]", "\"offset\":[9223372036854775807,2]", "w: expected boxes inside of"},
      {"\"offset\":[1,2]", "\"offset\":[0,2]",
       "w: expected disjoint boxes, found [0:1, 2:6] and [0:3, 2:6]"},
      {"\"file\":1", "\"file\":2", "w: expected a file below 2, found 2"},
      {"w[0:1, 2:6]", "w[0:4, 0:2]", "w: expected an array for each box, found \"w[0:4, 0:2]\""},
      {"\"name\":\"none\"", "\"name\":\"w\"", "tensors: expected each once, found w twice"},
      {"\"tensors\":[", "\"tensors\":[[],", "tensors: expected an object, found a list"},
  };
  for (const Case& one : cases) {
    const auto read = parse_manifest(sealed(replaced(text, one.what, one.with)), "m");
    ASSERT_FALSE(read) << one.message;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidInput) << one.message;
    EXPECT_THAT(read.error().message, HasSubstr("m: "));
    EXPECT_THAT(read.error().message, HasSubstr(one.message));
  }
}

TEST(Manifest, EveryChangedByteIsADamage) {
  const std::string text = to_text(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto read = parse_manifest(changed, "m");
    ASSERT_FALSE(read) << i;
    EXPECT_EQ(read.error().code, ErrorCode::kFault) << i << ": " << read.error().message;
  }
  for (size_t length = 0; length < text.size() - 1; ++length) {  // the last byte is a line's end
    const auto read = parse_manifest(text.substr(0, length), "m");
    ASSERT_FALSE(read) << length;
    EXPECT_EQ(read.error().code, ErrorCode::kFault) << length << ": " << read.error().message;
  }
}

// Visiting such a text recursively would run out of stack.
TEST(Manifest, DeepNestingIsRefused) {
  const std::string text = to_text(example());
  const auto read = parse_manifest(
      sealed(replaced(text, "\"tensors\":[", "\"tensors\":[" + std::string(1'000'000, '['))), "m");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "m: expected JSON, found other text");
}

// 1,000 manifests with a correct checksum and a changed text: none crashes the parser, and each
// that is accepted holds all that a manifest promises.
TEST(Manifest, MutatedTextsAreRefusedOrSound) {
  std::mt19937_64 random(11);
  const std::vector<std::string> pieces = {
      "0", "1", "9223372036854775807", "-1", "[", "]", "{", "}", "null", "\"x\"", ",", "1e9"};
  const std::string text = to_text(example());
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string changed = text;
    for (uint64_t edits = 1 + random() % 2; edits > 0; --edits) {
      const size_t at = 29 + random() % (changed.size() - 29);
      const size_t count = std::min<size_t>(random() % 4, changed.size() - at);
      changed.replace(at, count, pieces[random() % pieces.size()]);
    }
    const auto read = parse_manifest(sealed(changed), "m");
    if (read) {
      EXPECT_EQ(why_invalid(*read), "");
      continue;
    }
    ++refused;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace tessera
