#include "tessera/runtime/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/convert.h"
#include "tessera/program/text.h"
#include "tessera/runtime/ranks.h"
#include "tessera/state/checksum.h"
#include "tessera/state/shares.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kResidual = "residual";
constexpr std::string_view kLossScale = "loss_scale";

bool is_state(const Tensor& tensor) {
  return (tensor.role == Role::kParameter || tensor.role == Role::kOptimizerState) &&
         !tensor.producer.valid();
}

// A state that belongs to no parameter: that of the loss scale.
bool is_of_the_run(const Tensor& tensor) {
  return tensor.role == Role::kOptimizerState && !tensor.of.valid();
}

std::string shape_text(DType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

// A model's text says in which dtype its parameters are; that may change from run to run.
std::string without_dtype(const std::string& model) {
  const size_t at = model.rfind(",dtype=");
  return at == std::string::npos ? model : model.substr(0, at);
}

// What a source must have for the run, by name and shape. A state that belongs to no parameter (the loss scale)
// may be missing: other precisions have none.
Status check_tensors(const TensorSource& source, const Graph& graph, bool only_parameters,
                     std::vector<std::string>& notes) {
  int64_t rounded = 0;
  std::string first, begins;
  for (const Tensor& tensor : graph.tensors()) {
    if (!is_state(tensor) || (only_parameters && tensor.role != Role::kParameter)) continue;
    const SourceArray* array = source.find(tensor.name);
    if (array == nullptr && is_of_the_run(tensor)) {
      begins = tensor.name;
      continue;
    }
    if (array == nullptr || array->shape != tensor.shape()) {
      return invalid_input(
          fmt::format("{}: tensor {}: expected {}, found {}", source.where(), tensor.name,
                      shape_text(tensor.dtype, tensor.shape()),
                      array == nullptr ? "none" : shape_text(array->dtype, array->shape)));
    }
    if (keeps_values(array->dtype, tensor.dtype)) continue;
    if (rounded++ == 0) {
      first = fmt::format("{} from {} to {}", tensor.name, dtype_name(array->dtype),
                          dtype_name(tensor.dtype));
    }
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
  TESSERA_TRY_VOID(check_tensors(source, compiled.graph(), false, notes));
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.role == kLossScale || tensor.role == kResidual) continue;
    const auto& all = compiled.graph().tensors();
    if (std::none_of(all.begin(), all.end(),
                     [&](const Tensor& t) { return t.name == tensor.name; })) {
      return invalid_input(
          fmt::format("{}: tensor {}: expected it in the run's model or optimizer, found none",
                      source.where(), tensor.name));
    }
  }
  return {};
}

// The folder's name says how the run goes on, so it must be the manifest's.
Status check_step(const CheckpointSource& source, int64_t step) {
  if (source.manifest().step == step) return {};
  return invalid_input(fmt::format("{}: expected the checkpoint of step {}, found that of step {}",
                                   source.where(), step, source.manifest().step));
}

Result<std::unique_ptr<CheckpointSource>> no_manifest(const std::string& folder) {
  return fault(fmt::format("{}/{}: damaged: expected a file, found none", folder, kManifestName));
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
  std::vector<CheckpointFolder> found;
  if (!dir.empty()) {
    TESSERA_TRY(found, step_folders_in(storage, dir));
  }
  if (!found.empty() && !config.resume) {
    return invalid_input(
        fmt::format("checkpoint.dir: expected a folder without checkpoints, or --resume, found {}",
                    found.back().path));
  }
  if (config.resume && found.empty())
    origin.notes.push_back(fmt::format("{}: no checkpoint yet: the run begins", dir));
  for (auto one = found.rbegin(); one != found.rend(); ++one) {
    auto source = one->has_manifest ? open_checkpoint(one->path) : no_manifest(one->path);
    if (!source && source.error().code != ErrorCode::kFault) return tl::unexpected(source.error());
    Candidate candidate{one->step, nullptr, ""};
    if (source) {
      std::vector<std::string> notes;
      TESSERA_TRY_VOID(check_step(**source, one->step));
      TESSERA_TRY_VOID(check_run(**source, config, compiled, notes));
      if (origin.notes.empty()) origin.notes = std::move(notes);
      candidate.source = std::move(*source);
    } else {
      candidate.damage = source.error().message;
    }
    origin.candidates.push_back(std::move(candidate));
  }
  if (origin.candidates.empty() && !config.weights.empty()) {
    TESSERA_TRY(origin.weights, open_source(config.weights));
    TESSERA_TRY_VOID(check_tensors(*origin.weights, compiled.graph(), true, origin.notes));
  }
  return origin;
}

