#include "tessera/import/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/import/convert/dcp_write.h"
#include "tessera/import/convert/plan_pieces.h"
#include "tessera/import/convert/state.h"
#include "tessera/import/dcp/source.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/shares.h"

namespace tessera {
namespace {

// ---- a checkpoint of Tessera

std::string role_of(const std::string& name) {
  return name.starts_with("optimizer.") ? "optimizer_state" : "parameter";
}

// Fills parts of a shard from a source. The shard is written from front to back, so that the part
// that was read last is kept.
class PartReader {
 public:
  PartReader(const TensorSource& source, const std::vector<ManifestTensor>& tensors,
             const std::vector<ShardPart>& parts)
      : source_(source), tensors_(tensors), parts_(parts) {}

  Status fill(size_t part, int64_t begin, std::span<std::byte> out) {
    if (part != read_) {
      const ManifestTensor& tensor = tensors_[parts_[part].tensor];
      const Box& box = parts_[part].box;
      bytes_.resize(static_cast<size_t>(box.volume() * dtype_bytes(tensor.dtype)));
      TESSERA_TRY_VOID(source_.read(*source_.find(tensor.name), box, tensor.dtype, bytes_.data()));
      read_ = part;
    }
    std::copy_n(bytes_.begin() + begin, out.size(), out.begin());
    return {};
  }

 private:
  const TensorSource& source_;
  const std::vector<ManifestTensor>& tensors_;
  const std::vector<ShardPart>& parts_;
  size_t read_ = SIZE_MAX;
  std::vector<std::byte> bytes_;
};

Result<ConvertReport> write_checkpoint(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const PlanPieces held, pieces_of(request.plan, state.model_text));
  Manifest manifest;
  manifest.step = state.step.value_or(0);
  manifest.seed = request.seed.value_or(state.seed.value_or(1));
  manifest.ranks = held.ranks;
  manifest.model = state.model.spec;
  manifest.plan = held.text;
  manifest.run = run_of(state);
  std::vector<int64_t> element_bytes;
  std::vector<std::vector<HeldBox>> boxes(static_cast<size_t>(held.ranks));
  for (const SourceArray& array : state.tensors->arrays()) {
    const size_t tensor = manifest.tensors.size();
    const auto regions = held.regions.find(array.name);
    for (size_t rank = 0; rank < boxes.size(); ++rank) {
      const Box box = regions == held.regions.end() ? (rank == 0 ? Box::whole(array.shape) : Box())
                                                    : regions->second[rank];
      if (rank == 0 || regions != held.regions.end()) {
        if (!box.empty()) boxes[rank].push_back({tensor, box});
      }
    }
    manifest.tensors.push_back({array.name, role_of(array.name), array.dtype, array.shape, {}});
    element_bytes.push_back(dtype_bytes(array.dtype));
  }
  FileSystem disk;
  const std::string path = checkpoint_path(request.to, manifest.step);
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    return invalid_input(
        fmt::format("{}: expected a folder that does not exist yet, found one", path));
  }
  const bool made = !std::filesystem::exists(std::filesystem::symlink_status(request.to, error));
  TESSERA_TRY_VOID(begin_checkpoint(disk, request.to, manifest.step));
  std::vector<std::vector<ShardPart>> parts;
  std::vector<ShardReport> reports;
  for (const std::vector<HeldBox>& share : share_out(element_bytes, boxes)) {
    std::vector<ShardPart>& list = parts.emplace_back();
    for (const HeldBox& one : share) list.push_back({one.tensor, one.box});
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Shard shard = plan_shard(static_cast<int>(rank), manifest.tensors, parts[rank]);
    PartReader reader(*state.tensors, manifest.tensors, parts[rank]);
    auto report = write_shard(disk, request.to, manifest.step, shard,
                              [&](size_t part, int64_t begin, std::span<std::byte> out) {
                                return reader.fill(part, begin, out);
                              });
    if (!report) {
      std::filesystem::remove_all(made ? request.to : writing_path(request.to, manifest.step),
                                  error);
      return tl::unexpected(report.error());
    }
    reports.push_back(std::move(*report));
  }
  add_shards(manifest, parts, reports);
  TESSERA_TRY_VOID(commit_checkpoint(disk, request.to, manifest));
  ConvertReport done;
  done.path = path;
  if (!manifest.run.empty()) {
    std::string keys = manifest.run;
    std::replace(keys.begin(), keys.end(), '\n', ',');
    done.notes.push_back("its optimizer had " + keys.substr(0, keys.size() - 1));
  }
  done.tensors = std::ssize(manifest.tensors);
  done.bytes = manifest.bytes();
  if (!state.has_optimizer) {
    done.notes.emplace_back("it has no state of AdamW: a run begins from it by weights = \"" +
                            path + "\"");
  }
  return done;
}

// ---- a Hugging Face folder

Result<ConvertReport> write_huggingface(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const ExportedWeights exported,
              export_huggingface(*state.tensors, state.theirs.get(), state.model_text, request.to));
  ConvertReport done;
  done.path = request.to;
  done.tensors = exported.arrays;
  done.bytes = exported.bytes;
  done.notes = exported.notes;
  if (!request.plan.empty())
    done.notes.emplace_back("a Hugging Face folder has whole arrays: the plan changes nothing");
  if (state.has_optimizer)
    done.notes.emplace_back("a Hugging Face folder has no place for the optimizer's state");
  return done;
}

// Checks that nothing else is where the result is to be.
Status check_target(const ConvertRequest& request) {
  std::error_code error;
  const char* found = std::filesystem::equivalent(request.from, request.to, error) ? "FROM itself"
                      : is_huggingface_folder(request.to) ? "a Hugging Face folder"
                      : dcp::is_dcp(request.to) ? "a folder of torch.distributed.checkpoint"
                                                : nullptr;
  if (found == nullptr) return {};
  return invalid_input(fmt::format("{}: expected a TO of its own, found {}", request.to, found));
}

}  // namespace

Result<ConvertReport> convert_checkpoint(const ConvertRequest& request) {
  TESSERA_TRY_VOID(check_target(request));
  TESSERA_TRY(const TrainingState state, open_state(request.from, request.model));
  const std::string format = !request.format.empty()     ? request.format
                             : state.format == "tessera" ? "dcp"
                                                         : "tessera";
  // A Hugging Face folder has no place for what is not read.
  if (format != "hf" && !state.unread_optimizer.empty())
    return invalid_input(state.unread_optimizer);
  const auto write = format == "tessera"      ? write_checkpoint
                     : format == "dcp"        ? write_dcp
                     : format == "torch_dist" ? write_torch_dist
                                              : write_huggingface;
  TESSERA_TRY(ConvertReport done, write(state, request));
  done.from = state.format;
  done.to = format;
  done.step = state.step;
  if (format != "hf") done.notes.insert(done.notes.end(), state.notes.begin(), state.notes.end());
  return done;
}

}  // namespace tessera
