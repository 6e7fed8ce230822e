// Where a run begins: which checkpoint or file of weights it can read, and whether that fits the run.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/convert.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/checkpoint/checkpoint_origin.h"
#include "tessera/runtime/checkpoint/checkpointing.h"
#include "tessera/runtime/checkpoint/held_state.h"

namespace tessera {

bool begins_with_weights(std::string_view pattern, std::string_view name) {
  return pattern.empty() || takes(pattern, name);
}

namespace {

std::string shape_text(DType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

// Returns a model's text without the dtype of its parameters, because a run may continue in
// another dtype.
std::string without_dtype(const std::string& model) {
  const size_t at = model.rfind(",dtype=");
  return at == std::string::npos ? model : model.substr(0, at);
}

// Checks that a source has the tensors that the run needs, by name and shape. A state that
// belongs to no parameter (the loss scale) may be missing, because a run of another precision has
// no such state.
Status check_tensors(const TensorSource& source, const Graph& graph, bool only_parameters,
                     std::string_view pattern, std::vector<std::string>& notes) {
  int64_t rounded = 0, wanted = 0;
  std::string first, begins;
  const std::vector<bool> state = state_of(graph);
  const Origins origins(graph);
  for (const Tensor& tensor : graph.tensors()) {
    if (!state[tensor.id.index()] || (only_parameters && tensor.role != Role::kParameter)) continue;
    const PieceOrigin origin = origins.of(tensor.id);
    if (!begins_with_weights(pattern, origin.name)) continue;
    ++wanted;
    const SourceArray* array = source.find(origin.name);
    if (array == nullptr && is_of_the_run(tensor)) {
      begins = tensor.name;
      continue;
    }
    if (array == nullptr || array->shape != origin.shape) {
      return invalid_input(
          fmt::format("{}: tensor {}: expected {}, found {}", source.where(), origin.name,
                      shape_text(tensor.dtype, origin.shape),
                      array == nullptr ? "none" : shape_text(array->dtype, array->shape)));
    }
    if (keeps_values(array->dtype, tensor.dtype)) continue;
    if (rounded++ == 0) {
      first = fmt::format("{} from {} to {}", origin.name, dtype_name(array->dtype),
                          dtype_name(tensor.dtype));
    }
  }
  if (wanted == 0 && !pattern.empty()) {
    return invalid_input(fmt::format(
        "weights_of: expected a pattern of the model's parameters, found '{}', which none has",
        pattern));
  }
  if (!begins.empty())
    notes.push_back(fmt::format("{}: it has no {}, which begins anew", source.where(), begins));
  if (rounded > 0) {
    notes.push_back(fmt::format("{}: values of {} tensors are rounded, as of {}", source.where(),
                                rounded, first));
  }
  return {};
}

Status check_run(const CheckpointSource& source, const RunConfig& config, const Compiled& compiled,
                 std::vector<std::string>& notes) {
  const Manifest& manifest = source.manifest();
  const std::string& model = compiled.model->spec;
  if (without_dtype(manifest.model) != without_dtype(model)) {
    return invalid_input(fmt::format("{}: expected the checkpoint's model {}, found {}",
                                     source.where(), manifest.model, model));
  }
  if (manifest.seed != config.seed) {
    return invalid_input(fmt::format("{}: expected the checkpoint's seed {}, found {}",
                                     source.where(), manifest.seed, config.seed));
  }
  TESSERA_TRY_VOID(check_tensors(source, compiled.graph(), false, "", notes));
  std::set<std::string> names;
  const Origins origins(compiled.graph());
  for (const Tensor& tensor : compiled.graph().tensors()) names.insert(origins.of(tensor.id).name);
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.role == kLossScaleRole || tensor.role == kResidualRole) continue;
    if (!names.contains(tensor.name)) {
      return invalid_input(
          fmt::format("{}: tensor {}: expected it in the run's model or optimizer, found none",
                      source.where(), tensor.name));
    }
  }
  return {};
}

// Checks that the manifest has the step `step`, which the folder's name states and from which the
// run continues.
Status check_step(const CheckpointSource& source, int64_t step) {
  if (source.manifest().step == step) return {};
  return invalid_input(fmt::format("{}: expected the checkpoint of step {}, found that of step {}",
                                   source.where(), step, source.manifest().step));
}

Result<Candidate> open_candidate(const CheckpointFolder& found, const std::string& dir,
                                 const RunConfig& config, const Compiled& compiled,
                                 std::vector<std::string>& notes) {
  Candidate candidate{found.step, dir, nullptr, ""};
  auto source = open_checkpoint(found.path);
  if (!source) {
    if (source.error().code != ErrorCode::kFault) return tl::unexpected(source.error());
    candidate.damage = source.error().message;
    return candidate;
  }
  TESSERA_TRY_VOID(check_step(**source, found.step));
  TESSERA_TRY_VOID(check_run(**source, config, compiled, notes));
  candidate.source = std::move(*source);
  return candidate;
}

}  // namespace

std::vector<std::pair<std::string, const CheckpointLevel*>> levels_of(const RunConfig& config) {
  std::vector<std::pair<std::string, const CheckpointLevel*>> levels;
  if (!config.checkpoint.fast.dir.empty())
    levels.emplace_back("checkpoint.fast.dir", &config.checkpoint.fast);
  if (!config.checkpoint.dir.empty()) levels.emplace_back("checkpoint.dir", &config.checkpoint);
  return levels;
}

Result<RunOrigin> open_origin(const RunConfig& config, const Compiled& compiled, Storage& storage) {
  RunOrigin origin;
  const std::string& dir = config.checkpoint.dir;
  if (config.resume && dir.empty()) {
    return invalid_input(fmt::format(
        "{}: expected the key 'checkpoint.dir' with --resume, for example checkpoint = {{ dir = "
        "\"checkpoints\" }}",
        config.file));
  }
  struct Found {
    CheckpointFolder folder;
    std::string dir;
  };
  std::vector<Found> all;
  for (const auto& [key, level] : levels_of(config)) {
    TESSERA_TRY(const std::vector<CheckpointFolder> found, step_folders_in(storage, level->dir));
    if (!found.empty() && !config.resume) {
      return invalid_input(
          fmt::format("{}: expected a folder without checkpoints, or --resume, found {}", key,
                      found.back().path));
    }
    for (const CheckpointFolder& one : found) all.push_back({one, level->dir});
  }
  if (config.resume && all.empty())
    origin.notes.push_back(fmt::format("{}: no checkpoint yet: the run begins", dir));
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return a.folder.step > b.folder.step; });
  for (const Found& one : all) {
    std::vector<std::string> notes;
    TESSERA_TRY(Candidate candidate, open_candidate(one.folder, one.dir, config, compiled, notes));
    if (origin.notes.empty()) origin.notes = std::move(notes);
    origin.candidates.push_back(std::move(candidate));
  }
  if (origin.candidates.empty() && !config.weights.empty()) {
    TESSERA_TRY(origin.weights, open_source(config.weights));
    TESSERA_TRY_VOID(
        check_tensors(*origin.weights, compiled.graph(), true, config.weights_of, origin.notes));
  }
  return origin;
}

}  // namespace tessera
