// Hugging Face folders in and out. Import: a folder with config.json and safetensors files (sharded
// or not) becomes one with the same config.json, which is a MODEL of ours, and model.safetensors
// under our names. Export is the way back, by the same table of names (names.h): import then export
// gives the same bytes. Values keep their dtype. Both work piece by piece (tiles.h): memory does not
// grow with the model. Files of the tokenizer and of generation go along as they are, in and, from
// beside the config.json that names the model, out again; of the tokenizer only the numbers of tokens
// are read that the model's keys name (BERT's mask).
//
// Where the arrays say otherwise than config.json (a head that is not tied), they count, as in
// transformers, and the config.json that is written says so.
#pragma once

#include <string>

#include "tessera/base/result.h"
#include "tessera/import/export_weights.h"
#include "tessera/import/import.h"

namespace tessera {

// Is it a folder with a config.json?
bool is_huggingface_folder(const std::string& path);
// Error (invalid input): config.json says what we do not have, or an array does not fit it; the
// message names tensor, expected and found shape. (fault): a file cannot be read or written.
Result<ImportReport> import_huggingface(const ImportRequest& request);

// Error (invalid input): no model type of Hugging Face computes the model's function, or the weights
// are of another model.
Result<ExportedWeights> export_huggingface(const WeightsRequest& request);

}  // namespace tessera
