// Which buffers begin and end to live in each block of a program, and when. Private to
// tessera/simulate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tessera/program/program.h"
#include "tessera/simulate/scratch.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

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

// The changes in each block of the program, which are found when they are first asked for. Programs
// that are made from this program (alike_programs.h) have the same changes.
class BlockChanges {
 public:
  BlockChanges(const Program& program, const Scratch& scratch)
      : program_(program), scratch_(scratch) {}
  const std::vector<Change>& of(const Variant& variant);

 private:
  const Program& program_;
  const Scratch& scratch_;
  std::map<Variant, std::vector<Change>> by_variant_;
};

// Returns when a change takes place in a run, as a fraction of the run's time, if the run has this
// number of instructions and all take equally long.
double share_of(const Change& change, size_t instructions);

// Returns start and end of the run at position r, if all runs take an equal share of the step.
std::pair<double, double> equal_share(const Program& program, size_t r, double step_s);

// Gives the times of changes in one run: from the events of its instructions, or, without events,
// as if all instructions took equally long.
class RunClock {
 public:
  RunClock(double start, double end, size_t instructions,
           const std::vector<const TraceEvent*>* events)
      : start_(start), end_(end), instructions_(instructions), events_(events) {}

  // Returns the time of a change; the changes' instructions must come in order.
  double at(const Change& change);

 private:
  double start_, end_;
  size_t instructions_;
  const std::vector<const TraceEvent*>* events_;
  size_t next_ = 0;
};

}  // namespace tessera
