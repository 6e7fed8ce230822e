#include "tessera/import/dcp/metadata.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/import/dcp/pickle.h"
#include "tessera/state/checkpoint.h"

namespace tessera::dcp {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kPlannerModule = "torch.distributed.checkpoint.planner";
constexpr const char* kStorageModule = "torch.distributed.checkpoint.filesystem";

// Releases of Megatron Core up to 0.15 have classes of their own, derived from PyTorch's.
constexpr const char* kMegatronMetadata =
    "megatron.core.dist_checkpointing.strategies.torch MCoreMetadata";
constexpr const char* kMegatronPlan =
    "megatron.core.dist_checkpointing.strategies.torch MCoreSavePlan";

std::string in_module(const char* name) { return fmt::format("{} {}", kModule, name); }

// PyTorch's dtypes, read or not.
constexpr std::array<const char*, 24> kDTypes{
    "float64", "float32",   "bfloat16",  "float16",         "int64",           "int32",
    "uint8",   "bool",      "int8",      "int16",           "uint16",          "uint32",
    "uint64",  "complex32", "complex64", "complex128",      "float8_e4m3fn",   "float8_e5m2",
    "qint8",   "quint8",    "qint32",    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"};

const std::set<std::string>& metadata_classes() {
  static const std::set<std::string> names = [] {
    std::set<std::string> out{
        in_module("Metadata"), in_module("TensorStorageMetadata"), in_module("TensorProperties"),
        in_module("_MEM_FORMAT_ENCODING"), in_module("ChunkStorageMetadata"),
        in_module("BytesStorageMetadata"), in_module("MetadataIndex"), in_module("StorageMeta"),
        fmt::format("{} _StorageInfo", kStorageModule), kMegatronMetadata, kMegatronPlan,
        // Megatron Core keeps the plans by which ranks saved.
        fmt::format("{} SavePlan", kPlannerModule), fmt::format("{} WriteItem", kPlannerModule),
        fmt::format("{} WriteItemType", kPlannerModule),
        fmt::format("{} TensorWriteData", kPlannerModule),
        fmt::format("{} BytesIOWriteData", kPlannerModule),
        fmt::format("{} _StoragePrefix", kStorageModule), "torch.serialization _get_layout",
        "torch Size", "collections OrderedDict", "pathlib PosixPath", "pathlib WindowsPath",
        "pathlib._local PosixPath", "pathlib._local WindowsPath"};
    for (const char* dtype : kDTypes) out.insert(fmt::format("torch {}", dtype));
    return out;
  }();
  return names;
}

class Reader {
 public:
  Reader(const Pickle& pickle, const std::string& where) : pickle_(pickle), where_(where) {}

  Result<Metadata> read() {
    const PickleValue& root = pickle_.root();
    if ((root.text != in_module("Metadata") && root.text != kMegatronMetadata) ||
        root.kind != Kind::kObject)
      return error("the class Metadata", "another value");
    const PickleValue* tensors = pickle_.attribute(root, "state_dict_metadata");
    const PickleValue* storage = pickle_.attribute(root, "storage_data");
    if (!is(tensors, Kind::kDict)) return error("a dict state_dict_metadata", "none");
    if (!is(storage, Kind::kDict)) return error("a dict storage_data", "none");
    TESSERA_TRY_VOID(read_places(*storage));
    for (size_t i = 0; i + 1 < tensors->items.size(); i += 2) {
      const PickleValue &name = pickle_.at(tensors->items[i]),
                        &what = pickle_.at(tensors->items[i + 1]);
      if (name.kind != Kind::kText) return error("names of tensors", "another key");
      if (what.text == in_module("BytesStorageMetadata")) {
        const auto place = places_.find(key(name.text, {}));
        if (place != places_.end()) out_.objects[name.text] = place->second;
      } else {
        TESSERA_TRY_VOID(read_tensor(name.text, what));
      }
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> error(const std::string& expected, const std::string& found) const {
    return invalid_input(fmt::format("{}: expected {}, found {}", where_, expected, found));
  }
  static bool is(const PickleValue* value, Kind kind) {
    return value != nullptr && value->kind == kind;
  }
  // Returns the key under which a chunk is found: its tensor and where it begins.
  static std::string key(std::string_view name, const std::vector<int64_t>& begin) {
    std::string out(name);
    for (const int64_t one : begin) out += fmt::format("\n{}", one);
    return out;
  }
  std::optional<std::vector<int64_t>> sizes(const PickleValue* value) const {
    if (value == nullptr) return std::nullopt;
    return pickle_.integers(*value);
  }

  size_t file_of(const std::string& name) {
    const auto [at, added] = files_.emplace(name, out_.manifest.files.size());
    if (added) out_.manifest.files.push_back({name});
    return at->second;
  }

  // Reads which chunk lies where.
  Status read_places(const PickleValue& storage) {
    for (size_t i = 0; i + 1 < storage.items.size(); i += 2) {
      const PickleValue &index = pickle_.at(storage.items[i]),
                        &info = pickle_.at(storage.items[i + 1]);
      const PickleValue* name = pickle_.attribute(index, "fqn");
      const PickleValue* path = pickle_.attribute(info, "relative_path");
      const PickleValue* offset = pickle_.attribute(info, "offset");
      const PickleValue* length = pickle_.attribute(info, "length");
      const PickleValue* transforms = pickle_.attribute(info, "transform_descriptors");
      if (!is(name, Kind::kText) || !is(path, Kind::kText) || !is(offset, Kind::kInt) ||
          !is(length, Kind::kInt) || offset->integer < 0 || length->integer < 0)
        return error("name, file, offset and length of each chunk in storage_data", "others");
      if (transforms != nullptr && transforms->kind != Kind::kNone && !transforms->items.empty())
        return error(fmt::format("'{}' as it is", short_line(name->text)), "it transformed");
      const PickleValue* begin = pickle_.attribute(index, "offset");
      const auto at = sizes(begin);
      const Stored place{file_of(path->text), offset->integer, length->integer};
      if (!places_.emplace(key(name->text, at.value_or(std::vector<int64_t>{})), place).second)
        return error(fmt::format("each chunk of '{}' once", short_line(name->text)), "it twice");
    }
    return {};
  }

  Status read_tensor(const std::string& name, const PickleValue& what) {
    const auto failed = [&](const std::string& expected) {
      return error(fmt::format("{} of '{}'", expected, short_line(name)), "none");
    };
    const PickleValue* properties = pickle_.attribute(what, "properties");
    const PickleValue* state =
        properties != nullptr && properties->state ? &pickle_.at(*properties->state) : nullptr;
    // Newer versions pickle the properties as a tuple, older ones as a dict.
    const PickleValue* dtype = !state                       ? nullptr
                               : state->kind == Kind::kDict ? pickle_.find(*state, "dtype")
                                                            : pickle_.item(*state, 0);
    if (!is(dtype, Kind::kClass) || !dtype->text.starts_with("torch ")) return failed("the dtype");
    const std::string dtype_name = dtype->text.substr(6);
    const auto shape = sizes(pickle_.attribute(what, "size"));
    const PickleValue* chunks = pickle_.attribute(what, "chunks");
    if (!shape || !is(chunks, Kind::kList)) return failed("size and chunks");
    const auto read = parse_dtype(dtype_name);
    if (!read) {
      out_.unread[name] = dtype_name;
      return {};
    }
    ManifestTensor tensor{.name = name, .role = "", .dtype = *read, .shape = *shape, .boxes = {}};
    std::vector<Stored> stored;
    for (const uint32_t chunk : chunks->items) {
      const auto begin = sizes(pickle_.attribute(pickle_.at(chunk), "offsets"));
      const auto size = sizes(pickle_.attribute(pickle_.at(chunk), "sizes"));
      if (!begin || !size || begin->size() != shape->size() || size->size() != shape->size())
        return failed("offsets and sizes of a chunk");
      Box box = Box::whole(*shape);
      bool empty = false;
      for (size_t d = 0; d < box.rank(); ++d) {
        box.dims[d] = {(*begin)[d], (*size)[d]};
        empty = empty || (*size)[d] == 0;
      }
      if (empty) continue;
      const auto place = places_.find(key(name, *begin));
      if (place == places_.end()) return failed("the place of a chunk");
      tensor.boxes.push_back({box, place->second.file, array_name(tensor, box)});
      stored.push_back(place->second);
    }
    out_.manifest.tensors.push_back(std::move(tensor));
    out_.stored.push_back(std::move(stored));
    return {};
  }

  const Pickle& pickle_;
  const std::string& where_;
  Metadata out_;
  std::unordered_map<std::string, Stored> places_;
  std::unordered_map<std::string, size_t> files_;
};

// Writes the attributes of an object: begin(class), then names and values, then end().
class ObjectWriter {
 public:
  ObjectWriter(PickleWriter& out, const char* module, const char* name) : out_(out) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.make();
    out_.empty_dict();
    out_.mark();
  }
  ~ObjectWriter() {
    out_.set_all();
    out_.build();
  }
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;
  PickleWriter& operator[](const char* name) {
    out_.text(name);
    return out_;
  }

 private:
  PickleWriter& out_;
};

std::vector<int64_t> begins(const Box& box) {
  std::vector<int64_t> out;
  for (const Interval& one : box.dims) out.push_back(one.begin);
  return out;
}

void write_properties(PickleWriter& out, DType dtype) {
  out.global(kModule, "TensorProperties");
  out.empty_tuple();
  out.make();
  out.mark();
  out.global("torch", dtype_name(dtype));
  out.global("torch.serialization", "_get_layout");
  out.mark();
  out.text("torch.strided");
  out.tuple();
  out.call();
  out.boolean(false);
  out.global(kModule, "_MEM_FORMAT_ENCODING");
  out.mark();
  out.integer(0);
  out.tuple();
  out.call();
  out.boolean(false);
  out.tuple();
  out.build();
}

void write_place(PickleWriter& out, const std::string& name, const Box* box, int64_t index,
                 const std::string& file, const Stored& stored) {
  {
    ObjectWriter key(out, kModule, "MetadataIndex");
    key["fqn"].text(name);
    if (box == nullptr) {
      key["offset"].none();
      key["index"].none();
    } else {
      key["offset"].size(begins(*box));
      key["index"].integer(index);
    }
  }
  ObjectWriter info(out, kStorageModule, "_StorageInfo");
  info["relative_path"].text(file);
  info["offset"].integer(stored.offset);
  info["length"].integer(stored.length);
  info["transform_descriptors"].none();
}

}  // namespace

Result<Metadata> parse_metadata(std::string_view bytes, const std::string& where) {
  TESSERA_TRY(const Pickle pickle, Pickle::parse(bytes, metadata_classes(), where));
  return Reader(pickle, where).read();
}

std::string metadata_text(const Metadata& metadata) {
  PickleWriter out;
  const Manifest& manifest = metadata.manifest;
  {
    ObjectWriter root(out, kModule, "Metadata");
    root["state_dict_metadata"].empty_dict();
    out.mark();
    for (const ManifestTensor& tensor : manifest.tensors) {
      out.text(tensor.name);
      ObjectWriter what(out, kModule, "TensorStorageMetadata");
      write_properties(what["properties"], tensor.dtype);
      what["size"].size(tensor.shape);
      what["chunks"].empty_list();
      out.mark();
      for (const ManifestBox& one : tensor.boxes) {
        ObjectWriter chunk(out, kModule, "ChunkStorageMetadata");
        chunk["offsets"].size(begins(one.box));
        chunk["sizes"].size(one.box.shape());
      }
      out.append_all();
    }
    for (const auto& [name, stored] : metadata.objects) {
      out.text(name);
      const ObjectWriter what(out, kModule, "BytesStorageMetadata");
    }
    out.set_all();
    root["planner_data"].empty_dict();
    out.mark();
    for (const auto& [name, path] : metadata.paths) {
      out.text(name);
      out.mark();
      for (const auto& part : path) {
        if (const auto* text = std::get_if<std::string>(&part)) {
          out.text(*text);
        } else {
          out.integer(std::get<int64_t>(part));
        }
      }
      out.tuple();
    }
    out.set_all();
    root["storage_data"].empty_dict();
    out.mark();
    for (size_t t = 0; t < manifest.tensors.size(); ++t) {
      const ManifestTensor& tensor = manifest.tensors[t];
      for (size_t b = 0; b < tensor.boxes.size(); ++b) {
        write_place(out, tensor.name, &tensor.boxes[b].box, static_cast<int64_t>(b),
                    manifest.files[tensor.boxes[b].file].name, metadata.stored[t][b]);
      }
    }
    for (const auto& [name, stored] : metadata.objects)
      write_place(out, name, nullptr, 0, manifest.files[stored.file].name, stored);
    out.set_all();
    root["storage_meta"].none();
    root["version"].text("1.0.0");
  }
  return out.finish();
}

}  // namespace tessera::dcp
