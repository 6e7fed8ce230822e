// Megatron Core's checkpoints ("torch_dist"): folders of torch.distributed.checkpoint in which one
// array has a weight of all layers, queries, keys and values are fused by groups of heads, gate and
// up projections are one array, and the vocabulary is padded. Each of Hugging Face's arrays of a
// Llama is a box of one of them, once its dims are split:
//
//   model.layers.2.self_attn.q_proj.weight
//     decoder.layers.self_attention.linear_qkv.weight
//     as [layer, kv_heads, group + 2, head_dim, hidden], box [2:3, :, 0:group, :, :]
//
// Reading and writing use one table of these boxes. AdamW has the same arrays again for each of its
// states, behind "optimizer.state.exp_avg." and "optimizer.state.exp_avg_sq.".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/import/new_folder.h"
#include "tessera/models/model.h"
#include "tessera/state/source.h"

namespace tessera {

// The array that every one of these folders has, behind what stands before all names.
inline constexpr const char* kMegatronName = "decoder.final_layernorm.weight";
// Begins the names of arrays of layers.
inline constexpr const char* kMegatronLayers = "decoder.layers.";

// The names of AdamW's states begin with this, PyTorch's name of the state, and a dot.
inline constexpr const char* kMegatronState = "optimizer.state.";
// The names of wide parameters begin so, of the optimizer that is not distributed, and of the
// distributed one.
inline constexpr const char* kMegatronMasters[] = {"optimizer.state.fp32_param.",
                                                   "optimizer.state.param."};

struct MegatronArray {
  std::string name;
  std::string otherwise;  // its name in folders whose norms are modules of their own; may be ""
  std::vector<int64_t> shape;
  bool layered = false;  // the first dim is the layer
  bool padded = false;   // the first dim is the vocabulary
};
// One of Hugging Face's arrays, as a box of an array of Megatron Core.
struct MegatronBox {
  std::string name;
  std::vector<int64_t> shape;
  size_t array = 0;            // index of Megatron Core's
  std::vector<int64_t> split;  // the shape of that array once its dims are split
  Box box;                     // has the elements of `shape`, in the same order
};
struct MegatronTable {
  std::vector<MegatronArray> arrays;
  std::vector<MegatronBox> boxes;  // by Hugging Face's array, in the order of our parameters
};
// Returns the table of a model whose vocabulary is padded to so many rows. Errors (invalid input):
// the model is no Llama, or has parameters that Megatron Core's model does not have; fewer rows than
// the vocabulary has.
Result<MegatronTable> megatron_table(const Model& model, int64_t rows);

// Returns the rows of the padded vocabulary, as the arrays behind this prefix have it; nothing:
// there are none.
std::optional<int64_t> megatron_rows(const TensorSource& theirs, const std::string& prefix);

// Returns Hugging Face's arrays of the model. `theirs` has Megatron Core's names, with all layers in
// one array or with an array for each, whole or by tiles (Untiled). Errors (invalid input): an array
// is missing or has another shape.
Result<std::unique_ptr<TensorSource>> megatron_as_huggingface(
    std::shared_ptr<const TensorSource> theirs, const MegatronTable& table);

// Takes bytes of Hugging Face's arrays and writes them where Megatron Core has them.
class MegatronWriter : public ArrayWriter {
 public:
  // `numbers`: for each of Hugging Face's arrays its box in the table. Megatron Core's arrays are
  // arrays `first`, `first` + 1, ... of the writer. The references must outlive this.
  MegatronWriter(const MegatronTable& table, std::vector<size_t> numbers,
                 const std::vector<ArrayEntry>& entries, size_t first, ArrayWriter& writer)
      : table_(table),
        numbers_(std::move(numbers)),
        entries_(entries),
        first_(first),
        writer_(writer) {}
  Status write(size_t array, int64_t offset, int64_t bytes, const std::byte* data) override;

 private:
  const MegatronTable& table_;
  std::vector<size_t> numbers_;
  const std::vector<ArrayEntry>& entries_;  // of the writer
  size_t first_;
  ArrayWriter& writer_;
};

}  // namespace tessera
