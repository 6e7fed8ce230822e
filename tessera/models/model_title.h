// The short name of a model for the first line of an answer: "Llama, 32 layers, 8.03 B parameters",
// "Meta-Llama-3-8B: Llama, 32 layers, 8.03 B parameters". The long text is Model::spec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/models/model.h"

namespace tessera {

// Returns the family, the number of layers if the text of the model has one, and the number of
// parameters in three digits if it is not 0. A graph is named by its file.
std::string model_title(std::string_view spec, int64_t parameters);

// Returns the short name with the published name before it if the model was named by one. A model
// that differs from the published one says so at the end.
std::string model_title(const Model& model);

}  // namespace tessera
