#include "tessera/runtime/checkpoint/restoring.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/checkpoint/checkpoint_origin.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/state/shares.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Checks that all ranks see the same list of checkpoints. If they do not, the folder is not
// shared by all ranks, which is an error.
Status check_candidates(const Restoring& r) {
  const std::vector<Candidate>& candidates = r.job.origin.candidates;
  const std::array<int64_t, 2> mine{std::ssize(candidates),
                                    candidates.empty() ? -1 : candidates.front().step};
  for (const auto& one : comm::gather_values(r.world, mine)) {
    if (one != mine) {
      return fault(
          fmt::format("{}: expected one folder for all ranks, found that they see "
                      "different checkpoints",
                      r.job.config.checkpoint.dir));
    }
  }
  return {};
}

// Returns the indices of a checkpoint's tensors, by name.
std::map<std::string_view, size_t> places_of(const Manifest& manifest) {
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) places[manifest.tensors[i].name] = i;
  return places;
}

// The regions that this rank reads from a source, and the memory into which the values are read.
struct Loading {
  std::vector<WantedRegion> wanted;
  std::vector<std::pair<const Home*, HostArray>> on_disk;  // homes on disk, with memory for
                                                           // their values
  std::vector<std::vector<float>> residuals;
  int64_t missing = 0;  // number of missing residuals
};

Loading loading_of(const Restoring& r, RankExecutor& executor, const Manifest& manifest) {
  Loading loading;
  const auto places = places_of(manifest);
  const std::vector<const Home*> homes = r.state.homes();
  loading.on_disk.reserve(homes.size());
  for (const Home* home : homes) {
    const PieceOrigin origin = r.state.origins.of(home->tensor);
    const auto place = places.find(origin.name);
    if (place == places.end()) continue;  // the user has already been told
    const DType dtype = r.program.buffer(home->buffer).dtype;
    std::byte* out = executor.memory(*home);
    if (out == nullptr) {
      HostArray& values =
          loading.on_disk.emplace_back(home, HostArray{home->tensor, home->region, dtype, {}})
              .second;
      values.data.resize(static_cast<size_t>(home->region.volume() * dtype_bytes(dtype)));
      out = values.data.data();
    }
    loading.wanted.push_back({place->second, origin.in_whole(home->region), dtype, out});
  }
  loading.residuals = executor.residuals();
  for (size_t i = 0; i < loading.residuals.size(); ++i) {
    const auto place = places.find(r.state.residual_name(executor, i));
    const std::vector<int64_t> shape{static_cast<int64_t>(loading.residuals[i].size())};
    if (place == places.end() || manifest.tensors[place->second].shape != shape) {
      ++loading.missing;
      continue;
    }
    loading.wanted.push_back({place->second, Box::whole(shape), DType::kFloat32,
                              reinterpret_cast<std::byte*>(loading.residuals[i].data())});
  }
  return loading;
}

// Returns, by rank, the boxes of a checkpoint that the rank reads.
std::vector<std::vector<HeldBox>> wanted_of_all(const Restoring& r, const Manifest& manifest) {
  const auto places = places_of(manifest);
  std::vector<std::vector<HeldBox>> wanted(r.state.held.size());
  for (size_t rank = 0; rank < r.state.held.size(); ++rank) {
    for (const HeldBox& one : r.state.held[rank]) {
      const auto place = places.find(r.state.tensors[one.tensor].name);
      if (place != places.end() &&
          manifest.tensors[place->second].shape == r.state.tensors[one.tensor].shape)
        wanted[rank].push_back({place->second, one.box});
    }
  }
  return wanted;
}

// Reads the r.state and compares checksums in one pass. Returns, on all ranks, the damage that the
// ranks have found; "" if there is none.
std::string load(const Restoring& r, RankExecutor& executor, const Candidate& one,
                 int64_t& missing) {
  std::string why = one.damage;
  Loading loading;
  if (one.source != nullptr) {
    const Manifest& manifest = one.source->manifest();
    loading = loading_of(r, executor, manifest);
    const auto compare = share_comparisons(manifest, wanted_of_all(r, manifest));
    const Status read =
        one.source->load(loading.wanted, compare[static_cast<size_t>(r.world.rank())]);
    if (!read) why = read.error().message;
  }
  for (std::string& found : comm::gather_bytes(r.world, why))
    if (!found.empty()) return std::move(found);
  for (const auto& [home, values] : loading.on_disk) executor.write(*home, values);
  if (!loading.residuals.empty()) executor.set_residuals(loading.residuals);
  missing = 0;
  for (const int64_t of_rank : comm::gather_values(r.world, loading.missing)) missing += of_rank;
  return "";
}

