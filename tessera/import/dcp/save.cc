#include "tessera/import/dcp/save.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tessera/base/array_bytes.h"
#include "tessera/base/box.h"
#include "tessera/base/check.h"

namespace tessera::dcp {
namespace {

constexpr size_t kAlignment = 64;      // of the data of an entry
constexpr uint16_t kPadding = 0x4246;  // id of the extra field that pads, as torch.save writes it

void put(std::string& out, uint64_t value, size_t width) {
  for (size_t i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

const char* storage_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "DoubleStorage";
    case DType::kFloat32: return "FloatStorage";
    case DType::kBFloat16: return "BFloat16Storage";
    case DType::kFloat16: return "HalfStorage";
    case DType::kInt64: return "LongStorage";
    case DType::kInt32: return "IntStorage";
    case DType::kUInt8: return "ByteStorage";
    case DType::kBool: return "BoolStorage";
  }
  return "";
}

// Builds an archive entry by entry.
class ArchiveWriter {
 public:
  void add(std::string_view name, std::string_view data) {
    begin(name, crc32_of(0, data.data(), static_cast<int64_t>(data.size())), data.size());
    bytes_ += data;
    at_ += data.size();
  }
  // Begins an entry whose data the caller writes; returns what comes before the data.
  std::string begin_payload(std::string_view name, uint32_t checksum, uint64_t bytes) {
    begin(name, checksum, bytes);
    at_ += bytes;
    return std::exchange(bytes_, "");
  }
  std::string finish() {
    const uint64_t begin = at_;
    bytes_ += directory_;
    put(bytes_, 0x06054b50, 4);
    put(bytes_, 0, 4);
    put(bytes_, count_, 2);
    put(bytes_, count_, 2);
    put(bytes_, directory_.size(), 4);
    put(bytes_, begin, 4);
    put(bytes_, 0, 2);
    return std::move(bytes_);
  }

 private:
  void begin(std::string_view inner, uint32_t checksum, uint64_t bytes) {
    const std::string name = fmt::format("archive/{}", inner);
    const uint64_t local = at_;
    const auto common = [&](std::string& out, size_t extra) {
      put(out, 0, 2);  // version, flags, method, time, date
      put(out, 0, 2);
      put(out, 0, 2);
      put(out, 0, 2);
      put(out, 0, 2);
      put(out, checksum, 4);
      put(out, bytes, 4);
      put(out, bytes, 4);
      put(out, name.size(), 2);
      put(out, extra, 2);
    };
    constexpr size_t kHeadBytes = 30, kFieldBytes = 4;
    const size_t end = at_ + kHeadBytes + name.size() + kFieldBytes;
    const size_t padding = (kAlignment - end % kAlignment) % kAlignment;
    std::string head;
    put(head, 0x04034b50, 4);
    common(head, kFieldBytes + padding);
    head += name;
    put(head, kPadding, 2);
    put(head, padding, 2);
    head.append(padding, 'Z');
    bytes_ += head;
    at_ += head.size();
    put(directory_, 0x02014b50, 4);
    put(directory_, 0, 2);
    common(directory_, 0);
    put(directory_, 0, 2);  // comment, disk, attributes
    put(directory_, 0, 2);
    put(directory_, 0, 2);
    put(directory_, 0, 4);
    put(directory_, local, 4);
    directory_ += name;
    ++count_;
  }

  std::string bytes_, directory_;
  uint64_t at_ = 0, count_ = 0;
};

void add_version(ArchiveWriter& archive) {
  archive.add("version", "3\n");
  archive.add("byteorder", "little");
}

}  // namespace

uint32_t crc32_of(uint32_t checksum, const void* data, int64_t bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(checksum, static_cast<const Bytef*>(data), static_cast<size_t>(bytes)));
}

SavedFrame saved_frame(DType dtype, const std::vector<int64_t>& shape, uint32_t checksum) {
  const int64_t bytes = array_bytes(dtype, shape).value_or(0);
  TESSERA_CHECK(bytes <= kMostSavedBytes, "{} bytes in one archive", bytes);
  PickleWriter pickle;
  pickle.global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark();
  pickle.mark();
  pickle.text("storage");
  pickle.global("torch", storage_of(dtype));
  pickle.text("0");
  pickle.text("cpu");
  pickle.integer(bytes / dtype_bytes(dtype));
  pickle.tuple();
  pickle.persistent();
  pickle.integer(0);
  pickle.integers(shape);
  pickle.integers(row_major_strides(shape));
  pickle.boolean(false);
  pickle.global("collections", "OrderedDict");
  pickle.empty_tuple();
  pickle.call();
  pickle.tuple();
  pickle.call();
  ArchiveWriter archive;
  archive.add("data.pkl", pickle.finish());
  SavedFrame frame;
  frame.before = archive.begin_payload("data/0", checksum, static_cast<uint64_t>(bytes));
  add_version(archive);
  frame.after = archive.finish();
  return frame;
}

std::string saved_object(PickleWriter pickle) {
  ArchiveWriter archive;
  archive.add("data.pkl", pickle.finish());
  add_version(archive);
  return archive.finish();
}

}  // namespace tessera::dcp
