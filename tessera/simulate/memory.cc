#include "tessera/simulate/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "tessera/cost/allocator.h"
#include "tessera/graph/kinds.h"
#include "tessera/program/instructions.h"
#include "tessera/simulate/living_copies.h"
#include "tessera/simulate/scratch.h"

namespace tessera {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

bool takes_place(When when, bool first, bool last) {
  return when == When::kAlways || (when == When::kFirst && first) || (when == When::kLast && last);
}

// Returns whether the tensor's value belongs to a micro-batch. Other tensors are forms of a
// parameter (cast, cut, reordered).
bool of_micro_batch(const Program& program, const Tensor& tensor) {
  return tensor.dims.empty() ||
         std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [&](const Dim& dim) { return dim.name == program.micro_batch_dim; });
}

// A change of the live memory in a run of a block: a buffer or workspace begins to live at its
// first touch, or ends. Numbers of workspaces come after those of buffers.
struct Change {
  int64_t instruction = 0;
  size_t buffer = 0;
  bool begins = true;
};

// A kind of run of a block: whether the run is the block's first or last one.
struct Variant {
  BlockRef block;
  bool first = false, last = false;
  friend auto operator<=>(const Variant&, const Variant&) = default;
};

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

// The changes in each block of the program, which are found when they are first asked for. Programs
// that are made from this program (alike_programs.h) have the same changes.
class BlockChanges {
 public:
  BlockChanges(const Program& program, const Scratch& scratch)
      : program_(program), scratch_(scratch) {}
  const std::vector<Change>& of(const Variant& variant) {
    auto known = by_variant_.find(variant);
    if (known == by_variant_.end())
      known = by_variant_.emplace(variant, changes_of(program_, scratch_, variant)).first;
    return known->second;
  }

 private:
  const Program& program_;
  const Scratch& scratch_;
  std::map<Variant, std::vector<Change>> by_variant_;
};

// Returns when a change takes place in a run, as a fraction of the run's time, if the run has this
// number of instructions and all take equally long.
double share_of(const Change& change, size_t instructions) {
  const double behind = change.begins ? 0 : 1;
  return (static_cast<double>(change.instruction) + behind) /
         static_cast<double>(std::max<size_t>(1, instructions));
}

// Returns start and end of the run at position r, if all runs take an equal share of the step.
std::pair<double, double> equal_share(const Program& program, size_t r, double step_s) {
  const double share = step_s / static_cast<double>(program.schedule.size());
  return {share * static_cast<double>(r), share * static_cast<double>(r + 1)};
}

// Gives the times of changes in one run: from the events of its instructions, or, without events,
// as if all instructions took equally long.
class RunClock {
 public:
  RunClock(double start, double end, size_t instructions,
           const std::vector<const TraceEvent*>* events)
      : start_(start), end_(end), instructions_(instructions), events_(events) {}

  // Returns the time of a change; the changes' instructions must come in order.
  double at(const Change& change) {
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

 private:
  double start_, end_;
  size_t instructions_;
  const std::vector<const TraceEvent*>* events_;
  size_t next_ = 0;
};

// Emulates what a caching allocator reserves. Once many runs in a row have reserved nothing more,
// further runs that are like the others are left out.
class Emulation {
 public:
  Emulation(const Program& program, const Scratch& scratch, Style::Allocator kind)
      : allocator_(AllocatorOptions{kind == Style::Allocator::kExpandable, 0}),
        settles_after_(4 * program.blocks.size() + most_slots(program)) {
    size_t instances = scratch.workspace_bytes.size();
    for (const Buffer& buffer : program.buffers) instances += static_cast<size_t>(buffer.slots);
    address_.assign(instances, kNone);
  }

