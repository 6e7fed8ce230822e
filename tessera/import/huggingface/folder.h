// Imports and exports Hugging Face folders. Import: a folder with config.json and safetensors files
// (sharded or not) becomes a folder with that config.json, which is a MODEL of ours, and
// model.safetensors under our names. Export is the reverse, by the same table of names (names.h):
// import then export gives the same bytes. Values keep their dtype. Both work piece by piece
// (tiles.h): memory does not grow with the model. Files of the tokenizer and of generation are
// copied as they are, on import and, from beside the config.json that names the model, on export.
// The tokenizer is read only for the numbers of tokens that the model's keys name (BERT's mask).
//
// If the arrays contradict config.json (a head that is not tied), the arrays count, as in
// transformers, and the written config.json agrees with them.
#pragma once

#include <string>

#include "tessera/base/result.h"
#include "tessera/import/export_weights.h"
#include "tessera/import/import.h"

namespace tessera {

// Returns whether the path is a folder with a config.json.
bool is_huggingface_folder(const std::string& path);
// Imports a folder. Returns an error (invalid input) if config.json asks for something that we do
// not have, or if an array does not fit it; the message names tensor, expected and found shape.
// Returns an error (fault) if a file cannot be read or written.
Result<ImportReport> import_huggingface(const ImportRequest& request);

// Exports a folder. Returns an error (invalid input) if no model type of Hugging Face computes the
// model's function, or if the weights are of another model.
Result<ExportedWeights> export_huggingface(const WeightsRequest& request);

}  // namespace tessera
