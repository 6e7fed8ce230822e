// Loads a model from a file with the text form of a graph (docs/reference/graph-format.md), which
// `tessera inspect MODEL --text` prints or a person writes.
//
//   TESSERA_TRY(Model model, load_graph_model("my.graph", /*batch=*/0, std::nullopt));
//
// The file's forward part is the model; backward and update ops are left out, because a run makes
// them anew for its optimizer and precision. The file fixes the batch: the size of the dim `batch`
// of its inputs (1 without that dim). Parts of the model may have any paths, so it need not keep
// the contract (contract.h); recipes then say what they miss, and pipelines find the blocks by
// their repetition.
//
// An integer input is drawn below the size of the dim that it indexes: rows of a table, classes of
// a loss. An input `tokens` [batch, seq], with or without `targets`, reads text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/models/model.h"

namespace tessera {

inline constexpr std::string_view kGraphSuffix = ".graph";

// Loads a model. `batch` 0 means the file's. `dtype` replaces the dtype of all floating tensors of
// the file. Errors are one line and name file:line.
Result<Model> load_graph_model(const std::string& path, int64_t batch, std::optional<DType> dtype);

}  // namespace tessera
