#include "tessera/plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

std::vector<BlockRun> one_f_one_b(int64_t stage, int64_t stages, int64_t micro_batches) {
  const int64_t warm_up = std::min(micro_batches, stages - 1 - stage);
  std::vector<BlockRun> runs;
  for (int64_t m = 0; m < warm_up; ++m) runs.push_back({BlockRun::kForward, m});
  for (int64_t m = 0; m < micro_batches; ++m) {
    if (m + warm_up < micro_batches) runs.push_back({BlockRun::kForward, m + warm_up});
    runs.push_back({BlockRun::kBackward, m});
  }
  return runs;
}

std::vector<BlockRun> gpipe(int64_t micro_batches) {
  std::vector<BlockRun> runs;
  for (int64_t m = 0; m < micro_batches; ++m) runs.push_back({BlockRun::kForward, m});
  for (int64_t m = 0; m < micro_batches; ++m) runs.push_back({BlockRun::kBackward, m});
  return runs;
}

// May stage `s` run `run`, given what has run so far (`done[stage][kind][micro-batch]`)?
bool ready(const std::vector<std::vector<std::vector<bool>>>& done, size_t s, const BlockRun& run) {
  const auto m = static_cast<size_t>(run.micro_batch);
  const auto has_run = [&](size_t stage) {
    const std::vector<bool>& of_kind = done[stage][run.kind];
    return m < of_kind.size() && of_kind[m];
  };
  if (run.kind == BlockRun::kForward) return s == 0 || has_run(s - 1);
  return s + 1 == done.size() || has_run(s + 1);
}

}  // namespace

std::string to_string(const BlockRun& run) {
  return fmt::format("{}{}", run.kind == BlockRun::kForward ? 'F' : 'B', run.micro_batch);
}

Result<BlockRun> parse_block_run(std::string_view text) {
  if (text.size() >= 2 && (text[0] == 'F' || text[0] == 'B')) {
    const auto number = parse_int(text.substr(1));
    if (number && *number >= 0) {
      return BlockRun{text[0] == 'F' ? BlockRun::kForward : BlockRun::kBackward, *number};
    }
  }
  return invalid_input(fmt::format(
      "expected a block like 'F0' or 'B3' (F or B and a micro-batch), found '{}'", text));
}

std::vector<std::string> schedule_names() { return {"1f1b", "gpipe"}; }

Result<std::vector<BlockRun>> make_schedule(std::string_view name, int64_t stage, int64_t stages,
                                            int64_t micro_batches) {
  if (stage < 0 || stage >= stages) {
    return invalid_input(fmt::format("expected a stage of 0..{}, found {}", stages - 1, stage));
  }
  if (micro_batches < 1) {
    return invalid_input(fmt::format("expected micro_batches >= 1, found {}", micro_batches));
  }
  if (name == "1f1b") return one_f_one_b(stage, stages, micro_batches);
  if (name == "gpipe") return gpipe(micro_batches);
  return invalid_input(fmt::format("unknown schedule '{}', did you mean '{}'?", name,
                                   nearest(name, schedule_names())));
}

int64_t in_flight(const std::vector<BlockRun>& runs) {
  int64_t now = 0;
  int64_t most = 0;
  for (const BlockRun& run : runs) {
    now += run.kind == BlockRun::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

Status check_schedule(const std::vector<std::vector<BlockRun>>& stages, int64_t micro_batches) {
  for (size_t s = 0; s < stages.size(); ++s) {
    std::set<std::pair<int, int64_t>> seen;  // kind, micro-batch
    for (const BlockRun& run : stages[s]) {
      if (run.micro_batch >= micro_batches) {
        return invalid_input(fmt::format("schedule of stage {}: {} is outside micro_batches = {}",
                                         s, to_string(run), micro_batches));
      }
      if (run.kind == BlockRun::kBackward &&
          !seen.contains({BlockRun::kForward, run.micro_batch})) {
        return invalid_input(fmt::format("schedule of stage {}: {} runs before F{}", s,
                                         to_string(run), run.micro_batch));
      }
      if (!seen.emplace(run.kind, run.micro_batch).second) {
        return invalid_input(fmt::format("schedule of stage {}: {} runs twice", s, to_string(run)));
      }
    }
    for (const auto kind : {BlockRun::kForward, BlockRun::kBackward}) {
      for (int64_t m = 0; m < micro_batches; ++m) {
        if (seen.contains({kind, m})) continue;
        return invalid_input(fmt::format("schedule of stage {}: {} is missing (micro_batches = {})",
                                         s, to_string({kind, m}), micro_batches));
      }
    }
  }
  return {};
}

Status check_schedule_finishes(const std::vector<std::vector<BlockRun>>& stages) {
  std::vector<std::vector<std::vector<bool>>> done(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    done[s].assign(2, std::vector<bool>(stages[s].size(), false));
  }
  std::vector<size_t> next(stages.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      while (next[s] < stages[s].size() && ready(done, s, stages[s][next[s]])) {
        const BlockRun& run = stages[s][next[s]++];
        done[s][run.kind][static_cast<size_t>(run.micro_batch)] = true;
        progress = true;
      }
    }
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    if (next[s] == stages[s].size()) continue;
    const BlockRun& run = stages[s][next[s]];
    return invalid_input(fmt::format("the schedule never finishes: stage {} waits for ever at {}",
                                     s, to_string(run)));
  }
  return {};
}

}  // namespace tessera
