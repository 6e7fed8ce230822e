// Writes a plan as a file of plain PyTorch that torchrun can start: a mesh, `parallelize(model, mesh)`
// and `train_step(model, mesh, *batch)`, with the module paths of the user's own module. In contrast to
// the targets of target.h, nothing is put into the words of a framework first: the code follows from
// the layouts of the plan's ops and tensors (pytorch/facts.h).
//
//   TESSERA_TRY(const PyTorchFile file, export_pytorch(request));   // request.target is not used
//
// Docs: docs/guides/from-pytorch-to-torchrun.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/export/export.h"

namespace tessera {

inline constexpr std::string_view kPyTorch = "pytorch";  // the value of --to
inline constexpr const char* kPyTorchSummary =
    "a file of plain PyTorch for torchrun: DTensor, fully_shard, pipelining";
inline constexpr const char* kPyTorchVersion = "PyTorch 2.9 and later";

struct PyTorchFile {
  std::string text;
  std::vector<std::string> notes;
  int64_t ranks = 1, batch = 0;
  std::string model;  // its spec
};
// Writes the file. Errors, one line: the plan does not fit the model; the model was not imported from a module;
// PyTorch cannot run an entry of the plan (the error has its file:line and the nearest plan).
Result<PyTorchFile> export_pytorch(const ExportRequest& request);

}  // namespace tessera