  void begin(size_t instance, int64_t bytes) {
    if (!settled_ && bytes > 0) address_[instance] = *allocator_.allocate(bytes);
  }
  void end(size_t instance) {
    if (settled_ || address_[instance] == kNone) return;
    allocator_.free(std::exchange(address_[instance], kNone));
  }
  // Must be called before each run. `is_alive` tells which instances live. `alike`: the run is like
  // most runs of its block. Runs of the prologue and update are not alike, and neither are last
  // runs, because these reduce gradients.
  template <class IsAlive>
  void next_run(bool alike, const IsAlive& is_alive) {
    quiet_ = allocator_.peak_reserved_bytes() == reserved_ ? quiet_ + 1 : 0;
    reserved_ = allocator_.peak_reserved_bytes();
    if (alike) {
      settled_ = settled_ || quiet_ > settles_after_;
      return;
    }
    if (!std::exchange(settled_, false)) return;
    for (size_t instance = 0; instance < address_.size(); ++instance) {
      if (address_[instance] == kNone || is_alive(instance)) continue;
      allocator_.free(std::exchange(address_[instance], kNone));
    }
  }
  // Returns whether the runs are left out, so that beginnings and ends change nothing.
  bool is_settled() const { return settled_; }
  int64_t peak_reserved() const { return allocator_.peak_reserved_bytes(); }

 private:
  static size_t most_slots(const Program& program) {
    int64_t slots = 1;
    for (const Buffer& buffer : program.buffers) slots = std::max(slots, buffer.slots);
    return static_cast<size_t>(slots);
  }

  CachingAllocator allocator_;
  static constexpr int64_t kNone = -1;
  std::vector<int64_t> address_;  // by instance (a copy of a buffer): its address, or kNone
  size_t settles_after_;
  size_t quiet_ = 0;
  bool settled_ = false;
  int64_t reserved_ = -1;
};

class Replay {
 public:
  Replay(const Program& program, const Scratch& scratch, BlockChanges& changes,
         const MemoryTimes& times)
      : program_(program),
        scratch_(scratch),
        changes_(changes),
        times_(times),
        living_(copies_of(program, scratch)) {
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

  // Plays the whole schedule, or only the first `until` changes if `until` is set.
  void run(Emulation* emulation, std::optional<size_t> until = {}) {
    for (const Buffer& buffer : program_.buffers) {
      if (scratch_.resident[buffer.id.index()]) begin(buffer.id.index(), 0, emulation);
    }
    for (const size_t workspace : scratch_.kept)
      begin(program_.buffers.size() + workspace, 0, emulation);
    peak_ = live_;
    sample(0);
    if (until && *until == 0) return;
    for (size_t r = 0; r < program_.schedule.size(); ++r) {
      const BlockRunStep& step = program_.schedule[r];
      if (emulation != nullptr) {
        const bool last = step.micro_batch == ends_.at(step.block).second;
        emulation->next_run(!step.block.once() && !last,
                            [this](size_t instance) { return lives(instance); });
      }
      const bool emulates = emulation != nullptr && !emulation->is_settled();
      if (!run_block(r, step, emulates ? emulation : nullptr, until)) return;
    }
  }

  int64_t peak() const { return peak_; }
  double peak_time() const { return peak_time_; }
  size_t peak_run() const { return peak_run_; }
  double peak_share() const { return peak_share_; }
  size_t peak_change() const { return peak_change_; }
  std::vector<MemorySample> take_timeline() { return std::move(timeline_); }
  // Returns the intervals in which copies of the largest buffers live, at most kMostIntervals in
  // all. Needs events.
  std::vector<LiveInterval> take_intervals(const Graph& graph);
  // `bytes` returns the bytes of one copy of a buffer or of a workspace. `copies` returns how many
  // copies of a buffer live.
  int64_t bytes(size_t buffer) const { return bytes_[buffer]; }
  int64_t copies(size_t buffer) const {
    int64_t count = 0;
    for (int64_t slot = 0; slot < slots(buffer); ++slot)
      count += living_.lives(buffer, slot) ? 1 : 0;
    return count;
  }

 private:
  static std::vector<int64_t> copies_of(const Program& program, const Scratch& scratch) {
    std::vector<int64_t> out;
    for (const Buffer& buffer : program.buffers) out.push_back(buffer.slots);
    out.insert(out.end(), scratch.workspace_bytes.size(), 1);
    return out;
  }
  bool lives(size_t instance) const {
    const size_t buffer = buffer_of_[instance];
    return living_.lives(buffer, static_cast<int64_t>(instance - first_instance_[buffer]));
  }
  int64_t slots(size_t buffer) const {
    return buffer < program_.buffers.size() ? program_.buffers[buffer].slots : 1;
  }

  bool begin(size_t buffer, int64_t slot, Emulation* emulation) {
    const size_t instance = first_instance_[buffer] + static_cast<size_t>(slot);
    if (living_.lives(buffer, slot)) return false;
    living_.set(buffer, slot, true);
    live_ += bytes_[buffer];
    if (!began_.empty()) began_[instance] = now_;
    if (emulation != nullptr) emulation->begin(instance, bytes_[buffer]);
    return true;
  }

  void end(size_t buffer, int64_t slot, Emulation* emulation) {
    const size_t instance = first_instance_[buffer] + static_cast<size_t>(slot);
    if (!living_.lives(buffer, slot)) return;
    living_.set(buffer, slot, false);
    live_ -= bytes_[buffer];
    if (!began_.empty() && bytes_[buffer] > 0) spans_.push_back({buffer, began_[instance], now_});
    if (emulation != nullptr) emulation->end(instance);
  }

  std::pair<double, double> span_of(size_t r) const {
    if (r < times_.runs.size()) return times_.runs[r];
    return equal_share(program_, r, times_.step_s);
  }

  // Plays one run. Returns false if change number `until` is reached.
  bool run_block(size_t r, const BlockRunStep& step, Emulation* emulation,
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
    if (events_.empty()) sample(start);
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
      if (!events_.empty()) sample(now_);
      if (live_ > most) {
        most = live_;
        most_at = c;
      }
      if (live_ > highest) {
        highest = live_;
        highest_at = events_.empty() && times_.details ? clock.at(change) : start;
      }
      if (live_ > peak_) {
        peak_ = live_;
        peak_time_ = events_.empty() ? clock.at(change) : now_;
        peak_run_ = r;
        peak_share_ = share_of(change, program_.block(step.block).size());
        peak_change_ = done_ + 1;
      }
      if (until && ++done_ == *until) return false;
      if (!until) ++done_;
    }
    if (events_.empty()) {
      sample(highest_at, highest);
      sample(stop);
    }
    if (known != nullptr) note(*known, step, {live_ - before, most - before, most_at});
    return true;
  }

