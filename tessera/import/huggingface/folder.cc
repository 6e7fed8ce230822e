#include "tessera/import/huggingface/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/import/huggingface/tokenizer.h"
#include "tessera/import/new_folder.h"
#include "tessera/import/tiles.h"
#include "tessera/models/huggingface/huggingface.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
// Files other than the weights that users of a model need: the tokenizer, the settings of
// generation, the preparation of images. Import and export copy these files unchanged.
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

// Copies the files of kCarried that exist, and returns their names.
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

// Writes all arrays of a source, under its names and in its dtypes.
Status write_source(const TensorSource& source, SafetensorsWriter& writer) {
  for (size_t i = 0; i < source.arrays().size(); ++i)
    TESSERA_TRY_VOID(copy_array(source, source.arrays()[i], i, writer));
  return writer.finish();
}

// ---- export

// Reads a region of our array and writes its elements to `out` in the order of their array. Reads
// piece by piece in the order of our array.
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

// Returns whether the elements of the parts of their array alternate.
bool alternates(const TensorView& view) {
  return view.dims.back() == TensorView::kPart && view.split_shape.back() > 1;
}

// Writes our arrays into array number `number` of the output, which is their array. It is one of
// ours, which may be only a part of theirs, or all those whose elements alternate in it, in order.
Status write_parts(const TensorSource& source, const std::vector<const TensorView*>& views,
                   const Box& whole, size_t number, ArrayWriter& writer,
                   std::vector<std::byte>& buffer) {
  const TensorView& first = *views.front();
  std::vector<int> order;  // our dims, in the order of their array
  for (const int dim : first.dims) {
    if (dim != TensorView::kPart) order.push_back(dim);
  }
  const int64_t bytes = dtype_bytes(source.find(first.name)->dtype);
  const auto count = std::ssize(views);
  std::vector<std::byte> part;
  return for_each_tile(whole, order, kTileBytes / bytes / count, [&](const Box& tile) -> Status {
    const int64_t elements = tile.volume();
    buffer.resize(static_cast<size_t>(elements * count * bytes));
    if (count > 1) part.resize(static_cast<size_t>(elements * bytes));
    for (int64_t i = 0; i < count; ++i) {
      const TensorView& view = *views[static_cast<size_t>(i)];
      const SourceArray& array = *source.find(view.name);
      std::byte* into = count > 1 ? part.data() : buffer.data();
      TESSERA_TRY_VOID(read_reordered(source, array, view, tile, into));
      if (count > 1) copy_strided({elements}, bytes, into, {1}, buffer.data() + i * bytes, {count});
    }
    Box box = first.box(tile);
    if (count > 1) box.dims.back() = {0, count};
    const std::byte* data = buffer.data();
    for (const ByteRange& range : first.ranges(box, bytes)) {
      TESSERA_TRY_VOID(writer.write(number, range.begin, range.bytes, data));
      data += range.bytes;
    }
    return {};
  });
}

// Returns the text of a config.json. If `spec` names a config.json without keys, keeps its text, except
// that it sets the dtype and writes keys in both spellings where versions of transformers differ.
// Else makes the text from the keys of the model spec.
Result<std::string> config_text(const Model& model, const std::string& spec, DType dtype) {
  TESSERA_TRY(const ModelName named, resolve_model(spec));
  if (named.kind != ModelName::Kind::kConfig || !named.changes.empty())
    return huggingface_config(model.spec, dtype, model.huggingface_type);
  TESSERA_TRY(const std::string text, read_file(named.path));
  return spell_huggingface_config(text, named.path, model.spec, dtype);
}

}  // namespace

bool is_huggingface_folder(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(beside(path, kConfig), error);
}