struct Checkpointing::Impl {
  Impl(const CheckpointJob& the_job, const Program& the_program, comm::Communicator& the_world)
      : job(the_job), program(the_program), world(the_world) {}

  const Graph& graph() const { return job.compiled.graph(); }
  const CheckpointConfig& config() const { return job.config.checkpoint; }
  bool saves() const { return !config().dir.empty(); }
  void note(const std::string& text) const {
    if (world.rank() == 0 && job.note) job.note(text);
  }

  // ---- what is held
  std::vector<const Home*> state_homes() const {
    std::vector<const Home*> homes;
    for (const Home& home : program.homes) {
      if (is_state(graph().tensor(home.tensor)) && !home.region.empty()) homes.push_back(&home);
    }
    return homes;
  }

  // Residuals are of a rank and of what its program sends: of the program's text.
  std::string residual_name(int rank, size_t index, uint64_t text) const {
    return fmt::format("{}.rank{}.{}.{}", kResidual, rank, index, checksum_text(text));
  }
  std::string residual_name(const RankExecutor& executor, size_t index) {
    if (program_text == 0 && !executor.residuals().empty())
      program_text = checksum(to_text(program, graph()));
    return residual_name(world.rank(), index, program_text);
  }

  // Everybody's homes and residuals, as numbers; then who writes what is the same on all ranks.
  void share(const RankExecutor& executor) {
    if (!parts.empty()) return;
    std::vector<double> mine;
    const auto put = [&](int64_t value) { mine.push_back(static_cast<double>(value)); };
    const std::vector<const Home*> homes = state_homes();
    put(static_cast<int64_t>(homes.size()));
    for (const Home* home : homes) {
      put(home->tensor.value);
      for (const Interval& one : home->region.dims) {
        put(one.begin);
        put(one.size);
      }
    }
    const auto residuals = executor.residuals();
    put(static_cast<int64_t>(residuals.size()));
    if (!residuals.empty()) residual_name(executor, 0);  // makes program_text
    put(static_cast<int64_t>(program_text >> 32));
    put(static_cast<int64_t>(program_text & 0xffffffffU));
    for (const auto& residual : residuals) put(static_cast<int64_t>(residual.size()));
    assign(gather_lists(world, mine));
  }

  void assign(const std::vector<std::vector<double>>& all) {
    std::map<int32_t, size_t> index;  // of tensors, in the order of the graph
    std::vector<std::vector<Held>> held(all.size());
    std::vector<std::vector<std::pair<int32_t, Box>>> homes(all.size());
    std::vector<ManifestTensor> residuals;
    std::vector<size_t> residual_owner;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const double* at = all[rank].data();
      const auto take = [&] { return static_cast<int64_t>(*at++); };
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
      const auto high = static_cast<uint64_t>(take());
      const uint64_t text = high << 32 | static_cast<uint64_t>(take());
      for (int64_t i = 0; i < count; ++i) {
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
    for (auto& [id, place] : index) {
      const Tensor& tensor = graph().tensor(TensorId(id));
      place = tensors.size();
      ManifestTensor one;
      one.name = tensor.name;
      one.role = is_of_the_run(tensor) ? kLossScale : role_name(tensor.role);
      one.dtype = tensor.dtype;
      one.shape = tensor.shape();
      tensors.push_back(std::move(one));
      element_bytes.push_back(dtype_bytes(tensor.dtype));
    }
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (auto& [id, box] : homes[rank]) held[rank].push_back({index[id], std::move(box)});
    }
    first_residual = tensors.size();
    for (size_t i = 0; i < residuals.size(); ++i) {
      held[residual_owner[i]].push_back({tensors.size(), Box::whole(residuals[i].shape)});
      element_bytes.push_back(dtype_bytes(DType::kFloat32));
      tensors.push_back(std::move(residuals[i]));
    }
    for (const std::vector<Held>& share : share_out(element_bytes, held)) {
      std::vector<ShardPart>& list = parts.emplace_back();
      for (const Held& one : share) list.push_back({one.tensor, one.box});
    }
  }

