// Folders of torch.distributed.checkpoint. tests/dcp/golden is by PyTorch (tests/dcp/make_golden.py
// says the values); what PyTorch makes of our folders is tested in tests/dcp/dcp_test.py.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tessera/import/dcp/metadata.h"
#include "tessera/import/dcp/pickle.h"
#include "tessera/import/dcp/source.h"
#include "tessera/import/dcp/writer.h"
#include "tessera/test/source_dir.h"

namespace tessera::dcp {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string golden(const std::string& layout) {
  return TESSERA_SOURCE_DIR "/tests/dcp/golden/" + layout;
}

template <class T>
std::vector<T> values(const TensorSource& source, const SourceArray& array, const Box& region,
                      DType dtype) {
  std::vector<T> out(static_cast<size_t>(region.volume()));
  const Status status = source.read(array, region, dtype, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return out;
}
std::vector<float> floats(const TensorSource& source, const std::string& name) {
  const SourceArray* array = source.find(name);
  EXPECT_NE(array, nullptr) << name;
  if (array == nullptr) return {};
  return values<float>(source, *array, Box::whole(array->shape), DType::kFloat32);
}
// Returns the numbers in one of the folder's objects; none if it has no such object.
std::vector<double> numbers(const DcpSource& source, const std::string& name) {
  const std::vector<std::string> objects = source.objects();
  if (std::find(objects.begin(), objects.end(), name) == objects.end()) return {};
  const auto value = source.object(name);
  EXPECT_TRUE(value) << (value ? "" : value.error().message);
  return value ? value->numbers({}) : std::vector<double>();
}
std::vector<float> counts(float first, size_t count) {
  std::vector<float> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

class GoldenOf : public testing::TestWithParam<const char*> {};

TEST_P(GoldenOf, has_pytorchs_values) {
  const auto source = open_dcp(golden(GetParam()));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(floats(**source, "model.weight"), counts(0, 15));
  EXPECT_EQ(floats(**source, "optim.state.weight.exp_avg"), counts(100, 15));  // cut along dim 1
  EXPECT_EQ(floats(**source, "optim.state.weight.exp_avg_sq"), counts(200, 15));
  EXPECT_EQ(floats(**source, "optim.state.weight.step"), std::vector<float>{7});
  EXPECT_EQ(floats(**source, "model.half"), counts(0, 4));
  EXPECT_EQ((*source)->find("model.half")->dtype, DType::kBFloat16);
  EXPECT_EQ((*source)->find("model.byte"), nullptr);  // int8, which we do not have
  EXPECT_THAT(numbers(**source, "optim.param_groups.0.lr"), ElementsAre(0.25));
  EXPECT_THAT(numbers(**source, "optim.param_groups.0.betas"), ElementsAre(0.5, 0.75));
  EXPECT_TRUE(numbers(**source, "optim.param_groups.0.params").empty());
  EXPECT_TRUE(numbers(**source, "optim.param_groups.1.lr").empty());
}

TEST_P(GoldenOf, is_read_by_regions_and_with_dims_split_and_joined) {
  const auto source = open_dcp(golden(GetParam()));
  ASSERT_TRUE(source) << source.error().message;
  for (const std::string name : {"model.weight", "optim.state.weight.exp_avg"}) {
    const std::vector<float> all = floats(**source, name);
    // All boxes of all shapes of 15 elements.
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{5, 3}, {15}, {3, 5}, {5, 1, 3}, {1, 15}}) {
      const SourceArray array{name, DType::kFloat32, shape};
      const std::vector<int64_t> strides = row_major_strides(shape);
      for (int64_t begin = 0; begin < shape[0]; ++begin) {
        for (int64_t size = 1; begin + size <= shape[0]; ++size) {
          Box box = Box::whole(shape);
          box.dims[0] = {begin, size};
          for (int64_t last = 0; last < shape.back(); ++last) {
            if (shape.size() > 1) box.dims[shape.size() - 1] = {last, shape.back() - last};
            std::vector<double> right;
            for (int64_t row = begin; row < begin + size; ++row) {
              const int64_t from = shape.size() > 1 ? last : 0;
              for (int64_t at = from; at < strides[0]; ++at)
                right.push_back(all[static_cast<size_t>(row * strides[0] + at)]);
            }
            EXPECT_EQ(values<double>(**source, array, box, DType::kFloat64), right)
                << name << fmt::format(" [{}] ", fmt::join(shape, ", ")) << box.to_string();
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, GoldenOf, testing::Values("torch_save", "safetensors"));

// A folder that is removed with the test.
class DcpFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("tessera_dcp_{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(DcpFolder, what_is_written_is_read) {
  const std::vector<ArrayEntry> arrays{{"a", DType::kFloat32, {7, 3}},
                                       {"b.c", DType::kFloat64, {}},
                                       {"empty", DType::kFloat32, {0, 4}},
                                       {"one", DType::kFloat32, {1, 2, 5}}};
  for (const int64_t files : {1, 2, 3, 8}) {
    const std::string out = path(fmt::format("out{}", files));
    auto folder = NewFolder::create(out);
    ASSERT_TRUE(folder);
    auto writer = DcpWriter::create(*folder, arrays, files);
    ASSERT_TRUE(writer) << writer.error().message;
    const std::vector<float> a = counts(0, 21), one = counts(50, 10);
    const double b = 0.5;
    // In pieces that end inside of chunks.
    for (size_t at = 0; at < a.size(); at += 4) {
      const size_t some = std::min<size_t>(4, a.size() - at);
      ASSERT_TRUE(writer->write(0, static_cast<int64_t>(4 * at), static_cast<int64_t>(4 * some),
                                reinterpret_cast<const std::byte*>(a.data() + at)));
    }
    ASSERT_TRUE(writer->write(1, 0, 8, reinterpret_cast<const std::byte*>(&b)));
    ASSERT_TRUE(writer->write(3, 0, 40, reinterpret_cast<const std::byte*>(one.data())));
    PickleWriter number;
    number.number(0.125);
    std::map<std::string, PickleWriter> objects;
    objects.emplace("lr", std::move(number));
    ASSERT_TRUE(writer->finish(std::move(objects), {{"a", {"model", int64_t{3}}}}));
    ASSERT_TRUE(folder->commit());
    const auto source = open_dcp(out);
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ(floats(**source, "a"), a);
    EXPECT_EQ(floats(**source, "b.c"), std::vector<float>{0.5F});
    EXPECT_EQ(floats(**source, "one"), one);
    EXPECT_EQ((*source)->find("empty")->shape, (std::vector<int64_t>{0, 4}));
    EXPECT_THAT(numbers(**source, "lr"), ElementsAre(0.125));
  }
}

// Megatron Core's checkpoints have numbers under keys of dicts and indices of lists.
TEST_F(DcpFolder, settings_are_read) {
  const auto file = File::open(golden("common.pt"));
  ASSERT_TRUE(file) << file.error().message;
  const auto value = SavedValue::open(*file, 0, file->bytes());
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_THAT(value->numbers({"iteration"}), ElementsAre(9));
  EXPECT_THAT(value->numbers({"optimizer", "state", "common_step"}), ElementsAre(7));  // a tensor
  EXPECT_THAT(value->numbers({"optimizer", "param_groups", "0", "betas"}), ElementsAre(0.5, 0.75));
  EXPECT_EQ(value->text({"content_metadata", "distrib_optim_sharding_type"}), "fully_reshardable");
  EXPECT_TRUE(value->numbers({"optimizer", "param_groups", "1", "lr"}).empty());
  EXPECT_TRUE(value->numbers({"args"}).empty());
  EXPECT_EQ(value->text({"iteration"}), "");
}

TEST_F(DcpFolder, what_is_not_written_is_zero_and_arrays_may_have_two_names) {
  auto folder = NewFolder::create(path("out"));
  ASSERT_TRUE(folder);
  auto writer = DcpWriter::create(*folder, {{"a", DType::kFloat32, {3, 2}}}, 2);
  ASSERT_TRUE(writer) << writer.error().message;
  const float one = 1;
  ASSERT_TRUE(writer->write(0, 4, 4, reinterpret_cast<const std::byte*>(&one)));
  ASSERT_TRUE(writer->finish({}, {}, {{"b", 0}}));
  ASSERT_TRUE(folder->commit());
  const auto source = open_dcp(path("out"));
  ASSERT_TRUE(source) << source.error().message;
  for (const char* name : {"a", "b"})
    EXPECT_EQ(floats(**source, name), (std::vector<float>{0, 1, 0, 0, 0, 0})) << name;
}

std::string why(const std::string& bytes, const std::set<std::string>& known = {}) {
  const auto pickle = Pickle::parse(bytes, known, "x");
  return pickle ? "" : pickle.error().message;
}

TEST(Pickle, values) {
  // (1, -2, 2.5, 'ab', True, None, [3], {'k': 4}, 70000)
  const std::string bytes(
      "\x80\x02(K\x01J\xfe\xff\xff\xffG@\x04\x00\x00\x00\x00\x00\x00X\x02\x00\x00\x00"
      "ab\x88N]K\x03"
      "a}X\x01\x00\x00\x00kK\x04sJp\x11\x01\x00t.",
      58);
  const auto pickle = Pickle::parse(bytes, {}, "x");
  ASSERT_TRUE(pickle) << pickle.error().message;
  const PickleValue& root = pickle->root();
  ASSERT_EQ(root.items.size(), 9U);
  EXPECT_EQ(pickle->item(root, 0)->integer, 1);
  EXPECT_EQ(pickle->item(root, 1)->integer, -2);
  EXPECT_EQ(pickle->item(root, 2)->number, 2.5);
  EXPECT_EQ(pickle->item(root, 3)->text, "ab");
  EXPECT_EQ(pickle->item(root, 4)->kind, PickleValue::Kind::kBool);
  EXPECT_EQ(pickle->item(root, 5)->kind, PickleValue::Kind::kNone);
  EXPECT_EQ(pickle->integers(*pickle->item(root, 6)), std::vector<int64_t>{3});
  EXPECT_EQ(pickle->find(*pickle->item(root, 7), "k")->integer, 4);
  EXPECT_EQ(pickle->item(root, 8)->integer, 70000);
  EXPECT_EQ(pickle->item(root, 9), nullptr);
}

TEST(Pickle, what_is_written_is_read) {
  PickleWriter out;
  const std::vector<int64_t> numbers{0, 255, 256, -1, 1LL << 40, -(1LL << 40)};
  out.integers(numbers);
  const auto pickle = Pickle::parse(out.finish(), {}, "x");
  ASSERT_TRUE(pickle) << pickle.error().message;
  EXPECT_EQ(pickle->integers(pickle->root()), numbers);
}

TEST(Pickle, refusals) {
  using namespace std::string_literals;
  EXPECT_EQ(why("\x80\x02"s + "cos\nsystem\n."),
            "x: byte 13 of the pickle: expected only classes of a checkpoint, found os.system");
  EXPECT_EQ(why("\x80\x04\x8c\x02os\x8c\x06system\x93."s),
            "x: byte 15 of the pickle: expected only classes of a checkpoint, found os.system");
  EXPECT_THAT(why("(dp0\n."), HasSubstr("expected a pickle of protocol 2 to 5"));
  EXPECT_THAT(why("\x80\x02N"s), HasSubstr("expected 1 more bytes, found the end"));
  EXPECT_THAT(why("\x80\x02X\xff\xff\xff\xffzz"s), HasSubstr("expected 4294967295 more bytes"));
  EXPECT_THAT(why("\x80\x02\x86."s), HasSubstr("expected 2 values on the stack, found fewer"));
  EXPECT_THAT(why("\x80\x02t."s), HasSubstr("expected a mark on the stack"));
  EXPECT_THAT(why("\x80\x02(N0\x30."s), HasSubstr("expected 1 values on the stack"));
  EXPECT_THAT(why("\x80\x02h\x05."s), HasSubstr("expected a value that was kept"));
  EXPECT_THAT(why("\x80\x02NNb."s), HasSubstr("expected an object, found another value"));
  EXPECT_THAT(why("\x80\x02N)R."s), HasSubstr("expected a class and a tuple of arguments"));
  EXPECT_THAT(why("\x80\x02i."s), HasSubstr("expected an opcode of a checkpoint's pickle"));
  EXPECT_THAT(why("\x80\x02NN."s), HasSubstr("expected one value at the end, found 2"));
  EXPECT_THAT(why("\x80\x02]NNe."s), HasSubstr("expected a mark on the stack"));
  EXPECT_THAT(why("\x80\x02}(Nu."s), HasSubstr("expected a dict, and keys with values"));
}

TEST(Metadata, text_is_read_as_it_was) {
  Metadata metadata;
  metadata.manifest.files = {{"__0_0.distcp"}, {"__1_0.distcp"}};
  ManifestTensor tensor{"w", "", DType::kBFloat16, {300, 2}, {}};
  metadata.stored.emplace_back();
  for (const int64_t begin : {0, 200}) {
    Box box = Box::whole(tensor.shape);
    box.dims[0] = {begin, begin == 0 ? 200 : 100};
    const size_t file = begin == 0 ? 0 : 1;
    tensor.boxes.push_back({box, file, fmt::format("w[{}:{}, 0:2]", begin, box.dims[0].end())});
    metadata.stored[0].push_back({file, begin * 70000, 77});
  }
  metadata.manifest.tensors = {tensor};
  metadata.objects["lr"] = {1, 5, 6};
  const auto read = parse_metadata(metadata_text(metadata), "x");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->manifest, metadata.manifest);
  ASSERT_EQ(read->stored.size(), 1U);
  EXPECT_EQ(read->stored[0][1].offset, 200 * 70000);
  EXPECT_EQ(read->objects.at("lr").length, 6);
}

// A damaged copy of a file of a golden folder is refused by what reads it.
TEST_F(DcpFolder, torn_and_foreign_archives_are_refused) {
  const auto changed = [&](auto change) -> std::string {
    fs::remove_all(path("copy"));
    fs::copy(golden("torch_save"), path("copy"));
    const std::string file = path("copy") + "/__0_0.distcp";
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    change(bytes);
    std::ofstream(file, std::ios::binary) << bytes;
    const auto source = open_dcp(path("copy"));
    if (!source) return source.error().message;
    for (const SourceArray& array : (*source)->arrays()) {
      std::vector<std::byte> out(1024);
      if (const Status read =
              (*source)->read(array, Box::whole(array.shape), array.dtype, out.data());
          !read)
        return read.error().message;
    }
    return "";
  };
  const auto replace = [](std::string& bytes, const std::string& from, const std::string& to) {
    for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1))
      bytes.replace(at, from.size(), to);
  };
  EXPECT_EQ(changed([](std::string&) {}), "");
  EXPECT_THAT(changed([](std::string& bytes) { bytes.resize(bytes.size() - 5); }),
              HasSubstr("the file is torn"));
  EXPECT_THAT(changed([](std::string& bytes) { bytes.assign(bytes.size(), '\0'); }),
              HasSubstr("not a safetensors file"));
  EXPECT_THAT(changed([&](std::string& bytes) { replace(bytes, "PK\x05\x06", "PK\x05\x07"); }),
              HasSubstr("a zip archive with an end, found none: the archive is torn"));
  EXPECT_THAT(changed([&](std::string& bytes) { replace(bytes, "PK\x01\x02", "PK\x01\x03"); }),
              HasSubstr("entries in its directory"));
  EXPECT_THAT(
      changed(
          [&](std::string& bytes) { replace(bytes, "_rebuild_tensor_v2", "_rebuild_tensor_v9"); }),
      HasSubstr("expected only classes of a checkpoint, found torch._utils._rebuild_tensor_v9"));
  EXPECT_THAT(changed([&](std::string& bytes) { replace(bytes, "FloatStorage", "LongzStorage"); }),
              HasSubstr("expected only classes of a checkpoint"));
}

}  // namespace
}  // namespace tessera::dcp