namespace {

// Returns the keys of the family whose values come from other files than config.json: keys that the
// arrays contradict, and numbers of tokens from the tokenizer. Adds a note for each key that the
// arrays contradict.
Result<ModelArguments> keys_of_files(const std::string& folder, const Model& model,
                                     std::vector<std::string>& notes) {
  TESSERA_TRY(ModelArguments keys, keys_of_arrays(folder, model));
  for (const auto& [key, value] : keys) {
    notes.push_back(
        fmt::format("the arrays of the files say {}={}, which config.json does not, and count, as "
                    "in transformers",
                    key, value));
  }
  const HuggingFaceFiles* files = huggingface_files(model);
  if (files == nullptr) return keys;
  for (const HuggingFaceFiles::Token& token : files->tokens) {
    TESSERA_TRY(const auto number, number_of_token(folder, token.role, token.text));
    if (number) keys.emplace_back(token.key, std::to_string(*number));
  }
  return keys;
}

// Adds a note that names the weights that are not read, if the folder has model.safetensors and
// other files of weights.
void note_of_files(const std::string& folder, std::vector<std::string>& notes) {
  if (huggingface_weights(folder) == folder) return;
  std::vector<std::string> others;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name != kWeights && name.ends_with(".safetensors")) others.push_back(name);
  }
  std::sort(others.begin(), others.end());
  if (others.empty()) return;
  const std::string shown =
      others.size() > 3 ? fmt::format("{}, {} and {} more", others[0], others[1], others.size() - 2)
                        : join(others, ", ");
  notes.push_back(short_line(
      fmt::format("{} is read alone, as transformers does, and not {}", kWeights, shown), 200));
}

// Returns the text of a config.json without its quantization_config, which does not hold for arrays that
// are unpacked.
std::string unpacked_config(const std::string& text, std::vector<std::string>& notes) {
  auto parsed = parse_ordered_json(text);
  if (!parsed || parsed->erase("quantization_config") == 0) return text;
  notes.emplace_back("packed arrays are unpacked, so quantization_config is left out");
  return parsed->dump(2) + "\n";
}

}  // namespace

Result<ImportReport> import_huggingface(const ImportRequest& request) {
  const std::string config = beside(request.path, kConfig);
  TESSERA_TRY(std::string text, read_file(config));
  TESSERA_TRY(const HuggingFaceModel written, parse_huggingface_config(text, config));
  TESSERA_TRY_VOID(check_exact(written, config));
  TESSERA_TRY(text, language_model_config(text, config));
  std::string changed;
  for (const auto& [key, value] : request.settings)
    changed += fmt::format("{}{}={}", changed.empty() ? ":" : ",", key, value);
  TESSERA_TRY(Model model, build_model(config + changed, 1));
  ImportReport report;
  report.notes = remarks_of(written, {request.settings.begin(), request.settings.end()});
  note_of_files(request.path, report.notes);
  TESSERA_TRY(const ModelArguments keys, keys_of_files(request.path, model, report.notes));
  if (!keys.empty()) {
    for (const auto& [key, value] : keys)
      changed += fmt::format("{}{}={}", changed.empty() ? ":" : ",", key, value);
    TESSERA_TRY(text, change_huggingface_config(text, config, keys));
    TESSERA_TRY(model, build_model(config + changed, 1));
  }
  TESSERA_TRY(const auto source, open_huggingface(request.path, model));
  text = unpacked_config(text, report.notes);
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.out));
  TESSERA_TRY_VOID(write_file(folder.file(kConfig), text));
  std::vector<ArrayEntry> arrays;
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