  // ---- reading
  Result<int64_t> choose(std::vector<std::string>& damaged) {
    // Everybody sees the same list, or the folder is not one that all ranks share.
    const std::vector<Candidate>& candidates = job.origin.candidates;
    const auto count = static_cast<double>(candidates.size());
    const auto newest = candidates.empty() ? -1.0 : static_cast<double>(candidates.front().step);
    for (const auto& one : gather_all(world, {count, newest})) {
      if (one[0] != count || one[1] != newest) {
        return fault(
            fmt::format("{}: expected one folder for all ranks, found that they see "
                        "different checkpoints",
                        config().dir));
      }
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& one = candidates[i];
      std::string why = one.damage;
      if (one.source != nullptr) {
        const std::vector<Damage> damage =
            find_damage(one.source->where(), one.source->manifest(),
                        static_cast<size_t>(world.rank()), static_cast<size_t>(world.size()));
        if (!damage.empty()) why = damage.front().to_string();
      }
      const auto flags = gather_all(world, {why.empty() ? 0.0 : 1.0});
      const auto found =
          std::find_if(flags.begin(), flags.end(), [](const auto& flag) { return flag[0] > 0; });
      if (found == flags.end()) return static_cast<int64_t>(i);
      damaged.push_back(text_from(world, static_cast<int>(found - flags.begin()), why));
    }
    return -1;
  }

  Status load(RankExecutor& executor, const TensorSource& source, bool only_parameters) {
    for (const Home* home : state_homes()) {
      const Tensor& tensor = graph().tensor(home->tensor);
      if (only_parameters && tensor.role != Role::kParameter) continue;
      const SourceArray* array = source.find(tensor.name);
      if (array == nullptr) continue;  // of these a note has been given
      HostArray values{home->tensor, home->region, program.buffer(home->buffer).dtype, {}};
      values.data.resize(static_cast<size_t>(home->region.volume() * dtype_bytes(values.dtype)));
      TESSERA_TRY_VOID(source.read(*array, home->region, values.dtype, values.data.data()));
      executor.write(*home, values);
    }
    return {};
  }

  // How many residuals of this rank begin at zero.
  Result<int64_t> load_residuals(const RankExecutor& executor, const TensorSource& source) {
    int64_t missing = 0;
    const auto residuals = executor.residuals();
    for (size_t i = 0; i < residuals.size(); ++i) {
      const SourceArray* array = source.find(residual_name(executor, i));
      if (array == nullptr ||
          array->shape != std::vector<int64_t>{static_cast<int64_t>(residuals[i].size())}) {
        ++missing;
        continue;
      }
      TESSERA_TRY_VOID(source.read(*array, Box::whole(array->shape), DType::kFloat32,
                                   reinterpret_cast<std::byte*>(residuals[i].data())));
    }
    return missing;
  }

  Result<int64_t> restore(RankExecutor& executor) {
    for (const std::string& text : job.origin.notes) note(text);
    int64_t done = 0;
    if (!job.origin.candidates.empty()) {
      TESSERA_TRY(done, continue_from_checkpoint(executor));
    } else if (job.origin.weights != nullptr) {
      TESSERA_TRY_VOID(load(executor, *job.origin.weights, true));
      result.bytes_read = job.origin.weights->bytes_read();
    }
    result.resumed_from = done;
    // A folder that cannot be written is found before the first step.
    if (saves() && world.rank() == 0 && done < job.config.steps)
      TESSERA_TRY_VOID(begin_checkpoint(job.storage, config().dir, done + 1));
    return done;
  }

