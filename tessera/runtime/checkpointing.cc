#include "tessera/runtime/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/convert.h"
#include "tessera/base/text.h"
#include "tessera/graph/ahead.h"
#include "tessera/graph/carried.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/pieces.h"
#include "tessera/program/text.h"
#include "tessera/runtime/arena.h"
#include "tessera/runtime/ranks.h"
#include "tessera/state/box_runs.h"
#include "tessera/state/checksum.h"
#include "tessera/state/shares.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kResidual = "residual";
constexpr std::string_view kLossScale = "loss_scale";

// Returns, for each tensor, whether it is state: a parameter, an optimizer state, or a buffer that
// steps change.
std::vector<bool> state_of(const Graph& graph) {
  std::vector<bool> state = carried_buffers(graph);
  const std::vector<bool> ahead = buffers_ahead(graph);
  for (const Tensor& tensor : graph.tensors()) {
    // A tensor that a step makes for the next one is not saved, because a run that continues makes
    // it again.
    if (ahead[tensor.id.index()]) state[tensor.id.index()] = false;
    if (tensor.producer.valid()) continue;
    if (tensor.role == Role::kParameter || tensor.role == Role::kOptimizerState)
      state[tensor.id.index()] = true;
  }
  return state;
}

// Returns whether a tensor is an optimizer state that belongs to no parameter, as that of the
// loss scale.
bool is_of_the_run(const Tensor& tensor) {
  return tensor.role == Role::kOptimizerState && !tensor.of.valid();
}

