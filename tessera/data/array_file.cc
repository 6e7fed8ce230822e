#include "tessera/data/array_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/data/generated_array.h"
#include "tessera/data/mapped_file.h"

namespace tessera {
namespace {

class NpyFile : public ArrayFile {
 public:
  NpyFile(MappedFile file, NpyHeader header) : file_(std::move(file)), offset_(header.offset) {
    shape_ = std::move(header.shape);
    number_ = header.number;
  }
  int64_t file_bytes() const override { return file_.size(); }

 protected:
  // Reads the box in runs along the last dim; each run is contiguous in the file.
  Status read_box(const Box& box, std::byte* to) const override {
    const std::vector<int64_t> strides = row_major_strides(shape_);
    const int64_t bytes = number_bytes(number_);
    const size_t rank = box.rank();
    const int64_t row = rank == 0 ? 1 : box.dims[rank - 1].size;
    std::vector<int64_t> at(rank, 0);
    for (int64_t done = 0; done < box.volume(); done += row) {
      int64_t from = 0;
      for (size_t d = 0; d < rank; ++d) from += (box.dims[d].begin + at[d]) * strides[d];
      std::memcpy(to, file_.bytes() + offset_ + from * bytes, static_cast<size_t>(row * bytes));
      to += row * bytes;
      for (size_t d = rank; d-- > 0;) {
        if (d + 1 == rank) continue;
        if (++at[d] < box.dims[d].size) break;
        at[d] = 0;
      }
    }
    return {};
  }

 private:
  MappedFile file_;
  int64_t offset_;
};

Result<std::unique_ptr<ArrayFile>> open_npy(const std::string& path) {
  TESSERA_TRY(MappedFile file, MappedFile::open(path));
  auto header = read_npy_header(file.bytes(), file.size());
  if (!header) return invalid_input(fmt::format("'{}': {}", path, header.error().message));
  return std::make_unique<NpyFile>(std::move(file), std::move(*header));
}

}  // namespace

int64_t ArrayFile::elements() const { return Box::whole(shape_).volume(); }

Status ArrayFile::read(const Box& box, std::byte* to) const {
  if (box.empty()) return {};
  TESSERA_TRY_VOID(read_box(box, to));
  bytes_read_ += box.volume() * number_bytes(number_);
  return {};
}

ArrayName array_name(const std::string& name) {
  for (const std::string_view suffix : {".h5:", ".hdf5:", "):"}) {
    const size_t at = name.find(suffix);
    if (at == std::string::npos) continue;
    const size_t colon = at + suffix.size() - 1;
    return {name.substr(0, colon), name.substr(colon + 1)};
  }
  return {name, ""};
}

Result<std::unique_ptr<ArrayFile>> open_array_file(const ArrayName& name) {
  if (is_generator(name.path)) return open_generated(name);
  return name.dataset.empty() ? open_npy(name.path) : open_hdf5(name);
}

}  // namespace tessera
