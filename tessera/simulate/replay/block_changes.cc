#include "tessera/simulate/replay/block_changes.h"

#include <algorithm>

#include "tessera/program/instructions.h"

namespace tessera {
namespace {

bool takes_place(When when, bool first, bool last) {
  return when == When::kAlways || (when == When::kFirst && first) || (when == When::kLast && last);
}

std::vector<Change> changes_of(const Program& program, const Scratch& scratch,
                               const Variant& variant) {
  std::vector<Change> out;
  std::vector<bool> touched(program.buffers.size(), false);
  const auto changes = [&](BufferId id) {
    return program.buffer(id).tier == Tier::kDevice && !scratch.resident[id.index()];
  };
  const std::vector<Instruction>& block = program.block(variant.block);
  for (size_t i = 0; i < block.size(); ++i) {
    if (!takes_place(block[i].when, variant.first, variant.last)) continue;
    accesses(block[i], [&](const Access& access) {
      const size_t index = access.buffer.index();
      const bool begins = access.mode != AccessMode::kFree;
      const bool was_touched = touched[index];
      touched[index] = begins;
      if ((begins && was_touched) || !changes(access.buffer)) return;
      out.push_back({static_cast<int64_t>(i), index, begins});
    });
    if (const auto at = scratch.workspaces.find(&block[i]); at != scratch.workspaces.end()) {
      for (const bool begins : {true, false})
        out.push_back({static_cast<int64_t>(i), program.buffers.size() + at->second, begins});
    }
  }
  return out;
}

}  // namespace

const std::vector<Change>& BlockChanges::of(const Variant& variant) {
  auto known = by_variant_.find(variant);
  if (known == by_variant_.end())
    known = by_variant_.emplace(variant, changes_of(program_, scratch_, variant)).first;
  return known->second;
}

double share_of(const Change& change, size_t instructions) {
  const double behind = change.begins ? 0 : 1;
  return (static_cast<double>(change.instruction) + behind) /
         static_cast<double>(std::max<size_t>(1, instructions));
}

std::pair<double, double> equal_share(const Program& program, size_t r, double step_s) {
  const double share = step_s / static_cast<double>(program.schedule.size());
  return {share * static_cast<double>(r), share * static_cast<double>(r + 1)};
}

double RunClock::at(const Change& change) {
  if (events_ == nullptr) {
    return start_ + (end_ - start_) * share_of(change, instructions_);
  }
  for (; next_ < events_->size(); ++next_) {
    const TraceEvent& event = *(*events_)[next_];
    if (event.instruction > change.instruction) break;
    const bool this_one = event.instruction == change.instruction;
    start_ = std::max(start_, this_one && change.begins ? event.start_s : event.end_s);
    if (this_one && change.begins) break;  // the event's end counts for the next change
  }
  return start_;
}

}  // namespace tessera
