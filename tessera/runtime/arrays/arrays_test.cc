#include "tessera/runtime/arrays/arrays.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "tessera/base/permutation.h"
#include "tessera/data/test_files.h"

namespace tessera::arrays_test {
namespace {

using Arrays = TestFiles;

DataConfig of_files(std::map<std::string, std::string> files, double scale = 1) {
  DataConfig config;
  config.arrays = std::move(files);
  config.scale = scale;
  return config;
}

Model mlp(int64_t batch, const std::string& spec = "mlp:in=3,hidden=8,out=4") {
  auto model = build_model(spec, batch);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(model).value();
}

std::vector<double> load(const DataSource& data, const Model& model, const std::string& input,
                         int64_t step, const Box& region) {
  const Tensor& tensor = model.graph.tensor(model.graph.find_tensor(input));
  const auto volume = static_cast<size_t>(region.volume());
  std::vector<std::byte> memory(volume * 8);
  const auto to = kernels::Array::contiguous(memory.data(), tensor.dtype, region.shape());
  const Status status = data.load(step, tensor, region, to);
  EXPECT_TRUE(status) << status.error().message;
  std::vector<double> values;
  for (size_t i = 0; i < volume; ++i) {
    if (is_floating(tensor.dtype)) {
      values.push_back(static_cast<double>(reinterpret_cast<const float*>(memory.data())[i]));
    } else {
      values.push_back(static_cast<double>(reinterpret_cast<const int64_t*>(memory.data())[i]));
    }
  }
  return values;
}

TEST(Permuted, EveryNumberOnceAndAnotherOrderEachRound) {
  for (const int64_t count : {1, 2, 3, 7, 64, 100, 1797}) {
    std::set<int64_t> seen;
    std::vector<int64_t> first, second;
    for (int64_t i = 0; i < count; ++i) {
      first.push_back(permuted(i, count, 1, "data", 0));
      second.push_back(permuted(i, count, 1, "data", 1));
      EXPECT_GE(first.back(), 0);
      EXPECT_LT(first.back(), count);
      seen.insert(first.back());
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
    if (count > 7) {
      EXPECT_NE(first, second);
    }
  }
}

TEST_F(Arrays, GiveEachSampleOnceAPassAndAPartIsThatPartOfTheWhole) {
  constexpr int64_t kSamples = 10, kBatch = 4;
  std::vector<float> x(kSamples * 3);
  std::vector<uint8_t> y(kSamples);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<uint8_t>(i % 4);
  const Model model = mlp(kBatch);
  const auto data =
      open_arrays(of_files({{"x", write("x.npy", npy("<f4", "(10, 3)", bytes_of(x)))},
                            {"targets", write("y.npy", npy("|u1", "(10,)", bytes_of(y)))}},
                           0.5),
                  {&model});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ((*data)->files(), 2);
  std::vector<int64_t> order;
  for (int64_t step = 1; step <= 5; ++step) {
    const std::vector<double> xs = load(**data, model, "x", step, Box({{0, kBatch}, {0, 3}}));
    const std::vector<double> ys = load(**data, model, "targets", step, Box({{0, kBatch}}));
    for (size_t i = 0; i < 4; ++i) {
      const auto sample = static_cast<int64_t>(xs[3 * i] * 2) / 3;
      order.push_back(sample);
      EXPECT_EQ(xs[3 * i + 2], static_cast<double>(3 * sample + 2) / 2);
      EXPECT_EQ(ys[i], static_cast<double>(sample % 4));
    }
    EXPECT_EQ(load(**data, model, "x", step, Box({{1, 2}, {1, 2}})),
              (std::vector<double>{xs[4], xs[5], xs[7], xs[8]}));
  }
  for (int64_t pass = 0; pass < 2; ++pass) {
    const auto begin = order.begin() + pass * kSamples;
    EXPECT_EQ(std::set<int64_t>(begin, begin + kSamples).size(), 10U);
  }
}

TEST_F(Arrays, MayLeaveOutDimsOfOneOrBeFlat) {
  const Model model = mlp(2, "vit:layers=1,hidden=8,heads=2,image=4,patch=2,channels=1,classes=3");
  const std::string y = write("y.npy", npy("<i8", "(5,)", bytes_of(std::vector<int64_t>(5, 2))));
  const std::string bytes(80, '\1');
  for (const char* shape : {"(5, 4, 4)", "(5, 4, 4, 1)", "(5, 16)"}) {
    const std::string x = write("x.npy", npy("|u1", shape, bytes));
    const auto data = open_arrays(of_files({{"images", x}, {"targets", y}}), {&model});
    EXPECT_TRUE(data) << shape << ": " << data.error().message;
  }
  const std::string x = write("x.npy", npy("|u1", "(5, 2, 8)", bytes));
  EXPECT_EQ(open_arrays(of_files({{"images", x}, {"targets", y}}), {&model}).error().message,
            "data: '" + x +
                "': expected the shape [samples, 4, 4, 1] for the input 'images', found [5, 2, 8]");
}

TEST_F(Arrays, ErrorsAreOneLine) {
  const Model model = mlp(2);
  const std::string x = write("x.npy", npy("<f4", "(2, 3)", std::string(24, '\0')));
  const std::string y = write("y.npy", npy("|i1", "(2,)", std::string("\1\7", 2)));
  const auto error = [&](const std::map<std::string, std::string>& files) {
    const auto data = open_arrays(of_files(files), {&model});
    return data ? "" : data.error().message;
  };
  EXPECT_EQ(error({{"x", x}}),
            "data: expected an array for each of the model's inputs x, targets, found none for "
            "'targets'");
  EXPECT_EQ(error({{"labels", y}}),
            "data: expected arrays for the model's inputs x, targets, found 'labels'");
  EXPECT_EQ(error({{"x", path("z.npy")}, {"targets", y}}),
            "data: cannot read '" + path("z.npy") + "': No such file or directory");
  EXPECT_EQ(error({{"x", x}, {"targets", x}}),
            "data: '" + x +
                "': expected the shape [samples, ] for the input 'targets', found [2, "
                "3]");
  const std::string three = write("t.npy", npy("|i1", "(3,)", "\1\1\1"));
  EXPECT_EQ(error({{"x", x}, {"targets", three}}),
            "data: expected as many samples in '" + three + "' as in '" + x + "', 2, found 3");
  const std::string f = write("f.npy", npy("<f4", "(2,)", std::string(8, '\0')));
  EXPECT_EQ(error({{"x", x}, {"targets", f}}),
            "data: '" + f + "': expected integers for the input 'targets', found float32");
  const auto data = open_arrays(of_files({{"x", x}, {"targets", y}}), {&model});
  ASSERT_TRUE(data);
  std::vector<int64_t> memory(2);
  const auto to =
      kernels::Array::contiguous(reinterpret_cast<std::byte*>(memory.data()), DType::kInt64, {2});
  const Tensor& targets = model.graph.tensor(model.graph.find_tensor("targets"));
  EXPECT_EQ((*data)->load(1, targets, Box({{0, 2}}), to).error().message,
            "data: '" + y + "', element 1: expected a number from 0 to 3, found 7");
  const std::string nan =
      write("n.npy", npy("<f4", "(2, 3)", bytes_of(std::vector<float>{1, 2, 3, 4, NAN, 6})));
  const auto floats = open_arrays(of_files({{"x", nan}, {"targets", y}}), {&model});
  ASSERT_TRUE(floats);
  std::vector<double> rows(6);
  const auto into = kernels::Array::contiguous(reinterpret_cast<std::byte*>(rows.data()),
                                               DType::kFloat64, {2, 3});
  const Tensor& input = model.graph.tensor(model.graph.find_tensor("x"));
  EXPECT_EQ((*floats)->load(1, input, Box({{0, 2}, {0, 3}}), into).error().message,
            "data: '" + nan + "', element 4: expected a number, found NaN");
}

// Tests on maps whose numbers are all different, so that the source of each number is seen.
class MovedArrays : public TestFiles {
 protected:
  static constexpr int64_t kSamples = 6, kBatch = 4, kSide = 8;
  MovedArrays() {
    std::vector<float> x(kSamples * kSide * kSide);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
    const std::string file = write("x.npy", npy("<f4", "(6, 1, 8, 8)", bytes_of(x)));
    const std::string y =
        write("y.npy", npy("<i8", "(6,)", bytes_of(std::vector<int64_t>{0, 1, 2, 3, 4, 0})));
    config_ = of_files({{"images", file}, {"images_ahead", file}, {"targets", y}});
    config_.ahead["images_ahead"] = 1;
  }
  // Returns the map of a sample of the batch.
  std::vector<double> map_of(const DataSource& data, const std::string& input, int64_t step,
                             int64_t sample) {
    return load(data, model_, input, step,
                Box({{0, 1}, {sample, 1}, {0, 1}, {0, kSide}, {0, kSide}}));
  }
  const Model model_ = mlp(kBatch, "smc:width=2,image=8,channels=1,classes=5");
  DataConfig config_;
};

TEST_F(MovedArrays, AnInputMayBeAStepAhead) {
  const auto data = open_arrays(config_, {&model_});
  ASSERT_TRUE(data) << data.error().message;
  for (int64_t step = 1; step <= 9; ++step) {  // over the ends of passes
    for (int64_t sample = 0; sample < kBatch; ++sample)
      EXPECT_EQ(map_of(**data, "images_ahead", step, sample),
                map_of(**data, "images", step + 1, sample));
  }
}

TEST_F(MovedArrays, MapsAreMovedAndMirroredEachTimeAnew) {
  const auto plain = open_arrays(config_, {&model_});
  config_.shift = 2;
  config_.flip = true;
  const auto moved = open_arrays(config_, {&model_});
  ASSERT_TRUE(plain && moved);
  std::set<std::vector<int64_t>> moves;
  int64_t alike = 0, all = 0;
  for (int64_t step = 1; step <= 40; ++step) {
    for (int64_t sample = 0; sample < kBatch; ++sample, ++all) {
      const auto before = map_of(**plain, "images", step, sample),
                 after = map_of(**moved, "images", step, sample);
      // Brute force: exactly one of the 50 moves gives this map.
      int64_t fits = 0;
      for (int64_t down = -2; down <= 2; ++down) {
        for (int64_t right = -2; right <= 2; ++right) {
          for (int64_t mirrored = 0; mirrored < 2; ++mirrored) {
            bool same = true;
            for (int64_t y = 0; y < kSide; ++y) {
              for (int64_t x = 0; x < kSide; ++x) {
                const int64_t from_y = y - down, from_x = (mirrored ? kSide - 1 - x : x) - right;
                const bool inside = from_y >= 0 && from_y < kSide && from_x >= 0 && from_x < kSide;
                const double expected =
                    inside ? before[static_cast<size_t>(from_y * kSide + from_x)] : 0;
                same = same && after[static_cast<size_t>(y * kSide + x)] == expected;
              }
            }
            if (!same) continue;
            ++fits;
            moves.insert({down, right, mirrored});
          }
        }
      }
      EXPECT_EQ(fits, 1);
      // The other input has this sample one step earlier, moved by a draw of its own.
      if (step > 1 && map_of(**moved, "images_ahead", step - 1, sample) == after) ++alike;
    }
  }
  EXPECT_GT(moves.size(), 40U);
  EXPECT_LT(alike, all / 10);
}

TEST_F(MovedArrays, PartsAreThoseOfTheWholeAndNothingElseIsRead) {
  config_.shift = 3;
  config_.flip = true;
  const auto whole = open_arrays(config_, {&model_}), parts = open_arrays(config_, {&model_});
  ASSERT_TRUE(whole && parts);
  const Tensor& images = model_.graph.tensor(model_.graph.find_tensor("images"));
  int64_t counted = 0, elements = 0;
  for (int64_t step = 1; step <= 12; ++step) {
    const std::vector<double> map = map_of(**whole, "images", step, 1);
    for (const Interval rows : {Interval{0, 2}, Interval{2, 5}, Interval{7, 1}}) {
      for (const Interval columns : {Interval{0, 1}, Interval{1, 6}, Interval{7, 1}}) {
        const Box region({{0, 1}, {1, 1}, {0, 1}, rows, columns});
        std::vector<double> expected;
        for (int64_t y = rows.begin; y < rows.end(); ++y) {
          const auto row = map.begin() + y * kSide;
          expected.insert(expected.end(), row + columns.begin, row + columns.end());
        }
        EXPECT_EQ(load(**parts, model_, "images", step, region), expected) << region.to_string();
        const int64_t bytes = (*parts)->bytes_of(step, images, region);
        EXPECT_LE(bytes, region.volume() * 4);
        counted += bytes;
        elements += region.volume();
        EXPECT_EQ((*parts)->bytes_read(), counted);
      }
    }
  }
  EXPECT_LT(counted, elements * 4);  // of what comes in as zeros nothing is read
  EXPECT_EQ((*parts)->samples(), kSamples);
}

TEST_F(MovedArrays, TargetsStayInTheirPlaces) {
  const Model model = mlp(2, "cosmoflow:width=16,channels=1,filters=2,outputs=3");
  const std::string x = write("v.npy", npy("|u1", "(2, 1, 16, 16, 16)", std::string(8192, '\1')));
  const std::string y =
      write("p.npy", npy("<f4", "(2, 3)", bytes_of(std::vector<float>{1, 2, 3, 4, 5, 6})));
  std::map<std::string, std::string> files;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role == Role::kInput) files[tensor.name] = tensor.name == "targets" ? y : x;
  }
  DataConfig config = of_files(files);
  config.shift = 1;
  const auto data = open_arrays(config, {.model = &model, .in_order = true});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(load(**data, model, "targets", 1, Box({{0, 2}, {0, 3}})),
            (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST_F(MovedArrays, WrongKeysAreOneLine) {
  const Model flat = mlp(2);
  const std::string x = write("f.npy", npy("<f4", "(2, 3)", std::string(24, '\0')));
  const std::string y = write("t.npy", npy("|i1", "(2,)", std::string("\1\2", 2)));
  DataConfig config = of_files({{"x", x}, {"targets", y}});
  config.flip = true;
  EXPECT_EQ(open_arrays(config, {&flat}).error().message,
            "data: 'shift' and 'flip' move maps: expected two dims or more of each sample of the "
            "input 'x', found [batch=2, in=3]");
}

}  // namespace
}  // namespace tessera::arrays_test
