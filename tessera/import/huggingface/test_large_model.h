// For tests: makes a folder that looks like Llama 70B as published, with 140 GB in 30 files. The
// files are holes in the file system except for their headers and one element of each array. Also
// measures the most memory that the process held.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/philox.h"
#include "tessera/base/text.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/new_folder.h"

namespace tessera {

inline std::string large_config(int64_t layers) {
  return fmt::format(R"({{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": {}, "num_attention_heads": 64, "num_key_value_heads": 8,
      "max_position_embeddings": 8192, "vocab_size": 128256}})",
                     layers);
}

class LargeModel : public ::testing::Test {
 protected:
  // Chooses the folder, if possible in a memory file system, where holes take no memory even when
  // they are read.
  void SetUp() override {
    const std::filesystem::path shared = "/dev/shm";
    folder_ =
        ((std::filesystem::is_directory(shared) ? shared : std::filesystem::temp_directory_path()) /
         fmt::format("tessera_large_{}", ::getpid()))
            .string();
    std::filesystem::create_directories(theirs());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string theirs() const { return folder_ + "/theirs"; }

  // Returns the index of the one element of an array that is not zero. mark() returns the two bytes
  // of this element.
  static int64_t marked(const std::string& array, int64_t elements) {
    return static_cast<int64_t>(stable_hash(array.data(), array.size()) %
                                static_cast<uint64_t>(elements));
  }
  static uint16_t mark(const std::string& array) {
    return static_cast<uint16_t>(stable_hash(array.data(), array.size(), 1) % 0x7000 + 1);
  }

  // Writes the folder. Returns false if the file system has no holes or a file cannot be written.
  bool make(int64_t layers, Model& model, std::vector<TensorView>& views) {
    const std::string config = theirs() + "/config.json";
    const Status written = write_file(config, large_config(layers));
    EXPECT_TRUE(written) << written.error().message;
    auto built = build_model(config, 1);
    EXPECT_TRUE(built) << built.error().message;
    if (!built) return false;
    model = std::move(*built);
    views = *huggingface_views(model);
    constexpr size_t kFiles = 30;
    std::string index;
    for (size_t file = 0; file < kFiles; ++file) {
      std::vector<ArrayEntry> entries;
      for (size_t i = file * views.size() / kFiles; i < (file + 1) * views.size() / kFiles; ++i)
        entries.push_back({views[i].arrays.front(), DType::kBFloat16, views[i].array_shape});
      if (entries.empty()) continue;
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, kFiles);
      auto writer = SafetensorsWriter::create(theirs() + "/" + name, std::move(entries));
      EXPECT_TRUE(writer) << writer.error().message;
      if (!writer) return false;
      for (size_t i = 0; i < writer->arrays().size(); ++i) {
        const ArrayEntry& array = writer->arrays()[i];
        const uint16_t value = mark(array.name);
        EXPECT_TRUE(writer->write(i, 2 * marked(array.name, array.bytes / 2), 2,
                                  reinterpret_cast<const std::byte*>(&value)));
        index += fmt::format("{}\"{}\": \"{}\"", index.empty() ? "" : ", ", array.name, name);
      }
      apparent_ += writer->bytes();
    }
    EXPECT_TRUE(write_file(theirs() + "/model.safetensors.index.json",
                           "{\"weight_map\": {" + index + "}}"));
    return allocated(theirs()) < apparent_ / 100;
  }

  // Returns the bytes that the files of a folder take on the disk.
  static int64_t allocated(const std::string& folder) {
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      struct stat status {};
      if (::stat(entry.path().c_str(), &status) == 0) bytes += int64_t{status.st_blocks} * 512;
    }
    return bytes;
  }

  // Resets the peak of memory. peak_bytes() returns the most memory that the process held since
  // then.
  static void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }
  static int64_t peak_bytes() { return status_bytes("VmHWM:"); }
  static int64_t resident_bytes() { return status_bytes("VmRSS:"); }
  // Returns whether the heap keeps freed memory, as the address sanitizer's does. The memory that
  // the process holds then says nothing.
  static bool heap_keeps_what_is_freed() { return ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr; }

  std::string folder_;
  int64_t apparent_ = 0;  // bytes of the files according to their sizes, holes included

 private:
  static int64_t status_bytes(const std::string& key) {
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
      int64_t kib = 0;
      if (word == key && file >> kib) return kib << 10;
    }
    ADD_FAILURE() << "/proc/self/status has no " << key;
    return 0;
  }
};

}  // namespace tessera
