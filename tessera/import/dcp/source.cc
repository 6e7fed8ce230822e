#include "tessera/import/dcp/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/convert.h"
#include "tessera/base/one_line.h"
#include "tessera/import/dcp/file.h"
#include "tessera/import/dcp/metadata.h"
#include "tessera/import/dcp/pickle.h"
#include "tessera/import/dcp/saved.h"
#include "tessera/import/tiles.h"
#include "tessera/state/box_runs.h"
#include "tessera/state/safetensors.h"

namespace tessera::dcp {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kPieceBytes = 4 << 20;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

class Source : public DcpSource {
 public:
  Source(std::string folder, Metadata metadata)
      : folder_(std::move(folder)), metadata_(std::move(metadata)) {}

  Status open_files() {
    for (ManifestFile& file : metadata_.manifest.files) {
      constexpr size_t kMostName = 255;
      if (file.name.empty() || file.name.size() > kMostName ||
          file.name.find('/') != std::string::npos || one_line(file.name) != file.name) {
        return invalid_input(
            fmt::format("{}: expected the name of a file in the folder, found '{}'", folder_,
                        short_line(file.name)));
      }
      TESSERA_TRY(File opened, File::open((fs::path(folder_) / file.name).string()));
      file.bytes = opened.bytes();
      files_.push_back(std::move(opened));
    }
    if (const std::string why = why_invalid(metadata_.manifest); !why.empty())
      return invalid_input(fmt::format("{}/{}: {}", folder_, kMetadataName, short_line(why)));
    const auto check = [&](const std::string& name, const Stored& place) -> Status {
      const File& file = files_[place.file];
      if (place.offset <= file.bytes() && place.length <= file.bytes() - place.offset) return {};
      return invalid_input(
          fmt::format("{}: '{}': expected {} bytes at byte {}, found {} in all: the "
                      "file is torn",
                      file.path(), short_line(name), place.length, place.offset, file.bytes()));
    };
    for (size_t t = 0; t < metadata_.stored.size(); ++t) {
      const ManifestTensor& tensor = metadata_.manifest.tensors[t];
      for (const Stored& place : metadata_.stored[t]) TESSERA_TRY_VOID(check(tensor.name, place));
      by_name_[tensor.name] = t;
      arrays_.push_back({tensor.name, tensor.dtype, tensor.shape});
      found_.emplace_back(tensor.boxes.size());
    }
    for (const auto& [name, place] : metadata_.objects) TESSERA_TRY_VOID(check(name, place));
    return {};
  }

  std::string where() const override { return folder_; }
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
    const size_t tensor = by_name_.find(array.name)->second;
    const std::vector<int64_t>& shape = arrays_[tensor].shape;
    if (array.shape == shape) return read_region(tensor, region, dtype, out);
    // The caller has split or joined dims. The order of the elements is the same.
    for (const ByteRange& range : byte_ranges(array.shape, 1, region)) {
      for (const Box& box : boxes_of_range(shape, range.begin, range.bytes)) {
        TESSERA_TRY_VOID(read_region(tensor, box, dtype, out));
        out += box.volume() * dtype_bytes(dtype);
      }
    }
    return {};
  }

  // Reads a region of a tensor.
  Status read_region(size_t tensor, const Box& region, DType dtype, std::byte* out) const {
    const SourceArray& array = arrays_[tensor];
    const std::vector<ManifestBox>& boxes = metadata_.manifest.tensors[tensor].boxes;
    for (size_t b = 0; b < boxes.size(); ++b) {
      const Box common = intersect(boxes[b].box, region);
      if (common.empty()) continue;
      TESSERA_TRY(const SavedTensor* saved, locate(tensor, b));
      TESSERA_TRY_VOID(read_chunk(files_[boxes[b].file], *saved, boxes[b].box, common, region,
                                  array.dtype, dtype, out));
    }
    return {};
  }

  std::vector<std::string> objects() const override {
    std::vector<std::string> names;
    for (const auto& [name, place] : metadata_.objects) names.push_back(name);
    return names;
  }
  Result<SavedValue> object(const std::string& name) const override {
    const auto found = metadata_.objects.find(name);
    TESSERA_CHECK(found != metadata_.objects.end(), "{}", name);
    const Stored& place = found->second;
    return SavedValue::open(files_[place.file], place.offset, place.length);
  }