  // The effect of a run of a block on the live bytes, relative to the bytes before the run.
  struct Effect {
    int64_t adds = 0, most = 0;
    size_t most_at = 0;  // the change that first reaches `most`
  };
  // The last run of a variant that was played change by change. If a later run of the variant finds
  // the same copies alive, it has the same effect.
  struct KnownRun {
    bool is_known = false;
    LivingCopies::Mask touches, found, left;
    Effect effect;
  };
  KnownRun& known_run(const Variant& variant, const std::vector<Change>& changes) {
    KnownRun& known = known_runs_[variant];
    if (known.touches.empty()) {
      known.touches = known.found = known.left = living_.no_buffers();
      for (const Change& change : changes) living_.add(change.buffer, known.touches);
    }
    return known;
  }
  // Applies the effect of the known run to this run. Returns false if no run is known, or if this
  // run finds other copies alive than the known run.
  bool repeat(KnownRun& known, size_t r, const BlockRunStep& step,
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
    if (live_ + effect.most > peak_) {
      peak_ = live_ + effect.most;
      peak_time_ = most_at;
      peak_run_ = r;
      peak_share_ = share_of(changes[effect.most_at], instructions);
      peak_change_ = done_ + effect.most_at + 1;
    }
    sample(start);
    sample(most_at, live_ + effect.most);
    live_ += effect.adds;
    sample(stop);
    done_ += changes.size();
    return true;
  }
  void note(KnownRun& known, const BlockRunStep& step, const Effect& effect) {
    known.is_known = true;
    known.effect = effect;
    living_.read(known.touches, step.micro_batch, known.left);
  }

  void sample(double time) { sample(time, live_); }
  void sample(double time, int64_t bytes) {
    if (!times_.details || !times_.timeline) return;
    if (!timeline_.empty() && timeline_.back().bytes == bytes) return;
    // If several changes happen at the same time, two samples are kept: the highest and the last.
    const auto at = [&](size_t behind) {
      return timeline_.size() >= behind && timeline_[timeline_.size() - behind].time_s == time;
    };
    if (!events_.empty() && at(2)) timeline_.pop_back();
    if (!events_.empty() && at(1) && timeline_.back().bytes <= bytes) timeline_.pop_back();
    timeline_.push_back({time, bytes});
  }

