// The steps of the engine: what players and transfers do next. Private to engine*.cc.
#pragma once

#include <vector>

#include "tessera/simulate/round_counter.h"

namespace tessera::engine {

class Engine {
 public:
  // Makes an engine. With `counts_rounds` it counts rounds that repeat instead of playing them,
  // where it can (round_counter.h).
  Engine(const Play& play, RunItemsTable& run_items, bool counts_rounds);
  Result<Outcome> run();
  // Returns whether the outcome is invalid because rounds were left out of one repetition of the
  // schedule, but the time that they take in a later repetition was not found.
  bool lost_count() const { return rounds_.lost_count(); }

 private:
  // engine_steps.cc: players
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
  void finish_player(int32_t p);
  double noise(int32_t p, const Item& item) const;
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

  Actor& actor(int32_t p) { return scene_.actor(p); }
  const Player& player(int32_t p) const { return scene_.player(p); }
  const Run& run_of(int32_t p) const { return scene_.actor(p).current; }
  const RunItems& run_items(int32_t index) const { return scene_.run_items[index]; }
  Transfer& transfer(int32_t t) { return scene_.transfer(t); }
  Slot& slot(int32_t p, int32_t s) { return scene_.slots(p, s); }
  PlayerResult& result(int32_t p) { return scene_.result(p); }

  Scene scene_;
  RoundCounter rounds_;
  std::vector<DirectedUse> uses_;  // scratch
  std::vector<Part*> parts_here_;  // scratch
};

}  // namespace tessera::engine