  Result<int64_t> continue_from_checkpoint(RankExecutor& executor) {
    std::vector<std::string> damaged;
    TESSERA_TRY(const int64_t chosen, choose(damaged));
    const std::vector<Candidate>& candidates = job.origin.candidates;
    if (chosen < 0) return fault(damaged.front() + "; no checkpoint before it is whole");
    for (size_t i = 0; i < damaged.size() && world.rank() == 0; ++i) {
      TESSERA_TRY(const std::string path, set_aside(job.storage, config().dir, candidates[i].step));
      note(fmt::format("{}; it is set aside as {}", damaged[i], path));
    }
    const Candidate& one = candidates[static_cast<size_t>(chosen)];
    TESSERA_TRY_VOID(load(executor, *one.source, false));
    TESSERA_TRY(const int64_t missing, load_residuals(executor, *one.source));
    double all = 0;
    for (const auto& of_rank : gather_all(world, {static_cast<double>(missing)})) all += of_rank[0];
    if (all > 0) {
      note(fmt::format(
          "{}: {:.0f} residuals of compressed messages begin at zero: they are of another plan",
          one.source->where(), all));
    }
    result.bytes_read = one.source->bytes_read();
    note(fmt::format("{}: the run goes on after step {}", one.source->where(), one.step));
    return one.step;
  }

  // ---- writing
  Result<std::span<const std::byte>> part(const RankExecutor& executor, const ShardPart& wanted) {
    if (wanted.tensor >= first_residual) {
      const auto residuals = executor.residuals();
      size_t index = wanted.tensor - first_residual;
      for (int rank = 0; rank < world.rank(); ++rank) index -= residual_count(rank);
      return std::as_bytes(residuals[index]);
    }
    if (home_read == nullptr ||
        graph().tensor(home_read->tensor).name != tensors[wanted.tensor].name ||
        !home_read->region.contains(wanted.box)) {
      home_read = nullptr;
      for (const Home* home : state_homes()) {
        if (graph().tensor(home->tensor).name == tensors[wanted.tensor].name &&
            home->region.contains(wanted.box)) {
          home_read = home;
          break;
        }
      }
      TESSERA_CHECK(home_read != nullptr, "{} {}", tensors[wanted.tensor].name,
                    wanted.box.to_string());
      home_values = executor.read(*home_read);
    }
    const int64_t element = dtype_bytes(tensors[wanted.tensor].dtype);
    TESSERA_CHECK(home_values.dtype == tensors[wanted.tensor].dtype, "{}",
                  tensors[wanted.tensor].name);
    piece.resize(static_cast<size_t>(wanted.box.volume() * element));
    copy_elements(element, home_values.data.data(), home_read->region, piece.data(), wanted.box,
                  wanted.box);
    return std::span<const std::byte>(piece);
  }
  size_t residual_count(int rank) const {
    size_t count = 0;
    for (const ShardPart& one : parts[static_cast<size_t>(rank)])
      count += one.tensor >= first_residual ? 1 : 0;
    return count;
  }

  Status save(const RankExecutor& executor, int64_t step) {
    const Clock::time_point start = Clock::now();
    share(executor);
    TESSERA_TRY_VOID(finish());  // of the one before
    if (world.rank() == 0) TESSERA_TRY_VOID(begin_checkpoint(job.storage, config().dir, step));
    world.barrier();  // nobody writes before the folder is there
    const std::vector<ShardPart>& mine = parts[static_cast<size_t>(world.rank())];
    writing_step = step;
    if (config().asynchronous == 0) {
      const auto report = write_shard(job.storage, config().dir, step, world.rank(), tensors, mine,
                                      [&](size_t i) { return part(executor, mine[i]); });
      home_read = nullptr;
      TESSERA_TRY_VOID(commit(report));
    } else {
      TESSERA_TRY_VOID(copy_parts(executor, mine));
      writer = std::async(std::launch::async, [this, step, &mine] {
        return write_shard(job.storage, config().dir, step, world.rank(), tensors, mine,
                           [&](size_t i) -> Result<std::span<const std::byte>> {
                             return std::span<const std::byte>(copies).subspan(
                                 offsets[i], offsets[i + 1] - offsets[i]);
                           });
      });
    }
    result.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    return {};
  }

