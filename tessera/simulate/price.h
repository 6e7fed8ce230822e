// Programs -> priced items for the engine, in two steps. The outline says what each instruction is,
// on which stream it runs and what it meets; pricing fills in what it costs on a machine in a
// style. Equal work is priced once; an outline can be priced again and again.
#pragma once

#include <string>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/cost/op_cost.h"
#include "tessera/simulate/classes.h"
#include "tessera/simulate/engine.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

// The price of an item: an index into the outline's table of its type.
struct PriceTag {
  enum Type : uint8_t { kNone, kWork, kCollective, kMessage, kCopy } type = kNone;
  int32_t id = 0;
  int64_t times = 0;  // in a step
};
struct PricedWork {
  int64_t part = 0;  // of the cluster
  OpWork work;
};
// The data of a collective: values between the ops of a layer, tokens to and from their experts (an
// all-to-all of what a routing op makes or reads: WorkClass::kRouting), or something else.
enum class Moves : uint8_t { kOther, kActivations, kTokens };
struct PricedCollective {
  CollectiveKind kind = CollectiveKind::kExchange;
  GroupPlacement where;
  int64_t bytes = 0;
  Moves moves = Moves::kOther;
  ExchangeLoad load = {};  // of an exchange over several nodes
  int64_t choices = 1;     // of tokens: the experts that each of them goes to
  friend auto operator<=>(const PricedCollective&, const PricedCollective&) = default;
};
// Returns the most experts that a token goes to: the size of the dim that counts a router's
// choices.
int64_t most_choices(const Graph& graph);
struct PricedMessage {
  int64_t from = 0, to = 0, bytes = 0, share = 1;
  friend auto operator<=>(const PricedMessage&, const PricedMessage&) = default;
};
struct PricedCopy {
  int64_t device = 0, bytes = 0;
  bool to_disk = false, from_disk = false;
  friend auto operator<=>(const PricedCopy&, const PricedCopy&) = default;
};

struct Outline {
  Classes classes;
  RankDevices devices;
  engine::Play play;                                     // items without times
  std::vector<std::vector<std::vector<PriceTag>>> tags;  // by player, block, item
  std::vector<std::vector<TrafficRow>> rows;  // by player and account: kind, axes, count, bytes
  std::vector<std::string> what;              // of Play::labels: "einsum", "all_reduce tp", ...
  std::vector<PricedWork> works;
  std::vector<PricedCollective> collectives;
  std::vector<PricedMessage> messages;
  std::vector<PricedCopy> copies;
};
// Makes the outline. It also depends on which transfers the style overlaps and on whether the
// cluster has a profile.
Result<Outline> make_outline(Lowered& lowered, const Cluster& cluster,
                             const SimulateOptions& options);

struct PricedPlayer {
  std::vector<TrafficRow> rows;      // with the algorithm of the largest
  std::array<double, 5> source_s{};  // device time by CostSource
  double uncertain_s = 0;            // sum of device time x relative uncertainty
  double flops = 0;                  // executed, a step
};
struct Priced {
  engine::Play play;
  std::vector<PricedPlayer> players;
};
// Returns the outline's play without times, to be priced again and again.
Priced unpriced(const Outline& outline);
void price(const Outline& outline, const Cluster& cluster, const SimulateOptions& options,
           Priced& out);

}  // namespace tessera
