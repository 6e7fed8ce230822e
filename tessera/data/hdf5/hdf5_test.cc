#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tessera/data/array_file.h"
#include "tessera/data/hdf5/trial.h"
#include "tessera/data/test_files.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

using Hdf5 = TestFiles;

template <class T>
std::vector<T> read(const ArrayFile& array, const Box& box) {
  std::vector<T> numbers(static_cast<size_t>(box.volume()));
  const Status status = array.read(box, reinterpret_cast<std::byte*>(numbers.data()));
  EXPECT_TRUE(status) << status.error().message;
  return numbers;
}

std::vector<int16_t> counting(size_t count) {
  std::vector<int16_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<int16_t>(i);
  return numbers;
}

TEST_F(Hdf5, BoxesOfADatasetAreThoseOfTheNumpyArrayItWasMadeOf) {
  const std::string npy_file =
      write("x.npy", npy("<i2", "(3, 2, 4, 4)", bytes_of(counting(3 * 2 * 4 * 4))));
  const auto numpy = open_array_file(array_name(npy_file));
  ASSERT_TRUE(numpy) << numpy.error().message;
  ASSERT_TRUE(write_hdf5(path("x.h5"), {{"volumes", numpy->get()}}));
  const auto dataset = open_array_file(array_name(path("x.h5") + ":volumes"));
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ((*dataset)->shape(), (std::vector<int64_t>{3, 2, 4, 4}));
  EXPECT_EQ((*dataset)->number(), Number::kInt16);
  const int64_t made = (*numpy)->bytes_read();
  EXPECT_EQ(made, 2 * (*numpy)->elements());
  int64_t volume = 0;
  for (const Box& box :
       {Box({{1, 1}, {0, 2}, {2, 2}, {0, 4}}), Box({{0, 3}, {1, 1}, {0, 4}, {1, 2}}),
        Box({{2, 1}, {0, 2}, {0, 4}, {0, 4}})}) {
    EXPECT_EQ(read<int16_t>(**dataset, box), read<int16_t>(**numpy, box)) << box.to_string();
    volume += box.volume();
    EXPECT_EQ((*dataset)->bytes_read(), 2 * volume);
    EXPECT_EQ((*numpy)->bytes_read(), 2 * volume + made);
  }
}

TEST_F(Hdf5, DatasetsAreMadeOfDatasetsAndOfWhatAGeneratorMakes) {
  const std::string made = "universes(width=4,samples=3,seed=2):volumes";
  const auto generated = open_array_file(array_name(made));
  ASSERT_TRUE(generated) << generated.error().message;
  const Box whole = Box::whole((*generated)->shape());
  ASSERT_TRUE(write_hdf5(path("a.h5"), {{"volumes", generated->get()}}));
  const auto first = open_array_file({path("a.h5"), "volumes"});
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(write_hdf5(path("b.h5"), {{"x", first->get()}}));
  const auto second = open_array_file({path("b.h5"), "x"});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(read<float>(**second, whole), read<float>(**generated, whole));
}