  Status copy_parts(const RankExecutor& executor, const std::vector<ShardPart>& mine) {
    offsets.assign(1, 0);
    for (const ShardPart& one : mine) {
      offsets.push_back(
          offsets.back() +
          static_cast<size_t>(one.box.volume() * dtype_bytes(tensors[one.tensor].dtype)));
    }
    copies.resize(offsets.back());  // taken once: every save has the same parts
    for (size_t i = 0; i < mine.size(); ++i) {
      TESSERA_TRY(const auto bytes, part(executor, mine[i]));
      std::memcpy(copies.data() + offsets[i], bytes.data(), bytes.size());
    }
    home_read = nullptr;
    home_values.data = {};
    return {};
  }

  // The commit, if every rank's thread is done.
  Status poll() {
    if (!writer.valid()) return {};
    const Clock::time_point start = Clock::now();
    const bool done = writer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    for (const auto& one : gather_all(world, {done ? 1.0 : 0.0})) {
      if (one[0] == 0) return {};
    }
    Status status = commit(writer.get());
    result.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    return status;
  }

  Status finish() {
    if (!writer.valid()) return {};
    return commit(writer.get());
  }

  Status commit(const Result<ShardReport>& report) {
    if (!report) return tl::unexpected(report.error());
    std::vector<double> numbers{static_cast<double>(report->file.bytes)};
    const auto put = [&](uint64_t sum) {
      numbers.push_back(static_cast<double>(sum >> 32));
      numbers.push_back(static_cast<double>(sum & 0xffffffffU));
    };
    put(report->file.head_checksum);
    for (const uint64_t sum : report->checksums) put(sum);
    const std::vector<std::vector<double>> all = gather_lists(world, numbers);  // all have written
    ++result.saved;
    for (const auto& one : all) result.bytes_written += static_cast<int64_t>(one[0]);
    if (world.rank() != 0) return {};
    std::vector<ShardReport> reports;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto sum = [&](size_t i) {
        return static_cast<uint64_t>(all[rank][i]) << 32 | static_cast<uint64_t>(all[rank][i + 1]);
      };
      ShardReport& one = reports.emplace_back();
      one.file = {shard_name(static_cast<int>(rank)), static_cast<int64_t>(all[rank][0]), sum(1)};
      for (size_t i = 3; i < all[rank].size(); i += 2) one.checksums.push_back(sum(i));
    }
    Manifest manifest;
    manifest.step = writing_step;
    manifest.seed = job.config.seed;
    manifest.ranks = world.size();
    manifest.model = job.compiled.model->spec;
    manifest.plan = job.plan_text;
    manifest.run = to_text(job.config);
    manifest.tensors = tensors;
    add_shards(manifest, parts, reports);
    TESSERA_TRY_VOID(commit_checkpoint(job.storage, config().dir, manifest));
    return remove_old(job.storage, config().dir, writing_step, config().keep);
  }

  const CheckpointJob& job;
  const Program& program;
  comm::Communicator& world;
  uint64_t program_text = 0;
  std::vector<ManifestTensor> tensors;        // of all ranks: states, then residuals
  size_t first_residual = 0;                  // in `tensors`; they are sorted by rank
  std::vector<std::vector<ShardPart>> parts;  // by rank
  const Home* home_read = nullptr;            // whose values were read last
  HostArray home_values;
  std::vector<std::byte> piece, copies;
  std::vector<size_t> offsets;  // of parts in `copies`
  int64_t writing_step = 0;
  CheckpointSummary result;
  std::future<Result<ShardReport>> writer;  // last: joined before what it reads goes
};

Checkpointing::Checkpointing(const CheckpointJob& job, const Program& program,
                             comm::Communicator& world)
    : impl_(std::make_unique<Impl>(job, program, world)) {}
Checkpointing::~Checkpointing() = default;

Result<int64_t> Checkpointing::restore(RankExecutor& executor) { return impl_->restore(executor); }

Status Checkpointing::after_step(const RankExecutor& executor, int64_t step) {
  if (!impl_->saves()) return {};
  TESSERA_TRY_VOID(impl_->poll());
  const int64_t steps = impl_->job.config.steps;
  if (step % impl_->config().every != 0 && step != steps) return {};
  return impl_->save(executor, step);
}

Status Checkpointing::finish() { return impl_->finish(); }

CheckpointSummary Checkpointing::summary() const { return impl_->result; }

}  // namespace tessera
