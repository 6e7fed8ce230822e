#include "tessera/data/click_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/numbers.h"
#include "tessera/data/test_files.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ClickArrays = TestFiles;

TEST_F(ClickArrays, HoldTheSamplesWithBagsPadded) {
  auto writer = ClickWriter::create(path("a.clicks"), {2, {{"ads", 10, 3}, {"pages", 4, 1}}});
  ASSERT_TRUE(writer);
  const std::vector<float> first{0.5F, -1}, second{2, 3};
  ASSERT_TRUE(writer->add(true, first, std::vector<std::vector<uint32_t>>{{7, 1}, {3}}));
  ASSERT_TRUE(writer->add(false, second, std::vector<std::vector<uint32_t>>{{}, {0}}));
  ASSERT_TRUE(writer->close());
  const auto file = ClickFile::open(path("a.clicks"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(write_click_arrays(*file, path("out/arrays")));

  const auto read = [&](const std::string& name, const std::vector<int64_t>& shape) {
    std::vector<double> numbers;
    const auto array = MappedFile::open(path("out/arrays/" + name));
    EXPECT_TRUE(array) << name;
    const auto header = read_npy_header(array->bytes(), array->size());
    EXPECT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->shape, shape) << name;
    EXPECT_EQ(header->offset % 64, 0);
    with_number(header->number, [&](auto type) {
      const auto bytes = static_cast<int64_t>(sizeof type);
      EXPECT_EQ(array->size(), header->offset + header->volume() * bytes);
      for (int64_t i = 0; i < header->volume(); ++i) {
        numbers.push_back(static_cast<double>(
            read_number<decltype(type)>(array->bytes() + header->offset + i * bytes)));
      }
    });
    return numbers;
  };
  EXPECT_THAT(read("dense.npy", {2, 2}), ElementsAre(0.5, -1, 2, 3));
  EXPECT_THAT(read("ids.0.npy", {2, 3}), ElementsAre(7, 1, -1, -1, -1, -1));
  EXPECT_THAT(read("ids.1.npy", {2, 1}), ElementsAre(3, 0));
  EXPECT_THAT(read("targets.npy", {2}), ElementsAre(1, 0));

  std::vector<std::string> inputs;
  for (const ClickInput& input : click_inputs(file->schema())) inputs.push_back(input.name);
  EXPECT_THAT(inputs, ElementsAre("dense", "ids.0", "ids.1", "targets"));

  const auto status = write_click_arrays(*file, path("a.clicks/x"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "cannot make the folder '" + path("a.clicks/x") + "': Not a directory");
}

}  // namespace
}  // namespace tessera
