#include "tessera/state/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/convert.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr int64_t kPieceBytes = 4 << 20;  // bytes read and converted at once

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(std::string where) : where_(std::move(where)) {}

  Status add(const std::string& path) {
    TESSERA_TRY(SafetensorsFile file, SafetensorsFile::open(path));
    for (const ArrayEntry& entry : file.arrays()) {
      if (!by_name_.emplace(entry.name, arrays_.size()).second) {
        return invalid_input(fmt::format("{}: '{}': expected each name in one file, found it twice",
                                         path, short_line(entry.name)));
      }
      arrays_.push_back({entry.name, entry.dtype, entry.shape});
      places_.push_back({files_.size(), entry});
    }
    files_.push_back(std::move(file));
    return {};
  }

  std::string where() const override { return where_; }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second];
  }
  int64_t bytes_read() const override { return bytes_read_; }

  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    TESSERA_CHECK(Box::whole(array.shape).contains(region), "{}: {}", array.name,
                  region.to_string());
    const auto& [file, entry] = places_[by_name_.find(array.name)->second];
    const int64_t from_bytes = dtype_bytes(array.dtype), to_bytes = dtype_bytes(dtype);
    std::vector<std::byte> piece;
    for (const ByteRange& range : byte_ranges(array.shape, from_bytes, region)) {
      for (int64_t at = 0; at < range.bytes; at += kPieceBytes) {
        const int64_t bytes = std::min(kPieceBytes, range.bytes - at);
        const int64_t count = bytes / from_bytes;
        std::byte* into = out;
        if (dtype != array.dtype) {
          piece.resize(static_cast<size_t>(bytes));
          into = piece.data();
        }
        TESSERA_TRY_VOID(files_[file].read(entry, range.begin + at, bytes, into));
        if (dtype != array.dtype) convert(array.dtype, into, dtype, out, count);
        out += count * to_bytes;
        bytes_read_ += bytes;
      }
    }
    return {};
  }

 private:
  struct Place {
    size_t file;
    ArrayEntry entry;
  };
  std::string where_;
  std::vector<SafetensorsFile> files_;
  std::vector<SourceArray> arrays_;
  std::vector<Place> places_;  // by array
  std::map<std::string, size_t, std::less<>> by_name_;
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

// Returns whether a file in the folder may have this name. The name must also be printable, because
// messages show it unchanged.
bool is_name_of_file(const std::string& name) {
  constexpr size_t kMost = 255;
  return !name.empty() && name.size() <= kMost && name.find('/') == std::string::npos &&
         one_line(name) == name;
}

// Returns the files that the index of a folder names.
Result<std::set<std::string>> files_of_index(const fs::path& index) {
  TESSERA_TRY(const std::string text, read_file(index.string()));
  const auto parsed = parse_json(text);
  if (!parsed || !parsed->is_object() || !parsed->contains("weight_map") ||
      !(*parsed)["weight_map"].is_object()) {
    return invalid_input(
        fmt::format("{}: expected an object with the key weight_map, found none", index.string()));
  }
  std::set<std::string> names;
  for (const auto& [name, file] : (*parsed)["weight_map"].items()) {
    // The index names files in its own folder. Names that lead out of this folder are refused.
    if (!file.is_string() || !is_name_of_file(file.get<std::string>())) {
      return invalid_input(
          fmt::format("{}: weight_map: '{}': expected the name of a file in this "
                      "folder, found {}",
                      index.string(), short_line(name), shown(file)));
    }
    names.insert(file.get<std::string>());
  }
  return names;
}

Result<std::set<std::string>> files_of_folder(const std::string& path) {
  std::set<std::string> files, indices;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with('.')) continue;
    if (name.ends_with(kIndexSuffix)) indices.insert(name);
    if (name.ends_with(kSuffix)) files.insert(name);
  }
  if (error) return invalid_input(fmt::format("{}: {}", path, error.message()));
  if (indices.size() > 1) {
    return invalid_input(fmt::format("{}: expected one *{}, found {}", path, kIndexSuffix,
                                     join({indices.begin(), indices.end()}, " and ")));
  }
  if (!indices.empty()) return files_of_index(fs::path(path) / *indices.begin());
  if (files.empty()) {
    return invalid_input(
        fmt::format("{}: expected a folder with *{} files, found none", path, kSuffix));
  }
  return files;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors(const std::string& path) {
  auto source = std::make_unique<SafetensorsSource>(path);
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    TESSERA_TRY_VOID(source->add(path));
    return source;
  }
  TESSERA_TRY(const std::set<std::string> files, files_of_folder(path));
  for (const std::string& file : files)
    TESSERA_TRY_VOID(source->add((fs::path(path) / file).string()));
  return source;
}

Result<std::unique_ptr<TensorSource>> open_source(const std::string& path) {
  if (is_checkpoint(path)) return open_checkpoint(path, /*compares=*/true);
  FileSystem disk;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    TESSERA_TRY(const std::vector<CheckpointFolder> found, checkpoints_in(disk, path));
    if (!found.empty()) return open_checkpoint(found.back().path, /*compares=*/true);
  }
  return open_safetensors(path);
}

std::vector<ByteRange> byte_ranges(const std::vector<int64_t>& shape, int64_t bytes_per_element,
                                   const Box& region) {
  std::vector<ByteRange> ranges;
  if (region.empty()) return ranges;
  const std::vector<int64_t> strides = row_major_strides(shape);
  // A run consists of the last dims that the region takes whole, and the dim before these.
  size_t outer = shape.size();
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= region.dims[outer].size;
    if (region.dims[outer].size != shape[outer]) break;
  }
  std::vector<int64_t> at(outer, 0);
  for (;;) {
    int64_t begin = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      begin += (region.dims[d].begin + (d < outer ? at[d] : 0)) * strides[d];
    const ByteRange range{begin * bytes_per_element, run * bytes_per_element};
    if (!ranges.empty() && ranges.back().begin + ranges.back().bytes == range.begin) {
      ranges.back().bytes += range.bytes;
    } else {
      ranges.push_back(range);
    }
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == region.dims[d - 1].size) at[--d] = 0;
    if (d == 0) return ranges;
  }
}

}  // namespace tessera
