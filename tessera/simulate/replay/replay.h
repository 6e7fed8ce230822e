// Plays the schedule of a program and follows which copies of buffers live, change by change
// (block_changes.h). Private to tessera/simulate.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/simulate/living_copies.h"
#include "tessera/simulate/replay/block_changes.h"
#include "tessera/simulate/replay/emulation.h"
#include "tessera/simulate/replay/memory_times.h"

namespace tessera {

// The live bytes over the step.
class Timeline {
 public:
  // `keeps`: false: no samples are kept. `merges_ties`: of several samples at the same time only the
  // highest and the last are kept.
  Timeline(bool keeps, bool merges_ties) : keeps_(keeps), merges_ties_(merges_ties) {}
  void sample(double time, int64_t bytes);
  std::vector<MemorySample> take() { return std::move(samples_); }

 private:
  bool keeps_, merges_ties_;
  std::vector<MemorySample> samples_;
};

// Where the most bytes live: the run, how far the run is then, and how many changes come before.
struct Peak {
  int64_t bytes = 0;
  double time = 0;
  size_t run = 0;
  double share = 0;
  size_t change = 0;
};

// When a copy of a buffer lived.
struct LiveSpan {
  size_t buffer = 0;
  double start_s = 0, end_s = 0;
};

class Replay {
 public:
  Replay(const Program& program, const Scratch& scratch, BlockChanges& changes,
         const MemoryTimes& times);

  // Plays the whole schedule, or only the first `until` changes if `until` is set.
  void run(Emulation* emulation, std::optional<size_t> until = {});

  const Peak& peak() const { return peak_; }
  std::vector<MemorySample> take_timeline() { return timeline_.take(); }
  // Returns when copies lived. Needs events.
  std::vector<LiveSpan> take_spans();
  // `bytes` returns the bytes of one copy of a buffer or of a workspace. `copies` returns how many
  // copies of a buffer live.
  int64_t bytes(size_t buffer) const { return bytes_[buffer]; }
  int64_t copies(size_t buffer) const;

 private:
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

  int64_t slots(size_t buffer) const {
    return buffer < program_.buffers.size() ? program_.buffers[buffer].slots : 1;
  }
  std::pair<double, double> span_of(size_t r) const {
    return r < times_.runs.size() ? times_.runs[r] : equal_share(program_, r, times_.step_s);
  }
  void begin(size_t buffer, int64_t slot, Emulation* emulation);
  void end(size_t buffer, int64_t slot, Emulation* emulation);
  // Plays one run. Returns false if change number `until` is reached.
  bool run_block(size_t r, const BlockRunStep& step, Emulation* emulation,
                 std::optional<size_t> until);
  KnownRun& known_run(const Variant& variant, const std::vector<Change>& changes);
  // Applies the effect of the known run to this run. Returns false if no run is known, or if this
  // run finds other copies alive than the known run.
  bool repeat(KnownRun& known, size_t r, const BlockRunStep& step,
              const std::vector<Change>& changes);

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
  int64_t live_ = 0;
  double now_ = 0;
  size_t done_ = 0;  // number of changes so far
  Peak peak_;
  Timeline timeline_;
  std::vector<double> began_;    // by instance: when it began to live
  std::vector<LiveSpan> spans_;  // of the instances that have ended
};

}  // namespace tessera
