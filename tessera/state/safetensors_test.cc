// Oracles: bytes written by hand, what was laid out, and the list of attacks that the format's
// authors name (tessera/state/safetensors.h).
#include "tessera/state/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace tessera {
namespace {

using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  Safetensors() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("tessera_safetensors_{}_{}", test->name(), ::getpid());
    std::filesystem::create_directories(folder_);
  }
  ~Safetensors() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "x.safetensors").string(); }
  void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }
  // Writes a file with this header and `data` bytes of data.
  void write(const std::string& header, size_t data) const {
    const uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    write(bytes + header + std::string(data, 'x'));
  }
  std::string error() const {
    const auto file = SafetensorsFile::open(path());
    if (file) return "";
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidInput);
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(file.error().message, HasSubstr("x.safetensors"));
    return file.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(Safetensors, AFileByHand) {
  const std::string header =
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}})";
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  const float values[] = {1.5F, -2.0F};
  bytes += header + std::string(reinterpret_cast<const char*>(values), 8) + "xyz";
  write(bytes);
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->arrays().size(), 2U);
  EXPECT_EQ(file->arrays()[0].name, "a");
  EXPECT_EQ(file->arrays()[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file->metadata().at("format"), "pt");
  float second = 0;
  ASSERT_TRUE(file->read(*file->find("a"), 4, 4, reinterpret_cast<std::byte*>(&second)));
  EXPECT_EQ(second, -2.0F);
  char text[3];
  ASSERT_TRUE(file->read(*file->find("b"), 0, 3, reinterpret_cast<std::byte*>(text)));
  EXPECT_EQ(std::string(text, 3), "xyz");
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(Safetensors, WhatIsLaidOutIsRead) {
  const SafetensorsLayout layout = layout_safetensors({{"w", DType::kBFloat16, {2, 3}},
                                                       {"a \"name\"\n", DType::kFloat64, {}},
                                                       {"none", DType::kInt32, {0, 4}}},
                                                      {{"model", "gpt"}});
  EXPECT_EQ(layout.head.size() % 8, 0U);
  EXPECT_EQ(layout.bytes, static_cast<int64_t>(layout.head.size()) + 12 + 8);
  write(layout.head + std::string(20, 'd'));
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->arrays().size(), 3U);
  for (const ArrayEntry& entry : layout.arrays) {
    const ArrayEntry* found = file->find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->begin, entry.begin);
    EXPECT_EQ(found->bytes, entry.bytes);
    EXPECT_EQ(found->shape, entry.shape);
    EXPECT_EQ(found->dtype, entry.dtype);
  }
}

TEST_F(Safetensors, WhatIsWrongIsSaid) {
  EXPECT_THAT(error(), HasSubstr("expected a readable safetensors file"));
  write("short");
  EXPECT_THAT(error(), HasSubstr("expected at least 8 bytes, found 5"));
  write(std::string(8, '\xff') + "{}");
  EXPECT_THAT(error(), HasSubstr("expected a header of at most 2 bytes"));
  write("[1]", 0);
  EXPECT_THAT(error(), HasSubstr("expected a JSON object as header"));
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  write("{" + a + "," + a + "}", 8);
  EXPECT_THAT(error(), HasSubstr("the name 'a' occurs twice"));
  write("{" + a + "}", 9);
  EXPECT_THAT(error(), HasSubstr("expected 8 bytes of data, found 9"));
  write("{" + a + "}", 7);
  EXPECT_THAT(error(), HasSubstr("inside the 7 bytes of data"));
  write("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8);
  EXPECT_THAT(error(), HasSubstr("expected to begin at byte 8 of the data, found 4"));
  write("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[10,14]}})", 14);
  EXPECT_THAT(error(), HasSubstr("expected to begin at byte 8 of the data, found 10"));
  write(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(error(), HasSubstr("expected 12 bytes for its shape and dtype, found 8"));
  write(R"({"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(error(), HasSubstr("expected more than 2^63 bytes"));
  write(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(error(), HasSubstr("shape: expected sizes, found -2"));
  write(R"({"a":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(error(), HasSubstr("dtype: expected one of F64"));
  write(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8);
  EXPECT_THAT(error(), HasSubstr("expected a range inside the 8 bytes of data, found [8, 0]"));
  write(R"({"a":{"dtype":"F32","shape":[2]}})", 8);
  EXPECT_THAT(error(), HasSubstr("expected the key data_offsets"));
  write(R"({"a":{"dtype":"F32","shape":)" + std::string(300'000, '['), 0);
  EXPECT_THAT(error(), HasSubstr("deeper nesting"));
  write(R"({"a":{"dtype":"F32","shape":[[]],"data_offsets":[0,8]}})", 8);
  EXPECT_THAT(error(), HasSubstr("expected sizes, found a list"));
  write(R"({"a\nb":{"dtype":"F7"}})", 0);
  EXPECT_THAT(error(), HasSubstr("'a\\nb': expected the key shape"));
  write(R"({"__metadata__":{"x":1}})", 0);
  EXPECT_THAT(error(), HasSubstr("'x': expected a text"));
}

// A file may be valid and have dtypes that are not read: the message says so.
TEST_F(Safetensors, DtypesThatAreNotReadAreNamed) {
  for (const std::string dtype : {"I8", "F8_E4M3", "F8_E5M2", "U16", "I16", "F4", "C64"}) {
    write(R"({"a":{"dtype":")" + dtype + R"(","shape":[8],"data_offsets":[0,8]}})", 8);
    EXPECT_THAT(error(), HasSubstr("'a': dtype: expected one of F64, F32, BF16, F16, I64, I32, U8, "
                                   "BOOL, found \"" +
                                   dtype + "\", which is not read"));
    EXPECT_THAT(error(), testing::Not(HasSubstr("not a safetensors file")));
  }
}

// With flipped, inserted or lost bytes a file either opens, with arrays inside it, or gives one
// line.
TEST_F(Safetensors, MutatedFilesNeverReachOutsideThemselves) {
  const SafetensorsLayout layout = layout_safetensors(
      {{"w", DType::kFloat32, {4, 3}}, {"b", DType::kInt64, {3}}, {"c", DType::kBool, {5}}},
      {{"k", "v"}});
  const std::string whole = layout.head + std::string(77, 'd');
  std::mt19937_64 random(7);
  const auto draw = [&](size_t below) { return static_cast<size_t>(random() % below); };
  int opened = 0, refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    for (size_t n = draw(2) + 1; n > 0; --n) {
      const size_t at =
          draw(draw(2) == 0 ? std::min(layout.head.size(), bytes.size()) : bytes.size());
      switch (draw(8)) {
        case 0: bytes.resize(at + 1); break;
        case 1: bytes.insert(at, 1, static_cast<char>('0' + draw(10))); break;
        case 2: bytes.erase(at, std::min(bytes.size() - 1, draw(4) + 1)); break;
        default: bytes[at] = static_cast<char>(random()); break;
      }
    }
    write(bytes);
    const auto file = SafetensorsFile::open(path());
    if (!file) {
      ++refused;
      EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
      continue;
    }
    ++opened;
    for (const ArrayEntry& entry : file->arrays()) {
      ASSERT_LE(entry.begin + entry.bytes, static_cast<int64_t>(bytes.size()));
      std::vector<std::byte> data(static_cast<size_t>(entry.bytes));
      EXPECT_TRUE(file->read(entry, 0, entry.bytes, data.data()));
    }
  }
  EXPECT_GT(opened, 30);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace tessera
