#include "tessera/runtime/data/clicks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tessera/data/click_arrays.h"
#include "tessera/data/click_generator.h"
#include "tessera/data/test_files.h"
#include "tessera/runtime/arrays/arrays.h"

namespace tessera::clicks_test {
namespace {

class Clicks : public TestFiles {
 protected:
  static Model model(const std::string& spec, int64_t batch = 4) {
    auto model = build_model(spec, batch);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(model).value();
  }
  // Generates two features, of 7 and 5 rows, with bags of up to 3 ids and of 1, and 2 dense
  // numbers.
  std::string generated(int64_t samples) {
    ClickOptions options;
    options.dense = 2;
    options.features = {{{"pages", 7, 3}, 1.05, {}, true}, {{"ads", 5, 1}, 1.05, {}, false}};
    EXPECT_TRUE(generate_clicks(options, 0, samples, path("a.clicks")));
    return path("a.clicks");
  }
  static std::string error(const std::string& file, const Model& model) {
    const auto data = open_clicks(file, {&model});
    return data ? "" : data.error().message;
  }
};

const std::string kModel = "dlrm:dense=2,rows=7-5,bags=3-1,width=4,bottom=4,top=1";

// Returns the bytes that a source gives for a region.
std::vector<std::byte> load(const DataSource& data, const Model& model, const std::string& input,
                            int64_t step, const Box& region) {
  const Tensor& tensor = model.graph.tensor(model.graph.find_tensor(input));
  std::vector<std::byte> memory(static_cast<size_t>(region.volume() * dtype_bytes(tensor.dtype)));
  const auto to = kernels::Array::contiguous(memory.data(), tensor.dtype, region.shape());
  const Status status = data.load(step, tensor, region, to);
  EXPECT_TRUE(status) << status.error().message;
  return memory;
}

// The arrays that `tessera data arrays` makes of the file give the same batches.
TEST_F(Clicks, GiveWhatTheArraysOfTheFileGive) {
  const Model model = this->model(kModel);
  const std::string file = generated(11);
  const auto opened = ClickFile::open(file);
  ASSERT_TRUE(opened);
  ASSERT_TRUE(write_click_arrays(*opened, path("arrays")));
  DataConfig files;
  for (const ClickInput& input : click_inputs(opened->schema())) {
    files.arrays[input.name] = path("arrays/" + input.name + ".npy");
  }
  for (const char* stream : {"data", "eval"}) {
    const DataWants wants{&model, 3, stream};
    const auto clicks = open_clicks(file, wants), arrays = open_arrays(files, wants);
    ASSERT_TRUE(clicks) << clicks.error().message;
    ASSERT_TRUE(arrays) << arrays.error().message;
    EXPECT_EQ((*clicks)->files(), 1);
    EXPECT_EQ((*clicks)->bytes(), opened->bytes());
    for (int64_t step = 1; step <= 6; ++step) {
      for (const Tensor& tensor : model.graph.tensors()) {
        if (tensor.role != Role::kInput) continue;
        const Box whole = Box::whole(tensor.shape());
        Box part = whole;
        part.dims[0] = {1, 2};
        if (tensor.name == "ids.0") part.dims[2] = {1, 2};
        for (const Box& region : {whole, part}) {
          EXPECT_EQ(load(**clicks, model, tensor.name, step, region),
                    load(**arrays, model, tensor.name, step, region))
              << stream << ", step " << step << ", " << tensor.name;
        }
      }
    }
  }
}

TEST_F(Clicks, AModelMayHaveRoomForLongerBagsAndMoreRows) {
  const Model model = this->model("dlrm:dense=2,rows=9-5,bags=5-1,width=4,bottom=4,top=1");
  const auto data = open_clicks(generated(11), {&model});
  ASSERT_TRUE(data) << data.error().message;
  const auto bytes = load(**data, model, "ids.0", 1, Box({{0, 4}, {0, 1}, {0, 5}}));
  for (size_t sample = 0; sample < 4; ++sample) {
    int64_t last = 0;
    std::memcpy(&last, bytes.data() + 8 * (5 * sample + 4), sizeof last);
    EXPECT_EQ(last, -1);
  }
}

TEST_F(Clicks, AreFoundBesideTheRunFile) {
  const Model model = this->model(kModel);
  generated(3);
  EXPECT_TRUE(open_clicks("a.clicks", {&model, 1, "data", folder_}));
}

TEST_F(Clicks, ErrorsAreOneLine) {
  const std::string file = generated(11), place = "data: '" + file + "': ";
  EXPECT_EQ(error(file, model("dlrm:dense=2,rows=7-5-3,bags=3-1-1,width=4,bottom=4,top=1")),
            place +
                "expected data for each input of the model, found none for 'ids.2' (features: "
                "2, dense numbers: 2)");
  EXPECT_EQ(error(file, model("dlrm:dense=2,rows=7,bags=3,width=4,bottom=4,top=1")),
            place + "expected a model with an input 'ids.1' for feature 'ads', found none");
  EXPECT_EQ(error(file, model("mlp:in=2,hidden=8,out=2")),
            place + "expected a model with an input 'dense', found none");
  EXPECT_EQ(error(file, model("dlrm:dense=3,rows=7-5,bags=3-1,width=4,bottom=4,top=1")),
            place + "expected samples of 3 numbers for the model's input 'dense', found 2");
  EXPECT_EQ(error(file, model("dlrm:dense=2,rows=7-5,bags=2-1,width=4,bottom=4,top=1")),
            place +
                "feature 'pages': expected bags of at most 2 (the model's input 'ids.0'), "
                "found up to 3");
  EXPECT_EQ(error(path("none.clicks"), model(kModel)),
            "data: cannot read '" + path("none.clicks") + "': No such file or directory");
}

// The rows that samples name count, not the size in the head.
TEST_F(Clicks, AnIdBeyondTheTableIsNamed) {
  auto writer = ClickWriter::create(path("b.clicks"), {1, {{"a\nb", 100, 2}}});
  ASSERT_TRUE(writer);
  const std::vector<float> dense{0.5F};
  for (const std::vector<uint32_t>& bag : {std::vector<uint32_t>{0}, {}, {3, 49}, {50}}) {
    ASSERT_TRUE(writer->add(false, dense, std::vector<std::vector<uint32_t>>{bag}));
  }
  ASSERT_TRUE(writer->close());
  const std::string spec = "dlrm:dense=1,bags=2,width=4,bottom=4,top=1,rows=";
  EXPECT_EQ(error(path("b.clicks"), model(spec + "51")), "");
  EXPECT_EQ(
      error(path("b.clicks"), model(spec + "49")),
      "data: '" + path("b.clicks") +
          "': feature 'a\\nb', sample 2: expected ids below 49 (rows of the model's table for "
          "'ids.0'), found row 49");
}

TEST_F(Clicks, AFileWithoutSamplesIsRefused) {
  auto writer = ClickWriter::create(path("c.clicks"), {1, {{"a", 4, 1}}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->close());
  EXPECT_EQ(error(path("c.clicks"), model("dlrm:dense=1,bags=1,width=4,bottom=4,top=1,rows=4")),
            "data: '" + path("c.clicks") + "': expected samples, found none");
}

}  // namespace
}  // namespace tessera::clicks_test
