// Checkpoints: folders with a manifest and shards (safetensors files), and how a checkpoint is
// written and read.
//
//   DIR/step-000000000050/manifest.json                  which box of which tensor lies where
//                         rank-00000.safetensors, ...    what each rank wrote (shares.h)
//
// Writing is a protocol of six steps. If it is interrupted at any moment, the newest complete
// checkpoint can still be found by its name and is whole:
//   1. begin_checkpoint, one rank: removes what interrupted writers have left (writing-*) and makes
//      the folder DIR/writing-step-N.
//   2. write_shard, every rank: makes a new file in that folder, writes it once from front to back,
//      and syncs it. plan_shard computes the layout of the file ahead, so that the run can take
//      memory for a copy of them before the first save. fill_shard then makes the copy while the
//      training waits, and write_shard writes the copy to the file while the training goes on.
//      The checksum of one piece is computed while the piece before it is written.
//   3. commit_checkpoint, one rank, after all ranks have done step 2: the manifest is written as a
//      file of that folder and synced; then the folder is synced, so that the names of all its
//      files are durable.
//   4. The folder is renamed to DIR/step-N. From this moment the checkpoint exists.
//   5. DIR is synced. From here on the checkpoint survives a loss of power.
//   6. remove_old, one rank: keeps the newest few checkpoints and removes all older ones. Each is
//      renamed to writing-* first, so that the next begin_checkpoint removes a half-removed one.
// The protocol makes no folder step-N without a manifest, so such a folder is damaged. A run that
// resumes renames the folder and goes on from an earlier checkpoint (set_aside).
//
// No two runs write to one DIR. Errors of writing are faults that name the file. open_checkpoint()
// reads the manifest and compares its sizes of the shards with the files. After that, only two
// kinds of bytes are read: the ranges of the regions that are asked for, and the boxes whose
// checksum is compared. Bytes that serve both purposes are read once. find_damage() reads all
// bytes.
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
  bool has_manifest = true;  // a folder without a manifest is damaged
};
// Returns the step in the name of a folder step-N; nothing if the name has another form.
std::optional<int64_t> step_of_name(const std::string& path);
std::string checkpoint_path(const std::string& dir, int64_t step);
// Returns the path of the checkpoint's folder while it is being written.
std::string writing_path(const std::string& dir, int64_t step);
// Returns all entries of DIR that are called step-N, by step; {} if DIR does not exist. A file or
// link with such a name is returned as a folder without a manifest.
Result<std::vector<CheckpointFolder>> step_folders_in(Storage& storage, const std::string& dir);
// Returns the step-N folders that have a manifest.
Result<std::vector<CheckpointFolder>> checkpoints_in(Storage& storage, const std::string& dir);

// ---- writing
Status begin_checkpoint(Storage& storage, const std::string& dir, int64_t step);

struct ShardPart {
  size_t tensor = 0;  // the tensor's index in Manifest::tensors
  Box box;
};
std::string shard_name(int rank);
std::string array_name(const ManifestTensor& tensor, const Box& box);  // "w", "w[0:4, 8:16]"
// The plan of the file that a rank writes, which needs no contents. It is the same for every save
// of a run.
struct Shard {
  std::string name;
  SafetensorsLayout layout;
  int64_t bytes() const { return layout.bytes; }
};
// Makes the plan of a rank's file. Only names, dtypes and shapes of `tensors` are used.
Shard plan_shard(int rank, const std::vector<ManifestTensor>& tensors,
                 const std::vector<ShardPart>& parts);
// Writes bytes [begin, begin + out.size()) of a part, as a row-major array, to `out`.
using FillPart = std::function<Status(size_t part, int64_t begin, std::span<std::byte> out)>;
// Writes bytes [begin, begin + out.size()) of the shard's file to `out`. `fill` supplies the bytes
// of the parts.
Status fill_shard(const Shard& shard, const FillPart& fill, int64_t begin,
                  std::span<std::byte> out);

struct ShardReport {
  ManifestFile file;
  std::vector<uint64_t> checksums;  // by part, in the order of plan_shard
};
// Returns the bytes of `memory` that write_shard below can use. They hold two pieces of the file:
// one is filled while the other is written. The memory should be aligned to kStorageBlock, for
// speed. Without memory, write_shard allocates its own.
int64_t piece_memory(const Storage& storage, const Shard& shard);
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, const FillPart& fill,
                                std::span<std::byte> memory = {});
