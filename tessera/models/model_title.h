// The short name of a model for the first line of an answer: "Llama, 32 layers, 8.03 B parameters",
// "Meta-Llama-3-8B: Llama, 32 layers, 8.03 B parameters". The long text is Model::spec.
#pragma once

#include <string>

#include "tessera/models/model.h"

namespace tessera {

// Returns the short name: the published name if the model was named by one, the family, the number
// of blocks if it has any, and the number of parameters in three digits. A graph file is named by
// its path. A model that differs from the published one says so at the end.
std::string model_title(const Model& model);

}  // namespace tessera
