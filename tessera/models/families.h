// The registry of model families: one row for each family (families.cc) has its name, a summary,
// its keys, its builder, its samples, and small examples. The reader of specs, the command line
// (`tessera inspect --models`), error messages, docs/reference/models.md and the tests use it;
// there is no other list of families.
//
//   for (const ModelFamily& family : all_families()) fmt::print("{}: {}\n", family.name, ...);
//   TESSERA_TRY(Model model, build_model(find_family("gpt")->examples[0], /*batch=*/4));
//
// To add a family, write `model_keys`, `complete` and the builder in a file of its own, and one row
// in families.cc. Every model that a row builds is checked against the contract (contract.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/config.h"
#include "tessera/models/model.h"

namespace tessera {

struct ModelFamily {
  std::string name;                   // "gpt"
  std::string summary;                // one line
  std::vector<ModelKeyText> keys;     // with their defaults
  std::vector<std::string> examples;  // small specs, with which tests try the family
  std::function<Result<Model>(const ModelArguments&, int64_t batch, std::optional<DType>)> build;
  // Whether the loss is the mean binary cross entropy of logits with targets 0 or 1, which one op
  // reads together: evaluations then rate predictions of clicks (data/click_metrics.h).
  bool predicts_clicks = false;
};

const std::vector<ModelFamily>& all_families();  // in the order of `tessera inspect --models`
const ModelFamily* find_family(std::string_view name);  // null if unknown
bool predicts_clicks(const Model& model);               // whether its family does
std::vector<std::string> family_names();

}  // namespace tessera
