// Loads a model from a file with the text form of a graph (docs/reference/graph-format.md).
// `tessera inspect MODEL --text` prints such a text, or a person writes it.
//
//   TESSERA_TRY(Model model, load_graph_model("my.graph", /*batch=*/0, std::nullopt));
//
// The model is the forward part of the file. Backward and update ops of the file are ignored,
// because a run makes them anew for its optimizer and precision. The file fixes the batch, which is
// the size of the dim `batch` of its inputs (1 if no input has that dim). The model need not keep
// the contract (contract.h), so its ops may have any paths. Recipes then report what they miss, and
// pipelines find the blocks by their repetition.
//
// The values of an integer input are drawn below the size of the dim that the input indexes (the
// rows of a table, the classes of a loss). If the model has an input `tokens` [batch, seq], with or
// without `targets`, it can be trained on text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/models/model.h"

namespace tessera {

// Loads a model. `path` is that of a graph (it ends in .graph) or of an archive, whose graph the
// registered reader gives (model_name.h). `batch` 0 means the batch of the file. `dtype` replaces
// the dtype of all floating tensors of the file. Errors are one line and name file:line.
// `keys` are those behind the path of an archive (ModelName::changes).
Result<Model> load_graph_model(const std::string& path, int64_t batch, std::optional<DType> dtype,
                               const std::string& keys = "");

}  // namespace tessera
