// Imports and exports Hugging Face folders. The import reads a folder with config.json and
// safetensors files (sharded or not). It writes a folder with the same config.json, which is a
// MODEL of the command line, and with model.safetensors under our names. The export does the
// reverse with the same table of names (names.h), so that an import and then an export give the
// same bytes. Values keep their dtype. Both work piece by piece (tiles.h), so that the memory used
// does not grow with the model. Both copy the files of the tokenizer and of generation unchanged.
// The export takes these files from the folder of the config.json that names the model. The
// tokenizer's contents are read only where a key of the model is the number of a token (BERT's
// mask).
//
// If the arrays contradict config.json (it ties the head to the embedding, but the files have a
// head with other values), the model is as the arrays say, as in transformers, and the written
// config.json says the same.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/import/export_weights.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/import.h"
#include "tessera/import/new_folder.h"
#include "tessera/state/source.h"

namespace tessera {

// Returns whether the path is a folder with a config.json.
bool is_huggingface_folder(const std::string& path);
// Imports a folder. Returns an error (invalid input) if config.json asks for something that our
// models do not have, or if an array does not fit config.json; the message names the tensor, the
// expected shape and the found shape. Returns an error (fault) if a file cannot be read or written.
Result<ImportReport> import_huggingface(const ImportRequest& request);

// Exports a folder. Returns an error (invalid input) if no model type of Hugging Face computes the
// model's function, or if the weights belong to another model.
Result<ExportedWeights> export_huggingface(const WeightsRequest& request);
// Exports the parameters of a source under our names. `theirs`: a source that has them as
// Hugging Face's arrays, which are then copied as they are; null: there is none.
Result<ExportedWeights> export_huggingface(const TensorSource& source, const TensorSource* theirs,
                                           const std::string& model, const std::string& out);

// Returns views of the arrays that a state_dict has as copies of other arrays, because the model uses
// one for both names: a tied head.
Result<std::vector<TensorView>> tied_views(const Model& model);

// Checks that the model has every array of a source but the states of an optimizer. Errors (invalid
// input): it lacks one, so that the source is of another model.
Status check_no_others(const TensorSource& source, const Model& model);

// Hugging Face's arrays that our parameters make.
struct HuggingFaceArrays {
  std::vector<TensorView> views;          // of our parameters
  std::vector<ArrayEntry> entries;        // theirs, in the order of our parameters
  std::map<std::string, size_t> numbers;  // by name: the index in `entries`
};
// Returns the arrays of the views. Errors (invalid input): the source lacks a parameter, or has it
// in another shape, or parts of one array have two dtypes.
Result<HuggingFaceArrays> huggingface_arrays(std::vector<TensorView> views,
                                             const TensorSource& source);
// Writes them as arrays `first`, `first` + 1, ... of a writer.
Status write_arrays(const HuggingFaceArrays& arrays, const TensorSource& source, size_t first,
                    ArrayWriter& writer);

}  // namespace tessera
