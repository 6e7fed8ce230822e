// Implements the writing half of checkpoint.h.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/safetensors.h"

namespace tessera {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kWriting = "writing-";
constexpr std::string_view kDamaged = "damaged-";

std::string step_name(int64_t step) { return fmt::format("{}{:012}", kStep, step); }

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Status write_file(Storage& storage, const std::string& path, std::string_view text) {
  TESSERA_TRY(const auto file, storage.create(path));
  TESSERA_TRY_VOID(file->write(bytes_of(text).data(), static_cast<int64_t>(text.size())));
  return file->sync();
}

// Removes a leftover of an interrupted writer. It is usually a folder of files, but folders in
// folders are removed, too. A file or a link with such a name is also removed; the target of a link
// stays.
Status remove_leftover(Storage& storage, const std::string& path) {
  if (storage.remove_file(path)) return {};
  TESSERA_TRY(const std::vector<std::string> names, storage.list(path));
  for (const std::string& name : names)
    TESSERA_TRY_VOID(remove_leftover(storage, path_in(path, name)));
  return storage.remove_folder(path);
}

}  // namespace

std::string writing_path(const std::string& dir, int64_t step) {
  return path_in(dir, std::string(kWriting) + step_name(step));
}

std::string checkpoint_path(const std::string& dir, int64_t step) {
  return path_in(dir, step_name(step));
}

std::optional<int64_t> step_of_name(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  const std::string whole = path.substr(0, last == std::string::npos ? 0 : last + 1);
  const std::string name = whole.substr(whole.rfind('/') + 1);
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto step = parse_int(name.substr(kStep.size()));
  if (!step || *step < 0 || name != step_name(*step)) return std::nullopt;
  return *step;
}

Result<std::vector<CheckpointFolder>> step_folders_in(Storage& storage, const std::string& dir) {
  TESSERA_TRY(const std::vector<std::string> names, storage.list(dir));
  std::vector<CheckpointFolder> found;
  for (const std::string& name : names) {
    const std::optional<int64_t> step = step_of_name(name);
    if (!step) continue;
    TESSERA_TRY(const std::vector<std::string> files, storage.list(path_in(dir, name)));
    const bool has_manifest = std::find(files.begin(), files.end(), kManifestName) != files.end();
    found.push_back({*step, path_in(dir, name), has_manifest});
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointFolder& a, const CheckpointFolder& b) { return a.step < b.step; });
  return found;
}

Result<std::vector<CheckpointFolder>> checkpoints_in(Storage& storage, const std::string& dir) {
  TESSERA_TRY(std::vector<CheckpointFolder> found, step_folders_in(storage, dir));
  std::erase_if(found, [](const CheckpointFolder& one) { return !one.has_manifest; });
  return found;
}

Status begin_checkpoint(Storage& storage, const std::string& dir, int64_t step) {
  TESSERA_TRY_VOID(storage.make_folder(dir));
  TESSERA_TRY(const std::vector<std::string> names, storage.list(dir));
  for (const std::string& name : names) {
    if (name.starts_with(kWriting)) TESSERA_TRY_VOID(remove_leftover(storage, path_in(dir, name)));
  }
  return storage.make_folder(writing_path(dir, step));
}

void add_shards(Manifest& manifest, const std::vector<std::vector<ShardPart>>& parts,
                const std::vector<ShardReport>& reports) {
  for (size_t file = 0; file < reports.size(); ++file) {
    manifest.files.push_back(reports[file].file);
    for (size_t i = 0; i < parts[file].size(); ++i) {
      const ShardPart& part = parts[file][i];
      ManifestTensor& tensor = manifest.tensors[part.tensor];
      tensor.boxes.push_back(
          {part.box, file, array_name(tensor, part.box), reports[file].checksums[i]});
    }
  }
}

Status commit_checkpoint(Storage& storage, const std::string& dir, const Manifest& manifest) {
  const std::string why = why_invalid(manifest);
  TESSERA_CHECK(why.empty(), "manifest of step {}: {}", manifest.step, why);
  const std::string writing = writing_path(dir, manifest.step);
  TESSERA_TRY_VOID(
      write_file(storage, path_in(writing, std::string(kManifestName)), to_text(manifest)));
  TESSERA_TRY_VOID(storage.sync_folder(writing));
  TESSERA_TRY_VOID(storage.rename(writing, checkpoint_path(dir, manifest.step)));
  return storage.sync_folder(dir);
}

