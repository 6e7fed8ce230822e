#include "tessera/import/convert/megatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/import/convert/sources.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/tiles.h"

namespace tessera {
namespace {

// Which part of Megatron's array, of one layer if it has all, is Hugging Face's.
enum class Part : uint8_t { kWhole, kRows, kQuery, kKey, kValue, kFirstHalf, kSecondHalf };

// A module of Hugging Face's model and one of Megatron's: what stands before "weight" and "bias".
struct Row {
  const char *theirs, *megatron;
  Part part = Part::kWhole;
  const char* otherwise = "";  // where norms are modules of their own
};
constexpr const char* kLayer = "model.layers.*.";
constexpr std::array<Row, 14> kRows{{
    {"model.embed_tokens.", "embedding.word_embeddings.", Part::kRows},
    {"lm_head.", "output_layer.", Part::kRows},
    {"model.norm.", "decoder.final_layernorm."},
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_", Part::kWhole, "input_layernorm."},
    {"post_attention_layernorm.", "mlp.linear_fc1.layer_norm_", Part::kWhole, "pre_mlp_layernorm."},
    {"self_attn.q_proj.", "self_attention.linear_qkv.", Part::kQuery},
    {"self_attn.k_proj.", "self_attention.linear_qkv.", Part::kKey},
    {"self_attn.v_proj.", "self_attention.linear_qkv.", Part::kValue},
    {"self_attn.o_proj.", "self_attention.linear_proj."},
    {"self_attn.q_norm.", "self_attention.q_layernorm."},
    {"self_attn.k_norm.", "self_attention.k_layernorm."},
    {"mlp.gate_proj.", "mlp.linear_fc1.", Part::kFirstHalf},
    {"mlp.up_proj.", "mlp.linear_fc1.", Part::kSecondHalf},
    {"mlp.down_proj.", "mlp.linear_fc2."},
}};

struct Heads {
  int64_t kv = 1, group = 1;
};

// Returns the shape, of one layer, into which Megatron's array is split, and the box that has the
// elements of an array of the shape `theirs`.
std::pair<std::vector<int64_t>, Box> split_of(Part part, const Heads& heads, int64_t rows,
                                              const std::vector<int64_t>& theirs) {
  std::vector<int64_t> shape = theirs;
  const auto box_of = [&](size_t dim, int64_t begin, int64_t size) {
    Box box = Box::whole(shape);
    box.dims[dim] = {begin, size};
    return std::pair(shape, box);
  };
  const int64_t parts = heads.group + 2;
  switch (part) {
    case Part::kRows: shape[0] = rows; return box_of(0, 0, theirs[0]);
    case Part::kFirstHalf:
    case Part::kSecondHalf:
      shape.insert(shape.begin(), 2);
      return box_of(0, part == Part::kFirstHalf ? 0 : 1, 1);
    case Part::kQuery:
      shape[0] /= heads.kv * heads.group;
      shape.insert(shape.begin(), {heads.kv, parts});
      return box_of(1, 0, heads.group);
    case Part::kKey:
    case Part::kValue:
      shape[0] /= heads.kv;
      shape.insert(shape.begin(), {heads.kv, parts});
      return box_of(1, heads.group + (part == Part::kKey ? 0 : 1), 1);
    case Part::kWhole: break;
  }
  return {shape, Box::whole(shape)};
}

// Returns the shape of Megatron's array: the split dims of a part are one dim.
std::vector<int64_t> joined(Part part, const std::vector<int64_t>& split) {
  const size_t dims = part == Part::kWhole || part == Part::kRows             ? 1
                      : part == Part::kFirstHalf || part == Part::kSecondHalf ? 2
                                                                              : 3;
  std::vector<int64_t> shape(split.begin() + static_cast<std::ptrdiff_t>(dims - 1), split.end());
  for (size_t d = 0; d + 1 < dims; ++d) shape[0] *= split[d];
  return shape;
}

int64_t number_of(const Call& spec, std::string_view key) {
  for (const auto& [name, value] : spec.arguments) {
    if (name == key) return parse_int(value).value_or(0);
  }
  return 0;
}

struct Found {
  const Row* row = nullptr;
  std::optional<int64_t> layer;
  std::string end;  // "weight" or "bias"
};
Found find_row(const std::string& name) {
  Found found;
  std::string rest = name;
  if (glob_match(std::string(kLayer) + "*", name)) {
    const size_t begin = std::string_view(kLayer).find('*'), end = name.find('.', begin);
    found.layer = parse_int(name.substr(begin, end - begin)).value_or(0);
    rest = name.substr(end + 1);
  }
  for (const Row& row : kRows) {
    if (!rest.starts_with(row.theirs)) continue;
    found.end = rest.substr(std::string_view(row.theirs).size());
    if (found.end == "weight" || found.end == "bias") found.row = &row;
  }
  return found;
}

}  // namespace

Result<MegatronTable> megatron_table(const Model& model, int64_t rows) {
  if (model.family != "llama") {
    return invalid_input(fmt::format(
        "expected a Llama as the model of a checkpoint of Megatron Core, found {}", model.family));
  }
  TESSERA_TRY(const Call spec, parse_call(model.spec));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(model));
  Heads heads;
  heads.kv = std::max<int64_t>(number_of(spec, "kv_heads"), 1);
  heads.group = std::max<int64_t>(number_of(spec, "heads") / heads.kv, 1);
  const int64_t layers = number_of(spec, "layers");
  MegatronTable table;
  std::map<std::string, size_t> numbers;
  std::vector<int64_t> filled;  // by array: the elements that its boxes have
  for (const TensorView& view : views) {
    const std::string& name = view.arrays.front();
    const auto [row, layer, end] = find_row(name);
    if (row == nullptr) {
      return invalid_input(fmt::format(
          "expected a model of Megatron Core's parameters, found '{}', which it does not have",
          name));
    }
    auto [split, box] = split_of(row->part, heads, rows, view.array_shape);
    MegatronArray array;
    array.layered = layer.has_value();
    array.padded = row->part == Part::kRows;
    const std::string before = layer ? kMegatronLayers : "";
    array.name = fmt::format("{}{}{}", before, row->megatron, end);
    if (*row->otherwise != '\0')
      array.otherwise = fmt::format("{}{}{}", before, row->otherwise, end);
    array.shape = joined(row->part, split);
    if (layer) {
      array.shape.insert(array.shape.begin(), layers);
      split.insert(split.begin(), layers);
      Box::Dims dims;
      dims.push_back({*layer, 1});
      for (const Interval& one : box.dims) dims.push_back(one);
      box = Box(std::move(dims));
    }
    if (!Box::whole(split).contains(box)) {
      return invalid_input(
          fmt::format("'{}': expected at most the {} rows of the padded vocabulary, found [{}]",
                      name, rows, fmt::join(view.array_shape, ", ")));
    }
    const auto [at, added] = numbers.emplace(array.name, table.arrays.size());
    if (added) {
      const int64_t padding = array.padded ? Box::whole(array.shape).volume() - box.volume() : 0;
      filled.push_back(padding);
      table.arrays.push_back(std::move(array));
    }
    filled[at->second] += box.volume();
    table.boxes.push_back({name, view.array_shape, at->second, std::move(split), std::move(box)});
  }
  for (size_t i = 0; i < filled.size(); ++i) {
    if (filled[i] == Box::whole(table.arrays[i].shape).volume()) continue;
    return invalid_input(fmt::format(
        "expected parameters for all of Megatron Core's '{}' [{}], found {} elements of it",
        table.arrays[i].name, fmt::join(table.arrays[i].shape, ", "), filled[i]));
  }
  return table;
}

