// The discrete-event engine: players (ranks, or one for each class of equal ranks) go through their
// items in program order. It knows neither graph nor program; price.h makes items of these.
// Semantics: docs/theory/cost-model.md section 9.1.
//
// Each player has a host clock h and a compute stream that is free at the time d. The items:
//   compute  The host spends h += host. The kernel starts at max(d, h + launch) and takes `work`,
//            and longer while communication runs beside it.
//   issue    The host spends h += host. The collective joins its stream at max(d, h + launch).
//            Streams are first in, first out. It starts when it is the first of its stream on all
//            its players, and it ends for all of them together.
//   send     As issue, on the stream of the directed pair. A message of at most kEagerBytes needs
//            no receiver; a larger one joins the stream when its receive is posted.
//   receive  The host posts it one run of the block ahead (with Rules::messages_block when its own
//            run begins) or, if not `ahead`, where it stands.
//   wait     d = max(d, end of what the handle names).
//   host     The host spends h += host.
//
// Communication shares the links of its players max-min fairly. Rates are constant between events;
// at each event the rest of every running item is scaled to the new rates. The result depends on
// nothing but the input.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/simulate/simulation.h"

namespace tessera::engine {

// A message of at most this many bytes leaves without waiting for its receiver
// (docs/theory/cost-model.md section 9.1).
inline constexpr int64_t kEagerBytes = int64_t{64} << 10;

enum class ItemKind : uint8_t { kCompute, kIssue, kSend, kReceive, kWait, kHost };

// Shares, 0..1, of its player's links that a transfer uses while it runs at full speed.
struct LinkUse {
  double inner = 0, nic = 0;
};

struct Item {
  ItemKind kind = ItemKind::kCompute;
  When when = When::kAlways;
  Spent spent = Spent::kCompute;  // kCompute: what runs; kIssue, kSend: the kind of a wait for it
  Lane lane = Lane::kCompute;
  bool rendezvous = false;   // kSend
  bool ahead = true;         // kReceive
  bool blocks_host = false;  // kWait
  int32_t lag = 0;           // kWait: n: for the issue of n runs of the block before
  int32_t handle = -1;       // of the player
  int32_t stream = -1;       // of the player; kReceive: it stands in none, the number is for events
  // Number of a meeting: a player's k-th issue of a number meets the k-th of each other player; a
  // send meets the receive of the same micro-batch. -1: the item meets nothing.
  int32_t match = -1;
  int32_t parties = 1;   // players that meet, this one included
  int32_t account = -1;  // of the player: where busy and exposed times are added up
  int32_t label = 0;     // for events, faults and paths
  int32_t instruction = 0;
  int64_t bytes = 0;  // that it sends, for events
  double host_s = 0, launch_s = 0;
  double latency_s = 0;  // before links are used
  double work_s = 0;     // at full speed
  LinkUse use;
  int32_t members = 0;  // of a pool: ranks of the group, whose cores the transfer keeps busy
};

// Items of one block in program order.
struct Block {
  BlockRef ref;
  std::vector<Item> items;
  // The first block of its family (program.h), whose runs waits count together; -1: this block.
  int32_t family = -1;
  bool smaller = false;  // of the smaller micro-batches
};
struct Handle {
  bool each_micro_batch = false;  // else once a step
};
struct Run {
  int32_t block = 0;  // index into Player::blocks
  int64_t micro_batch = 0;
};

struct Player {
  int32_t rank = 0;
  // Cores that players take turns on: index into Play::pools (-1: a core of its own), and the
  // number of the player's ranks there.
  int32_t pool = -1;
  double ranks = 1;
  double slower = 1;  // a straggler's kernels take so many times longer
  std::vector<Block> blocks;
  std::vector<Run> schedule;
  std::vector<Handle> handles;
  int32_t streams = 0;
  int32_t accounts = 0;
};

struct Rules {
  double inner_slowdown = 1;       // of compute while a transfer inside the node runs
  double nic_slowdown = 1;         // of compute while a NIC is busy
  double collective_slowdown = 1;  // of a transfer inside the node while its player computes
  // If true, messages are not overlapped: a run posts its own receives when it begins.
  bool messages_block = false;
  double jitter = 0;  // relative standard deviation of each kernel's time
  uint64_t seed = 0;
  bool compact = true;  // stretches without communication from outside are played at once
  bool events = false;
  bool path = true;  // Outcome::critical_path
};

struct Rounds;  // rounds.h
struct Play {
  std::vector<Player> players;
  int64_t micro_batches = 1;
  std::vector<std::string> labels;  // by Item::label
  std::vector<double> pools;        // cores of each: with more ranks at work, all are slower
  Rules rules;
  // Rounds of the schedules: rounds that repeat exactly are counted, not played. Null or empty: all
  // rounds are played, as also for jitter, events and the critical path.
  std::shared_ptr<const std::vector<Rounds>> rounds;
};

struct Account {
  double busy_s = 0, exposed_s = 0;
};
struct PlayerResult {
  double end_s = 0;
  std::array<double, kSpent> spent_s{};  // sums to the step's time
  std::array<double, kLanes> busy_s{};
  std::vector<Account> accounts;
};
struct PathPart {
  int32_t player = 0;
  Spent what = Spent::kCompute;
  int32_t label = 0;
  double start_s = 0, end_s = 0;
};
struct Outcome {
  double end_s = 0;
  std::vector<PlayerResult> players;
  std::vector<PathPart> critical_path;  // from the start of the step to its end
  std::vector<TraceEvent> events;       // label: Item::label; what: -1; by (rank, start)
  int64_t played_events = 0;
};

// Plays all items. Errors: players that wait for each other (the message shows the cycle), a wait
// for what nobody issues.
Result<Outcome> run(const Play& play);

// fair_rates() returns the max-min fair rates (progressive filling, section 4.4) of transfers at
// one device, each between 0 and 1 of its own full speed. Uses are of four links: out and in of the
// inner link, out and in of the NIC.
using DirectedUse = std::array<double, 4>;
std::vector<double> fair_rates(const std::vector<DirectedUse>& uses);

}  // namespace tessera::engine
