// For tests of data: files in a folder that each test has to itself, in the formats that users
// have.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/text.h"

namespace tessera {

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  std::string bytes(numbers.size() * sizeof(T), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Returns the bytes of a NumPy file of format 1. `descr` is written as "<u2", `shape` as "(3,)".
inline std::string npy(const std::string& descr, const std::string& shape,
                       const std::string& data) {
  std::string head = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  head.resize((head.size() + 10 + 64) / 64 * 64 - 10, ' ');
  head.back() = '\n';
  return "\x93NUMPY" + std::string("\1\0", 2) +
         bytes_of(std::vector<uint16_t>{static_cast<uint16_t>(head.size())}) + head + data;
}

// Returns the bytes of Megatron's index of documents with one sequence each. `lengths` has the
// tokens of each; code 8 means uint16 tokens.
inline std::string megatron_index(const std::vector<int32_t>& lengths, uint8_t code = 8,
                                  int64_t token_bytes = 2) {
  std::vector<int64_t> pointers, documents;
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    pointers.push_back(at);
    at += lengths[i] * token_bytes;
    documents.push_back(static_cast<int64_t>(i));
  }
  documents.push_back(static_cast<int64_t>(lengths.size()));
  return std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector<uint64_t>{1}) +
         static_cast<char>(code) +
         bytes_of(std::vector<uint64_t>{lengths.size(), documents.size()}) + bytes_of(lengths) +
         bytes_of(pointers) + bytes_of(documents);
}

class TestFiles : public ::testing::Test {
 protected:
  TestFiles() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (std::filesystem::temp_directory_path() /
               ("tessera_data_" + std::to_string(getpid()) + "_" + test->name()))
                  .string();
    std::filesystem::create_directories(folder_);
  }
  ~TestFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    const std::filesystem::path file = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(file.parent_path());
    EXPECT_TRUE(write_file(file.string(), content));
    return file.string();
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

}  // namespace tessera