std::optional<int64_t> megatron_rows(const TensorSource& theirs, const std::string& prefix) {
  for (const Row& row : kRows) {
    if (row.part != Part::kRows) continue;
    const SourceArray* array = theirs.find(fmt::format("{}{}weight", prefix, row.megatron));
    if (array != nullptr && array->shape.size() == 2) return array->shape[0];
  }
  return std::nullopt;
}

Result<std::unique_ptr<TensorSource>> megatron_as_huggingface(
    std::shared_ptr<const TensorSource> theirs, const MegatronTable& table) {
  const std::string where = theirs->where();
  const auto find = [&](const MegatronArray& array, const std::string& layer) {
    const SourceArray* found = nullptr;
    for (std::string name : {array.name, array.otherwise}) {
      if (found != nullptr || name.empty()) continue;
      if (!layer.empty()) name.insert(std::string_view(kMegatronLayers).size(), layer);
      found = theirs->find(name);
    }
    return found;
  };
  // Arrays by tiles, as whole ones under the same names.
  auto untiled = std::make_shared<Untiled>(theirs);
  const auto error = [&](const MegatronBox& box, const std::string& found) {
    const MegatronArray& array = table.arrays[box.array];
    return invalid_input(fmt::format("{}: '{}': expected [{}], of which {} is {}, found {}", where,
                                     array.name, fmt::join(array.shape, ", "), box.box.to_string(),
                                     box.name, found));
  };
  auto whole = std::make_unique<Sliced>(theirs);
  auto tiled = std::make_unique<Sliced>(untiled);
  for (const MegatronBox& box : table.boxes) {
    const MegatronArray& array = table.arrays[box.array];
    std::vector<int64_t> shape = array.shape, split = box.split;
    Box part = box.box;
    const SourceArray* found = find(array, "");
    if (found == nullptr && array.layered) {
      // An array for each layer.
      found = find(array, fmt::format("{}.", part.dims[0].begin));
      shape.erase(shape.begin());
      split.erase(split.begin());
      part = Box(Box::Dims(part.dims.begin() + 1, part.dims.end()));
    }
    if (found == nullptr) return error(box, "none");
    if (found->shape == shape) {
      whole->add(box.name, box.shape, {found->name, found->dtype, split}, std::move(part));
    } else if (untiled->find(found->name) != nullptr || untiled->add(*found, shape)) {
      tiled->add(box.name, box.shape, {found->name, found->dtype, split}, std::move(part));
    } else {
      return error(box, fmt::format("[{}]", fmt::join(found->shape, ", ")));
    }
  }
  auto both = std::make_unique<Joined>();
  both->add(std::move(whole), "");
  both->add(std::move(tiled), "");
  return both;
}

Status MegatronWriter::write(size_t array, int64_t offset, int64_t bytes, const std::byte* data) {
  const MegatronBox& to = table_.boxes[numbers_[array]];
  const size_t number = first_ + to.array;
  const int64_t width = dtype_bytes(entries_[number].dtype);
  for (Box box : boxes_of_range(to.box.shape(), offset / width, bytes / width)) {
    for (size_t d = 0; d < box.rank(); ++d) box.dims[d].begin += to.box.dims[d].begin;
    for (const ByteRange& range : byte_ranges(to.split, width, box)) {
      TESSERA_TRY_VOID(writer_.write(number, range.begin, range.bytes, data));
      data += range.bytes;
    }
  }
  return {};
}

}  // namespace tessera
