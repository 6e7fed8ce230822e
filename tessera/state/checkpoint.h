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
//      What it holds is planned (plan_shard), so that memory for a copy of it can be taken ahead:
//      fill_shard makes the copy while the run waits, and write_shard writes it beside the run.
//      Checksums are computed of one piece while the one before it is written.
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
// read from them is the byte ranges of the regions that are asked for, and what is compared with a
// checksum, of which one reading serves both. find_damage() reads all.
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
// The step of a folder step-N by its name; none: it is called otherwise.
std::optional<int64_t> step_of_name(const std::string& path);
std::string checkpoint_path(const std::string& dir, int64_t step);
std::string writing_path(const std::string& dir, int64_t step);  // while it is being written
// All that is called step-N in DIR, by step (a file or a link of that name is damaged too); none if
// there is no such folder.
Result<std::vector<CheckpointFolder>> step_folders_in(Storage& storage, const std::string& dir);
// Those of them that have a manifest.
Result<std::vector<CheckpointFolder>> checkpoints_in(Storage& storage, const std::string& dir);

// ---- writing
Status begin_checkpoint(Storage& storage, const std::string& dir, int64_t step);

struct ShardPart {
  size_t tensor = 0;  // index into Manifest::tensors
  Box box;
};
std::string shard_name(int rank);
std::string array_name(const ManifestTensor& tensor, const Box& box);  // "w", "w[0:4, 8:16]"
// The file of a rank, before any of it exists: the same for every save of a run.
struct Shard {
  std::string name;
  SafetensorsLayout layout;
  int64_t bytes() const { return layout.bytes; }
};
// `tensors`: names, dtypes and shapes.
Shard plan_shard(int rank, const std::vector<ManifestTensor>& tensors,
                 const std::vector<ShardPart>& parts);
// Writes bytes [begin, begin + out.size()) of a part, row-major.
using FillPart = std::function<Status(size_t part, int64_t begin, std::span<std::byte> out)>;
// Bytes [begin, begin + out.size()) of the file.
Status fill_shard(const Shard& shard, const FillPart& fill, int64_t begin,
                  std::span<std::byte> out);

struct ShardReport {
  ManifestFile file;
  std::vector<uint64_t> checksums;  // of the parts
};
// Through memory of two pieces, in which one is filled while the other is written: what is given
// (of piece_memory() bytes, best aligned to kStorageBlock), or else memory of its own.
int64_t piece_memory(const Storage& storage, const Shard& shard);
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, const FillPart& fill,
                                std::span<std::byte> memory = {});
// From memory that fill_shard has filled from byte 0, best aligned to kStorageBlock.
Result<ShardReport> write_shard(Storage& storage, const std::string& dir, int64_t step,
                                const Shard& shard, std::span<const std::byte> image);
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
// A box of a manifest, by its place in the lists.
struct StoredBox {
  size_t tensor = 0, box = 0;
  friend bool operator==(const StoredBox&, const StoredBox&) = default;
};
// What one rank compares with the checksums.
struct Comparisons {
  std::vector<size_t> files;  // of which the heads are compared
  std::vector<StoredBox> boxes;
};
// Everything is compared once by ranks that read together. A pure function of the manifest and of
// what all ranks want (by rank; tensors by their place in the manifest), so that all compute the same
// answer. A box goes to the rank that has to read the least more of it than it wants: to one that
// wants it whole, if there is one, and of several to the one that compares the least.
std::vector<Comparisons> share_comparisons(const Manifest& manifest,
                                           const std::vector<std::vector<HeldBox>>& wanted);

// A region that a rank wants, and where.
struct WantedRegion {
  size_t tensor = 0;  // in the manifest
  Box region;
  DType dtype = DType::kFloat32;
  std::byte* out = nullptr;  // row-major
};

class CheckpointSource : public TensorSource {
 public:
  virtual const Manifest& manifest() const = 0;
  // Reads all regions, and compares, each file from front to back, each byte of a box that is compared
  // once. A fault names what is damaged; what was wanted is then filled in part.
  virtual Status load(const std::vector<WantedRegion>& wanted,
                      const Comparisons& compare) const = 0;
};
// A checkpoint's folder. Thread-safe. With `compares`, read() compares each box with its checksum the
// first time that it reads anything of it; bytes_read() counts only what was asked for. Errors:
// those of parse_manifest; a fault for a manifest or a shard that is no file or has another size, and,
// when it is read, for what is damaged.
Result<std::unique_ptr<CheckpointSource>> open_checkpoint(const std::string& folder,
                                                          bool compares = false);
bool is_checkpoint(const std::string& folder);  // has it a manifest, readable or not?

struct Damage {
  std::string file;         // path
  std::string tensor, box;  // "" where it is the file as such
  std::string what;         // "expected checksum ..., found ..."
  std::string to_string() const;
};
// Reads all bytes and compares the checksums.
std::vector<Damage> find_damage(const std::string& folder, const Manifest& manifest);

// A copy of a checkpoint's folder in DIR, by the protocol; what is copied is compared with the
// checksums. Error (a failed check): damage.
Status copy_checkpoint(Storage& storage, const std::string& folder, const std::string& dir);
// All tensors, or those of role "parameter", as one safetensors file, converted where `dtype` is
// given and the tensor is floating.
Status copy_to_file(Storage& storage, const CheckpointSource& source, const std::string& file,
                    bool only_parameters, std::optional<DType> dtype);

}  // namespace tessera
