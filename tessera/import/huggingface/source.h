// Reads the arrays of a Hugging Face folder under our names and in our layouts. A region of ours is
// read from the bytes that hold it: a transposed or fused array is never read whole. Apart from the
// requested values at most kReadBytes (tiles.h) are in memory, whatever the size of the arrays.
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

// Returns the path of the weights that transformers reads of a folder: model.safetensors if it
// exists, else the folder. For a path of a file, returns the path.
std::string huggingface_weights(const std::string& path);

// Returns keys of the model's family that the arrays contradict in its config.json: `tied=0` if the
// files have a head with other values. Returns an error if the files cannot be opened or read.
Result<ModelArguments> keys_of_arrays(const std::string& path, const Model& model);

// Opens weights. `path` is a folder of safetensors files, or one such file. Returns an error
// (invalid input) if an array is missing, has another shape than the model's, or is not in the
// model.
Result<std::unique_ptr<TensorSource>> open_huggingface(const std::string& path, const Model& model);

}  // namespace tessera