  const Program& program_;
  const Scratch& scratch_;
  BlockChanges& changes_;
  const MemoryTimes& times_;
  LivingCopies living_;
  std::map<Variant, KnownRun> known_runs_;  // used only without events and emulation
  LivingCopies::Mask scratch_mask_;
  std::vector<size_t> first_instance_;         // by buffer: the instance of its slot 0
  std::vector<size_t> buffer_of_;              // by instance
  std::vector<int64_t> bytes_;                 // by buffer, of one copy
  ByBlock<std::pair<int64_t, int64_t>> ends_;  // micro-batches of the first and the last run
  std::map<std::pair<BlockRef, int64_t>, std::vector<const TraceEvent*>> events_;
  const std::vector<const TraceEvent*> none_;
  int64_t live_ = 0, peak_ = 0;
  double peak_time_ = 0, now_ = 0;
  size_t peak_run_ = 0;
  double peak_share_ = 0;
  size_t done_ = 0, peak_change_ = 0;  // number of changes so far, and at the peak
  std::vector<MemorySample> timeline_;
  struct Span {
    size_t buffer = 0;
    double start_s = 0, end_s = 0;
  };
  std::vector<double> began_;  // by instance: when it began to live
  std::vector<Span> spans_;    // intervals of the instances that have ended
};

std::string what_is(const Program& program, const Graph& graph, const Buffer& buffer) {
  const Tensor& tensor = graph.tensor(buffer.tensor);
  const bool of_parameter = parameter_of(graph, tensor).valid();
  const bool rests = buffer.lifetime == Lifetime::kPersistent;
  switch (tensor.role) {
    case Role::kParameter: return rests ? "parameter" : "gathered";
    case Role::kOptimizerState: return "optimizer state";
    case Role::kGradient: return of_parameter ? "gradient" : "activation gradient";
    case Role::kInput: return "input";
    case Role::kBuffer: return "table";
    case Role::kActivation: break;
  }
  if (rests) return "residual";  // of error feedback
  return of_micro_batch(program, tensor) ? "activation" : "gathered";
}

constexpr size_t kMostNamed = 200;
constexpr size_t kMostIntervals = 100'000;

std::vector<LiveInterval> Replay::take_intervals(const Graph& graph) {
  std::vector<size_t> count(bytes_.size(), 0);
  for (size_t buffer = 0; buffer < bytes_.size(); ++buffer) {
    for (int64_t slot = 0; slot < slots(buffer); ++slot) {
      const size_t instance = first_instance_[buffer] + static_cast<size_t>(slot);
      if (living_.lives(buffer, slot) && bytes_[buffer] > 0)
        spans_.push_back({buffer, began_[instance], times_.step_s});
    }
  }
  for (const Span& span : spans_) ++count[span.buffer];
  std::vector<size_t> order(bytes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes_[a] > bytes_[b]; });
  size_t left = kMostIntervals;
  std::vector<bool> named(bytes_.size(), false);
  for (const size_t buffer : order) {
    named[buffer] = count[buffer] <= left;
    if (named[buffer]) left -= count[buffer];
  }
  std::vector<LiveInterval> out;
  for (const Span& span : spans_) {
    if (!named[span.buffer]) continue;
    const bool workspace = span.buffer >= program_.buffers.size();
    LiveInterval live{"", "workspace", bytes_[span.buffer], span.start_s, span.end_s};
    if (workspace) {
      live.name = scratch_.names[span.buffer - program_.buffers.size()];
    } else {
      const Buffer& buffer = program_.buffers[span.buffer];
      live.name = buffer.name;
      live.what = what_is(program_, graph, buffer);
    }
    out.push_back(std::move(live));
  }
  std::stable_sort(out.begin(), out.end(), [](const LiveInterval& a, const LiveInterval& b) {
    return std::pair(a.start_s, -a.bytes) < std::pair(b.start_s, -b.bytes);
  });
  return out;
}