Status load_weights(const Restoring& r, RankExecutor& executor, const TensorSource& source) {
  const Clock::time_point start = Clock::now();
  for (const Home* home : r.state.homes()) {
    const Tensor& tensor = r.job.compiled.graph().tensor(home->tensor);
    if (tensor.role == Role::kOptimizerState) continue;
    const PieceOrigin origin = r.state.origins.of(tensor.id);
    if (!begins_with_weights(r.job.config.weights_of, origin.name)) continue;
    const SourceArray* array = source.find(origin.name);
    const Box region = origin.in_whole(home->region);
    // Weights may lack the running r.state of the model (Role::kBuffer); then the buffer keeps its
    // initial values.
    const bool fits = array != nullptr && array->shape == origin.shape;
    if (tensor.role == Role::kBuffer && !fits) continue;
    TESSERA_CHECK(array != nullptr, "{}", tensor.name);
    HostArray values{home->tensor, home->region, r.program.buffer(home->buffer).dtype, {}};
    std::byte* out = executor.memory(*home);
    if (out == nullptr) {
      values.data.resize(static_cast<size_t>(home->region.volume() * dtype_bytes(values.dtype)));
      TESSERA_TRY_VOID(source.read(*array, region, values.dtype, values.data.data()));
      executor.write(*home, values);
    } else {
      TESSERA_TRY_VOID(source.read(*array, region, values.dtype, out));
    }
  }
  r.world.barrier();
  r.bytes_read = source.bytes_read();
  return r.report_load({0, source.where(), r.bytes_read, seconds_since(start)});
}

Result<int64_t> continue_from_checkpoint(const Restoring& r, RankExecutor& executor) {
  const std::vector<Candidate>& candidates = r.job.origin.candidates;
  std::vector<std::string> damaged;
  int64_t missing = 0;
  Clock::time_point start = Clock::now();
  for (; damaged.size() < candidates.size(); start = Clock::now()) {
    const std::string why = load(r, executor, candidates[damaged.size()], missing);
    if (why.empty()) break;
    damaged.push_back(why);
    executor.initialise();  // a part of the damaged checkpoint may have been read
  }
  const double seconds = seconds_since(start);
  if (damaged.size() == candidates.size())
    return fault(damaged.front() + "; no checkpoint before it is whole");
  for (size_t i = 0; i < damaged.size() && r.world.rank() == 0; ++i) {
    TESSERA_TRY(const std::string path,
                set_aside(r.job.storage, candidates[i].dir, candidates[i].step));
    r.note(fmt::format("{}; it is set aside as {}", damaged[i], path));
  }
  const Candidate& one = candidates[damaged.size()];
  if (missing > 0) {
    r.note(fmt::format(
        "{}: {} residuals of compressed messages begin at zero: they are of another plan",
        one.source->where(), missing));
  }
  r.bytes_read = one.source->bytes_read();
  TESSERA_TRY_VOID(r.report_load({one.step, one.source->where(), r.bytes_read, seconds}));
  r.note(fmt::format("{}: the run goes on after step {}", one.source->where(), one.step));
  return one.step;
}

}  // namespace

Result<int64_t> restore_state(const Restoring& r, RankExecutor& executor) {
  for (const std::string& text : r.job.origin.notes) r.note(text);
  if (r.job.config.resume) TESSERA_TRY_VOID(check_candidates(r));
  if (!r.job.origin.candidates.empty()) return continue_from_checkpoint(r, executor);
  if (r.job.origin.weights != nullptr)
    TESSERA_TRY_VOID(load_weights(r, executor, *r.job.origin.weights));
  return 0;
}

}  // namespace tessera
