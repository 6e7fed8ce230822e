// The model that a config.json of Hugging Face describes, as keys of one of our families
// (models/huggingface/huggingface.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/models/config.h"

namespace tessera {

struct HuggingFaceModel {
  // A key that has another value in planning than in `arguments`, which are exact, and the sentence
  // that says so.
  struct PlannedKey {
    std::string key, value, sentence;
  };
  std::string type;    // model_type of the file
  std::string family;  // "gpt", "llama"
  ModelArguments arguments;
  // Plain sentences, without a full stop, about requests of the file that `arguments` do not
  // express: "logits are not capped". Empty: the model is exact.
  std::vector<std::string> approximations = {};
  std::vector<PlannedKey> planned = {};
  // A plain sentence about a model that is exact nevertheless, as that transformers leaves something
  // out too. It holds unless a caller sets our key `unless`, if there is one.
  struct Remark {
    std::string sentence, unless;
  };
  std::vector<Remark> remarks = {};
  // The dtype that the file gives its weights (`dtype` or `torch_dtype`, also in text_config), or
  // none if it names none that a run computes in.
  std::optional<DType> stored_dtype = {};
};

}  // namespace tessera
