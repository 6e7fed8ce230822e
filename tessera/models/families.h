// The registry of model families. One row for each family (families.cc) has its name, a summary,
// its keys, its builder, and small examples. There is no other list of families: the reader of
// specs, the command line (`tessera inspect --models`), error messages, docs/reference/models.md
// and the tests all use the registry.
//
//   for (const ModelFamily& family : all_families()) fmt::print("{}: {}\n", family.name, ...);
//   TESSERA_TRY(Model model, build_model(find_family("gpt")->examples[0], /*batch=*/4));
//
// To add a family, write `model_keys`, `complete` and the builder in a file of its own, and
// add one row to families.cc. Every model that a family builds is checked against the
// contract (contract.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/config.h"
#include "tessera/models/family_names.h"
#include "tessera/models/model.h"

namespace tessera {

struct ModelFamily {
  std::string name;                   // "gpt"
  std::string summary;                // one line
  std::vector<ModelKeyText> keys;     // with their defaults
  std::vector<std::string> examples;  // small specs with which tests try the family
  std::function<Result<Model>(const ModelArguments&, int64_t batch, std::optional<DType>)> build;
  // Whether one op reads logits and targets of 0 or 1, and the loss is the mean of their
  // binary cross entropy. Evaluations of such a model also rate its predictions of
  // clicks (data/click_metrics.h).
  bool predicts_clicks = false;
};

const std::vector<ModelFamily>& all_families();  // in the order of `tessera inspect --models`
const ModelFamily* find_family(std::string_view name);  // null if the name is unknown
bool predicts_clicks(const Model& model);               // of the model's family

}  // namespace tessera
