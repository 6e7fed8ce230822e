#include "tessera/import/huggingface/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/huggingface/packed.h"
#include "tessera/import/tiles.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Returns the array of this name or of another spelling of the name, or null if the files have
// none.
const SourceArray* find_spelt(const TensorSource& files, const std::string& name,
                              const HuggingFaceFiles& rules) {
  if (const SourceArray* array = files.find(name)) return array;
  for (const auto& [ours, theirs] : rules.spellings) {
    const size_t at = name.find(ours);
    if (at == std::string::npos) continue;
    std::string other = name;
    if (const SourceArray* array = files.find(other.replace(at, ours.size(), theirs))) return array;
  }
  return nullptr;
}

// Returns the array of this name. If the files lack it, returns a copy of it that is not itself an
// array of the model, or null.
const SourceArray* find_original(const TensorSource& files, const std::string& name,
                                 const HuggingFaceFiles& rules,
                                 const std::set<std::string>& of_the_model) {
  if (const SourceArray* array = find_spelt(files, name, rules)) return array;
  for (const HuggingFaceFiles::Copy& copy : rules.copies) {
    if (copy.original != name || of_the_model.contains(copy.name)) continue;
    if (const SourceArray* array = find_spelt(files, copy.name, rules)) return array;
  }
  return nullptr;
}

// Returns whether two arrays of the same shape hold the same numbers.
Result<bool> same_values(const TensorSource& files, const SourceArray& one,
                         const SourceArray& other) {
  std::vector<std::byte> a, b;
  const int64_t bytes = dtype_bytes(one.dtype);
  bool same = true;
  const auto compare = [&](const Box& piece) -> Status {
    if (!same) return {};
    a.resize(static_cast<size_t>(piece.volume() * bytes));
    b.resize(a.size());
    TESSERA_TRY_VOID(files.read(one, piece, one.dtype, a.data()));
    TESSERA_TRY_VOID(files.read(other, piece, one.dtype, b.data()));
    same = a == b;
    return {};
  };
  TESSERA_TRY_VOID(for_each_tile(Box::whole(one.shape), in_order(one.shape.size()),
                                 kReadBytes / bytes, compare));
  return same;
}

class HuggingFaceSource : public TensorSource {
 public:
  HuggingFaceSource(std::string where, std::unique_ptr<TensorSource> files,
                    const HuggingFaceFiles& rules, const std::vector<TensorView>& views)
      : where_(std::move(where)), files_(std::move(files)), rules_(rules) {
    for (const TensorView& view : views)
      of_the_model_.insert(view.arrays.begin(), view.arrays.end());
  }

  Status add(TensorView view) {
    Entry entry;
    for (const std::string& name : view.arrays) {
      const SourceArray* array = find_original(*files_, name, rules_, of_the_model_);
      if (array == nullptr) {
        return error(name, fmt::format("expected {} ({}), found none", shape_text(view.array_shape),
                                       view.name));
      }
      if (array->shape != view.array_shape) {
        return error(name, fmt::format("expected {} ({}), found {}", shape_text(view.array_shape),
                                       view.name, shape_text(array->shape)));
      }
      if (!is_floating(array->dtype)) {
        return error(name,
                     fmt::format("expected a floating dtype, found {}", dtype_name(array->dtype)));
      }
      if (!entry.parts.empty() && entry.parts.front().dtype != array->dtype) {
        return error(name, fmt::format("expected {} as of {}, found {}",
                                       dtype_name(entry.parts.front().dtype),
                                       entry.parts.front().name, dtype_name(array->dtype)));
      }
      used_.insert(array->name);
      entry.parts.push_back({array->name, array->dtype, view.split_shape});
    }
    by_name_[view.name] = arrays_.size();
    arrays_.push_back({view.name, entry.parts.front().dtype, view.shape});
    entry.view = std::move(view);
    entries_.push_back(std::move(entry));
    return {};
  }

  // Checks that every array of the files is an array of the model, a copy of such an array, or one
  // that no model needs.
  Status check_rest() const {
    for (const SourceArray& array : files_->arrays()) {
      if (used_.contains(array.name)) continue;
      if (is_unused(array.name)) continue;
      const auto copy = std::find_if(rules_.copies.begin(), rules_.copies.end(),
                                     [&](const auto& one) { return is_copy(array, one); });
      if (copy == rules_.copies.end()) {
        return error(array.name, fmt::format("expected only arrays of the model that config.json "
                                             "describes, found {} of shape {}",
                                             dtype_name(array.dtype), shape_text(array.shape)));
      }
      TESSERA_TRY_VOID(check_copy(array, *copy));
    }
    return {};
  }

