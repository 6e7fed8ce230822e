// Oracle: the array in memory, element by element.
#include "tessera/state/source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "tessera/state/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Sources : public testing::Test {
 protected:
  Sources() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / fmt::format("tessera_sources_{}_{}", test->name(), ::getpid());
    fs::create_directories(folder_);
  }
  ~Sources() override { fs::remove_all(folder_); }

  // Writes an array of the float32 values first, first + 1, ...
  void write(const std::string& file, const std::string& name, const std::vector<int64_t>& shape,
             float first) const {
    const SafetensorsLayout layout = layout_safetensors({{name, DType::kFloat32, shape}});
    std::ofstream out(folder_ / file, std::ios::binary);
    out << layout.head;
    for (int64_t i = 0; i < layout.arrays[0].bytes / 4; ++i) {
      const float value = first + static_cast<float>(i);
      out.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  void write_text(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ / file) << text;
  }

  fs::path folder_;
};

TEST(ByteRanges, CoverTheRegionInOrder) {
  EXPECT_EQ(byte_ranges({}, 4, Box{}), (std::vector<ByteRange>{{0, 4}}));
  EXPECT_EQ(byte_ranges({4, 6}, 2, Box::whole({4, 6})), (std::vector<ByteRange>{{0, 48}}));
  Box rows;
  rows.dims = {{1, 2}, {0, 6}};
  EXPECT_EQ(byte_ranges({4, 6}, 2, rows), (std::vector<ByteRange>{{12, 24}}));
  Box columns;
  columns.dims = {{1, 2}, {2, 3}};
  EXPECT_EQ(byte_ranges({4, 6}, 2, columns), (std::vector<ByteRange>{{16, 6}, {28, 6}}));
  Box empty;
  empty.dims = {{1, 0}, {2, 3}};
  EXPECT_TRUE(byte_ranges({4, 6}, 2, empty).empty());
}

TEST_F(Sources, RegionsAreThoseOfTheArray) {
  const std::vector<int64_t> shape{3, 4, 5, 2};
  write("a.safetensors", "x", shape, 0);
  const auto source = open_source((folder_ / "a.safetensors").string());
  ASSERT_TRUE(source) << source.error().message;
  const SourceArray* array = (*source)->find("x");
  ASSERT_NE(array, nullptr);
  const std::vector<int64_t> strides = row_major_strides(shape);
  std::mt19937_64 random(3);
  int64_t expected_bytes = 0;
  for (int i = 0; i < 300; ++i) {
    Box region = Box::whole(shape);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (random() % 2 == 0) continue;
      const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[d]));
      const auto size =
          static_cast<int64_t>(random() % static_cast<uint64_t>(shape[d] - begin) + 1);
      region.dims[d] = {begin, size};
    }
    std::vector<double> found(static_cast<size_t>(region.volume()));
    ASSERT_TRUE((*source)->read(*array, region, DType::kFloat64,
                                reinterpret_cast<std::byte*>(found.data())));
    std::vector<int64_t> at(shape.size(), 0);
    for (const double value : found) {
      int64_t index = 0;
      for (size_t d = 0; d < at.size(); ++d) index += (region.dims[d].begin + at[d]) * strides[d];
      ASSERT_EQ(value, static_cast<double>(index)) << region.to_string();
      for (size_t d = at.size(); d-- > 0 && ++at[d] == region.dims[d].size;) at[d] = 0;
    }
    expected_bytes += region.volume() * 4;
  }
  EXPECT_EQ((*source)->bytes_read(), expected_bytes);  // nothing but what was asked for
}

TEST_F(Sources, AFolderIsItsFiles) {
  write("a.safetensors", "x", {2}, 1);
  write("b.safetensors", "y", {2}, 5);
  const auto both = open_source(folder_.string());
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_NE((*both)->find("x"), nullptr);
  EXPECT_NE((*both)->find("y"), nullptr);
  write_text("m.safetensors.index.json", R"({"weight_map":{"y":"b.safetensors"}})");
  const auto indexed = open_source(folder_.string());
  ASSERT_TRUE(indexed) << indexed.error().message;
  EXPECT_EQ((*indexed)->find("x"), nullptr);
  EXPECT_NE((*indexed)->find("y"), nullptr);
}

TEST_F(Sources, WhatIsWrongIsSaid) {
  const auto error = [&] {
    const auto source = open_source(folder_.string());
    return source ? std::string() : source.error().message;
  };
  EXPECT_THAT(error(), HasSubstr("expected a folder with *.safetensors files, found none"));
  write("a.safetensors", "x", {2}, 1);
  write("b.safetensors", "x", {2}, 1);
  EXPECT_THAT(error(), HasSubstr("'x': expected each name in one file, found it twice"));
  write_text("m.safetensors.index.json", R"({"weight_map":{"y":"../b.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("expected the name of a file in this folder"));
  write_text("m.safetensors.index.json", "{}");
  EXPECT_THAT(error(), HasSubstr("expected an object with the key weight_map"));
  write_text("n.safetensors.index.json", "{}");
  EXPECT_THAT(error(), HasSubstr("expected one *.safetensors.index.json"));
}

TEST_F(Sources, AFileThatShrinksIsAFault) {
  write("a.safetensors", "x", {100}, 0);
  const auto source = open_source((folder_ / "a.safetensors").string());
  ASSERT_TRUE(source);
  fs::resize_file(folder_ / "a.safetensors", 200);
  std::vector<float> values(100);
  const Status status = (*source)->read(*(*source)->find("x"), Box::whole({100}), DType::kFloat32,
                                        reinterpret_cast<std::byte*>(values.data()));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFault);
  EXPECT_THAT(status.error().message, HasSubstr("'x': expected"));
}

}  // namespace
}  // namespace tessera
