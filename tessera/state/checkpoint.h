// Checkpoints: folders of safetensors shards beside a manifest, and how one comes to be.
//
//   DIR/step-000000000050/manifest.json                  which box of which tensor lies where
//                         rank-00000.safetensors, ...    what each rank wrote (shares.h)
//
// Writing is a protocol, so that whatever stops it, at any moment, the newest complete checkpoint
// is found by its name and is whole:
//   1. begin_checkpoint, one rank: leftovers of writers that were stopped (writing-*) are removed,
//      and the folder DIR/writing-step-N is made.
//   2. write_shard, every rank: a new file in that folder, written once from front to back, synced.
//   3. commit_checkpoint, one rank, when all have done 2: the manifest is written as a file of that
//      folder and synced; then the folder is synced, so that the names of all files are durable.
//   4. The folder is renamed to DIR/step-N. This is the moment from which it is there.
//   5. DIR is synced. From here on it survives a loss of power.
//   6. remove_old, one rank: of older checkpoints all but the newest few are removed; each is
//      renamed to writing-* first, so that a half-removed one is a leftover.
// A folder step-N without a manifest has lost it; a run that goes on sets it aside as damaged.
//
// Nobody writes to a DIR that another run writes to. Errors of writing are faults that name the
// file. Reading: open_checkpoint() reads the manifest and compares the sizes of all shards; what is
// read from them is the byte ranges of the regions that are asked for. find_damage() reads all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/state/manifest.h"
#include "tessera/state/source.h"
#include "tessera/state/storage.h"

namespace tessera {

struct CheckpointFolder {
  int64_t step = 0;
  std::string path;
  bool has_manifest = true;  // without one it is damaged: the protocol makes no such folder
};
std::string checkpoint_path(const std::string& dir, int64_t step);
// All folders step-N in DIR, by step; none if there is no such folder.
Result<std::vector<CheckpointFolder>> step_folders_in(Storage& storage, const std::string& dir);
// Those of them that have a manifest.
Result<std::vector<CheckpointFolder>> checkpoints_in(Storage& storage, const std::string& dir);

// ---- writing
Status begin_checkpoint(Storage& storage, const std::string& dir, int64_t step);

struct ShardPart {
  size_t tensor = 0;  // index into Manifest::tensors
  Box box;
};
// The bytes of a part, row-major; they need to last until the next call.
using ReadPart = std::function<Result<std::span<const std::byte>>(size_t part)>;
struct ShardReport {
  ManifestFile file;
  std::vector<uint64_t> checksums;  // of the parts
};
std::string shard_name(int rank);
std::string array_name(const ManifestTensor& tensor, const Box& box);  // "w", "w[0:4, 8:16]"
// `tensors`: names, dtypes and shapes.
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step, int rank,
                                const std::vector<ManifestTensor>& tensors,
                                const std::vector<ShardPart>& parts, const ReadPart& read);
// Fills in files and boxes: of each rank, what it wrote and what it reported.
void add_shards(Manifest& manifest, const std::vector<std::vector<ShardPart>>& parts,
                const std::vector<ShardReport>& reports);
Status commit_checkpoint(Storage& storage, const std::string& dir, const Manifest& manifest);
// Leaves `keep` (at least 1) checkpoints, that of `step` and the ones before it.
Status remove_old(Storage& storage, const std::string& dir, int64_t step, int64_t keep);
// A damaged checkpoint is renamed to damaged-step-N, out of the way of the run that goes on before
// it. Returns the new path.
Result<std::string> set_aside(Storage& storage, const std::string& dir, int64_t step);

// ---- reading
class CheckpointSource : public TensorSource {
 public:
  virtual const Manifest& manifest() const = 0;
};
// A checkpoint's folder. Thread-safe. Errors: those of parse_manifest; a fault for a shard that is
// missing or has another size.
Result<std::unique_ptr<CheckpointSource>> open_checkpoint(const std::string& folder);
bool is_checkpoint(const std::string& folder);  // has it a manifest?

struct Damage {
  std::string file;         // path
  std::string tensor, box;  // "" where it is the file as such
  std::string what;         // "expected checksum ..., found ..."
  std::string to_string() const;
};
// Reads all bytes of the files `share`, `share` + `of`, ... and compares the checksums.
std::vector<Damage> find_damage(const std::string& folder, const Manifest& manifest,
                                size_t share = 0, size_t of = 1);

// A copy of a checkpoint's folder in DIR, by the protocol; what is copied is compared with the
// checksums. Error (a failed check): damage.
Status copy_checkpoint(Storage& storage, const std::string& folder, const std::string& dir);
// All tensors, or those of role "parameter", as one safetensors file, converted where `dtype` is
// given and the tensor is floating.
Status copy_to_file(Storage& storage, const CheckpointSource& source, const std::string& file,
                    bool only_parameters, std::optional<DType> dtype);

// Copies `region` from one row-major array to another; both boxes contain it.
void copy_elements(int64_t element_bytes, const std::byte* from, const Box& from_box, std::byte* to,
                   const Box& to_box, const Box& region);

}  // namespace tessera
