#include "tessera/import/huggingface/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/import/new_folder.h"
#include "tessera/import/tiles.h"
#include "tessera/models/huggingface.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
// Files beside the weights that mean nothing to us and something to whoever uses the model: the
// tokenizer, how text is made, how images are prepared. They are copied as they are, in and out.
constexpr std::array<const char*, 14> kCarried{
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
};

std::string beside(const std::string& folder, const char* name) {
  return (fs::path(folder) / name).string();
}

// Copies what there is of kCarried, and returns the names.
Result<std::vector<std::string>> carry(const std::string& from, const NewFolder& to) {
  std::vector<std::string> carried;
  for (const char* name : kCarried) {
    std::error_code error;
    const std::string file = beside(from, name);
    if (!fs::is_regular_file(file, error)) continue;
    fs::copy_file(file, to.file(name), error);
    if (error) return fault(fmt::format("{}: cannot copy: {}", file, error.message()));
    carried.emplace_back(name);
  }
  return carried;
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// All arrays of a source, under its names and in its dtypes.
Status write_source(const TensorSource& source, SafetensorsWriter& writer) {
  for (size_t i = 0; i < source.arrays().size(); ++i)
    TESSERA_TRY_VOID(copy_array(source, source.arrays()[i], i, writer));
  return writer.finish();
}

// ---- export

// Reads a region of ours in the order of theirs, by pieces in the order of ours.
Status read_reordered(const TensorSource& source, const SourceArray& array, const TensorView& view,
                      const Box& region, std::byte* out) {
  if (view.same_order()) return source.read(array, region, array.dtype, out);
  const std::vector<int64_t> their_strides = row_major_strides(view.box(region).shape());
  std::vector<int64_t> out_strides(array.shape.size(), 0);
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (view.dims[d] != TensorView::kPart)
      out_strides[static_cast<size_t>(view.dims[d])] = their_strides[d];
  }
  const int64_t bytes = dtype_bytes(array.dtype);
  std::vector<std::byte> piece;
  return for_each_tile(region, in_order(region.rank()), kReadBytes / bytes,
                       [&](const Box& part) -> Status {
                         piece.resize(static_cast<size_t>(part.volume() * bytes));
                         TESSERA_TRY_VOID(source.read(array, part, array.dtype, piece.data()));
                         int64_t at = 0;
                         for (size_t d = 0; d < out_strides.size(); ++d)
                           at += (part.dims[d].begin - region.dims[d].begin) * out_strides[d];
                         const std::vector<int64_t> shape = part.shape();
                         copy_strided(shape, bytes, piece.data(), row_major_strides(shape),
                                      out + at * bytes, out_strides);
                         return {};
                       });
}

// The array of ours as one of theirs, or as a part of it: at the bytes where it lies there.
Status write_part(const TensorSource& source, const SourceArray& array, const TensorView& view,
                  const Box& whole, size_t number, SafetensorsWriter& writer,
                  std::vector<std::byte>& buffer) {
  std::vector<int> order;  // of ours, as theirs lie
  for (const int dim : view.dims) {
    if (dim != TensorView::kPart) order.push_back(dim);
  }
  const int64_t bytes = dtype_bytes(array.dtype);
  return for_each_tile(whole, order, kTileBytes / bytes, [&](const Box& tile) -> Status {
    buffer.resize(static_cast<size_t>(tile.volume() * bytes));
    TESSERA_TRY_VOID(read_reordered(source, array, view, tile, buffer.data()));
    const std::byte* data = buffer.data();
    for (const ByteRange& range : byte_ranges(view.split_shape, bytes, view.box(tile))) {
      TESSERA_TRY_VOID(writer.write(number, range.begin, range.bytes, data));
      data += range.bytes;
    }
    return {};
  });
}

