// The engine's state and steps; private to engine*.cc. Times are seconds from the start of the
// step.
#pragma once

#include <limits>
#include <optional>
#include <unordered_map>

#include "tessera/base/philox.h"
#include "tessera/base/small_vector.h"
#include "tessera/simulate/agenda.h"
#include "tessera/simulate/history.h"
#include "tessera/simulate/rounds.h"

namespace tessera::engine {

struct Part {  // the part that one player has in a transfer
  int32_t player = 0;
  int32_t slot = 0;
  const Item* item = nullptr;
  BlockRef block;       // the block of the player's item
  bool queued = false;  // whether it is in the queue of a stream (a receive never is)
  int32_t before = -1;  // the transfer that was before it in the queue when it came; -1: none
  double share = 1;     // the fraction of full speed that the player's links allow
  double rate = 1;      // `share`, made slower if the player computes at the same time
};
enum class Phase : uint8_t { kGathering, kLatency, kTransfer, kDone };
struct Transfer {
  SmallVector<Part, 2> parts;
  Phase phase = Phase::kGathering;
  const Item* item = nullptr;  // of the player that issues or sends
  int64_t micro_batch = 0;
  int32_t heads = 0;    // number of parts that are first in the queue of their stream
  bool posted = false;  // whether the receive of a message was posted
  int32_t last = -1;    // of the players that have come, the last one; -1: none has come
  double ready = 0;     // when that player came
  double start = 0, end = 0;
  double left = 0, rate = 1, updated = 0;
};

struct Slot {  // what is under way for one handle and micro-batch of a player
  int32_t transfer = -1;
  bool done = false;
};

// The queue of a stream: transfers in the order in which the player came to them.
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

// The work of a player in State::kStretch: items [from, to) of the run, played from the host clock
// `h` and the device's time `d` on. After a stretch was cut (cut_stretch), the item that was then
// at work, the head, is played before these items; the head began at `head_start` and ends at `d`.
struct Stretch {
  Manner manner;
  int32_t from = 0, to = 0;
  double h = 0, d = 0;
  int32_t head = -1;
  double head_start = 0;
  // Time at full speed that the head still needed at the time `head_updated`.
  double head_left = 0, head_updated = 0;
};

enum class State : uint8_t { kReady, kComputing, kWaiting, kStretch, kDraining, kFinished };
struct Actor {  // a player at work
  State state = State::kReady;
  double h = 0, d = 0;
  int32_t run = 0;  // position in the timetable
  Run current;      // the run at this position
  int32_t at = 0;   // index of the current item in the run
  int32_t run_items = -1;
  // The kernel that runs started at `started`. At the time `updated` it still needed the time
  // `left` at full speed, and from then on it runs at `rate`.
  double started = 0, left = 0, rate = 1, updated = 0;
  int32_t slot = -1;               // the slot that the player waits for
  int32_t outstanding = 0;         // number of its transfers that are not done
  int32_t loud = 0;                // of these, those that have started and use links in the node
  int32_t issued = 0;              // of the outstanding ones, collectives
  int32_t last_done = -1;          // the transfer that was done last
  bool loading = false;            // whether the player counts in the load of its pool
  bool links_see_compute = false;  // whether its transfers run at the rate beside compute
  double host_bound = -1;          // the last time until which the device waited for the host
  Stretch stretch;
  std::vector<std::vector<int32_t>> past;     // by block: micro-batches of its runs so far
  std::vector<Queue> queues;                  // by stream
  std::vector<int32_t> active;                // transfers that use the player's links
  std::unordered_map<int32_t, int32_t> came;  // by match: how often the player has come
};

struct Post {  // a receive that the host will post at `time`
  double time = 0;
  uint64_t order = 0;
  int32_t player = 0, run = 0, item = 0;
  bool operator>(const Post& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

// A list of transfers by number. A transfer keeps its address when others are added.
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

struct PlayedStretch {  // a stretch that was played: items [from, to)
  int32_t run_items = 0, from = 0, to = 0;
  Manner manner;
};

// The state of the engine at one time, for the comparison of rounds (engine_rounds.cc). Two marks
// are compared by `words`, `times` and `hosts`.
struct Mark {
  double time = 0;
  int64_t round = 0;            // the round that the watched player is in
  std::vector<int64_t> words;   // what players and transfers are doing
  std::vector<double> times;    // when that began and how much is left, relative to `time`
  std::vector<double> hosts;    // by player: the host's clock, relative to `time`
  std::vector<double> results;  // the results of all players until `time`
  size_t stretches = 0;         // number of stretches that were played until `time`
  std::vector<size_t> spans;    // by player: number of spans of its past, if the path is asked for
};

class Engine {
 public:
  // Makes an engine. With `counts_rounds` it counts rounds that repeat instead of playing them,
  // where it can (engine_rounds.cc).
  Engine(const Play& play, RunItemsTable& run_items, bool counts_rounds);
  Result<Outcome> run();
  // Returns whether the outcome is invalid because rounds were left out of one repetition of the
  // schedule, but the time that they take in a later repetition was not found.
  bool lost_count() const { return lost_count_; }

 private:
  // engine.cc: players
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
  int32_t slot_at(int32_t p, int32_t handle, int64_t micro_batch);
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
  // How cut_stretch leaves a stretch.
  enum class CutOff : uint8_t {
    kAtWork,  // an item is at work; it is now the head
    kWaits,   // no item is at work, because the next one waits for the host; there is no head
    kEnds,    // the stretch ends at this time
    kLeft     // the time is inside a bundle, and the player has left the stretch
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
  tl::unexpected<Error> deadlock() const;
  // Returns the first transfer in the queue of the stream that the player's part joins; -1: the
  // queue is empty.
  int32_t first_in_stream(int32_t player, const Part& part) const;
  std::string waits_text(int32_t p, int32_t& next) const;

  Actor& actor(int32_t p) { return actors_[static_cast<size_t>(p)]; }
  const Player& player(int32_t p) const { return play_.players[static_cast<size_t>(p)]; }
  const Run& run_of(int32_t p) const { return actors_[static_cast<size_t>(p)].current; }
  const RunItems& run_items(int32_t index) const { return run_items_[index]; }
  Transfer& transfer(int32_t t) { return transfers_[static_cast<size_t>(t)]; }
  Slot& slot(int32_t p, int32_t s) {
    return slots_[static_cast<size_t>(p)][static_cast<size_t>(s)];
  }

  const Play& play_;
  std::vector<Actor> actors_;
  RunItemsTable& run_items_;
  Timetable timetable_;                             // without the micro-batches left out
  std::optional<History> history_;                  // set if a critical path is asked for
  // By run items, Manner and item: how often the item was played in a stretch, minus how often the
  // item before it was. (A stretch then changes only the numbers at its two ends.)
  std::vector<std::array<std::vector<int64_t>, kManners>> stretches_;
  std::vector<std::vector<Slot>> slots_;                    // by player
  // A handle that is used once a micro-batch has slots for so many micro-batches one after the
  // other. By player, handle and micro-batch / kSlotsTogether: the index of the first of these
  // slots; -1: not made yet.
  static constexpr int64_t kSlotsTogether = 16;
  std::vector<std::vector<std::vector<int32_t>>> slot_bases_;
  TransferList transfers_;
  // By match and k: the transfer in which the k-th items with this match meet; -1: none yet.
  std::vector<std::vector<int32_t>> meeting_;
  // Events of players (by player number) and of transfers (by number of players + transfer number).
  Agenda agenda_;
  std::vector<Post> posts_;  // a heap with the earliest first
  std::vector<PlayerResult> results_;
  std::vector<double> loads_;  // by pool: the number of ranks at work
  std::vector<TraceEvent> trace_;
  double now_ = 0;
  uint64_t order_ = 0;
  int64_t played_ = 0;
  // Counting of rounds that repeat:
  struct Watch {
    size_t size = 0, repetition = 0;  // index into rounds_, and into the repetitions of each player
  };
  std::vector<Watch> to_watch_;  // the next one is at the end
  Watch watch_;                  // the repetition that is watched now
  int32_t watched_ = -1;         // the player at whose rounds marks are made; -1: none
  std::vector<Rounds> rounds_;   // with their positions in the present, shortened schedules
  // By index into rounds_: the number of micro-batches that were left out. `due_`: the time that
  // they would have taken in the watched repetition is still to be added.
  std::vector<int64_t> left_out_;
  bool due_ = false, lost_count_ = false;
  // Time of the next mark, and the time after which everything that happens at that time has
  // happened, so that the mark can be made.
  double mark_at_ = 0, mark_due_ = kNever;
  std::vector<Mark> marks_;
  std::vector<int32_t> open_;                    // all transfers that are not over, and some others
  std::vector<PlayedStretch> played_stretches_;  // those played while a player is watched
  double left_out_s_ = 0;                        // time of the step that was counted, not played
  std::vector<DirectedUse> uses_;                // scratch
  std::vector<Part*> parts_here_;                // scratch
};

}  // namespace tessera::engine