 private:
  // Returns where the elements of a chunk lie. Looks into its archive only once.
  Result<const SavedTensor*> locate(size_t tensor, size_t box) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::optional<SavedTensor>& saved = found_[tensor][box];
    if (saved) return &*saved;
    const ManifestTensor& what = metadata_.manifest.tensors[tensor];
    const Stored& place = metadata_.stored[tensor][box];
    const File& file = files_[place.file];
    TESSERA_TRY(const std::string begin,
                file.text(place.offset, std::min<int64_t>(place.length, 4)));
    if (begin == "PK\x03\x04") {
      TESSERA_TRY(saved, find_saved(file, place.offset, place.length));
    } else {
      TESSERA_TRY(saved, find_in_safetensors(file, place, what.name));
    }
    const std::vector<int64_t> shape = what.boxes[box].box.shape();
    if (saved->dtype != what.dtype || saved->shape != shape) {
      const SavedTensor other = *saved;
      saved.reset();
      return invalid_input(fmt::format("{}: '{}': expected {} {}, found {} {}", file.path(),
                                       short_line(what.name), dtype_name(what.dtype),
                                       shape_text(shape), dtype_name(other.dtype),
                                       shape_text(other.shape)));
    }
    return &*saved;
  }

  // In the layout of safetensors, all chunks of a file have the place at which its header begins.
  Result<SavedTensor> find_in_safetensors(const File& file, const Stored& place,
                                          const std::string& name) const {
    const auto key = std::pair(place.file, place.offset);
    auto opened = safetensors_.find(key);
    if (opened == safetensors_.end()) {
      TESSERA_TRY(SafetensorsFile read, SafetensorsFile::open(file.path(), place.offset));
      opened = safetensors_.emplace(key, std::move(read)).first;
    }
    const ArrayEntry* entry = opened->second.find(name);
    if (entry == nullptr) {
      return invalid_input(
          fmt::format("{}: expected an array '{}', found none", file.path(), short_line(name)));
    }
    return SavedTensor{entry->dtype, entry->shape, row_major_strides(entry->shape), entry->begin};
  }

  // Reads `common` of a chunk, which is the box `chunk` of its tensor, into an array that has room
  // for `region`.
  Status read_chunk(const File& file, const SavedTensor& saved, const Box& chunk, const Box& common,
                    const Box& region, DType from, DType to, std::byte* out) const {
    if (!saved.in_order()) return read_strided(file, saved, chunk, common, region, from, to, out);
    const int64_t from_bytes = dtype_bytes(from), to_bytes = dtype_bytes(to);
    const BoxRuns runs(common, chunk, region);
    std::vector<std::byte> piece;
    // Short runs are read together, with the gaps between them.
    const int64_t most = std::max<int64_t>(kPieceBytes / from_bytes, 1);
    for (int64_t k = 0; k < runs.count();) {
      const int64_t begin = runs.at(k).in_a;
      int64_t last = k;
      while (last + 1 < runs.count() && runs.at(last + 1).in_a + runs.length() - begin <= most &&
             runs.at(last + 1).in_a - runs.at(last).in_a <= 2 * runs.length())
        ++last;
      if (last == k) {
        TESSERA_TRY_VOID(read_run(file, saved.begin + begin * from_bytes, runs.length(), from, to,
                                  out + runs.at(k).in_b * to_bytes, piece));
      } else {
        const int64_t elements = runs.at(last).in_a + runs.length() - begin;
        piece.resize(static_cast<size_t>(elements * from_bytes));
        TESSERA_TRY_VOID(
            file.read(saved.begin + begin * from_bytes, elements * from_bytes, piece.data()));
        bytes_read_ += elements * from_bytes;
        for (int64_t i = k; i <= last; ++i) {
          convert(from, piece.data() + (runs.at(i).in_a - begin) * from_bytes, to,
                  out + runs.at(i).in_b * to_bytes, runs.length());
        }
      }
      k = last + 1;
    }
    return {};
  }

  Status read_run(const File& file, int64_t at, int64_t count, DType from, DType to, std::byte* out,
                  std::vector<std::byte>& piece) const {
    const int64_t from_bytes = dtype_bytes(from);
    bytes_read_ += count * from_bytes;
    if (from == to) return file.read(at, count * from_bytes, out);
    while (count > 0) {
      const int64_t some = std::min(count, kPieceBytes / from_bytes);
      piece.resize(static_cast<size_t>(some * from_bytes));
      TESSERA_TRY_VOID(file.read(at, some * from_bytes, piece.data()));
      convert(from, piece.data(), to, out, some);
      at += some * from_bytes;
      out += some * dtype_bytes(to);
      count -= some;
    }
    return {};
  }

  Status read_strided(const File& file, const SavedTensor& saved, const Box& chunk,
                      const Box& common, const Box& region, DType from, DType to,
                      std::byte* out) const {
    int64_t last = 0, skipped = 0, target = 0;
    const std::vector<int64_t> out_strides = row_major_strides(region.shape());
    for (size_t d = 0; d < chunk.rank(); ++d) {
      last += (saved.shape[d] - 1) * saved.strides[d];
      skipped += (common.dims[d].begin - chunk.dims[d].begin) * saved.strides[d];
      target += (common.dims[d].begin - region.dims[d].begin) * out_strides[d];
    }
    const int64_t from_bytes = dtype_bytes(from), to_bytes = dtype_bytes(to);
    std::vector<std::byte> all(static_cast<size_t>((last + 1) * from_bytes));
    TESSERA_TRY_VOID(file.read(saved.begin, (last + 1) * from_bytes, all.data()));
    bytes_read_ += (last + 1) * from_bytes;
    if (from != to) {
      std::vector<std::byte> converted(static_cast<size_t>((last + 1) * to_bytes));
      convert(from, all.data(), to, converted.data(), last + 1);
      all = std::move(converted);
    }
    copy_strided(common.shape(), to_bytes, all.data() + skipped * to_bytes, saved.strides,
                 out + target * to_bytes, out_strides);
    return {};
  }

  std::string folder_;
  Metadata metadata_;
  std::vector<File> files_;
  std::vector<SourceArray> arrays_;
  std::map<std::string, size_t, std::less<>> by_name_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<std::optional<SavedTensor>>> found_;  // by tensor and box
  mutable std::map<std::pair<size_t, int64_t>, SafetensorsFile> safetensors_;
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace

bool is_dcp(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(fs::path(folder) / kMetadataName, error);
}

Result<std::unique_ptr<DcpSource>> open_dcp(const std::string& folder) {
  const std::string path = (fs::path(folder) / kMetadataName).string();
  TESSERA_TRY(const File file, File::open(path));
  if (file.bytes() > kMostPickleBytes) {
    return invalid_input(fmt::format("{}: expected at most {} bytes, found {}", path,
                                     kMostPickleBytes, file.bytes()));
  }
  TESSERA_TRY(const std::string bytes, file.text(0, file.bytes()));
  TESSERA_TRY(Metadata metadata, parse_metadata(bytes, path));
  auto source = std::make_unique<Source>(folder, std::move(metadata));
  TESSERA_TRY_VOID(source->open_files());
  return source;
}

}  // namespace tessera::dcp