Status remove_old(Storage& storage, const std::string& dir, int64_t step, int64_t keep) {
  TESSERA_TRY(std::vector<CheckpointFolder> old, checkpoints_in(storage, dir));
  std::erase_if(old, [&](const CheckpointFolder& one) { return one.step >= step; });
  for (auto left = static_cast<int64_t>(old.size()); left >= std::max<int64_t>(keep, 1); --left) {
    const CheckpointFolder& oldest = old[old.size() - static_cast<size_t>(left)];
    const std::string leftover = writing_path(dir, oldest.step);
    TESSERA_TRY_VOID(storage.rename(oldest.path, leftover));
    TESSERA_TRY_VOID(storage.sync_folder(dir));
    TESSERA_TRY_VOID(remove_leftover(storage, leftover));
  }
  return {};
}

Result<std::string> set_aside(Storage& storage, const std::string& dir, int64_t step) {
  TESSERA_TRY(const std::vector<std::string> names, storage.list(dir));
  std::string name = std::string(kDamaged) + step_name(step);
  for (int again = 2; std::find(names.begin(), names.end(), name) != names.end(); ++again)
    name = fmt::format("{}{}.{}", kDamaged, step_name(step), again);
  const std::string path = path_in(dir, name);
  TESSERA_TRY_VOID(storage.rename(checkpoint_path(dir, step), path));
  TESSERA_TRY_VOID(storage.sync_folder(dir));
  return path;
}

namespace {

constexpr int64_t kWrittenBytes = 4 << 20;

Status copy_file(Storage& storage, const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  if (!in) return fault(from + ": cannot read");
  TESSERA_TRY(const auto out, storage.create(to));
  std::vector<char> piece(kWrittenBytes);
  while (in) {
    in.read(piece.data(), kWrittenBytes);
    TESSERA_TRY_VOID(out->write(reinterpret_cast<const std::byte*>(piece.data()), in.gcount()));
  }
  if (in.bad()) return fault(from + ": cannot read");
  return out->sync();
}

}  // namespace

Status copy_checkpoint(Storage& storage, const std::string& folder, const std::string& dir) {
  TESSERA_TRY(const auto source, open_checkpoint(folder));
  const Manifest& manifest = source->manifest();
  TESSERA_TRY(const auto there, step_folders_in(storage, dir));
  for (const CheckpointFolder& one : there) {
    if (one.step == manifest.step) {
      return invalid_input(
          fmt::format("{}: expected no checkpoint of step {}, found one", dir, one.step));
    }
  }
  const std::vector<Damage> damage = find_damage(folder, manifest);
  if (!damage.empty()) return check_failed(damage.front().to_string());
  TESSERA_TRY_VOID(begin_checkpoint(storage, dir, manifest.step));
  const std::string writing = writing_path(dir, manifest.step);
  Status copied;
  for (const ManifestFile& file : manifest.files) {
    if (!copied) break;
    copied = copy_file(storage, path_in(folder, file.name), path_in(writing, file.name));
  }
  if (copied) copied = commit_checkpoint(storage, dir, manifest);
  if (!copied) (void)remove_leftover(storage, writing);  // the failed copy is reported, not this
  return copied;
}

namespace {

Status write_arrays(Storage& storage, const CheckpointSource& source,
                    const SafetensorsLayout& layout, const std::string& path) {
  TESSERA_TRY(const auto out, storage.create(path));
  TESSERA_TRY_VOID(
      out->write(bytes_of(layout.head).data(), static_cast<int64_t>(layout.head.size())));
  std::vector<std::byte> data;
  for (const ArrayEntry& array : layout.arrays) {
    data.resize(static_cast<size_t>(array.bytes));
    const SourceArray* from = source.find(array.name);
    TESSERA_CHECK(from != nullptr, "{}", array.name);
    TESSERA_TRY_VOID(source.read(*from, Box::whole(array.shape), array.dtype, data.data()));
    TESSERA_TRY_VOID(out->write(data.data(), array.bytes));
  }
  return out->sync();
}

}  // namespace

Status copy_to_file(Storage& storage, const CheckpointSource& source, const std::string& file,
                    bool only_parameters, std::optional<DType> dtype) {
  std::vector<ArrayEntry> arrays;
  for (const ManifestTensor& tensor : source.manifest().tensors) {
    if (only_parameters && tensor.role != "parameter") continue;
    const bool change = dtype && is_floating(tensor.dtype);
    arrays.push_back({tensor.name, change ? *dtype : tensor.dtype, tensor.shape});
  }
  const SafetensorsLayout layout = layout_safetensors(std::move(arrays));
  const std::string writing = file + ".writing";
  TESSERA_TRY(const std::vector<std::string> beside, storage.list(parent_of(file)));
  const std::string leftover = writing.substr(writing.rfind('/') + 1);
  if (std::find(beside.begin(), beside.end(), leftover) != beside.end())
    TESSERA_TRY_VOID(storage.remove_file(writing));
  Status written = write_arrays(storage, source, layout, writing);
  if (written) written = storage.rename(writing, file);
  if (written) return storage.sync_folder(parent_of(file));
  (void)storage.remove_file(writing);  // the failed write is reported, not this
  return written;
}

}  // namespace tessera
