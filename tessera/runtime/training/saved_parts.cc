#include "tessera/runtime/training/saved_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/runtime/step/ranks.h"

namespace tessera {

Status SavedParts::begin_period() {
  parts_.clear();
  TESSERA_TRY(const std::string plan, r_.plan_text());
  for (const RunPart& part : r_.job.parts) {
    if (!part.concerns(r_.executor.island())) continue;
    Saved& saved = parts_.emplace_back();
    // The first part's events are those of the run.
    const bool is_first = &part == &r_.job.parts.front();
    saved.job.emplace(
        CheckpointJob{part.config, part.fragment || part.island ? part.compiled : r_.compiled(),
                      part.origin, plan, r_.job.storage, is_first ? r_.job.callbacks.note : nullptr,
                      [this, is_first](const SaveReport& one) {
                        return is_first ? r_.hand_over(one, r_.job.callbacks.saved) : Status{};
                      },
                      [this, is_first](const LoadReport& one) {
                        return is_first ? r_.hand_over(one, r_.job.callbacks.loaded) : Status{};
                      }});
    saved.executor = part.fragment ? &r_.executor.outer()->executor(*part.fragment) : &*r_.executor;
    saved.checkpoints = std::make_unique<Checkpointing>(
        *saved.job,
        part.fragment ? r_.executor.outer()->program(*part.fragment) : r_.executor.program(),
        part.fragment ? r_.world : r_.executor.own_world());
    TESSERA_TRY_VOID(saved.checkpoints->prepare(*saved.executor));
  }
  return {};
}

Result<int64_t> SavedParts::restore() {
  Status moved;
  if (r_.world.rank() == 0) {
    const auto lines = set_aside_left_out(r_.job.parts, r_.job.storage);
    if (!lines) moved = tl::unexpected(lines.error());
    for (const std::string& line : lines.value_or(std::vector<std::string>{})) {
      if (r_.job.callbacks.note) r_.job.callbacks.note(line);
    }
  }
  if (r_.compiled().outer) TESSERA_TRY_VOID(agree(r_.world, moved));
  std::optional<int64_t> done;
  for (Saved& part : parts_) {
    TESSERA_TRY(const int64_t of_part, part.checkpoints->restore(*part.executor));
    if (done && *done != of_part) {
      return fault(fmt::format(
          "{}: expected all parts of the run's state after the same step, found steps {} and {}",
          r_.job.config.checkpoint.dir, *done, of_part));
    }
    done = of_part;
  }
  r_.executor.resume_outer_steps(*done);
  return *done;
}

Status SavedParts::after_step(int64_t step, bool is_last) {
  for (Saved& part : parts_)
    TESSERA_TRY_VOID(part.checkpoints->after_step(*part.executor, step, is_last));
  return {};
}

Status SavedParts::end_period() {
  for (Saved& part : parts_) {
    TESSERA_TRY_VOID(part.checkpoints->finish());
    const CheckpointSummary ended = part.checkpoints->summary();
    counts_.resumed_from = std::max(counts_.resumed_from, ended.resumed_from);
    if (&part == &parts_.front()) counts_.saved += ended.saved;
    counts_.bytes_written += ended.bytes_written;
    counts_.bytes_read += ended.bytes_read;
    counts_.memory_bytes = std::max(counts_.memory_bytes, ended.memory_bytes);
    counts_.seconds += ended.seconds;
  }
  return {};
}

}  // namespace tessera
