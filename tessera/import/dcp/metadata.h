// The `.metadata` of a folder of torch.distributed.checkpoint: which chunk of which tensor lies in
// which bytes of which file. It is a pickle of the class Metadata (docs/reference/dcp-format.md).
//
// The folder is described as the manifest of a checkpoint (state/manifest.h), whose checks it must
// pass: chunks are inside their tensor, disjoint, and together the whole of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/state/manifest.h"

namespace tessera::dcp {

inline constexpr const char* kMetadataName = ".metadata";

// Bytes [offset, offset + length) of a file of the folder.
struct Stored {
  size_t file = 0;  // index into Manifest::files
  int64_t offset = 0, length = 0;
};

struct Metadata {
  // `files` have names and no sizes; `tensors` have no role. A box's name is array_name() of it.
  Manifest manifest;
  std::vector<std::vector<Stored>> stored;  // by tensor and box
  std::map<std::string, Stored> objects;    // what is no tensor, by name
  // By name of a tensor or an object: the keys of the dicts and the indices of the lists in which
  // the state_dict has it. Only written: a name is read as it is.
  std::map<std::string, std::vector<std::variant<std::string, int64_t>>> paths;
  std::map<std::string, std::string> unread;  // tensors of dtypes that are not read: the dtype
};

// Parses the text of a .metadata. Errors (invalid input) name `where`, what was expected and what
// was found. Boxes are not checked yet (why_invalid() of state/manifest.h), since the sizes of the
// files are not known.
Result<Metadata> parse_metadata(std::string_view bytes, const std::string& where);

// Returns the text of a .metadata, which parse_metadata() and PyTorch read.
std::string metadata_text(const Metadata& metadata);

}  // namespace tessera::dcp
