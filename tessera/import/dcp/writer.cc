#include "tessera/import/dcp/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/import/dcp/save.h"
#include "tessera/import/tiles.h"
#include "tessera/state/checkpoint.h"

namespace tessera::dcp {

struct DcpWriter::Layout {
  // A chunk is bytes [begin, begin + bytes) of its array. Its archive begins at byte `offset` of the
  // file, its elements at byte `data`.
  struct Chunk {
    Box box;
    size_t file = 0;
    int64_t begin = 0, bytes = 0, offset = 0, data = 0;
  };
  struct OpenFile {
    std::string path;
    int number = -1;
    int64_t bytes = 0;
  };
  std::string metadata_path;
  std::vector<ArrayEntry> arrays;
  std::vector<std::vector<Chunk>> chunks;  // by array, in the order of their bytes
  std::vector<OpenFile> files;

  ~Layout() {
    for (const OpenFile& file : files) {
      if (file.number >= 0) ::close(file.number);
    }
  }

  void add(const ArrayEntry& array) {
    const int64_t width = dtype_bytes(array.dtype);
    std::vector<Chunk>& list = chunks.emplace_back();
    const Box whole = Box::whole(array.shape);
    const std::vector<int64_t> strides = row_major_strides(array.shape);
    const auto count = static_cast<int64_t>(files.size());
    const int64_t rows = array.shape.empty() ? 1 : array.shape[0];
    const int64_t each = (rows + count - 1) / count;
    for (int64_t file = 0; file < count && file * each < rows; ++file) {
      Box share = whole;
      if (!array.shape.empty())
        share.dims[0] = {file * each, std::min(rows, (file + 1) * each) - file * each};
      const auto add_chunk = [&](const Box& box) -> Status {
        Chunk chunk{box, static_cast<size_t>(file), 0, box.volume() * width};
        for (size_t d = 0; d < box.rank(); ++d)
          chunk.begin += box.dims[d].begin * strides[d] * width;
        const SavedFrame frame = saved_frame(array.dtype, box.shape(), 0);
        OpenFile& open = files[chunk.file];
        chunk.offset = open.bytes;
        chunk.data = chunk.offset + std::ssize(frame.before);
        open.bytes = chunk.data + chunk.bytes + std::ssize(frame.after);
        list.push_back(std::move(chunk));
        return {};
      };
      // Tiles that are cut along the first dims are contiguous.
      static_cast<void>(
          for_each_tile(share, in_order(share.rank()), kMostSavedBytes / width, add_chunk));
    }
  }

  static Status write_at(const OpenFile& file, int64_t at, int64_t bytes, const void* data) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(file.number, from, static_cast<size_t>(bytes), at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) {
        return fault(fmt::format("{}: cannot write: {}", file.path,
                                 std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
      }
      at += done;
      bytes -= done;
      from += done;
    }
    return {};
  }

  // Reads the elements of a chunk back to compute their checksum.
  Result<uint32_t> checksum(const Chunk& chunk) const {
    const OpenFile& file = files[chunk.file];
    std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(chunk.bytes, 1 << 20)));
    uint32_t sum = 0;
    for (int64_t at = 0; at < chunk.bytes;) {
      const auto some = std::min<int64_t>(std::ssize(piece), chunk.bytes - at);
      const ssize_t got =
          ::pread(file.number, piece.data(), static_cast<size_t>(some), chunk.data + at);
      if (got <= 0) return fault(fmt::format("{}: cannot read what was written", file.path));
      sum = crc32_of(sum, piece.data(), got);
      at += got;
    }
    return sum;
  }
};

DcpWriter::DcpWriter(std::unique_ptr<Layout> layout) : layout_(std::move(layout)) {}
DcpWriter::~DcpWriter() = default;
DcpWriter::DcpWriter(DcpWriter&&) noexcept = default;

