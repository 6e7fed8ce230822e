#include "tessera/runtime/checkpoint/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/arrays/arena.h"
#include "tessera/runtime/checkpoint/checkpoint_origin.h"
#include "tessera/runtime/checkpoint/held_state.h"
#include "tessera/runtime/checkpoint/restoring.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/state/box_runs.h"
#include "tessera/state/shares.h"

namespace tessera {

struct Checkpointing::Impl {
  using Clock = std::chrono::steady_clock;

  Impl(const CheckpointJob& the_job, const Program& the_program, comm::Communicator& the_world)
      : job(the_job), program(the_program), world(the_world), state(graph(), program, world) {
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
  // Takes memory for the copies before the first step.
  Status prepare(const RankExecutor& executor) {
    if (!saves()) return {};
    state.share(executor);
    shard = plan_shard(world.rank(), state.tensors, state.parts[static_cast<size_t>(world.rank())]);
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
    for (const ManifestTensor& one : state.tensors)
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

  Result<int64_t> restore(RankExecutor& executor) {
    TESSERA_TRY(const int64_t done,
                restore_state({job, program, world, state, result.bytes_read}, executor));
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

  // Finds the home of each part of this rank's shard.
  void homes_of_parts() {
    // The homes of each tensor by name, with the boxes that they have in the whole tensor.
    std::map<std::string, std::vector<std::pair<const Home*, Box>>> homes;
    for (const Home* home : state.homes()) {
      const PieceOrigin origin = state.origins.of(home->tensor);
      homes[origin.name].emplace_back(home, origin.in_whole(home->region));
    }
    part_homes.clear();
    for (const ShardPart& part : state.parts[static_cast<size_t>(world.rank())]) {
      const Home* holds = nullptr;
      for (const auto& [home, region] : homes[state.tensors[part.tensor].name]) {
        if (holds == nullptr && region.contains(part.box)) holds = home;
      }
      TESSERA_CHECK(holds != nullptr || part.tensor >= state.first_residual, "{} {}",
                    state.tensors[part.tensor].name, part.box.to_string());
      part_homes.push_back(holds);
    }
  }

  Status fill_part(const RankExecutor& executor, size_t index, int64_t begin,
                   std::span<std::byte> out) {
    const auto rank = static_cast<size_t>(world.rank());
    const ShardPart& part = state.parts[rank][index];
    const Home* home = part_homes[index];
    if (home == nullptr) {
      const auto bytes = std::as_bytes(
          std::span(residual_values.at(state.residual_index[part.tensor - state.first_residual])));
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
    TESSERA_CHECK(dtype == state.tensors[part.tensor].dtype, "{}", state.tensors[part.tensor].name);
    copy_cut_out(dtype_bytes(dtype), from, state.origins.of(home->tensor).in_whole(home->region),
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
    manifest.tensors = state.tensors;
    add_shards(manifest, state.parts, reports);
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
  HeldState state;
  Shard shard;                          // what this rank writes
  std::vector<const Home*> part_homes;  // by part of this rank's shard; null: a residual
  const Home* home_read = nullptr;      // the home on disk whose values were read last
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
