// Reads Hugging Face's `config.json` as keys of one of our families, and writes it. For each
// `model_type` a table (huggingface/rows.h) pairs the keys of the file with keys of ours. The table
// is used for reading and for writing. A key that the file leaves out has the default of its type
// in transformers (huggingface_defaults.h). Keys that do not change the function that is trained
// (token ids, dropout, caches) are ignored. The spellings of transformers 4 and 5 are read, and both
// are written. A file with a `text_config` is read as that language model, without the parts beside it.
//
// If a value would change the computed function and has no counterpart here, the table says either
// what our model has in its place, which `approximations` then states, or that reading is an error.
// Planning takes an approximate model and prints the sentences (planning_model.h). Everything else
// demands an exact one (check_exact, which build_model calls).
//
//   TESSERA_TRY(const HuggingFaceModel file, parse_huggingface_config(text, "llama/config.json"));
//   TESSERA_TRY_VOID(check_exact(file, "llama/config.json"));
//   TESSERA_TRY(const std::string json, huggingface_config(model.spec, DType::kBFloat16));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/models/config.h"
#include "tessera/models/huggingface/read_model.h"

namespace tessera {

// Returns the values of `model_type` that can be read, and those that can be written too.
std::vector<std::string> huggingface_model_types();
std::vector<std::string> huggingface_written_types();

// Reads a configuration. `file` is the name to put in errors.
Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file);

// Returns the text of the language model alone for a file that has it in text_config, else the text.
// Returns the errors of parse_huggingface_config.
Result<std::string> language_model_config(std::string_view text, std::string_view file);

// Returns the remarks that hold where a caller sets the keys `changes`.
std::vector<std::string> remarks_of(const HuggingFaceModel& model, const ModelArguments& changes);

// Returns an error that names what is missing if the model is only approximated; `file` is the name
// to put in it.
Status check_exact(const HuggingFaceModel& model, std::string_view file);

// Returns the keys that are read from a config.json of that type.
std::vector<std::string> huggingface_keys(const std::string& model_type);

// Returns the text in which the keys that stand for ours have the values of `changes`, and for keys
// not in `changes` the values that they had before, also if such a value was a default computed
// from a changed key. Returns the errors of parse_huggingface_config, or an error if the type has
// no key for a change.
Result<std::string> change_huggingface_config(std::string_view text, std::string_view file,
                                              const ModelArguments& changes);
// Returns the text of a file whose model is `spec` (with every key), for weights of that dtype. The
// text is unchanged except for the dtype, and for keys that transformers 4 and 5 spell in two ways:
// these are written in both spellings.
Result<std::string> spell_huggingface_config(std::string_view text, std::string_view file,
                                             std::string_view spec, DType dtype);

// Returns the text of a config.json for the spec, which has every key of its family (Model::spec).
// It uses the model type `preferred` if that computes the same function, else the first one that
// does. `dtype` is the dtype of the
// weights. Keys that only matter in training are left out: dropout, ends of documents, slots of
// experts. If no model type has all other keys, returns an error that names the missing key.
Result<std::string> huggingface_config(std::string_view spec, DType dtype,
                                       std::string_view preferred = "");

}  // namespace tessera
