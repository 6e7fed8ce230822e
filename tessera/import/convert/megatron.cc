#include "tessera/import/convert/megatron.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/tiles.h"

namespace tessera {
namespace {

// Arrays that are boxes of another source's arrays, whose dims are split.
class Sliced : public TensorSource {
 public:
  explicit Sliced(std::shared_ptr<TensorSource> from) : from_(std::move(from)) {}
  // `shape` is that of the new array; it has as many elements as the box, in the same order.
  void add(std::string name, std::vector<int64_t> shape, SourceArray split, Box box) {
    by_name_[name] = arrays_.size();
    arrays_.push_back({std::move(name), split.dtype, std::move(shape)});
    slices_.push_back({std::move(split), std::move(box)});
  }
  std::string where() const override { return from_->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second];
  }
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
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
  int64_t bytes_read() const override { return from_->bytes_read(); }

 private:
  struct Slice {
    SourceArray split;
    Box box;
  };
  std::shared_ptr<TensorSource> from_;
  std::vector<SourceArray> arrays_;
  std::vector<Slice> slices_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Which part of Megatron's array, of one layer if it has all, is Hugging Face's.
enum class Part : uint8_t { kWhole, kRows, kQuery, kKey, kValue, kFirstHalf, kSecondHalf };

struct Row {
  const char *theirs, *megatron;
  Part part = Part::kWhole;
  const char* otherwise = nullptr;  // the name if norms are modules of their own
};
constexpr const char* kLayer = "model.layers.*.";
constexpr std::array<Row, 12> kRows{{
    {"model.embed_tokens.weight", "embedding.word_embeddings.weight", Part::kRows},
    {"lm_head.weight", "output_layer.weight", Part::kRows},
    {"model.norm.weight", kMegatronName},
    {"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight", Part::kWhole,
     "input_layernorm.weight"},
    {"post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight", Part::kWhole,
     "pre_mlp_layernorm.weight"},
    {"self_attn.q_proj.weight", "self_attention.linear_qkv.weight", Part::kQuery},
    {"self_attn.k_proj.weight", "self_attention.linear_qkv.weight", Part::kKey},
    {"self_attn.v_proj.weight", "self_attention.linear_qkv.weight", Part::kValue},
    {"self_attn.o_proj.weight", "self_attention.linear_proj.weight"},
    {"mlp.gate_proj.weight", "mlp.linear_fc1.weight", Part::kFirstHalf},
    {"mlp.up_proj.weight", "mlp.linear_fc1.weight", Part::kSecondHalf},
    {"mlp.down_proj.weight", "mlp.linear_fc2.weight"},
}};

struct Heads {
  int64_t kv = 1, group = 1, dim = 1;
};

// Returns the shape, of one layer, into which Megatron's array is split, and the box of the part.
std::pair<std::vector<int64_t>, Box> split_of(Part part, const Heads& heads,
                                              const std::vector<int64_t>& theirs,
                                              const std::vector<int64_t>& found) {
  std::vector<int64_t> shape = theirs;
  const int64_t last = theirs.back();
  const auto box_of = [&](size_t dim, int64_t begin, int64_t size) {
    Box box = Box::whole(shape);
    box.dims[dim] = {begin, size};
    return std::pair(shape, box);
  };
  switch (part) {
    case Part::kRows: shape[0] = found[found.size() - 2]; return box_of(0, 0, theirs[0]);
    case Part::kFirstHalf:
    case Part::kSecondHalf:
      shape.insert(shape.begin(), 2);
      return box_of(0, part == Part::kFirstHalf ? 0 : 1, 1);
    case Part::kQuery:
    case Part::kKey:
    case Part::kValue:
      shape = {heads.kv, heads.group + 2, heads.dim, last};
      if (part == Part::kQuery) return box_of(1, 0, heads.group);
      return box_of(1, heads.group + (part == Part::kKey ? 0 : 1), 1);
    case Part::kWhole: break;
  }
  return {shape, Box::whole(shape)};
}

int64_t number_of(const Call& spec, std::string_view key) {
  for (const auto& [name, value] : spec.arguments) {
    if (name == key) return parse_int(value).value_or(0);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> megatron_as_huggingface(std::shared_ptr<TensorSource> theirs,
                                                              const Model& model) {
  const auto error = [&](const std::string& message) {
    return invalid_input(fmt::format("{}: {}", theirs->where(), message));
  };
  if (model.family != "llama") {
    return error(
        fmt::format("expected a Llama as the model of a checkpoint of Megatron Core, found "
                    "{}",
                    model.family));
  }
  TESSERA_TRY(const Call spec, parse_call(model.spec));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(model));
  Heads heads;
  heads.kv = number_of(spec, "kv_heads");
  heads.group = heads.kv > 0 ? number_of(spec, "heads") / heads.kv : 0;
  heads.dim = number_of(spec, "head_dim");
  auto out = std::make_unique<Sliced>(theirs);
  for (const TensorView& view : views) {
    const std::string& name = view.arrays.front();
    const Row* row = nullptr;
    std::optional<int64_t> layer;
    for (const Row& one : kRows) {
      if (name == one.theirs) row = &one;
      const std::string of_layer = kLayer + std::string(one.theirs);
      if (glob_match(of_layer, name)) {
        row = &one;
        const size_t begin = std::string_view(kLayer).find('*');
        layer = parse_int(name.substr(begin, name.find('.', begin) - begin)).value_or(0);
      }
    }
    if (row == nullptr)
      return error(fmt::format("expected arrays of a Llama without biases, found '{}'", name));
    const std::string before = layer ? "decoder.layers." : "";
    const SourceArray* array = theirs->find(before + row->megatron);
    if (array == nullptr && row->otherwise != nullptr)
      array = theirs->find(before + row->otherwise);
    if (array == nullptr)
      return error(
          fmt::format("'{}': expected it for {}, found none", before + row->megatron, name));
    auto [shape, box] = split_of(row->part, heads, view.array_shape, array->shape);
    if (layer) {
      const int64_t layers = array->shape.empty() ? 0 : array->shape[0];
      shape.insert(shape.begin(), layers);
      Box::Dims dims;
      dims.push_back({*layer, 1});
      for (const Interval& one : box.dims) dims.push_back(one);
      box = Box(std::move(dims));
    }
    const Box whole = Box::whole(shape);
    if (whole.volume() != Box::whole(array->shape).volume() || !whole.contains(box)) {
      return error(fmt::format("'{}': expected [{}], of which {} is {}, found [{}]", array->name,
                               fmt::join(shape, ", "), box.to_string(), name,
                               fmt::join(array->shape, ", ")));
    }
    out->add(name, view.array_shape, {array->name, array->dtype, shape}, std::move(box));
  }
  return out;
}

}  // namespace tessera
