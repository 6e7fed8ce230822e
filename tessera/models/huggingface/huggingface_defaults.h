// The values of keys that a config.json of Hugging Face leaves out: the defaults of transformers'
// own configuration classes, for each model type that can be read. The text is a JSON object with
// one member for each model type. The member has the defaults by key and, as "(other names)",
// second names of keys.
#pragma once

#include <string_view>

namespace tessera {

std::string_view huggingface_defaults();

// Returns the keys of any model type that change nothing that is computed here: a JSON object with
// one list for each key, of the values that change nothing. An empty list stands for all values.
std::string_view huggingface_passed_over();

}  // namespace tessera
