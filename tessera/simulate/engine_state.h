// The engine's state and steps; private to engine*.cc. Times are seconds from the start of the
// step.
#pragma once

#include <limits>
#include <unordered_map>

#include "tessera/base/philox.h"
#include "tessera/base/small_vector.h"
#include "tessera/simulate/agenda.h"
#include "tessera/simulate/rounds.h"
#include "tessera/simulate/stretch.h"

namespace tessera::engine {

// A `Span` is a part of a player's past. Spans of a player follow each other without holes.
struct Span {
  double start = 0, end = 0;
  Spent what = Spent::kCompute;
  int32_t label = 0;
  int32_t cause = -1;  // kBubble: the player that came last, at the span's end
  // A stretch: items [from, to) of a run; h and d when it began.
  int32_t run_items = -1, from = 0, to = 0;
  double h = 0, d = 0;
  Beside beside = Beside::kNothing;  // paths have no rigid stretches
};

struct Part {  // of a player in a transfer
  int32_t player = 0;
  int32_t slot = 0;
  const Item* item = nullptr;
  BlockRef block;       // where the player's item stands
  bool queued = false;  // stands in the queue of a stream (a receive never does)
  int32_t before = -1;  // the transfer before it in that queue, if it had to wait for one
  double share = 1;     // of its full speed, as the player's links allow
  double rate = 1;      // as `share`, with the compute beside it
};
enum class Phase : uint8_t { kGathering, kLatency, kTransfer, kDone };
struct Transfer {
  SmallVector<Part, 2> parts;
  Phase phase = Phase::kGathering;
  const Item* item = nullptr;  // of who issues or sends
  int64_t micro_batch = 0;
  int32_t heads = 0;    // parts that are first of their stream
  bool posted = false;  // a receive
  int32_t last = -1;    // the player that came last
  double ready = 0;     // when it came
  double start = 0, end = 0;
  double left = 0, rate = 1, updated = 0;
};

struct Slot {  // of a handle and micro-batch
  int32_t transfer = -1;
  bool done = false;
};

// The queue of a stream: transfers in the order in which the player joined them.
class Queue {
 public:
  bool empty() const { return first_ == all_.size(); }
  size_t size() const { return all_.size() - first_; }
  int32_t front() const { return all_[first_]; }
  int32_t back() const { return all_.back(); }
  void push_back(int32_t transfer) { all_.push_back(transfer); }
  void pop_front() {
    if (++first_ < all_.size()) return;
    all_.clear();
    first_ = 0;
  }

