#include "tessera/runtime/training/run_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tessera {
namespace {

// Returns a copy of what was compiled, which shares the model and the lowering.
Compiled copy_of(const Compiled& compiled) {
  Compiled out;
  out.model = compiled.model;
  out.batch = compiled.batch;
  out.batch_is_default = compiled.batch_is_default;
  out.compute = compiled.compute;
  out.lowering = compiled.lowering;
  out.outer = compiled.outer;
  return out;
}

// Returns the steps of the whole checkpoints of a part.
std::set<int64_t> whole_steps(const RunPart& part) {
  std::set<int64_t> steps;
  for (const Candidate& one : part.origin.candidates) {
    if (one.source != nullptr) steps.insert(one.step);
  }
  return steps;
}

// Drops the candidates of steps that a part lacks.
void keep_common_steps(RunParts& parts) {
  std::set<int64_t> common = whole_steps(parts.front());
  for (const RunPart& part : parts) {
    const std::set<int64_t> mine = whole_steps(part);
    std::erase_if(common, [&](int64_t step) { return !mine.contains(step); });
  }
  for (RunPart& part : parts) {
    for (const Candidate& one : part.origin.candidates) {
      if (!common.contains(one.step)) part.left_out.emplace_back(one.dir, one.step);
    }
    std::erase_if(part.origin.candidates,
                  [&](const Candidate& one) { return !common.contains(one.step); });
  }
}

}  // namespace

Result<RunParts> open_parts(const RunConfig& config, const Compiled& compiled, Storage& storage) {
  RunParts parts;
  const auto add = [&](const std::string& folder, Compiled of_part,
                       bool is_of_outer_steps) -> Result<RunPart*> {
    RunPart& part = parts.emplace_back();
    part.config = config;
    if (is_of_outer_steps) part.config.weights = "";  // its parameters are those of the islands
    part.compiled = std::move(of_part);
    for (CheckpointLevel* level :
         {static_cast<CheckpointLevel*>(&part.config.checkpoint), &part.config.checkpoint.fast}) {
      if (!level->dir.empty() && !folder.empty()) level->dir += "/" + folder;
    }
    TESSERA_TRY(part.origin, open_origin(part.config, part.compiled, storage));
    return &part;
  };
  if (!compiled.outer) {
    TESSERA_TRY_VOID(add("", copy_of(compiled), false));
    return parts;
  }
  for (int island = 0; island < compiled.islands(); ++island) {
    TESSERA_TRY(RunPart * part, add(fmt::format("island{}", island), copy_of(compiled), false));
    part->island = island;
    if (island > 0) part->origin.notes.clear();  // they are those of the first island
  }
  for (size_t f = 0; f < compiled.outer->fragments.size(); ++f) {
    Compiled fragment = copy_of(compiled);
    fragment.lowering = compiled.outer->fragments[f].lowering;
    TESSERA_TRY(RunPart * part, add(fmt::format("outer{}", f), std::move(fragment), true));
    part->fragment = f;
    part->origin.notes.clear();
  }
  keep_common_steps(parts);
  return parts;
}

Result<std::vector<std::string>> set_aside_left_out(const RunParts& parts, Storage& storage) {
  std::vector<std::string> lines;
  for (const RunPart& part : parts) {
    for (const auto& [dir, step] : part.left_out) {
      TESSERA_TRY(const std::string path, set_aside(storage, dir, step));
      lines.push_back(
          fmt::format("{}: step {} is not in all parts of the run's state; it is set aside as {}",
                      dir, step, path));
    }
  }
  return lines;
}

}  // namespace tessera
