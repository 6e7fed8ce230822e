// A `Scene` is all that is going on in a play at one time. Private to engine*.cc. The engine
// (engine_steps.h) moves it on, and the RoundCounter (round_counter.h) compares it with earlier ones.
// Times are seconds from the start of the step.
#pragma once

#include <optional>
#include <unordered_map>

#include "tessera/base/philox.h"
#include "tessera/base/small_vector.h"
#include "tessera/simulate/agenda.h"
#include "tessera/simulate/history.h"
#include "tessera/simulate/rounds.h"
#include "tessera/simulate/stretch_counts.h"

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

// The slots of all players.
class Slots {
 public:
  explicit Slots(const Play& play) : play_(play), slots_(play.players.size()) {
    for (const Player& player : play.players) bases_.emplace_back(player.handles.size());
  }
  // Returns the number of the slot of a handle for a micro-batch. Slots are made when they are first
  // needed, because most handles are of collectives that are only played in stretches and need no
  // slots, and because most micro-batches of a long schedule are counted and not played.
  int32_t at(int32_t player, int32_t handle, int64_t micro_batch);
  Slot& operator()(int32_t player, int32_t slot) {
    return slots_[static_cast<size_t>(player)][static_cast<size_t>(slot)];
  }
  const Slot& operator()(int32_t player, int32_t slot) const {
    return slots_[static_cast<size_t>(player)][static_cast<size_t>(slot)];
  }

 private:
  // A handle that is used once a micro-batch has slots for so many micro-batches one after the
  // other.
  static constexpr int64_t kTogether = 16;
  const Play& play_;
  std::vector<std::vector<Slot>> slots_;  // by player
  // By player, handle and micro-batch / kTogether: the number of the first of these slots; -1: not
  // made yet.
  std::vector<std::vector<std::vector<int32_t>>> bases_;
};

struct Scene {
  // `played` and `table` must outlive the scene.
  Scene(const Play& played, RunItemsTable& table);

  const Player& player(int32_t p) const { return play.players[static_cast<size_t>(p)]; }
  Actor& actor(int32_t p) { return actors[static_cast<size_t>(p)]; }
  const Actor& actor(int32_t p) const { return actors[static_cast<size_t>(p)]; }
  PlayerResult& result(int32_t p) { return results[static_cast<size_t>(p)]; }
  Transfer& transfer(int32_t t) { return transfers[static_cast<size_t>(t)]; }
  const Transfer& transfer(int32_t t) const { return transfers[static_cast<size_t>(t)]; }
  // Returns the run items of the player's present run.
  const RunItems& items_of(int32_t p) const { return run_items[actor(p).run_items]; }
  // Returns the part of a player in a transfer; null if it has none.
  Part* part_of(int32_t p, int32_t t);
  const Part* part_of(int32_t p, int32_t t) const;
  // Returns the rate of the item at work in a cut stretch.
  double head_rate(int32_t p) const;

  // The play:
  const Play& play;
  RunItemsTable& run_items;
  Timetable timetable;  // without the micro-batches that are left out
  // Players, transfers and what comes next:
  std::vector<Actor> actors;
  Slots slots;
  TransferList transfers;
  // By match and k: the transfer in which the k-th items with this match meet; -1: none yet.
  std::vector<std::vector<int32_t>> meeting;
  // Events of players (by player number) and of transfers (by number of players + transfer number).
  Agenda agenda;
  std::vector<Post> posts;    // a heap with the earliest first
  std::vector<double> loads;  // by pool: the number of ranks at work
  double now = 0;
  uint64_t order = 0;
  // Results so far:
  std::vector<PlayerResult> results;
  StretchCounts stretches;
  std::optional<History> history;  // set if a critical path is asked for
  std::vector<TraceEvent> trace;
  int64_t events = 0;     // that were played
  double left_out_s = 0;  // time of the step that was counted, not played
};

// Returns the outcome of a play that has ended.
Outcome outcome_of(Scene& scene);
// Returns the error of a play that cannot go on.
tl::unexpected<Error> deadlock(const Scene& scene);

}  // namespace tessera::engine