 private:
  std::vector<int32_t> all_;
  size_t first_ = 0;
};

// The work of a player in State::kStretch: items [from, to) of its run from the host clock `h` and
// the device's time `d` on. Where a stretch was cut, the item that was then at work comes before
// them: the head, which began at `head_start` and ends at `d`.
struct Stretch {
  Manner manner;
  int32_t from = 0, to = 0;
  double h = 0, d = 0;
  int32_t head = -1;
  double head_start = 0;
  double head_left = 0, head_updated = 0;  // of its time at full speed, and when that was so
};

enum class State : uint8_t { kReady, kComputing, kWaiting, kStretch, kDraining, kFinished };
struct Actor {  // a player at work
  State state = State::kReady;
  double h = 0, d = 0;
  int32_t run = 0;  // index into the schedule
  int32_t at = 0;   // item of the run
  int32_t run_items = -1;
  double started = 0, left = 0, rate = 1, updated = 0;  // the kernel that runs
  int32_t slot = -1;                                    // that it waits for
  int32_t outstanding = 0;                              // transfers that are not done
  int32_t loud = 0;                // of them, those that have started and use the links of the node
  int32_t issued = 0;              // of them, collectives
  int32_t last_done = -1;          // transfer
  bool loading = false;            // counts in the load of its pool
  bool links_see_compute = false;  // rates of transfers here take it into account
  double host_bound = -1;          // until when the host was last waited for
  Stretch stretch;
  std::vector<std::vector<int32_t>> past;     // by block: micro-batches of its runs so far
  std::vector<Queue> queues;                  // by stream
  std::vector<int32_t> active;                // transfers that use its links
  std::unordered_map<int32_t, int32_t> came;  // by match: how often
  std::vector<Span> spans;
};

struct Post {  // of a receive by the host, at a time to come
  double time = 0;
  uint64_t order = 0;
  int32_t player = 0, run = 0, item = 0;
  bool operator>(const Post& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

// Transfers by number; they keep their addresses.
class TransferList {
 public:
  size_t size() const { return size_; }
  Transfer& operator[](size_t i) { return chunks_[i / kChunk][i % kChunk]; }
  const Transfer& operator[](size_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  Transfer& add() {
    if (size_++ % kChunk == 0) chunks_.emplace_back().reserve(kChunk);
    return chunks_.back().emplace_back();
  }

 private:
  static constexpr size_t kChunk = 64;
  std::vector<std::vector<Transfer>> chunks_;
  size_t size_ = 0;
};

inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct PlayedStretch {  // items [from, to)
  int32_t run_items = 0, from = 0, to = 0;
  Manner manner;
};

// The state at one time in rounds (engine_rounds.cc).
struct Mark {
  double time = 0;
  int64_t round = 0;            // of the player that is watched
  std::vector<int64_t> words;   // what is going on
  std::vector<double> times;    // of that, relative to the mark
  std::vector<double> hosts;    // by player: its host's clock, relative to the mark
  std::vector<double> results;  // all players', until here
  size_t stretches = 0;         // played until here
};

class Engine {
 public:
  // Makes an engine; if `counts_rounds`, it counts rounds that repeat where possible
  // (engine_rounds.cc).
  Engine(const Play& play, RunItemsTable& run_items, bool counts_rounds);
  Result<Outcome> run();
  // Returns whether the outcome is void: rounds were left out of one repetition, but the time that
  // they take in a later repetition was not found.
  bool lost_count() const { return lost_count_; }

 private:
  // engine.cc: players
  void find_ends();
  void begin_run(int32_t p);
  int32_t run_items_of(int32_t p, int32_t run);
  void post_receives(int32_t p, int32_t run, double host_at);
  void advance(int32_t p);
  bool step(int32_t p, const Item& item);  // false: something else must happen first
  bool step_compute(int32_t p, const Item& item);
  bool step_join(int32_t p, const Item& item);
  bool step_wait(int32_t p, const Item& item);
  void finish_compute(int32_t p);
  void hold_host(Actor& a) const;
  void resume(int32_t p, int32_t t);
  void attribute_wait(int32_t p, int32_t t);
  void expose(int32_t p, int32_t t);
  Part* part_of(int32_t p, int32_t t);
  void finish_player(int32_t p);
  double noise(int32_t p, const Item& item) const;
  int32_t first_slot(int32_t p, int32_t handle);
  int32_t slot_of(int32_t p, const Item& item);
  void spend(int32_t p, double until, Spent what, int32_t label, int32_t cause = -1);
  void schedule_step(int32_t p, double time);
  bool next_is_post() const;
  void on_step(int32_t p);
  void on_post();

  // engine_stretches.cc
  bool begin_stretch(int32_t p);
  Manner manner_of(int32_t p, Beside beside, int32_t from, double h, double d);
  void play_stretch(int32_t p, Manner manner, int32_t from, double h, double d);
  void finish_stretch(int32_t p);
  void finish_head(int32_t p);
  void count_stretch(int32_t p, int32_t to, double end);
  enum class CutOff : uint8_t {
    kAtWork,  // an item, now the head
    kWaits,   // the next item, for the host: there is no head
    kEnds,    // the stretch ends now
    kLeft     // the stretch has been left, inside a bundle
  };
  CutOff cut_stretch(int32_t p);
  void leave_stretch(int32_t p);
  void leave_in_bundle(int32_t p, const Bundle& bundle);
  void take_over(int32_t p, const Bundle& bundle, const InBundle& now, double start);
  void interrupt(int32_t p);
  void change_rate(int32_t p);
  Beside beside_of(int32_t p);
  double head_rate(int32_t p);
  std::vector<int64_t>& stretches_of(int32_t run_items, Manner manner);
  void account_stretches(int32_t run_items, Manner manner, PlayerResult& result);
  void account_stretches();

  // engine_transfers.cc
  void join(int32_t p, const Item& item);
  void enter_stream(int32_t t, size_t index);
  int32_t join_underway(int32_t p, const Item& item, double start);
  void post(int32_t p, const Item& item, int64_t micro_batch, BlockRef block);
  size_t family_of(int32_t p, int32_t block) const {
    const int32_t family = player(p).blocks[static_cast<size_t>(block)].family;
    return static_cast<size_t>(family < 0 ? block : family);
  }
  int32_t transfer_of(int32_t p, const Item& item, int64_t micro_batch);
  void try_start(int32_t t);
  void start(int32_t t);
  void on_transfer(int32_t t);
  void schedule_transfer(int32_t t, double time);
  double compute_rate(int32_t p) const;
  void begin_flow(int32_t t);
  void finish_transfer(int32_t t);
  void count_part(int32_t t, const Part& part);
  void update_links(int32_t p);
  void update_slowing(int32_t p);
  void update_compute(int32_t p);
  void set_rate(int32_t t);
  double crowd(int32_t pool) const;
  void add_load(int32_t pool, double ranks);
  double own_share(const Transfer& moving) const;

  // engine_rounds.cc
  void watch_rounds();
  void watch_next();
  const Rounds& rounds() const { return rounds_[watch_.size]; }
  const Repetition& repetition(int32_t p) const {
    return rounds().repetitions[static_cast<size_t>(p)][watch_.repetition];
  }
  size_t runs_a_round(int32_t p) const;
  void watch_run(int32_t p);
  int64_t rounds_ahead() const;
  void take_mark();
  void note_player(int32_t p, Mark& mark);
  bool is_over(const Transfer& one) const;
  int64_t relative_micro_batch(const Transfer& one, int64_t round) const;
  void note_transfers(Mark& mark);
  void note_parts(const Transfer& one, Mark& mark);
  void note_posts(Mark& mark);
  bool repeats(const Mark& before, const Mark& now) const;
  int64_t rounds_to_leave_out(int64_t ahead) const;
  void count_again(const Mark& before, const Mark& now, int64_t times);
  void leave_out(int64_t micro_batches);

  // engine_result.cc
  Outcome outcome();
  std::vector<PathPart> critical_path() const;
  void add_stretch_parts(const Span& span, int32_t p, double until,
                         std::vector<PathPart>& out) const;
  tl::unexpected<Error> deadlock() const;
  // Returns the transfer at the head of the stream in which the player's part stands; -1: none.
  int32_t first_in_stream(int32_t player, const Part& part) const;
  std::string waits_text(int32_t p, int32_t& next) const;

  Actor& actor(int32_t p) { return actors_[static_cast<size_t>(p)]; }
  const Player& player(int32_t p) const { return play_.players[static_cast<size_t>(p)]; }
  const std::vector<Run>& schedule(int32_t p) const { return *schedules_[static_cast<size_t>(p)]; }
  const Run& run_of(int32_t p) const {
    return schedule(p)[static_cast<size_t>(actors_[static_cast<size_t>(p)].run)];
  }
  const RunItems& run_items(int32_t index) const { return run_items_[index]; }
  Transfer& transfer(int32_t t) { return transfers_[static_cast<size_t>(t)]; }
  Slot& slot(int32_t p, int32_t s) {
    return slots_[static_cast<size_t>(p)][static_cast<size_t>(s)];
  }

  const Play& play_;
  std::vector<Actor> actors_;
  RunItemsTable& run_items_;
  std::vector<const std::vector<Run>*> schedules_;  // by player
  bool path_;                                       // keep what the critical path is made of
  // Counts, by run items, Manner and item, how often the item was played in a stretch, as
  // differences.
  std::vector<std::array<std::vector<int64_t>, kManners>> stretches_;
  std::vector<std::vector<int32_t>> first_run_, last_run_;  // by player and block
  std::vector<std::vector<Slot>> slots_;                    // by player
  // The first slot of a handle, by player and handle; -1: it has none yet.
  std::vector<std::vector<int32_t>> slot_base_;
  int64_t micro_batches_;
  TransferList transfers_;
  // The transfers in which the k-th arrivals at a match meet, by match and k; -1: none yet.
  std::vector<std::vector<int32_t>> meeting_;
  Agenda agenda_;            // steps of players, and behind their numbers those of transfers
  std::vector<Post> posts_;  // a heap, the next first
  std::vector<PlayerResult> results_;
  std::vector<double> loads_;  // of each pool: ranks at work
  std::vector<TraceEvent> trace_;
  double now_ = 0;
  uint64_t order_ = 0;
  int64_t played_ = 0;
  // Counting of rounds that repeat:
  struct Watch {
    size_t size = 0, repetition = 0;  // index into rounds_, and into the repetitions of each player
  };
  std::vector<Watch> to_watch_;  // the next last
  Watch watch_;                  // what is watched now
  int32_t watched_ = -1;         // player at whose rounds marks are made; -1: none any more
  std::vector<Rounds> rounds_;   // as they lie in the present schedules
  // Micro-batches that were left out, by size. Their time in the watched repetition is still to be
  // counted if `due_`.
  std::vector<int64_t> left_out_;
  bool due_ = false, lost_count_ = false;
  double mark_at_ = 0, mark_due_ = kNever;  // of the next mark; when all of that time has happened
  std::vector<Mark> marks_;
  std::vector<int32_t> open_;                    // transfers that may not be over
  std::vector<PlayedStretch> played_stretches_;  // while a player is watched
  Timetable shorter_;
  double left_out_s_ = 0;          // of the step
  std::vector<DirectedUse> uses_;  // scratch
  std::vector<Part*> parts_here_;  // scratch
};

}  // namespace tessera::engine