Result<DcpWriter> DcpWriter::create(const NewFolder& folder, const std::vector<ArrayEntry>& arrays,
                                    int64_t files) {
  auto layout = std::make_unique<Layout>();
  layout->metadata_path = folder.file(kMetadataName);
  for (int64_t i = 0; i < files; ++i)
    layout->files.push_back({folder.file(fmt::format("__{}_0.distcp", i))});
  layout->arrays = arrays;
  for (const ArrayEntry& array : arrays) layout->add(array);
  for (Layout::OpenFile& file : layout->files) {
    file.number = ::open(file.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file.number < 0 || ::ftruncate(file.number, file.bytes) != 0) {
      return fault(fmt::format("{}: cannot write: {}", file.path,
                               std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
    }
  }
  return DcpWriter(std::move(layout));
}

Status DcpWriter::write(size_t array, int64_t offset, int64_t bytes, const std::byte* data) {
  const std::vector<Layout::Chunk>& list = layout_->chunks[array];
  auto chunk = std::upper_bound(
      list.begin(), list.end(), offset,
      [](int64_t at, const Layout::Chunk& one) { return at < one.begin + one.bytes; });
  while (bytes > 0) {
    TESSERA_CHECK(chunk != list.end(), "{}: byte {}", layout_->arrays[array].name, offset);
    const int64_t inside = offset - chunk->begin;
    const int64_t some = std::min(bytes, chunk->bytes - inside);
    TESSERA_TRY_VOID(
        Layout::write_at(layout_->files[chunk->file], chunk->data + inside, some, data));
    offset += some;
    data += some;
    bytes -= some;
    ++chunk;
  }
  return {};
}

Status DcpWriter::finish(std::map<std::string, PickleWriter> objects,
                         decltype(Metadata::paths) paths,
                         const std::map<std::string, size_t>& others) {
  Metadata metadata;
  metadata.paths = std::move(paths);
  for (size_t i = 0; i < layout_->arrays.size(); ++i) {
    const ArrayEntry& array = layout_->arrays[i];
    ManifestTensor tensor{
        .name = array.name, .role = "", .dtype = array.dtype, .shape = array.shape, .boxes = {}};
    std::vector<Stored>& stored = metadata.stored.emplace_back();
    for (const Layout::Chunk& chunk : layout_->chunks[i]) {
      TESSERA_TRY(const uint32_t checksum, layout_->checksum(chunk));
      const SavedFrame frame = saved_frame(array.dtype, chunk.box.shape(), checksum);
      const Layout::OpenFile& file = layout_->files[chunk.file];
      TESSERA_TRY_VOID(
          Layout::write_at(file, chunk.offset, std::ssize(frame.before), frame.before.data()));
      TESSERA_TRY_VOID(Layout::write_at(file, chunk.data + chunk.bytes, std::ssize(frame.after),
                                        frame.after.data()));
      tensor.boxes.push_back({chunk.box, chunk.file, array_name(tensor, chunk.box)});
      stored.push_back({chunk.file, chunk.offset,
                        chunk.data + chunk.bytes + std::ssize(frame.after) - chunk.offset});
    }
    metadata.manifest.tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, array] : others) {
    ManifestTensor tensor = metadata.manifest.tensors[array];
    tensor.name = name;
    for (ManifestBox& box : tensor.boxes) box.name = array_name(tensor, box.box);
    metadata.manifest.tensors.push_back(std::move(tensor));
    metadata.stored.push_back(std::vector<Stored>(metadata.stored[array]));
  }
  for (auto& [name, pickle] : objects) {
    Layout::OpenFile& file = layout_->files[0];
    const std::string bytes = saved_object(std::move(pickle));
    TESSERA_TRY_VOID(Layout::write_at(file, file.bytes, std::ssize(bytes), bytes.data()));
    metadata.objects[name] = {0, file.bytes, std::ssize(bytes)};
    file.bytes += std::ssize(bytes);
  }
  for (const Layout::OpenFile& file : layout_->files) {
    if (::fsync(file.number) != 0) return fault(fmt::format("{}: cannot write", file.path));
    metadata.manifest.files.push_back({file.path.substr(file.path.rfind('/') + 1), file.bytes});
  }
  FileSystem disk;
  TESSERA_TRY(const auto file, disk.create(layout_->metadata_path));
  const std::string text = metadata_text(metadata);
  TESSERA_TRY_VOID(file->write(reinterpret_cast<const std::byte*>(text.data()), std::ssize(text)));
  return file->sync();
}

int64_t DcpWriter::bytes() const {
  int64_t sum = 0;
  for (const Layout::OpenFile& file : layout_->files) sum += file.bytes;
  return sum;
}

}  // namespace tessera::dcp