// Writes the shard from `image`, the whole file in memory, which fill_shard has filled from byte 0.
// The memory should be aligned to kStorageBlock, for speed.
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, std::span<const std::byte> image);
// Fills in the files of the manifest and the boxes of its tensors from each rank's parts and
// report.
void add_shards(Manifest& manifest, const std::vector<std::vector<ShardPart>>& parts,
                const std::vector<ShardReport>& reports);
Status commit_checkpoint(Storage& storage, const std::string& dir, const Manifest& manifest);
// Keeps `keep` (at least 1) checkpoints: the one of `step` and the newest ones before it. Removes
// all older checkpoints.
Status remove_old(Storage& storage, const std::string& dir, int64_t step, int64_t keep);
// Renames a damaged checkpoint to damaged-step-N, so that the run can go on from an earlier one.
// Returns the new path.
Result<std::string> set_aside(Storage& storage, const std::string& dir, int64_t step);

// ---- reading
// Names a box of a manifest by two indices: `tensor` in Manifest::tensors, and `box` in the
// tensor's list of boxes.
struct StoredBox {
  size_t tensor = 0, box = 0;
  friend bool operator==(const StoredBox&, const StoredBox&) = default;
};
// The files and boxes that one rank compares with their checksums when ranks load a checkpoint.
struct Comparisons {
  std::vector<size_t> files;  // files whose bytes before the arrays are compared
  std::vector<StoredBox> boxes;
};
// Divides the comparisons among ranks that read together, so that everything is compared once.
// `wanted` lists by rank the boxes that the rank wants; HeldBox::tensor is an index into
// Manifest::tensors. The answer depends only on the arguments, so all ranks compute the same one
// without talking. A stored box goes to the rank that wants the most of its elements, because this
// rank reads the fewest extra bytes for the comparison. If several ranks want equally many, it goes
// to the one that compares the fewest bytes so far.
std::vector<Comparisons> share_comparisons(const Manifest& manifest,
                                           const std::vector<std::vector<HeldBox>>& wanted);

// A region of a tensor that a rank wants, and where to put its elements.
struct WantedRegion {
  size_t tensor = 0;  // index into Manifest::tensors
  Box region;
  DType dtype = DType::kFloat32;
  std::byte* out = nullptr;  // row-major
};

class CheckpointSource : public TensorSource {
 public:
  virtual const Manifest& manifest() const = 0;
  // Reads all wanted regions and makes the comparisons. Each file is read from front to back, and
  // each byte of a compared box is read once. Errors: a fault that names what is damaged; some of
  // the regions may have been filled by then.
  virtual Status load(const std::vector<WantedRegion>& wanted,
                      const Comparisons& compare) const = 0;
};
// Opens the folder of a checkpoint. The source is thread-safe. With `compares`, read() compares a
// box with its checksum when it first reads any element of the box; bytes_read() does not count the
// extra bytes that this costs. Errors of opening: those of parse_manifest; a fault if the manifest
// or a shard is not a regular file, or if a shard's size is not the manifest's. Errors of reading:
// a fault that names what is damaged.
Result<std::unique_ptr<CheckpointSource>> open_checkpoint(const std::string& folder,
                                                          bool compares = false);
bool is_checkpoint(const std::string& folder);  // also true if the manifest cannot be read

struct Damage {
  std::string file;         // path
  std::string tensor, box;  // "" if the damage is of the file as a whole
  std::string what;         // "expected checksum ..., found ..."
  std::string to_string() const;
};
// Reads all bytes of the checkpoint, compares them with the checksums, and returns all damage.
std::vector<Damage> find_damage(const std::string& folder, const Manifest& manifest);

// Compares all bytes of a checkpoint's folder with the checksums, then copies the folder to DIR by
// the protocol above. Errors: a failed check if the checkpoint is damaged; invalid input if DIR
// already has a checkpoint of this step.
Status copy_checkpoint(Storage& storage, const std::string& folder, const std::string& dir);
// Writes the tensors of a checkpoint to one safetensors file: all of them, or with
// `only_parameters` those of role "parameter". If `dtype` is given, floating-point tensors are
// converted to it.
Status copy_to_file(Storage& storage, const CheckpointSource& source, const std::string& file,
                    bool only_parameters, std::optional<DType> dtype);

}  // namespace tessera