// Returns the live buffers. The largest kMostNamed are listed by name; the others are summed for
// each value of LiveBuffer::what.
std::vector<LiveBuffer> live_buffers(const Program& program, const Graph& graph,
                                     const Scratch& scratch, const Replay& replay) {
  std::vector<LiveBuffer> all;
  for (const Buffer& buffer : program.buffers) {
    const int64_t copies = replay.copies(buffer.id.index());
    const int64_t bytes = replay.bytes(buffer.id.index());
    if (copies == 0 || bytes == 0) continue;
    all.push_back({copies == 1 ? buffer.name : fmt::format("{} x {}", buffer.name, copies),
                   copies * bytes, what_is(program, graph, buffer)});
  }
  for (size_t i = 0; i < scratch.names.size(); ++i) {
    if (replay.copies(program.buffers.size() + i) > 0)
      all.push_back({scratch.names[i], scratch.workspace_bytes[i], "workspace"});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  if (all.size() <= kMostNamed) return all;
  std::map<std::string, std::pair<int64_t, int64_t>> rest;  // what -> count, bytes
  for (size_t i = kMostNamed; i < all.size(); ++i) {
    ++rest[all[i].what].first;
    rest[all[i].what].second += all[i].bytes;
  }
  all.resize(kMostNamed);
  for (const auto& [what, of] : rest)
    all.push_back({fmt::format("{} others", of.first), of.second, what});
  return all;
}

// Returns the number of rings that a group inside a node uses: one for each link of the device
// (docs/theory/cost-model.md section 4.2).
int64_t inner_channels(const NodeType& type) {
  if (type.inner.kind != LinkKind::kNvlink && type.inner.kind != LinkKind::kDirect) return 2;
  return type.device.generation->rings_in_node;
}

// Finds the groups in which the program issues collectives, and the number of ranks with which it
// exchanges messages.
void find_partners(const Program& program, MemorySizes& out) {
  std::vector<bool> calls(program.groups.size(), false);
  std::set<int> peers;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* issue = std::get_if<Issue>(&instruction.body))
        calls[static_cast<size_t>(issue->group)] = true;
      if (const auto message = message_of(instruction)) peers.insert(message->peer);
    }
  }
  for (size_t group = 0; group < calls.size(); ++group) {
    if (calls[group]) out.groups.push_back(static_cast<int>(group));
  }
  out.peers = static_cast<int64_t>(peers.size());
}

// Returns the bytes of the buffers of one channel to one neighbour.
int64_t connection_bytes(const NodeType& type) {
  const bool nvlink = type.inner.kind == LinkKind::kNvlink || type.inner.kind == LinkKind::kDirect;
  return 4 * kMebibyte + kMebibyte / 2 + (nvlink ? 47 * kMebibyte / 10 : 0);  // Simple, LL, LL128
}

int64_t communication_bytes(const Program& program, const MemorySizes& sizes,
                            const Cluster& cluster, const RankDevices& devices) {
  const int64_t device = devices.device_of(program.rank);
  const NodeType& type = cluster.type_of(device);
  const int64_t here = cluster.locate(device).node;
  int64_t bytes = sizes.peers * peer_communication_bytes(type);
  for (const int index : sizes.groups) {
    const Group& group = program.groups[static_cast<size_t>(index)];
    if (group.members.size() < 2) continue;
    const bool inside = std::ranges::all_of(group.members, [&](int rank) {
      return cluster.locate(devices.device_of(rank)).node == here;
    });
    bytes += group_communication_bytes(type, inside);
  }
  return bytes;
}

// Returns the figures of the emulated allocator and of the replay.
MemorySizes sizes_of(const Program& program, const Scratch& scratch, const Style& style,
                     Replay& replay) {
  MemorySizes out;
  if (style.allocator == Style::Allocator::kPlanned) {
    replay.run(nullptr);
    // Live bytes may be more than the arena, which has no room for what unfused kernels keep.
    out.reserved_bytes =
        std::max(program.arena_bytes[static_cast<size_t>(Tier::kDevice)], replay.peak());
  } else {
    Emulation emulation(program, scratch, style.allocator);
    replay.run(&emulation);
    out.reserved_bytes = emulation.peak_reserved();
  }
  out.live_bytes = replay.peak();
  out.peak_run = replay.peak_run();
  out.peak_share = replay.peak_share();
  find_partners(program, out);
  out.library_bytes = static_cast<int64_t>(style.library_bytes);
  return out;
}