namespace {

std::string value_of(const ModelArguments& keys, const std::string& key) {
  std::string found;
  for (const auto& [name, value] : keys) {
    if (name == key) found = value;
  }
  return found;
}

// Adds a view that writes a tied array a second time if the written configuration says that it is
// not tied, because only then do all versions of transformers read the same model. In the opposite
// case only transformers 5 reads the same model, and a note says so.
Status add_copies(const Model& model, const std::string& config, std::vector<TensorView>& views,
                  std::vector<std::string>& notes) {
  TESSERA_TRY(const Call spec, parse_call(model.spec));
  TESSERA_TRY(const HuggingFaceModel written, parse_huggingface_config(config, kConfig));
  for (const HuggingFaceFiles::Copy& copy : huggingface_files(model)->copies) {
    const std::string ours = value_of(spec.arguments, copy.key),
                      theirs = value_of(written.arguments, copy.key);
    if (copy.key.empty() || ours == theirs) continue;
    const auto original = std::find_if(views.begin(), views.end(), [&](const TensorView& view) {
      return view.arrays == std::vector<std::string>{copy.original};
    });
    if (ours == "0" || original == views.end()) {
      notes.push_back(fmt::format("{} is read by transformers 5 only: 4 takes {} in its place",
                                  copy.name, copy.original));
      continue;
    }
    views.push_back(*original);
    views.back().arrays = {copy.name};
  }
  return {};
}

}  // namespace

Result<std::vector<TensorView>> tied_views(const Model& model) {
  TESSERA_TRY(const Call spec, parse_call(model.spec));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(model));
  std::vector<TensorView> tied;
  for (const HuggingFaceFiles::Copy& copy : huggingface_files(model)->copies) {
    if (copy.key.empty() || value_of(spec.arguments, copy.key) != "1") continue;
    for (const TensorView& view : views) {
      if (view.arrays != std::vector<std::string>{copy.original}) continue;
      tied.push_back(view);
      tied.back().arrays = {copy.name};
    }
  }
  return tied;
}

Status check_no_others(const TensorSource& source, const Model& model) {
  std::set<std::string_view> names;
  for (const Tensor& tensor : model.graph.tensors()) names.insert(tensor.name);
  for (const SourceArray& array : source.arrays()) {
    if (array.name.starts_with("optimizer.") || names.contains(array.name)) continue;
    return invalid_input(fmt::format(
        "{}: '{}': expected only arrays of the model, found {} of shape [{}]", source.where(),
        array.name, dtype_name(array.dtype), fmt::join(array.shape, ", ")));
  }
  return {};
}

Result<HuggingFaceArrays> huggingface_arrays(std::vector<TensorView> views,
                                             const TensorSource& source) {
  HuggingFaceArrays out{std::move(views), {}, {}};
  for (const TensorView& view : out.views) {
    const SourceArray* array = source.find(view.name);
    const auto error = [&](const std::string& found) {
      return invalid_input(fmt::format("{}: '{}': expected [{}], found {}", source.where(),
                                       view.name, fmt::join(view.shape, ", "), found));
    };
    if (array == nullptr) return error("none");
    if (array->shape != view.shape)
      return error(fmt::format("[{}]", fmt::join(array->shape, ", ")));
    for (const std::string& name : view.arrays) {
      const auto [at, added] = out.numbers.emplace(name, out.entries.size());
      if (added) {
        out.entries.push_back({name, array->dtype, view.array_shape});
      } else if (out.entries[at->second].dtype != array->dtype) {
        return error(fmt::format("{} in a part of {}, which is {}", dtype_name(array->dtype), name,
                                 dtype_name(out.entries[at->second].dtype)));
      }
    }
  }
  return out;
}

Status write_arrays(const HuggingFaceArrays& arrays, const TensorSource& source, size_t first,
                    ArrayWriter& writer) {
  std::vector<std::byte> buffer;
  buffer.reserve(kTileBytes);
  std::map<std::string, std::vector<const TensorView*>> alternating;  // by their first array
  for (const TensorView& view : arrays.views) {
    std::vector<const TensorView*> views{&view};
    if (alternates(view)) {
      std::vector<const TensorView*>& parts = alternating[view.arrays.front()];
      parts.push_back(&view);
      if (std::ssize(parts) < view.split_shape.back()) continue;
      std::sort(parts.begin(), parts.end(), [](const TensorView* a, const TensorView* b) {
        return a->starts.back() < b->starts.back();
      });
      views = parts;
    }
    Box whole = Box::whole(view.shape);
    for (size_t i = 0; i < view.arrays.size(); ++i) {
      if (view.stacked) whole.dims[0] = {static_cast<int64_t>(i), 1};
      TESSERA_TRY_VOID(write_parts(source, views, whole, first + arrays.numbers.at(view.arrays[i]),
                                   writer, buffer));
    }
  }
  return {};
}

