// Checkpoints: folders of safetensors shards beside a manifest, and how a checkpoint is written.
//
//   DIR/step-000000000050/manifest.json                  which box of which tensor lies where
//                         rank-00000.safetensors, ...    what each rank wrote (shares.h)
//
// Writing is a protocol, so that, whatever stops it at any moment, the newest complete checkpoint
// is found by its name and is whole:
//   1. begin_checkpoint, one rank: leftovers of writers that were stopped (writing-*) are removed,
//      and the folder DIR/writing-step-N is made.
//   2. write_shard, every rank: a new file in that folder, written once from front to back, synced.
//      Its contents are planned (plan_shard), so that memory for a copy of them can be taken ahead:
//      fill_shard makes the copy while the run waits, and write_shard writes it beside the run.
//      The checksum of one piece is computed while the piece before it is written.
//   3. commit_checkpoint, one rank, when all have done 2: the manifest is written as a file of that
//      folder and synced; then the folder is synced, so that the names of all files are durable.
//   4. The folder is renamed to DIR/step-N. From this moment the checkpoint exists.
//   5. DIR is synced. From here on the checkpoint survives a loss of power.
//   6. remove_old, one rank: all older checkpoints but the newest few are removed; each is
//      renamed to writing-* first, so that a half-removed one is a leftover.
// A folder step-N without a manifest has lost it; a run that goes on sets the folder aside as
// damaged.
//
// No two runs write to one DIR. Errors of writing are faults that name the file. open_checkpoint()
// reads the manifest and compares the sizes of all shards. After that, only the byte ranges of the
// regions that are asked for are read, and the boxes that are compared with a checksum; one reading
// serves both. find_damage() reads all bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/state/manifest.h"
#include "tessera/state/safetensors.h"
#include "tessera/state/shares.h"
#include "tessera/state/source.h"
#include "tessera/state/storage.h"

namespace tessera {

struct CheckpointFolder {
  int64_t step = 0;
  std::string path;
  bool has_manifest = true;  // without one it is damaged: the protocol makes no such folder
};
// Returns the step in the name of a folder step-N; none if the name has another form.
std::optional<int64_t> step_of_name(const std::string& path);
std::string checkpoint_path(const std::string& dir, int64_t step);
std::string writing_path(const std::string& dir, int64_t step);  // while it is being written
// Returns all entries of DIR that are called step-N, by step; {} if there is no such folder. A file
// or link of such a name counts as damaged.
Result<std::vector<CheckpointFolder>> step_folders_in(Storage& storage, const std::string& dir);
// Returns the step-N folders that have a manifest.
Result<std::vector<CheckpointFolder>> checkpoints_in(Storage& storage, const std::string& dir);

// ---- writing
Status begin_checkpoint(Storage& storage, const std::string& dir, int64_t step);

struct ShardPart {
  size_t tensor = 0;  // index into Manifest::tensors
  Box box;
};
std::string shard_name(int rank);
std::string array_name(const ManifestTensor& tensor, const Box& box);  // "w", "w[0:4, 8:16]"
// The file of a rank, before any of it exists. It is equal for every save of a run.
struct Shard {
  std::string name;
  SafetensorsLayout layout;
  int64_t bytes() const { return layout.bytes; }
};
// Makes the plan of a rank's file. Only names, dtypes and shapes of `tensors` are used.
Shard plan_shard(int rank, const std::vector<ManifestTensor>& tensors,
                 const std::vector<ShardPart>& parts);
// Writes bytes [begin, begin + out.size()) of a part, row-major.
using FillPart = std::function<Status(size_t part, int64_t begin, std::span<std::byte> out)>;
// Writes bytes [begin, begin + out.size()) of the file.
Status fill_shard(const Shard& shard, const FillPart& fill, int64_t begin,
                  std::span<std::byte> out);

struct ShardReport {
  ManifestFile file;
  std::vector<uint64_t> checksums;  // of the parts
};
// Returns the bytes of `memory` that write_shard can use: two pieces, one of which is filled while
// the other is written. Best aligned to kStorageBlock; without it write_shard takes memory of its
// own.
int64_t piece_memory(const Storage& storage, const Shard& shard);
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, const FillPart& fill,
                                std::span<std::byte> memory = {});
