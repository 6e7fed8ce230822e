// Reads the arrays of a Hugging Face folder under our names and in our layouts. A region of one of
// our arrays is read from the bytes that hold this region, so that a transposed or fused array is
// never read whole. In addition to the requested values at most kReadBytes (tiles.h) are in memory,
// whatever the size of the arrays.
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

// Returns the path from which transformers reads the weights of a folder. This is the path of
// model.safetensors if the folder has this file, else the folder. If the path is a file, returns it
// unchanged.
std::string huggingface_weights(const std::string& path);

// Returns the keys of the model's family for which the arrays contradict config.json, with the
// values that the arrays show. For example, returns `tied=0` if the files have a head whose values
// differ from the embedding's. Returns an error if the files cannot be opened or read.
Result<ModelArguments> keys_of_arrays(const std::string& path, const Model& model);

// Opens weights. `path` is a folder of safetensors files, or one such file. Returns an error
// (invalid input) if an array of the model is missing or has another shape, or if the files have an
// array that is not in the model.
Result<std::unique_ptr<TensorSource>> open_huggingface(const std::string& path, const Model& model);
// Opens weights that another source has under Hugging Face's names. `where` is for messages.
Result<std::unique_ptr<TensorSource>> open_huggingface(std::unique_ptr<TensorSource> arrays,
                                                       const std::string& where,
                                                       const Model& model);

}  // namespace tessera