namespace {

// Checks that weights of the config.json that a model's text names can be written. Passes texts that
// name none.
Status check_file(const std::string& spec) {
  const std::string file(config_file_of(spec));
  if (file.empty()) return {};
  TESSERA_TRY(const std::string text, read_file(file));
  TESSERA_TRY(const HuggingFaceModel given, parse_huggingface_config(text, file));
  return check_exact(given, file);
}

}  // namespace

Result<ExportedWeights> export_huggingface(const WeightsRequest& request) {
  TESSERA_TRY_VOID(check_file(request.model));
  TESSERA_TRY(const auto source, open_source(request.weights));
  return export_huggingface(*source, nullptr, request.model, request.out);
}

Result<ExportedWeights> export_huggingface(const TensorSource& source, const TensorSource* theirs,
                                           const std::string& spec, const std::string& out) {
  TESSERA_TRY(Model model, build_model(spec, 1));
  TESSERA_TRY_VOID(check_file(spec));
  // The arrays have the names of the type that is written, which may be another one than was read.
  TESSERA_TRY(const std::string written, config_text(model, spec, DType::kFloat32));
  TESSERA_TRY(const HuggingFaceModel type, parse_huggingface_config(written, kConfig));
  model.huggingface_type = type.type;
  TESSERA_TRY(std::vector<TensorView> views, huggingface_views(model));
  ExportedWeights report;
  for (const TensorView& view : views) report.parameters += product(view.shape);
  TESSERA_TRY(HuggingFaceArrays arrays, huggingface_arrays(views, source));
  TESSERA_TRY_VOID(check_no_others(source, model));
  const SourceArray* narrow =
      theirs == nullptr ? nullptr : theirs->find(arrays.entries.front().name);
  const DType dtype = narrow == nullptr ? arrays.entries.front().dtype : narrow->dtype;
  TESSERA_TRY(const std::string config, config_text(model, spec, dtype));
  TESSERA_TRY_VOID(add_copies(model, config, views, report.notes));
  TESSERA_TRY(arrays, huggingface_arrays(std::move(views), source));
  const bool as_they_are =
      theirs != nullptr &&
      std::all_of(arrays.entries.begin(), arrays.entries.end(),
                  [&](const ArrayEntry& one) { return theirs->find(one.name) != nullptr; });
  for (ArrayEntry& entry : arrays.entries) {
    if (as_they_are) entry.dtype = theirs->find(entry.name)->dtype;
  }
  TESSERA_TRY(NewFolder folder, NewFolder::create(out));
  TESSERA_TRY_VOID(write_file(folder.file(kConfig), config));
  if (const fs::path file = config_file_of(spec); !file.empty()) {
    TESSERA_TRY(report.carried, carry(file.parent_path().string(), folder));
  }
  TESSERA_TRY(SafetensorsWriter writer,
              SafetensorsWriter::create(folder.file(kWeights), arrays.entries, {{"format", "pt"}}));
  if (as_they_are) {
    for (size_t i = 0; i < arrays.entries.size(); ++i)
      TESSERA_TRY_VOID(copy_array(*theirs, *theirs->find(arrays.entries[i].name), i, writer));
  } else {
    TESSERA_TRY_VOID(write_arrays(arrays, source, 0, writer));
  }
  TESSERA_TRY_VOID(writer.finish());
  TESSERA_TRY_VOID(folder.commit());
  report.arrays = static_cast<int64_t>(writer.arrays().size());
  report.bytes = writer.bytes();
  return report;
}

}  // namespace tessera