  std::string where() const override { return where_; }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second];
  }
  int64_t bytes_read() const override { return files_->bytes_read(); }

  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    TESSERA_CHECK(Box::whole(array.shape).contains(region), "{}: {}", array.name,
                  region.to_string());
    if (region.empty()) return {};
    const auto& [view, parts] = entries_[by_name_.find(array.name)->second];
    if (!view.stacked) return read_part(view, parts.front(), region, dtype, out);
    Box slice = region;
    const int64_t bytes = region.volume() / region.dims[0].size * dtype_bytes(dtype);
    for (int64_t i = region.dims[0].begin; i < region.dims[0].end(); ++i, out += bytes) {
      slice.dims[0] = {i, 1};
      TESSERA_TRY_VOID(read_part(view, parts[static_cast<size_t>(i)], slice, dtype, out));
    }
    return {};
  }

 private:
  struct Entry {
    TensorView view;
    std::vector<SourceArray> parts;  // their arrays, with the view's split shape
  };

  // Returns whether no model needs an array of this name, or it belongs to a block for further tokens that
  // the model does not have.
  bool is_unused(const std::string& name) const {
    const auto is_that = [&](const std::string& part) {
      return part.ends_with('*') ? name.starts_with(part.substr(0, part.size() - 1))
                                 : name.ends_with(part);
    };
    if (std::any_of(rules_.unused.begin(), rules_.unused.end(), is_that)) return true;
    if (rules_.further.empty()) return false;
    // The block is what stands in front of one of the dots.
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const std::string sign = name.substr(0, dot + 1) + rules_.further;
      if (files_->find(sign) != nullptr && !of_the_model_.contains(sign)) return true;
    }
    return false;
  }

  bool is_copy(const SourceArray& array, const HuggingFaceFiles::Copy& copy) const {
    const size_t star = copy.name.find('*');
    if (star == std::string::npos) return find_spelt(*files_, copy.name, rules_) == &array;
    const std::string_view end = std::string_view(copy.name).substr(star + 1);
    return array.name.starts_with(copy.name.substr(0, star)) && array.name.ends_with(end);
  }

  tl::unexpected<Error> error(const std::string& array, const std::string& message) const {
    return invalid_input(
        fmt::format("{}: '{}': {}", where(), short_line(array), short_line(message)));
  }

  // Reads a box of split dims. Where their array also has rows of other tensors, reads the boxes of
  // the whole array that hold the same elements, so that a source need not know of parts.
  Status read_box(const TensorView& view, const SourceArray& part, const Box& box, DType dtype,
                  std::byte* out) const {
    if (view.period == 0) return files_->read(part, box, dtype, out);
    SourceArray whole = part;
    whole.shape = view.array_shape;
    for (const ByteRange& range : view.ranges(box, 1)) {
      for (const Box& each : boxes_of_range(whole.shape, range.begin, range.bytes)) {
        TESSERA_TRY_VOID(files_->read(whole, each, dtype, out));
        out += each.volume() * dtype_bytes(dtype);
      }
    }
    return {};
  }

  // Reads a region from one of their arrays, tile by tile in the order of its bytes.
  Status read_part(const TensorView& view, const SourceArray& part, const Box& region, DType dtype,
                   std::byte* out) const {
    Box box = view.box(region);
    // Parts that alternate element by element are read together, and ours is picked.
    const bool alternate = view.dims.back() == TensorView::kPart && view.split_shape.back() > 1;
    if (view.same_order() && !alternate) return read_box(view, part, box, dtype, out);
    if (alternate) box.dims.back() = {0, view.split_shape.back()};
    const std::vector<int64_t> strides = row_major_strides(region.shape());
    std::vector<int64_t> out_strides;
    std::vector<int> order;
    for (const int dim : view.dims) {
      order.push_back(static_cast<int>(order.size()));
      out_strides.push_back(dim == TensorView::kPart ? 0 : strides[static_cast<size_t>(dim)]);
    }
    const int64_t bytes = dtype_bytes(dtype);
    std::vector<std::byte> tile;
    return for_each_tile(box, order, kReadBytes / bytes, [&](const Box& piece) -> Status {
      tile.resize(static_cast<size_t>(piece.volume() * bytes));
      TESSERA_TRY_VOID(read_box(view, part, piece, dtype, tile.data()));
      int64_t at = 0;
      for (size_t d = 0; d < out_strides.size(); ++d)
        at += (piece.dims[d].begin - box.dims[d].begin) * out_strides[d];
      std::vector<int64_t> shape = piece.shape();
      const std::vector<int64_t> tile_strides = row_major_strides(shape);
      const std::byte* from = tile.data();
      if (alternate) {
        // A tile may have some of the parts only.
        const int64_t own = view.starts.back() - piece.dims.back().begin;
        if (own < 0 || own >= shape.back()) return {};
        from += own * bytes;
        shape.back() = 1;
      }
      copy_strided(shape, bytes, from, tile_strides, out + at * bytes, out_strides);
      return {};
    });
  }

  // Checks that an array that the model does not have, because the model uses `copy.original` in
  // its place, has the same values as the original. If not, the files belong to another model.
  Status check_copy(const SourceArray& array, const HuggingFaceFiles::Copy& copy) const {
    const SourceArray* other = find_original(*files_, copy.original, rules_, of_the_model_);
    if (other == nullptr || other->shape != array.shape) {
      return error(array.name, fmt::format("expected the shape of {}, found {}", copy.original,
                                           shape_text(array.shape)));
    }
    TESSERA_TRY(const bool same, same_values(*files_, array, *other));
    if (same) return {};
    return error(array.name, fmt::format("expected the values of {}, which config.json ties to it "
                                         "(tie_word_embeddings), found others",
                                         copy.original));
  }

  std::string where_;
  std::unique_ptr<TensorSource> files_;
  const HuggingFaceFiles& rules_;
  std::set<std::string> of_the_model_;  // names of those of their arrays that the model has
  std::vector<SourceArray> arrays_;
  std::vector<Entry> entries_;  // in the order of arrays_
  std::map<std::string, size_t, std::less<>> by_name_;
  std::set<std::string> used_;  // names of the files' arrays that the model reads
};

}  // namespace