MemoryUse use_of(const Program& program, const MemorySizes& sizes, const Cluster& cluster,
                 const RankDevices& devices) {
  MemoryUse out;
  out.arena_bytes = program.arena_bytes;
  out.peak_bytes = program.arena_bytes[static_cast<size_t>(Tier::kDevice)];
  out.live_bytes = sizes.live_bytes;
  out.reserved_bytes = sizes.reserved_bytes;
  const Device& device = cluster.type_of(devices.device_of(program.rank)).device;
  const int64_t communication = communication_bytes(program, sizes, cluster, devices);
  const int64_t fixed =
      device.context_bytes + library_workspace_bytes(device) + sizes.library_bytes;
  out.overhead_bytes = fixed + communication;
  out.low = static_cast<double>(std::min(out.live_bytes, out.reserved_bytes) + fixed) +
            0.5 * static_cast<double>(communication);
  out.high = static_cast<double>(out.reserved_bytes + fixed) +
             kCommunicationAtMost * static_cast<double>(communication);
  return out;
}

}  // namespace

int64_t communication_bytes(const Program& program, const Cluster& cluster,
                            const RankDevices& devices) {
  MemorySizes partners;
  find_partners(program, partners);
  return communication_bytes(program, partners, cluster, devices);
}

// Counts the buffers of the rings of a group. A ring has a buffer for incoming data, and between
// nodes also one for outgoing data.
int64_t group_communication_bytes(const NodeType& type, bool inside) {
  if (type.device.generation->processor) return 0;
  const int64_t inner = inner_channels(type);
  const int64_t between =
      2 * std::min(std::max<int64_t>(2, inner), 2 * std::max<int64_t>(1, type.nics));
  return (inside ? inner : between) * connection_bytes(type);
}

int64_t peer_communication_bytes(const NodeType& type) {
  constexpr int64_t kChannels = 2;
  return type.device.generation->processor ? 0 : kChannels * connection_bytes(type);
}

int64_t library_workspace_bytes(const Device& device) {
  return device.generation->library_workspace_bytes;
}

MemoryStyle::MemoryStyle(const Style& style)
    : allocator(style.allocator),
      gradient_buffers(style.gradient_buffers),
      fused_attention(style.fused_attention),
      attention_saved_bytes(style.attention_saved_bytes),
      loss_saved(style.loss_saved),
      loss_workspace(style.loss_workspace),
      loss_chunks(style.loss_chunks),
      placeholder_gradients(style.placeholder_gradients),
      library_bytes(style.library_bytes) {}

HeldBuffers held_buffers(const Program& program, const Graph& graph, const Style& style) {
  return scratch_of(program, graph, style);
}

struct AlikeMemory::Impl {
  Impl(const Program& program, const Graph& graph, const Style& of_style)
      : style(of_style), scratch(scratch_of(program, graph, of_style)), changes(program, scratch) {}
  Style style;
  Scratch scratch;
  BlockChanges changes;
};

AlikeMemory::AlikeMemory(const Program& first, const Graph& graph, const Style& style)
    : impl_(std::make_unique<Impl>(first, graph, style)) {}
AlikeMemory::~AlikeMemory() = default;
AlikeMemory::AlikeMemory(AlikeMemory&&) noexcept = default;

MemorySizes AlikeMemory::sizes(const Program& program) {
  const MemoryTimes times{0, {}, {}, false};
  Replay replay(program, impl_->scratch, impl_->changes, times);
  return sizes_of(program, impl_->scratch, impl_->style, replay);
}

MemoryUse memory_use(const Program& program, const MemorySizes& sizes, const Cluster& cluster,
                     const RankDevices& devices, double step_s) {
  MemoryUse out = use_of(program, sizes, cluster, devices);
  const auto [start, stop] = equal_share(program, sizes.peak_run, step_s);
  out.peak_time_s = start + (stop - start) * sizes.peak_share;
  return out;
}

MemoryUse memory_use(const Program& program, const Graph& graph, const Cluster& cluster,
                     const RankDevices& devices, const Style& style, const MemoryTimes& times) {
  const Scratch scratch = scratch_of(program, graph, style);
  BlockChanges changes(program, scratch);
  Replay replay(program, scratch, changes, times);
  MemoryUse out = use_of(program, sizes_of(program, scratch, style, replay), cluster, devices);
  out.peak_time_s = replay.peak_time();
  if (times.details) {
    out.timeline = replay.take_timeline();
    if (!times.events.empty()) out.intervals = replay.take_intervals(graph);
    Replay to_peak(program, scratch, changes, times);
    to_peak.run(nullptr, replay.peak_change());
    out.at_peak = live_buffers(program, graph, scratch, to_peak);
  }
  return out;
}

}  // namespace tessera
