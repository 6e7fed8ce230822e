// The arrays of a Hugging Face folder under our names and in our layouts. A region of ours is read
// from the bytes that hold it: a transposed or fused array is never read whole. In memory beside
// what is asked for are at most kReadBytes (tiles.h), whatever the size of the arrays.
//
//   TESSERA_TRY(const Model model, build_model("llama/config.json", 1));
//   TESSERA_TRY(const auto source, open_huggingface("llama", model));
//   const SourceArray* q = source->find("blocks.0.attn.q.weight");
#pragma once

#include <memory>
#include <string>

#include "tessera/models/config.h"
#include "tessera/models/model.h"
#include "tessera/state/source.h"

namespace tessera {

// The path of the weights that transformers reads of a folder: model.safetensors, where it is there,
// and else the folder. A path of a file is itself.
std::string huggingface_weights(const std::string& path);

// Keys of the model's family that the arrays say otherwise than its config.json: `tied=0` where the
// files have a head of other values. Error: the files cannot be opened or read.
Result<ModelArguments> keys_of_arrays(const std::string& path, const Model& model);

// `path`: a folder of safetensors files, or one such file. Error (invalid input): an array is
// missing or has another shape than the model's, or is one that the model does not have.
Result<std::unique_ptr<TensorSource>> open_huggingface(const std::string& path, const Model& model);

}  // namespace tessera