std::string huggingface_weights(const std::string& path) {
  std::error_code error;
  const fs::path single = fs::path(path) / "model.safetensors";
  return fs::is_regular_file(single, error) ? single.string() : path;
}

Result<ModelArguments> keys_of_arrays(const std::string& path, const Model& model) {
  ModelArguments keys;
  const HuggingFaceFiles* rules = huggingface_files(model);
  TESSERA_TRY(const Call spec, parse_call(model.spec));
  if (rules == nullptr) return keys;
  TESSERA_TRY(const auto files, open_safetensors(huggingface_weights(path)));
  for (const HuggingFaceFiles::Copy& copy : rules->copies) {
    if (copy.key.empty()) continue;
    const SourceArray *array = find_spelt(*files, copy.name, *rules),
                      *original = find_spelt(*files, copy.original, *rules);
    bool one = array == nullptr || original == nullptr;
    if (!one && array->shape == original->shape) {
      TESSERA_TRY(one, same_values(*files, *array, *original));
    }
    const std::pair<std::string, std::string> key = {copy.key, one ? "1" : "0"};
    const bool said =
        std::find(spec.arguments.begin(), spec.arguments.end(), key) != spec.arguments.end();
    if (!said && (!one || copy.alone)) keys.push_back(key);
  }
  return keys;
}

Result<std::unique_ptr<TensorSource>> open_huggingface(const std::string& path,
                                                       const Model& model) {
  TESSERA_TRY(std::unique_ptr<TensorSource> files, open_safetensors(huggingface_weights(path)));
  TESSERA_TRY(UnpackedFiles unpacked_files, unpacked(std::move(files)));
  return open_huggingface(std::move(unpacked_files.files), path, model);
}

Result<std::unique_ptr<TensorSource>> open_huggingface(std::unique_ptr<TensorSource> arrays,
                                                       const std::string& where,
                                                       const Model& model) {
  TESSERA_TRY(std::vector<TensorView> views, huggingface_views(model));
  auto source = std::make_unique<HuggingFaceSource>(where, std::move(arrays),
                                                    *huggingface_files(model), views);
  for (TensorView& view : views) TESSERA_TRY_VOID(source->add(std::move(view)));
  TESSERA_TRY_VOID(source->check_rest());
  return source;
}

}  // namespace tessera
