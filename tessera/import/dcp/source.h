// Reads a folder that torch.distributed.checkpoint has written (.metadata and *.distcp, either with
// an archive of torch.save for each tensor or as safetensors): its tensors under their names, by
// regions, as any other source (state/source.h). Neither PyTorch nor the ranks that wrote are
// needed. In addition to the requested values at most kPieceBytes are in memory, or one chunk if its
// elements are not stored in the order of its dims.
//
//   TESSERA_TRY(const auto source, open_dcp("run/step-100"));
//   const SourceArray* lm_head = source->find("model.lm_head.weight");
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/import/dcp/saved.h"
#include "tessera/state/source.h"

namespace tessera::dcp {

bool is_dcp(const std::string& folder);  // has a .metadata

class DcpSource : public TensorSource {
 public:
  // Returns the names of what the folder has besides tensors, sorted.
  virtual std::vector<std::string> objects() const = 0;
  // Opens one of them. Errors: those of SavedValue::open().
  virtual Result<SavedValue> object(const std::string& name) const = 0;
};

// Opens a folder. Errors (invalid input), each one line: the .metadata is no pickle, or has a class
// that is not known; chunks of a tensor are missing or overlap; a file is missing or too short.
Result<std::unique_ptr<DcpSource>> open_dcp(const std::string& folder);

}  // namespace tessera::dcp
