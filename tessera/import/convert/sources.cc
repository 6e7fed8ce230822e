#include "tessera/import/convert/sources.h"

#include <algorithm>

#include "tessera/import/tiles.h"

namespace tessera {
namespace {

const SourceArray* find_in(const std::vector<SourceArray>& arrays,
                           const std::map<std::string, size_t, std::less<>>& by_name,
                           std::string_view name) {
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &arrays[found->second];
}

}  // namespace

// ---- renamed and joined

void Renamed::add(std::string name, const SourceArray& array) {
  by_name_[name] = arrays_.size();
  arrays_.push_back({std::move(name), array.dtype, array.shape});
  originals_.push_back(array);
}

const SourceArray* Renamed::find(std::string_view name) const {
  return find_in(arrays_, by_name_, name);
}

Status Renamed::read(const SourceArray& array, const Box& region, DType dtype,
                     std::byte* out) const {
  SourceArray original = originals_[by_name_.find(array.name)->second];
  original.shape = array.shape;  // a caller may split dims
  return from_->read(original, region, dtype, out);
}

std::unique_ptr<Renamed> part_of(const std::shared_ptr<const TensorSource>& source,
                                 const std::string& begin, const std::string& end,
                                 const std::set<std::string>& not_these) {
  auto part = std::make_unique<Renamed>(source);
  for (const SourceArray& array : source->arrays()) {
    if (!array.name.starts_with(begin) || !array.name.ends_with(end) ||
        array.name.size() < begin.size() + end.size() || not_these.contains(array.name))
      continue;
    part->add(array.name.substr(begin.size(), array.name.size() - begin.size() - end.size()),
              array);
  }
  return part;
}

void Joined::add(std::shared_ptr<TensorSource> source, const std::string& prefix) {
  auto renamed = std::make_unique<Renamed>(source);
  for (const SourceArray& array : source->arrays()) renamed->add(prefix + array.name, array);
  for (const SourceArray& array : renamed->arrays()) {
    by_name_[array.name] = {sources_.size(), arrays_.size()};
    arrays_.push_back(array);
  }
  sources_.push_back(std::move(renamed));
}

const SourceArray* Joined::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &arrays_[found->second.second];
}

Status Joined::read(const SourceArray& array, const Box& region, DType dtype,
                    std::byte* out) const {
  return sources_[by_name_.find(array.name)->second.first]->read(array, region, dtype, out);
}

// ---- boxes

void Sliced::add(std::string name, std::vector<int64_t> shape, SourceArray split, Box box) {
  by_name_[name] = arrays_.size();
  arrays_.push_back({std::move(name), split.dtype, std::move(shape)});
  slices_.push_back({std::move(split), std::move(box)});
}

const SourceArray* Sliced::find(std::string_view name) const {
  return find_in(arrays_, by_name_, name);
}

Status Sliced::read(const SourceArray& array, const Box& region, DType dtype,
                    std::byte* out) const {
  const auto& [split, whole] = slices_[by_name_.find(array.name)->second];
  for (const ByteRange& range : byte_ranges(array.shape, 1, region)) {
    for (Box box : boxes_of_range(whole.shape(), range.begin, range.bytes)) {
      for (size_t d = 0; d < box.rank(); ++d) box.dims[d].begin += whole.dims[d].begin;
      TESSERA_TRY_VOID(from_->read(split, box, dtype, out));
      out += box.volume() * dtype_bytes(dtype);
    }
  }
  return {};
}

// ---- tiles

bool Untiled::add(const SourceArray& stored, std::vector<int64_t> shape) {
  if (stored.shape.size() != shape.size() + 1) return false;
  std::vector<int64_t> tile;
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (stored.shape[d] <= 0 || shape[d] % stored.shape[d] != 0) return false;
    tile.push_back(shape[d] / stored.shape[d]);
    elements *= tile.back();
  }
  if (elements != stored.shape.back()) return false;
  SourceArray split = stored;
  split.shape.pop_back();
  split.shape.insert(split.shape.end(), tile.begin(), tile.end());
  by_name_[stored.name] = arrays_.size();
  arrays_.push_back({stored.name, stored.dtype, std::move(shape)});
  stored_.push_back(std::move(split));
  tiles_.push_back(std::move(tile));
  return true;
}

const SourceArray* Untiled::find(std::string_view name) const {
  return find_in(arrays_, by_name_, name);
}

Status Untiled::read(const SourceArray& array, const Box& region, DType dtype,
                     std::byte* out) const {
  const size_t number = by_name_.find(array.name)->second;
  const std::vector<int64_t>& shape = arrays_[number].shape;
  if (array.shape == shape) return read_region(number, region, dtype, out);
  for (const ByteRange& range : byte_ranges(array.shape, 1, region)) {
    for (const Box& box : boxes_of_range(shape, range.begin, range.bytes)) {
      TESSERA_TRY_VOID(read_region(number, box, dtype, out));
      out += box.volume() * dtype_bytes(dtype);
    }
  }
  return {};
}

// Reads the parts of the tiles that the region meets, one after the other.
Status Untiled::read_region(size_t array, const Box& region, DType dtype, std::byte* out) const {
  if (region.empty()) return {};
  const std::vector<int64_t>& tile = tiles_[array];
  const size_t rank = tile.size();
  Box grid = region;  // of the tiles that it meets
  for (size_t d = 0; d < rank; ++d) {
    const Interval& dim = region.dims[d];
    grid.dims[d].begin = dim.begin / tile[d];
    grid.dims[d].size = (dim.end() - 1) / tile[d] + 1 - grid.dims[d].begin;
  }
  const int64_t bytes = dtype_bytes(dtype);
  const std::vector<int64_t> strides = row_major_strides(region.shape());
  std::vector<std::byte> part;
  return for_each_tile(grid, in_order(rank), 1, [&](const Box& at) -> Status {
    Box box = Box::whole(stored_[array].shape);
    std::vector<int64_t> shape;
    int64_t target = 0;
    for (size_t d = 0; d < rank; ++d) {
      const Interval whole{at.dims[d].begin * tile[d], tile[d]};
      const Interval common = intersect(whole, region.dims[d]);
      box.dims[d] = at.dims[d];
      box.dims[rank + d] = {common.begin - whole.begin, common.size};
      shape.push_back(common.size);
      target += (common.begin - region.dims[d].begin) * strides[d];
    }
    part.resize(static_cast<size_t>(box.volume() * bytes));
    TESSERA_TRY_VOID(from_->read(stored_[array], box, dtype, part.data()));
    copy_strided(shape, bytes, part.data(), row_major_strides(shape), out + target * bytes,
                 strides);
    return {};
  });
}

}  // namespace tessera