TEST_F(Hdf5, BigEndianNumbersOfOtherProgramsAreReadToo) {
  const hid_t file = H5Fcreate(path("b.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t size = 3;
  const hid_t space = H5Screate_simple(1, &size, nullptr);
  const hid_t data =
      H5Dcreate2(file, "x", H5T_IEEE_F32BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::vector<float> numbers = {1.5, -2, 1e9};
  H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
  H5Dclose(data);
  const hid_t texts = H5Tcopy(H5T_C_S1);
  H5Dclose(H5Dcreate2(file, "names", texts, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Tclose(texts);
  const hsize_t none = 0;
  const hid_t empty = H5Screate_simple(1, &none, nullptr);
  H5Dclose(H5Dcreate2(file, "empty", H5T_IEEE_F32LE, empty, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(empty);
  H5Sclose(space);
  H5Fclose(file);
  const auto array = open_array_file({path("b.h5"), "x"});
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(read<float>(**array, Box({{0, 3}})), numbers);
  EXPECT_EQ(open_array_file({path("b.h5"), "names"}).error().message,
            "'" + path("b.h5") +
                "': expected the dataset 'names' to be an array of integers or of floats of at "
                "most 64 bits, found texts");
  EXPECT_EQ(open_array_file({path("b.h5"), "empty"}).error().message,
            "'" + path("b.h5") +
                "': expected 1 to 2^50 elements in the dataset 'empty', found the shape [0]");
}

// The library reads what a missing source would hold as zeros.
TEST_F(Hdf5, AVirtualDatasetNeedsAllOfItsSources) {
  const hsize_t one = 1, two = 2;
  const hid_t of_one = H5Screate_simple(1, &one, nullptr),
              whole = H5Screate_simple(1, &two, nullptr);
  const hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
  const std::vector<float> numbers = {1.5, 2.5};
  for (hsize_t i = 0; i < two; ++i) {
    const std::string name = "part" + std::to_string(i) + ".h5";
    const hid_t part = H5Fcreate(path(name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t data =
        H5Dcreate2(part, "x", H5T_IEEE_F32LE, of_one, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &numbers[i]);
    H5Dclose(data);
    H5Fclose(part);
    H5Sselect_hyperslab(whole, H5S_SELECT_SET, &i, nullptr, &one, nullptr);
    H5Pset_virtual(layout, whole, name.c_str(), "x", of_one);
  }
  const hid_t file = H5Fcreate(path("v.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Sselect_all(whole);
  H5Dclose(H5Dcreate2(file, "x", H5T_IEEE_F32LE, whole, H5P_DEFAULT, layout, H5P_DEFAULT));
  H5Fclose(file);
  H5Pclose(layout);
  H5Sclose(whole);
  H5Sclose(of_one);
  {
    const auto array = open_array_file({path("v.h5"), "x"});
    ASSERT_TRUE(array) << array.error().message;
    EXPECT_EQ(read<float>(**array, Box({{0, 2}})), numbers);
  }
  std::filesystem::rename(path("part1.h5"), path("moved.h5"));
  const auto refused = open_array_file({path("v.h5"), "x"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "'" + path("v.h5") +
                                         "': expected 'part1.h5:x', of which the virtual dataset "
                                         "'x' is made, found none");
}

// Returns the type of an IEEE-like float: sign, exponent, fraction. The library converts it.
hid_t float_type(size_t bytes, size_t exponent_bits, size_t fraction_bits, size_t bias) {
  const hid_t type = H5Tcopy(bytes > sizeof(float) ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
  H5Tset_fields(type, 8 * bytes - 1, fraction_bits, exponent_bits, 0, fraction_bits);
  H5Tset_size(type, bytes);
  H5Tset_ebias(type, bias);
  return type;
}

TEST_F(Hdf5, NarrowFloatsAreReadAsFloat32) {
  const hid_t file = H5Fcreate(path("n.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t size = 4;
  const hid_t space = H5Screate_simple(1, &size, nullptr);
  const std::vector<float> numbers = {1.5, -2.25, 0.0625, 240};  // exact in all of them
  const auto add = [&](const char* name, hid_t type) {
    const hid_t data = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ASSERT_GE(H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()), 0);
    H5Dclose(data);
  };
  const hid_t half = float_type(2, 5, 10, 15), brain = float_type(2, 8, 7, 127),
              odd = float_type(4, 5, 26, 15);
  add("float16", half);
  add("bfloat16", brain);
  add("long fraction", odd);
  add("long double", H5T_NATIVE_LDOUBLE);
  for (const hid_t type : {half, brain, odd}) H5Tclose(type);
  H5Sclose(space);
  H5Fclose(file);
  for (const char* name : {"float16", "bfloat16"}) {
    const auto array = open_array_file({path("n.h5"), name});
    ASSERT_TRUE(array) << array.error().message;
    EXPECT_EQ((*array)->number(), Number::kFloat32);
    EXPECT_EQ(read<float>(**array, Box({{0, 4}})), numbers) << name;
  }
  const auto wide = open_array_file({path("n.h5"), "long fraction"});
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_EQ((*wide)->number(), Number::kFloat64);
  const auto widest = open_array_file({path("n.h5"), "long double"});
  ASSERT_FALSE(widest);
  EXPECT_THAT(widest.error().message,
              testing::MatchesRegex(".*floats of at most 64 bits, found floats of [0-9]+ bits"));
}

TEST_F(Hdf5, ErrorsAreOneLine) {
  const auto error = [](const ArrayName& name) {
    const auto array = open_array_file(name);
    return array ? "" : array.error().message;
  };
  const auto numpy = open_array_file({write("x.npy", npy("|u1", "(2,)", "\1\2")), ""});
  ASSERT_TRUE(write_hdf5(path("x.h5"), {{"a", numpy->get()}, {"b", numpy->get()}}));
  EXPECT_EQ(error({path("x.h5"), "volumes"}),
            "'" + path("x.h5") + "': expected a dataset 'volumes', found a, b");
  EXPECT_EQ(error({path("y.h5"), "a"}),
            "cannot read '" + path("y.h5") + "': No such file or directory");
  const std::string other = write("z.h5", "no HDF5");
  EXPECT_EQ(error({other, "a"}),
            "'" + other + "': expected an HDF5 file, found another or a damaged one");
  EXPECT_EQ(write_hdf5(path("no/folder.h5"), {}).error().message,
            "cannot write '" + path("no/folder.h5") + "'");
}

size_t as_it_is(unsigned, size_t, const unsigned*, size_t bytes, size_t*, void**) { return bytes; }

// The library prints errors itself unless the calling thread has switched that off.
TEST_F(Hdf5, AFilterThatIsNotHereIsOneLineInAnyThread) {
  constexpr H5Z_filter_t kFilter = 300;  // one of those that are left to tests
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, kFilter, 1,       1,
                               "as it is",       nullptr, nullptr, as_it_is};
  ASSERT_GE(H5Zregister(&filter), 0);
  const hid_t file = H5Fcreate(path("f.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t size = 4;
  const hid_t space = H5Screate_simple(1, &size, nullptr), chunks = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(chunks, 1, &size);
  H5Pset_filter(chunks, kFilter, H5Z_FLAG_MANDATORY, 0, nullptr);
  const hid_t data = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, chunks, H5P_DEFAULT);
  const std::vector<float> numbers = {1, 2, 3, 4};
  H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
  H5Dclose(data);
  H5Pclose(chunks);
  H5Sclose(space);
  H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Fclose(file);
  H5Zunregister(kFilter);
  const auto array = open_array_file({path("f.h5"), "x"});
  ASSERT_TRUE(array) << array.error().message;
  testing::internal::CaptureStderr();
  std::string message;
  std::thread([&] {
    std::vector<float> to(4);
    const Status status = (*array)->read(Box({{0, 4}}), reinterpret_cast<std::byte*>(to.data()));
    if (!status) message = status.error().message;
  }).join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(message, testing::HasSubstr("packed by a filter that is not here"));
  EXPECT_EQ(open_array_file({path("f.h5"), "group"}).error().message,
            "'" + path("f.h5") +
                "': expected 'group' to be a dataset, found a group or something damaged");
}

TEST(Hdf5Trial, AChildThatEndsOrDoesNotComeBackIsSeen) {
  constexpr std::chrono::seconds kLong{60};
  EXPECT_TRUE(comes_back([] {}, kLong));
  EXPECT_FALSE(comes_back([] { std::raise(SIGSEGV); }, kLong));
  EXPECT_FALSE(comes_back([] { std::raise(SIGKILL); }, kLong));
  EXPECT_FALSE(comes_back([] { std::abort(); }, kLong));
  EXPECT_FALSE(comes_back([] { _exit(0); }, kLong));
  EXPECT_FALSE(comes_back([] { pause(); }, std::chrono::milliseconds(20)));
}

// A file of HDF5 2.0 in its newest form, a compressed dataset beside a plain one, as h5py 3.16 writes
// it with libver="latest".
TEST_F(Hdf5, WhatANewerLibraryWroteIsNamedAsThat) {
  const std::string newest = std::string(TESSERA_SOURCE_DIR) + "/tessera/data/testdata/hdf5_2.h5";
  const auto volumes = open_array_file({newest, "volumes"});
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  const std::string newer = "written by a newer HDF5 than this library (" + std::to_string(major) +
                            "." + std::to_string(minor) + "." + std::to_string(release) + ") reads";
  if (major < 2) {
    ASSERT_FALSE(volumes);
    EXPECT_EQ(volumes.error().message, "'" + newest + "': the dataset 'volumes' was " + newer);
  } else {
    ASSERT_TRUE(volumes) << volumes.error().message;
  }
  const auto parameters = open_array_file({newest, "parameters"});
  ASSERT_TRUE(parameters) << parameters.error().message;
  EXPECT_EQ(read<float>(**parameters, Box({{0, 2}})), (std::vector<float>{0, 1}));
  std::ifstream in(newest, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  bytes[8] = 4;  // the version of the head, which was 3 from HDF5 1.10 to 2.0
  const std::string later = write("later.h5", bytes);
  EXPECT_EQ(open_array_file({later, "parameters"}).error().message, "'" + later + "': " + newer);
}

TEST(ArrayNames, HaveADatasetBehindTheSuffix) {
  EXPECT_EQ(array_name("a:b/x.h5:g/volumes").path, "a:b/x.h5");
  EXPECT_EQ(array_name("a:b/x.h5:g/volumes").dataset, "g/volumes");
  EXPECT_EQ(array_name("x.hdf5:v").dataset, "v");
  EXPECT_EQ(array_name("x.npy").dataset, "");
}

}  // namespace
}  // namespace tessera
