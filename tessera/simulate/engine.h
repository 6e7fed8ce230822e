// The discrete-event engine. A player is a rank, or one rank for a class of equal ranks. Players go
// through their items in program order. The engine knows neither graphs nor programs; price.h makes
// items of the instructions of programs. Semantics: docs/theory/cost-model.md section 9.1.
//
// Each player has a host clock h and a compute stream that is free at the time d. The items:
//   compute  The host spends h += host. The kernel starts at max(d, h + launch) and takes `work`,
//            and longer while communication runs beside it.
//   issue    The host spends h += host. The collective joins its stream at max(d, h + launch).
//            Streams are first in, first out. It starts when it is the first of its stream on all
//            its players, and it ends for all of them together.
//   send     As issue, on the stream of the directed pair of players. A message of at most
//            kEagerBytes does not wait for its receiver; a larger message joins the stream when its
//            receive is posted.
//   receive  If `ahead`, the host posts the receive one run of the schedule ahead, but not before
//            that earlier run begins (with Rules::messages_block, when its own run begins).
//            Otherwise the host posts it when it comes to the item.
//   wait     d = max(d, end of what was started under the handle).
//   host     The host spends h += host.
//
// Transfers share the links of their players max-min fairly. Rates are constant between events; at
// each event the rest of every running item goes on at the new rates. The result depends only on
// the input.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/simulate/simulation.h"

namespace tessera::engine {

// A message of at most this many bytes leaves without waiting for its receiver
// (docs/theory/cost-model.md section 9.1).
inline constexpr int64_t kEagerBytes = int64_t{64} << 10;

enum class ItemKind : uint8_t { kCompute, kIssue, kSend, kReceive, kWait, kHost };

// The shares (0 to 1) that a transfer takes, while it runs at full speed, of the link inside the
// node and of the network card of its player.
struct LinkUse {
  double inner = 0, nic = 0;
};

struct Item {
  ItemKind kind = ItemKind::kCompute;
  When when = When::kAlways;
  // kCompute: as which use the kernel's time counts. kIssue, kSend: as which use the time counts in
  // which the player waits for the transfer.
  Spent spent = Spent::kCompute;
  Lane lane = Lane::kCompute;
  bool rendezvous = false;   // kSend: the message waits until its receive is posted
  bool ahead = true;         // kReceive: the host posts it ahead of its own run
  bool blocks_host = false;  // kWait: the host waits too, not only the compute stream
  int32_t lag = 0;           // kWait: n: for what was issued n runs of the block earlier
  int32_t handle = -1;       // index into Player::handles
  // Number of the player's stream that the item joins. A kReceive joins no stream; it has a number
  // only for its events.
  int32_t stream = -1;
  // Number by which the items of several players meet. The k-th issue of a player with this number
  // meets the k-th issue of each other player; a send meets the receive of the same micro-batch.
  // -1: the item meets no other.
  int32_t match = -1;
  int32_t parties = 1;      // number of players that meet, this player included
  int32_t account = -1;     // index into PlayerResult::accounts, which sums busy and exposed times
  int32_t label = 0;        // index into Play::labels, for events, faults and paths
  int32_t instruction = 0;  // index in the program's block
  int64_t bytes = 0;        // bytes that the item sends, for events
  double host_s = 0, launch_s = 0;
  double latency_s = 0;  // time before the transfer uses links
  double work_s = 0;     // time of the kernel or transfer at full speed, without latency
  LinkUse use;
  // If the player has a pool of cores: the number of ranks of the group, each of which the transfer
  // keeps a core busy.
  int32_t members = 0;
};

// Returns whether item i is a collective in which only its player takes part and the next item is
// the wait for it, at which the host does not wait.
bool is_waited_for_at_once(std::span<const Item> items, size_t i);

// Items of one block in program order.
struct Block {
  BlockRef ref;
  std::vector<Item> items;
  // Index of the first block of this block's family (program.h); -1: this block is the first. The
  // lag of a wait counts the runs of all blocks of a family.
  int32_t family = -1;
  bool smaller = false;  // of the smaller micro-batches
};
struct Handle {
  bool each_micro_batch = false;  // true: used once a micro-batch; false: used once a step
};
struct Run {
  int32_t block = 0;  // index into Player::blocks
  int64_t micro_batch = 0;
};

struct Player {
  int32_t rank = 0;
  // The pool of cores that the player shares with others, as an index into Play::pools (-1: the
  // player has a core of its own), and how many ranks of the pool the player counts for.
  int32_t pool = -1;
  double ranks = 1;
  double slower = 1;  // kernels of this player take so many times longer (stragglers)
  std::vector<Block> blocks;
  std::vector<Run> schedule;
  std::vector<Handle> handles;
  int32_t streams = 0;
  int32_t accounts = 0;
};

struct Rules {
  // How many times longer something takes: compute while a transfer inside the node runs; compute
  // while the network card is busy; a transfer inside the node while its player computes.
  double inner_slowdown = 1;
  double nic_slowdown = 1;
  double collective_slowdown = 1;
  // If true, messages are not overlapped with earlier runs: a run posts its receives only when it
  // begins.
  bool messages_block = false;
  double jitter = 0;  // relative standard deviation of each kernel's time
  uint64_t seed = 0;
  bool compact = true;  // stretches (stretch.h) are played in one go where nothing disturbs them
  bool events = false;
  bool path = true;  // the outcome has a critical path
};

struct Rounds;  // rounds.h
struct Play {
  std::vector<Player> players;
  int64_t micro_batches = 1;
  std::vector<std::string> labels;  // by Item::label
  std::vector<double> pools;        // cores of each pool: more ranks at work slow each other down
  Rules rules;
  // Rounds of the schedules (rounds.h). Rounds that repeat exactly are counted instead of played.
  // All rounds are played if this is null or empty, or if jitter or events are asked for.
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
  // How often the part occurs, because rounds that repeat were counted, and how long after the
  // start of one occurrence the next one starts. Start and end are those of the first occurrence.
  int64_t times = 1;
  double period_s = 0;
};
struct Outcome {
  double end_s = 0;
  std::vector<PlayerResult> players;
  std::vector<PathPart> critical_path;  // from the start of the step to its end
  std::vector<TraceEvent> events;       // label: Item::label; what: -1; by (rank, start)
  int64_t played_events = 0;
};

// Plays all items. Errors: players wait for each other in a circle (the message shows it), or a
// player waits for a handle under which nothing is issued.
Result<Outcome> run(const Play& play);

// A `DirectedUse` has the shares that a transfer uses of a device's four directed links: link
// inside the node out and in, network card out and in. fair_rates() returns, for all transfers at
// one device, their max-min fair rates (progressive filling, docs/theory/cost-model.md section
// 4.4), each as a fraction of the transfer's full speed.
using DirectedUse = std::array<double, 4>;
std::vector<double> fair_rates(const std::vector<DirectedUse>& uses);

}  // namespace tessera::engine