std::string shape_text(DType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

// Returns a model's text without the dtype of its parameters, because a run may continue in
// another dtype.
std::string without_dtype(const std::string& model) {
  const size_t at = model.rfind(",dtype=");
  return at == std::string::npos ? model : model.substr(0, at);
}

// Returns whether the run file's key `weights_of` names the tensor. "" names all tensors.
bool begins_with_weights(std::string_view pattern, std::string_view name) {
  return pattern.empty() || takes(pattern, name);
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
    if (tensor.role == kLossScale || tensor.role == kResidual) continue;
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

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

namespace {

std::vector<std::pair<std::string, const CheckpointLevel*>> levels_of(const RunConfig& config) {
  std::vector<std::pair<std::string, const CheckpointLevel*>> levels;
  if (!config.checkpoint.fast.dir.empty())
    levels.emplace_back("checkpoint.fast.dir", &config.checkpoint.fast);
  if (!config.checkpoint.dir.empty()) levels.emplace_back("checkpoint.dir", &config.checkpoint);
  return levels;
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

struct Checkpointing::Impl {
  Impl(const CheckpointJob& the_job, const Program& the_program, comm::Communicator& the_world)
      : job(the_job), program(the_program), world(the_world), origins(the_job.compiled.graph()) {
    for (const auto& [key, level] : levels_of(job.config)) {
      const bool durable = level->dir == job.config.checkpoint.dir;
      levels.push_back(std::make_unique<Level>(*level, durable));
    }
  }

  // The state of one level of checkpoints on this rank.
  struct Level {
    Level(const CheckpointLevel& the_config, bool is_durable)
        : config(the_config), durable(is_durable) {}
    const CheckpointLevel& config;
    bool durable;
    // Memory from which files are written. An asynchronous level has memory for a copy of all that
    // this rank writes. Another level has memory for two pieces.
    Arena copies;
    int64_t step = 0;
    double waited_s = 0;
    Clock::time_point start;
    std::future<Result<ShardReport>> writer;  // last member, so that it is joined before what it
                                              // reads is destroyed
  };

  const Graph& graph() const { return job.compiled.graph(); }
  bool saves() const { return !levels.empty(); }
  void note(const std::string& text) const {
    if (world.rank() == 0 && job.note) job.note(text);
  }

  // ---- what is held
  std::vector<const Home*> state_homes() const {
    std::vector<const Home*> homes;
    const std::vector<bool> state = state_of(graph());
    for (const Home& home : program.homes) {
      if (state[home.tensor.index()] && !home.region.empty()) homes.push_back(&home);
    }
    return homes;
  }

  // Returns the name of a residual. A residual is of use only to the same rank with the same
  // program, so the name contains the checksum of the program's text.
  std::string residual_name(int rank, size_t index, uint64_t text) const {
    return fmt::format("{}.rank{}.{}.{}", kResidual, rank, index, checksum_text(text));
  }
  std::string residual_name(const RankExecutor& executor, size_t index) {
    if (program_text == 0 && !executor.residual_sizes().empty())
      program_text = checksum(to_text(program, graph()));
    return residual_name(world.rank(), index, program_text);
  }

  // Tells all ranks which homes and residuals each rank has. From this all ranks compute the same
  // division: which rank writes what.
  void share(const RankExecutor& executor) {
    std::vector<int64_t> mine;
    const auto put = [&](int64_t value) { mine.push_back(value); };
    const std::vector<const Home*> homes = state_homes();
    put(static_cast<int64_t>(homes.size()));
    for (const Home* home : homes) {
      put(home->tensor.value);
      for (const Interval& one : home->region.dims) {
        put(one.begin);
        put(one.size);
      }
    }
    const std::vector<int64_t> residuals = executor.residual_sizes();
    put(static_cast<int64_t>(residuals.size()));
    if (!residuals.empty()) residual_name(executor, 0);  // makes program_text
    put(static_cast<int64_t>(program_text));
    for (const int64_t size : residuals) put(size);
    assign(comm::gather_lists(world, mine));
  }

  void assign(const std::vector<std::vector<int64_t>>& all) {
    std::map<int32_t, size_t> index;  // place of each tensor in `tensors`
    std::vector<std::vector<std::pair<int32_t, Box>>> homes(all.size());
    std::vector<ManifestTensor> residuals;
    std::vector<size_t> residual_owner;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const int64_t* at = all[rank].data();
      const auto take = [&] { return *at++; };
      for (int64_t left = take(); left > 0; --left) {
        const auto id = static_cast<int32_t>(take());
        Box box = Box::whole(graph().tensor(TensorId(id)).shape());
        for (Interval& one : box.dims) {
          one.begin = take();
          one.size = take();
        }
        index[id] = 0;
        homes[rank].emplace_back(id, std::move(box));
      }
      const int64_t count = take();
      const auto text = static_cast<uint64_t>(take());
      for (int64_t i = 0; i < count; ++i) {
        residual_index.push_back(static_cast<size_t>(i));
        ManifestTensor tensor;
        tensor.name = residual_name(static_cast<int>(rank), static_cast<size_t>(i), text);
        tensor.role = kResidual;
        tensor.dtype = DType::kFloat32;
        tensor.shape = {take()};
        residuals.push_back(std::move(tensor));
        residual_owner.push_back(rank);
      }
    }
    std::vector<int64_t> element_bytes;
    std::map<std::string, size_t> places;  // place by name; the pieces of a tensor share a place
    held.resize(all.size());
    for (auto& [id, place] : index) {
      const Tensor& tensor = graph().tensor(TensorId(id));
      const PieceOrigin origin = origins.of(tensor.id);
      const auto [known, fresh] = places.try_emplace(origin.name, tensors.size());
      place = known->second;
      if (!fresh) continue;
      ManifestTensor one;
      one.name = origin.name;
      one.role = is_of_the_run(tensor) ? kLossScale : role_name(tensor.role);
      one.dtype = tensor.dtype;
      one.shape = origin.shape;
      tensors.push_back(std::move(one));
      element_bytes.push_back(dtype_bytes(tensor.dtype));
    }
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (auto& [id, box] : homes[rank]) {
        held[rank].push_back({index[id], origins.of(TensorId(id)).in_whole(std::move(box))});
      }
    }
    first_residual = tensors.size();
    for (size_t i = 0; i < residuals.size(); ++i) {
      held[residual_owner[i]].push_back({tensors.size(), Box::whole(residuals[i].shape)});
      element_bytes.push_back(dtype_bytes(DType::kFloat32));
      tensors.push_back(std::move(residuals[i]));
    }
    for (const std::vector<HeldBox>& share : share_out(element_bytes, held)) {
      std::vector<ShardPart>& list = parts.emplace_back();
      for (const HeldBox& one : share) list.push_back({one.tensor, one.box});
    }
  }

  // Takes memory for the copies before the first step.
  Status prepare(const RankExecutor& executor) {
    if (!saves()) return {};
    share(executor);
    shard = plan_shard(world.rank(), tensors, parts[static_cast<size_t>(world.rank())]);
    homes_of_parts();
    int64_t memory = 0;
    for (const auto& level : levels) {
      const int64_t bytes =
          level->config.asynchronous == 0 ? piece_memory(job.storage, shard) : shard.bytes();
      TESSERA_TRY(level->copies, Arena::create(Tier::kHost, bytes));
      // The system must give the memory now, so that a lack of memory is found before the
      // first step.
      level->copies.populate();
      memory += bytes;
    }
    for (const int64_t bytes : comm::gather_values(world, memory))
      result.memory_bytes = std::max(result.memory_bytes, bytes);
    return {};
  }

  // Checks that the disk has space for the checkpoints to keep and one more, because a new
  // checkpoint is written before the oldest one is removed.
  Status check_room() {
    int64_t bytes = 0;
    for (const ManifestTensor& one : tensors)
      bytes += Box::whole(one.shape).volume() * dtype_bytes(one.dtype);
    for (const auto& level : levels) {
      const CheckpointLevel& one = level->config;
      TESSERA_TRY(const int64_t room, job.storage.free_bytes(one.dir));
      int64_t there = 0;
      for (const Candidate& old : job.origin.candidates) {
        if (old.dir == one.dir && old.source != nullptr) there += old.source->manifest().bytes();
      }
      // Divides instead of multiplying, because a product could overflow.
      if ((room + there - bytes) / one.keep >= bytes) continue;
      return fault(
          fmt::format("{}: expected room for keep = {} checkpoints of {} and for the one that is "
                      "being written, "
                      "found {} free",
                      one.dir, one.keep, format_bytes(bytes), format_bytes(room)));
    }
    return {};
  }

  // ---- reading
  // Checks that all ranks see the same list of checkpoints. If they do not, the folder is not
  // shared by all ranks, which is an error.
  Status check_candidates() {
    const std::vector<Candidate>& candidates = job.origin.candidates;
    const std::array<int64_t, 2> mine{std::ssize(candidates),
                                      candidates.empty() ? -1 : candidates.front().step};
    for (const auto& one : comm::gather_values(world, mine)) {
      if (one != mine) {
        return fault(
            fmt::format("{}: expected one folder for all ranks, found that they see "
                        "different checkpoints",
                        job.config.checkpoint.dir));
      }
    }
    return {};
  }

  // The regions that this rank reads from a source, and the memory into which the values are read.
  struct Loading {
    std::vector<WantedRegion> wanted;
    std::vector<std::pair<const Home*, HostArray>> on_disk;  // homes on disk, with memory for
                                                             // their values
    std::vector<std::vector<float>> residuals;
    int64_t missing = 0;  // number of missing residuals
  };

  Loading loading_of(RankExecutor& executor, const Manifest& manifest) {
    Loading loading;
    std::map<std::string_view, size_t> places;
    for (size_t i = 0; i < manifest.tensors.size(); ++i) places[manifest.tensors[i].name] = i;
    const std::vector<const Home*> homes = state_homes();
    loading.on_disk.reserve(homes.size());
    for (const Home* home : homes) {
      const PieceOrigin origin = origins.of(home->tensor);
      const auto place = places.find(origin.name);
      if (place == places.end()) continue;  // the user has already been told
      const DType dtype = program.buffer(home->buffer).dtype;
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
      const auto place = places.find(residual_name(executor, i));
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
  std::vector<std::vector<HeldBox>> wanted_of_all(const Manifest& manifest) const {
    std::map<std::string_view, size_t> places;
    for (size_t i = 0; i < manifest.tensors.size(); ++i) places[manifest.tensors[i].name] = i;
    std::vector<std::vector<HeldBox>> wanted(held.size());
    for (size_t rank = 0; rank < held.size(); ++rank) {
      for (const HeldBox& one : held[rank]) {
        const auto place = places.find(tensors[one.tensor].name);
        if (place != places.end() &&
            manifest.tensors[place->second].shape == tensors[one.tensor].shape)
          wanted[rank].push_back({place->second, one.box});
      }
    }
    return wanted;
  }

  // Reads the state and compares checksums in one pass. Returns, on all ranks, the damage that the
  // ranks have found; "" if there is none.
  std::string load(RankExecutor& executor, const Candidate& one, int64_t& missing) {
    std::string why = one.damage;
    Loading loading;
    if (one.source != nullptr) {
      const Manifest& manifest = one.source->manifest();
      loading = loading_of(executor, manifest);
      const auto compare = share_comparisons(manifest, wanted_of_all(manifest));
      const Status read =
          one.source->load(loading.wanted, compare[static_cast<size_t>(world.rank())]);
      if (!read) why = read.error().message;
    }
    for (std::string& found : comm::gather_bytes(world, why))
      if (!found.empty()) return std::move(found);
    for (const auto& [home, values] : loading.on_disk) executor.write(*home, values);
    if (!loading.residuals.empty()) executor.set_residuals(loading.residuals);
    missing = 0;
    for (const int64_t of_rank : comm::gather_values(world, loading.missing)) missing += of_rank;
    return "";
  }

  Status load_weights(RankExecutor& executor, const TensorSource& source) {
    const Clock::time_point start = Clock::now();
    for (const Home* home : state_homes()) {
      const Tensor& tensor = graph().tensor(home->tensor);
      if (tensor.role == Role::kOptimizerState) continue;
      const PieceOrigin origin = origins.of(tensor.id);
      if (!begins_with_weights(job.config.weights_of, origin.name)) continue;
      const SourceArray* array = source.find(origin.name);
      const Box region = origin.in_whole(home->region);
      // Weights may lack the running state of the model (Role::kBuffer); then the buffer keeps its
      // initial values.
      const bool fits = array != nullptr && array->shape == origin.shape;
      if (tensor.role == Role::kBuffer && !fits) continue;
      TESSERA_CHECK(array != nullptr, "{}", tensor.name);
      HostArray values{home->tensor, home->region, program.buffer(home->buffer).dtype, {}};
      std::byte* out = executor.memory(*home);
      if (out == nullptr) {
        values.data.resize(static_cast<size_t>(home->region.volume() * dtype_bytes(values.dtype)));
        TESSERA_TRY_VOID(source.read(*array, region, values.dtype, values.data.data()));
        executor.write(*home, values);
      } else {
        TESSERA_TRY_VOID(source.read(*array, region, values.dtype, out));
      }
    }
    world.barrier();
    result.bytes_read = source.bytes_read();
    return report_load({0, source.where(), result.bytes_read, seconds_since(start)});
  }

  Result<int64_t> restore(RankExecutor& executor) {
    for (const std::string& text : job.origin.notes) note(text);
    int64_t done = 0;
    if (job.config.resume) TESSERA_TRY_VOID(check_candidates());
    if (!job.origin.candidates.empty()) {
      TESSERA_TRY(done, continue_from_checkpoint(executor));
    } else if (job.origin.weights != nullptr) {
      TESSERA_TRY_VOID(load_weights(executor, *job.origin.weights));
    }
    result.resumed_from = done;
    // A folder that cannot be written or that has too little space is to be found before the
    // first step.
    if (world.rank() == 0 && done < job.config.steps) {
      TESSERA_TRY_VOID(check_room());
      for (const auto& level : levels)
        TESSERA_TRY_VOID(begin_checkpoint(job.storage, level->config.dir, done + 1));
    }
    return done;
  }

  Result<int64_t> continue_from_checkpoint(RankExecutor& executor) {
    const std::vector<Candidate>& candidates = job.origin.candidates;
    std::vector<std::string> damaged;
    int64_t missing = 0;
    Clock::time_point start = Clock::now();
    for (; damaged.size() < candidates.size(); start = Clock::now()) {
      const std::string why = load(executor, candidates[damaged.size()], missing);
      if (why.empty()) break;
      damaged.push_back(why);
      executor.initialise();  // a part of the damaged checkpoint may have been read
    }
    const double seconds = seconds_since(start);
    if (damaged.size() == candidates.size())
      return fault(damaged.front() + "; no checkpoint before it is whole");
    for (size_t i = 0; i < damaged.size() && world.rank() == 0; ++i) {
      TESSERA_TRY(const std::string path,
                  set_aside(job.storage, candidates[i].dir, candidates[i].step));
      note(fmt::format("{}; it is set aside as {}", damaged[i], path));
    }
    const Candidate& one = candidates[damaged.size()];
    if (missing > 0) {
      note(fmt::format(
          "{}: {} residuals of compressed messages begin at zero: they are of another plan",
          one.source->where(), missing));
    }
    result.bytes_read = one.source->bytes_read();
    TESSERA_TRY_VOID(report_load({one.step, one.source->where(), result.bytes_read, seconds}));
    note(fmt::format("{}: the run goes on after step {}", one.source->where(), one.step));
    return one.step;
  }

  Status report_load(const LoadReport& report) const {
    return world.rank() == 0 ? job.loaded(report) : Status{};
  }

  // ---- writing
  // Finds the home of each part of this rank's shard.
  void homes_of_parts() {
    // The homes of each tensor by name, with the boxes that they have in the whole tensor.
    std::map<std::string, std::vector<std::pair<const Home*, Box>>> homes;
    for (const Home* home : state_homes()) {
      const PieceOrigin origin = origins.of(home->tensor);
      homes[origin.name].emplace_back(home, origin.in_whole(home->region));
    }
    part_homes.clear();
    for (const ShardPart& part : parts[static_cast<size_t>(world.rank())]) {
      const Home* holds = nullptr;
      for (const auto& [home, region] : homes[tensors[part.tensor].name]) {
        if (holds == nullptr && region.contains(part.box)) holds = home;
      }
      TESSERA_CHECK(holds != nullptr || part.tensor >= first_residual, "{} {}",
                    tensors[part.tensor].name, part.box.to_string());
      part_homes.push_back(holds);
    }
  }

  Status fill_part(const RankExecutor& executor, size_t index, int64_t begin,
                   std::span<std::byte> out) {
    const auto rank = static_cast<size_t>(world.rank());
    const ShardPart& part = parts[rank][index];
    const Home* home = part_homes[index];
    if (home == nullptr) {
      const auto bytes = std::as_bytes(
          std::span(residual_values.at(residual_index[part.tensor - first_residual])));
      std::memcpy(out.data(), bytes.data() + begin, out.size());
      return {};
    }
    const std::byte* from = executor.memory(*home);
    if (from == nullptr) {
      if (home_read != home) home_values = executor.read(*home);
      home_read = home;
      from = home_values.data.data();
    }
    const DType dtype = program.buffer(home->buffer).dtype;
    TESSERA_CHECK(dtype == tensors[part.tensor].dtype, "{}", tensors[part.tensor].name);
    copy_cut_out(dtype_bytes(dtype), from, origins.of(home->tensor).in_whole(home->region),
                 part.box, begin, static_cast<int64_t>(out.size()), out.data());
    return {};
  }

  Status save(Level& level, const RankExecutor& executor, int64_t step) {
    TESSERA_TRY_VOID(finish(level));  // finishes the previous checkpoint
    level.start = Clock::now();
    level.step = step;
    const std::string& dir = level.config.dir;
    if (world.rank() == 0) TESSERA_TRY_VOID(begin_checkpoint(job.storage, dir, step));
    world.barrier();  // no rank writes before the folder exists
    home_read = nullptr;
    residual_values = executor.residuals();
    const FillPart fill = [&](size_t index, int64_t begin, std::span<std::byte> out) {
      return fill_part(executor, index, begin, out);
    };
    if (level.config.asynchronous == 0) {
      const std::span<std::byte> pieces(level.copies.data(),
                                        static_cast<size_t>(level.copies.bytes()));
      const auto report = write_shard(job.storage, dir, step, shard, fill, pieces);
      home_values.data = {};
      residual_values.clear();
      level.waited_s = seconds_since(level.start);
      return commit(level, report);
    }
    const std::span<std::byte> copies(level.copies.data(), static_cast<size_t>(shard.bytes()));
    TESSERA_TRY_VOID(fill_shard(shard, fill, 0, copies));
    home_values.data = {};
    residual_values.clear();
    level.writer = std::async(std::launch::async, [this, &dir, step, copies] {
      return write_shard(job.storage, dir, step, shard, std::span<const std::byte>(copies));
    });
    level.waited_s = seconds_since(level.start);
    return {};
  }

  // Commits the checkpoint if the writing thread of every rank is done; otherwise does nothing.
  Status poll(Level& level) {
    if (!level.writer.valid()) return {};
    const bool done = level.writer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    for (const char of_rank : comm::gather_values(world, char{done}))
      if (of_rank == 0) return {};
    return finish(level);
  }

  Status finish(Level& level) {
    if (!level.writer.valid()) return {};
    const Clock::time_point start = Clock::now();
    const auto report = level.writer.get();
    level.waited_s += seconds_since(start);
    return commit(level, report);
  }

  Status commit(Level& level, const Result<ShardReport>& report) {
    const Clock::time_point start = Clock::now();
    if (!report) return tl::unexpected(report.error());
    int64_t bytes = 0;
    for (const int64_t of_rank : comm::gather_values(world, report->file.bytes)) bytes += of_rank;
    std::vector<uint64_t> sums{static_cast<uint64_t>(report->file.bytes),
                               report->file.head_checksum};
    sums.insert(sums.end(), report->checksums.begin(), report->checksums.end());
    const auto all = comm::gather_lists_at(world, 0, sums);  // when this returns, all ranks have
                                                             // written their files
    ++result.saved;
    result.bytes_written += bytes;
    Status committed;
    if (world.rank() == 0) committed = commit(level, all);
    level.waited_s += seconds_since(start);
    result.seconds += level.waited_s;
    if (!committed || world.rank() != 0) return committed;
    return job.saved({level.step, checkpoint_path(level.config.dir, level.step), bytes,
                      level.waited_s, seconds_since(level.start)});
  }

  Status commit(const Level& level, const std::vector<std::vector<uint64_t>>& all) const {
    std::vector<ShardReport> reports;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      ShardReport& one = reports.emplace_back();
      one.file = {shard_name(static_cast<int>(rank)), static_cast<int64_t>(all[rank][0]),
                  all[rank][1]};
      one.checksums.assign(all[rank].begin() + 2, all[rank].end());
    }
    Manifest manifest;
    manifest.step = level.step;
    manifest.seed = job.config.seed;
    manifest.ranks = world.size();
    manifest.model = job.compiled.model->spec;
    manifest.plan = job.plan_text;
    manifest.run = to_text(job.config);
    manifest.tensors = tensors;
    add_shards(manifest, parts, reports);
    TESSERA_TRY_VOID(commit_checkpoint(job.storage, level.config.dir, manifest));
    return remove_old(job.storage, level.config.dir, level.step, level.config.keep);
  }

  Status after_step(const RankExecutor& executor, int64_t step, bool is_last) {
    for (const auto& level : levels) TESSERA_TRY_VOID(poll(*level));
    for (const auto& level : levels) {
      const bool due = step % level->config.every == 0;
      if (is_last ? level->durable : due) TESSERA_TRY_VOID(save(*level, executor, step));
    }
    return {};
  }

  Status finish() {
    bool done = false;  // whether the durable level has a checkpoint of the run's last step
    for (const auto& level : levels) {
      TESSERA_TRY_VOID(finish(*level));
      done = done || (level->durable && level->step == job.config.steps);
    }
    // The run is complete and has a durable checkpoint, so the fast checkpoints are removed to
    // free memory.
    for (const auto& level : levels) {
      if (done && !level->durable && world.rank() == 0) {
        TESSERA_TRY_VOID(remove_old(job.storage, level->config.dir, job.config.steps, 1));
      }
    }
    return {};
  }

  const CheckpointJob& job;
  const Program& program;
  comm::Communicator& world;
  Origins origins;
  uint64_t program_text = 0;
  std::vector<ManifestTensor> tensors;  // tensors of all ranks: states, then residuals
  size_t first_residual = 0;            // index in `tensors`; residuals are sorted by rank
  std::vector<size_t> residual_index;   // by residual: its number among the residuals of its rank
  std::vector<std::vector<HeldBox>> held;     // by rank: the boxes that it holds
  std::vector<std::vector<ShardPart>> parts;  // by rank: the parts that this rank writes
  Shard shard;                                // what this rank writes
  std::vector<const Home*> part_homes;        // by part of this rank's shard; null: a residual
  const Home* home_read = nullptr;            // the home on disk whose values were read last
  std::vector<std::vector<float>> residual_values;  // of the checkpoint that is being filled
  HostArray home_values;
  CheckpointSummary result;
  std::vector<std::unique_ptr<Level>> levels;  // last member, because the writers use the
                                               // members above
};

Checkpointing::Checkpointing(const CheckpointJob& job, const Program& program,
                             comm::Communicator& world)
    : impl_(std::make_unique<Impl>(job, program, world)) {}
Checkpointing::~Checkpointing() = default;

Result<int64_t> Checkpointing::restore(RankExecutor& executor) { return impl_->restore(executor); }

Status Checkpointing::prepare(const RankExecutor& executor) { return impl_->prepare(executor); }

Status Checkpointing::after_step(const RankExecutor& executor, int64_t step, bool is_last) {
  return impl_->after_step(executor, step, is_last);
}

Status Checkpointing::finish() { return impl_->finish(); }

CheckpointSummary Checkpointing::summary() const { return impl_->result; }

}  // namespace tessera
