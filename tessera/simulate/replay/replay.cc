#include "tessera/simulate/replay/replay.h"

#include <algorithm>

namespace tessera {

void Timeline::sample(double time, int64_t bytes) {
  if (!keeps_) return;
  if (!samples_.empty() && samples_.back().bytes == bytes) return;
  const auto at = [&](size_t behind) {
    return samples_.size() >= behind && samples_[samples_.size() - behind].time_s == time;
  };
  if (merges_ties_ && at(2)) samples_.pop_back();
  if (merges_ties_ && at(1) && samples_.back().bytes <= bytes) samples_.pop_back();
  samples_.push_back({time, bytes});
}

namespace {

std::vector<int64_t> copies_of(const Program& program, const Scratch& scratch) {
  std::vector<int64_t> out;
  for (const Buffer& buffer : program.buffers) out.push_back(buffer.slots);
  out.insert(out.end(), scratch.workspace_bytes.size(), 1);
  return out;
}

}  // namespace

Replay::Replay(const Program& program, const Scratch& scratch, BlockChanges& changes,
               const MemoryTimes& times)
    : program_(program),
      scratch_(scratch),
      changes_(changes),
      times_(times),
      living_(copies_of(program, scratch)),
      timeline_(times.details && times.timeline, !times.events.empty()) {
  first_instance_.reserve(program.buffers.size() + scratch.workspace_bytes.size());
  size_t instances = 0;
  for (const Buffer& buffer : program.buffers) {
    first_instance_.push_back(instances);
    instances += static_cast<size_t>(buffer.slots);
  }
  bytes_ = scratch.bytes;
  for (const int64_t bytes : scratch.workspace_bytes) {
    first_instance_.push_back(instances++);
    bytes_.push_back(bytes);
  }
  buffer_of_.reserve(instances);
  for (size_t buffer = 0; buffer < bytes_.size(); ++buffer)
    buffer_of_.insert(buffer_of_.end(), static_cast<size_t>(slots(buffer)), buffer);
  began_.assign(times.events.empty() ? 0 : instances, 0);
  for (const BlockRunStep& step : program.schedule) {
    const auto [it, fresh] = ends_.try_emplace(step.block, step.micro_batch, step.micro_batch);
    it->second.second = step.micro_batch;
  }
  for (const TraceEvent& event : times.events) {
    if (event.lane == Lane::kCompute) events_[{event.block, event.micro_batch}].push_back(&event);
  }
}

void Replay::run(Emulation* emulation, std::optional<size_t> until) {
  for (const Buffer& buffer : program_.buffers) {
    if (scratch_.resident[buffer.id.index()]) begin(buffer.id.index(), 0, emulation);
  }
  for (const size_t workspace : scratch_.kept)
    begin(program_.buffers.size() + workspace, 0, emulation);
  peak_.bytes = live_;
  timeline_.sample(0, live_);
  if (until && *until == 0) return;
  for (size_t r = 0; r < program_.schedule.size(); ++r) {
    const BlockRunStep& step = program_.schedule[r];
    if (emulation != nullptr) {
      const bool last = step.micro_batch == ends_.at(step.block).second;
      emulation->next_run(!step.block.once() && !last, [this](size_t instance) {
        const size_t buffer = buffer_of_[instance];
        return living_.lives(buffer, static_cast<int64_t>(instance - first_instance_[buffer]));
      });
    }
    const bool emulates = emulation != nullptr && !emulation->is_settled();
    if (!run_block(r, step, emulates ? emulation : nullptr, until)) return;
  }
}

int64_t Replay::copies(size_t buffer) const {
  int64_t count = 0;
  for (int64_t slot = 0; slot < slots(buffer); ++slot) count += living_.lives(buffer, slot) ? 1 : 0;
  return count;
}

std::vector<LiveSpan> Replay::take_spans() {
  for (size_t buffer = 0; buffer < bytes_.size(); ++buffer) {
    for (int64_t slot = 0; slot < slots(buffer); ++slot) {
      const size_t instance = first_instance_[buffer] + static_cast<size_t>(slot);
      if (living_.lives(buffer, slot) && bytes_[buffer] > 0)
        spans_.push_back({buffer, began_[instance], times_.step_s});
    }
  }
  return std::move(spans_);
}

void Replay::begin(size_t buffer, int64_t slot, Emulation* emulation) {
  const size_t instance = first_instance_[buffer] + static_cast<size_t>(slot);
  if (living_.lives(buffer, slot)) return;
  living_.set(buffer, slot, true);
  live_ += bytes_[buffer];
  if (!began_.empty()) began_[instance] = now_;
  if (emulation != nullptr) emulation->begin(instance, bytes_[buffer]);
}

void Replay::end(size_t buffer, int64_t slot, Emulation* emulation) {
  const size_t instance = first_instance_[buffer] + static_cast<size_t>(slot);
  if (!living_.lives(buffer, slot)) return;
  living_.set(buffer, slot, false);
  live_ -= bytes_[buffer];
  if (!began_.empty() && bytes_[buffer] > 0) spans_.push_back({buffer, began_[instance], now_});
  if (emulation != nullptr) emulation->end(instance);
}

bool Replay::run_block(size_t r, const BlockRunStep& step, Emulation* emulation,
                       std::optional<size_t> until) {
  const auto& [first, last] = ends_.at(step.block);
  const Variant variant{step.block, step.micro_batch == first, step.micro_batch == last};
  const std::vector<Change>& changes = changes_.of(variant);
  const bool may_repeat = emulation == nullptr && events_.empty() && !step.block.once() &&
                          (!until || done_ + changes.size() < *until);
  KnownRun* known = may_repeat ? &known_run(variant, changes) : nullptr;
  if (known != nullptr && repeat(*known, r, step, changes)) return true;
  const int64_t before = live_;
  const auto events = events_.find({step.block, step.micro_batch});
  const auto [start, stop] = span_of(r);
  RunClock clock(events_.empty() ? start : now_, stop, program_.block(step.block).size(),
                 events_.empty()           ? nullptr
                 : events != events_.end() ? &events->second
                                           : &none_);
  int64_t highest = live_;
  double highest_at = start;
  if (events_.empty()) timeline_.sample(start, live_);
  int64_t most = before;  // the most live bytes in this run
  size_t most_at = 0;     // the change that first reaches `most`
  for (size_t c = 0; c < changes.size(); ++c) {
    const Change& change = changes[c];
    const bool workspace = change.buffer >= program_.buffers.size();
    const int64_t slot = workspace ? 0 : program_.buffers[change.buffer].slot(step.micro_batch);
    if (!events_.empty()) now_ = std::max(now_, clock.at(change));
    if (change.begins) {
      begin(change.buffer, slot, emulation);
    } else if (step.block.once()) {
      for (int64_t each = 0; each < slots(change.buffer); ++each)
        end(change.buffer, each, emulation);
    } else {
      end(change.buffer, slot, emulation);
    }
    if (!events_.empty()) timeline_.sample(now_, live_);
    if (live_ > most) {
      most = live_;
      most_at = c;
    }
    if (live_ > highest) {
      highest = live_;
      highest_at = events_.empty() && times_.details ? clock.at(change) : start;
    }
    if (live_ > peak_.bytes) {
      peak_.bytes = live_;
      peak_.time = events_.empty() ? clock.at(change) : now_;
      peak_.run = r;
      peak_.share = share_of(change, program_.block(step.block).size());
      peak_.change = done_ + 1;
    }
    if (until && ++done_ == *until) return false;
    if (!until) ++done_;
  }
  if (events_.empty()) {
    timeline_.sample(highest_at, highest);
    timeline_.sample(stop, live_);
  }
  if (known != nullptr) {
    known->is_known = true;
    known->effect = {live_ - before, most - before, most_at};
    living_.read(known->touches, step.micro_batch, known->left);
  }
  return true;
}

Replay::KnownRun& Replay::known_run(const Variant& variant, const std::vector<Change>& changes) {
  KnownRun& known = known_runs_[variant];
  if (known.touches.empty()) {
    known.touches = known.found = known.left = living_.no_buffers();
    for (const Change& change : changes) living_.add(change.buffer, known.touches);
  }
  return known;
}
bool Replay::repeat(KnownRun& known, size_t r, const BlockRunStep& step,
                    const std::vector<Change>& changes) {
  scratch_mask_.resize(known.touches.size());
  living_.read(known.touches, step.micro_batch, scratch_mask_);
  if (!known.is_known || scratch_mask_ != known.found) {
    known.found = scratch_mask_;
    return false;
  }
  living_.write(known.touches, step.micro_batch, known.left);
  const Effect& effect = known.effect;
  const auto [start, stop] = span_of(r);
  const size_t instructions = program_.block(step.block).size();
  const double most_at =
      effect.most > 0 ? RunClock(start, stop, instructions, nullptr).at(changes[effect.most_at])
                      : start;
  if (live_ + effect.most > peak_.bytes) {
    peak_.bytes = live_ + effect.most;
    peak_.time = most_at;
    peak_.run = r;
    peak_.share = share_of(changes[effect.most_at], instructions);
    peak_.change = done_ + effect.most_at + 1;
  }
  timeline_.sample(start, live_);
  timeline_.sample(most_at, live_ + effect.most);
  live_ += effect.adds;
  timeline_.sample(stop, live_);
  done_ += changes.size();
  return true;
}

}  // namespace tessera