// Writes the shard from memory that fill_shard has filled from byte 0, best aligned to
// kStorageBlock.
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, std::span<const std::byte> image);
// Fills in files and boxes from each rank's parts and its report.
void add_shards(Manifest& manifest, const std::vector<std::vector<ShardPart>>& parts,
                const std::vector<ShardReport>& reports);
Status commit_checkpoint(Storage& storage, const std::string& dir, const Manifest& manifest);
// Keeps `keep` (at least 1) checkpoints: that of `step` and the newest before it; removes older
// ones.
Status remove_old(Storage& storage, const std::string& dir, int64_t step, int64_t keep);
// Renames a damaged checkpoint to damaged-step-N, so that the run can go on from an earlier one.
// Returns the new path.
Result<std::string> set_aside(Storage& storage, const std::string& dir, int64_t step);

// ---- reading
// A box of a manifest, by its place in the lists.
struct StoredBox {
  size_t tensor = 0, box = 0;
  friend bool operator==(const StoredBox&, const StoredBox&) = default;
};
// The files and boxes that one rank compares with their checksums.
struct Comparisons {
  std::vector<size_t> files;  // files whose heads are compared
  std::vector<StoredBox> boxes;
};
// Shares the comparisons among ranks that read together, so that everything is compared once. The
// answer depends only on the manifest and on what all ranks want (by rank; tensors by their place
// in the manifest), so all ranks compute the same one. A box goes to the rank that wants most of
// its elements, and so reads the fewest extra ones; among several, to the rank that compares the
// fewest bytes.
std::vector<Comparisons> share_comparisons(const Manifest& manifest,
                                           const std::vector<std::vector<HeldBox>>& wanted);

// A region that a rank wants, and where to put it.
struct WantedRegion {
  size_t tensor = 0;  // in the manifest
  Box region;
  DType dtype = DType::kFloat32;
  std::byte* out = nullptr;  // row-major
};

class CheckpointSource : public TensorSource {
 public:
  virtual const Manifest& manifest() const = 0;
  // Reads all regions and makes the comparisons. Reads each file from front to back, and each byte
  // of a compared box once. Errors: a fault that names what is damaged; the regions are then filled
  // in part.
  virtual Status load(const std::vector<WantedRegion>& wanted,
                      const Comparisons& compare) const = 0;
};
// Opens a checkpoint's folder. The source is thread-safe. With `compares`, read() compares each box
// with its checksum when it first reads any of the box; bytes_read() counts only the bytes asked
// for. Errors: those of parse_manifest; a fault if the manifest or a shard is no file or a shard
// has another size, and, when it is read, for what is damaged.
Result<std::unique_ptr<CheckpointSource>> open_checkpoint(const std::string& folder,
                                                          bool compares = false);
bool is_checkpoint(const std::string& folder);  // whether it has a manifest, readable or not

struct Damage {
  std::string file;         // path
  std::string tensor, box;  // "" if the file as such is damaged
  std::string what;         // "expected checksum ..., found ..."
  std::string to_string() const;
};
// Reads all bytes and compares the checksums.
std::vector<Damage> find_damage(const std::string& folder, const Manifest& manifest);

// Copies a checkpoint's folder to DIR, by the protocol, and compares the copied bytes with the
// checksums. Errors: a failed check if the checkpoint is damaged.
Status copy_checkpoint(Storage& storage, const std::string& folder, const std::string& dir);
// Writes all tensors, or those of role "parameter", to one safetensors file. Floating tensors are
// converted if `dtype` is given.
Status copy_to_file(Storage& storage, const CheckpointSource& source, const std::string& file,
                    bool only_parameters, std::optional<DType> dtype);

}  // namespace tessera
