// The manifest of a checkpoint: what was run, and which box of which tensor lies where
// (docs/reference/checkpoint-format.md). It is written last, so a folder that has one is whole.
//
// A manifest is not trusted. parse_manifest() refuses, each with one line: text that is damaged
// (its own checksum), a newer format, tensors or files that are named twice, names of files that
// lead out of the folder, sizes that no integer holds, boxes that lie outside of their tensor,
// overlap, or do not fill it. No size that the text states is allocated unchecked.
//
//   TESSERA_TRY(const Manifest manifest, parse_manifest(text, "runs/step-50/manifest.json"));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"
#include "tessera/base/result.h"

namespace tessera {

inline constexpr int64_t kManifestVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

struct ManifestBox {
  Box box;                // the part of the tensor that is stored
  size_t file = 0;        // index into Manifest::files
  std::string name;       // the array's name in that file
  uint64_t checksum = 0;  // of the array's bytes
  friend bool operator==(const ManifestBox&, const ManifestBox&) = default;
};

struct ManifestTensor {
  std::string name;
  std::string role;  // "parameter", "optimizer_state", "buffer", "loss_scale", "residual"
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;      // of the whole tensor
  std::vector<ManifestBox> boxes;  // disjoint; together they are the whole tensor
  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

struct ManifestFile {
  std::string name;  // relative to the manifest's folder
  int64_t bytes = 0;
  uint64_t head_checksum = 0;  // checksum of all bytes before the arrays
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  int64_t step = 0, seed = 0, ranks = 1;  // `step` is the number of steps done
  std::string model, plan, run;           // the texts of the model, the plan and the run file
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;

  int64_t bytes() const;  // of all files
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string to_text(const Manifest& manifest);
// Parses a manifest. `where` is the file's path, for messages. Errors: a fault if the text was
// changed after it was written (its checksum differs); invalid input if it is not a manifest of
// this version or contradicts itself.
Result<Manifest> parse_manifest(std::string_view text, const std::string& where);
// Checks what a manifest says of its tensors and files. Returns "" if all checks hold, else a text
// about the first that does not.
std::string why_invalid(const Manifest& manifest);

}  // namespace tessera