// Their arrays, in the order of our parameters; `numbers`: which is which.
Result<std::vector<ArrayEntry>> targets_of(const std::vector<TensorView>& views,
                                           const TensorSource& source,
                                           std::map<std::string, size_t>& numbers) {
  std::vector<ArrayEntry> entries;
  for (const TensorView& view : views) {
    const SourceArray* array = source.find(view.name);
    const auto error = [&](const std::string& found) {
      return invalid_input(fmt::format("{}: '{}': expected [{}], found {}", source.where(),
                                       view.name, fmt::join(view.shape, ", "), found));
    };
    if (array == nullptr) return error("none");
    if (array->shape != view.shape)
      return error(fmt::format("[{}]", fmt::join(array->shape, ", ")));
    for (const std::string& name : view.arrays) {
      const auto [at, added] = numbers.emplace(name, entries.size());
      if (added) {
        entries.push_back({name, array->dtype, view.array_shape});
      } else if (entries[at->second].dtype != array->dtype) {
        return error(fmt::format("{} in a part of {}, which is {}", dtype_name(array->dtype), name,
                                 dtype_name(entries[at->second].dtype)));
      }
    }
  }
  return entries;
}

// A config.json as it is, but for the dtype; anything else as the keys say.
Result<std::string> config_text(const Model& model, const std::string& spec, DType dtype) {
  if (config_file_of(spec) != spec) return huggingface_config(model.spec, dtype);
  TESSERA_TRY(std::string text, read_file(spec));
  auto parsed = parse_ordered_json(text);
  if (!parsed || !parsed->is_object())
    return invalid_input(fmt::format("{}: expected a JSON object", spec));
  auto& json = *parsed;
  bool changed = false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!json.contains(key) || json[key] == dtype_name(dtype)) continue;
    json[key] = dtype_name(dtype);
    changed = true;
  }
  return changed ? json.dump(2) + "\n" : text;
}

}  // namespace

bool is_huggingface_folder(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(beside(path, kConfig), error);
}

Result<ImportReport> import_huggingface(const ImportRequest& request) {
  const std::string config = beside(request.path, kConfig);
  TESSERA_TRY(const std::string text, read_file(config));
  TESSERA_TRY(const Model model, build_model(config, 1));
  TESSERA_TRY(const auto source, open_huggingface(request.path, model));
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.out));
  TESSERA_TRY_VOID(write_file(folder.file(kConfig), text));
  std::vector<ArrayEntry> arrays;
  ImportReport report;
  for (const SourceArray& array : source->arrays()) {
    arrays.push_back({array.name, array.dtype, array.shape});
    report.parameters += product(array.shape);
  }
  TESSERA_TRY(report.carried, carry(request.path, folder));
  TESSERA_TRY(SafetensorsWriter writer,
              SafetensorsWriter::create(folder.file(kWeights), std::move(arrays)));
  TESSERA_TRY_VOID(write_source(*source, writer));
  TESSERA_TRY_VOID(folder.commit());
  report.model = beside(request.out, kConfig);
  report.weights = beside(request.out, kWeights);
  report.arrays = static_cast<int64_t>(source->arrays().size());
  report.bytes = writer.bytes();
  return report;
}

Result<ExportedWeights> export_huggingface(const WeightsRequest& request) {
  TESSERA_TRY(const Model model, build_model(request.model, 1));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(model));
  TESSERA_TRY(const auto source, open_source(request.weights));
  std::map<std::string, size_t> numbers;
  TESSERA_TRY(std::vector<ArrayEntry> entries, targets_of(views, *source, numbers));
  TESSERA_TRY(const std::string config, config_text(model, request.model, entries.front().dtype));
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.out));
  TESSERA_TRY_VOID(write_file(folder.file(kConfig), config));
  ExportedWeights report;
  if (const fs::path file = config_file_of(request.model); !file.empty()) {
    TESSERA_TRY(report.carried, carry(file.parent_path().string(), folder));
  }
  TESSERA_TRY(
      SafetensorsWriter writer,
      SafetensorsWriter::create(folder.file(kWeights), std::move(entries), {{"format", "pt"}}));
  std::vector<std::byte> buffer;
  buffer.reserve(kTileBytes);
  for (const TensorView& view : views) {
    const SourceArray& array = *source->find(view.name);
    report.parameters += product(array.shape);
    Box whole = Box::whole(array.shape);
    for (size_t i = 0; i < view.arrays.size(); ++i) {
      if (view.stacked) whole.dims[0] = {static_cast<int64_t>(i), 1};
      TESSERA_TRY_VOID(
          write_part(*source, array, view, whole, numbers[view.arrays[i]], writer, buffer));
    }
  }
  TESSERA_TRY_VOID(writer.finish());
  TESSERA_TRY_VOID(folder.commit());
  report.arrays = static_cast<int64_t>(writer.arrays().size());
  report.bytes = writer.bytes();
  return report;
}

}  // namespace tessera
