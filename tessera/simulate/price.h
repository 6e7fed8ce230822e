// Makes priced items for the engine from programs, in two steps. First the outline says what each
// instruction is, on which stream it runs and which items of other players it meets. Then pricing
// fills in how long each item takes on a machine in a style. Equal work is priced once. One outline
// can be priced for many machines and styles.
#pragma once

#include <string>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/cost/op_cost.h"
#include "tessera/simulate/classes.h"
#include "tessera/simulate/engine.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

// Says where the price of an item comes from: an index into the table of this type in the outline.
struct PriceTag {
  enum Type : uint8_t { kNone, kWork, kCollective, kMessage, kCopy } type = kNone;
  int32_t id = 0;
  int64_t times = 0;  // how often the item is played in a step
};
struct PricedWork {
  int64_t part = 0;  // number of the cluster's part whose devices do the work
  OpWork work;
};
// The data that a collective moves. kActivations: values that go from one op of a layer to the
// next. kTokens: tokens on their way to and from their experts, which is an all-to-all of what an
// op of WorkClass::kRouting makes or reads. kOther: anything else.
enum class Moves : uint8_t { kOther, kActivations, kTokens };
struct PricedCollective {
  CollectiveKind kind = CollectiveKind::kExchange;
  GroupPlacement where;
  int64_t bytes = 0;
  Moves moves = Moves::kOther;
  ExchangeLoad load = {};  // only for an exchange over several nodes
  int64_t choices = 1;     // only for kTokens: the number of experts that each token goes to
  friend auto operator<=>(const PricedCollective&, const PricedCollective&) = default;
};
// Returns the largest number of experts that a router of the graph chooses for a token: the size of
// the dim of a router's choices.
int64_t most_choices(const Graph& graph);
struct PricedMessage {
  int64_t from = 0, to = 0, bytes = 0;
  GroupPlacement where;  // of the two devices
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
  engine::Play play;                                     // items without times, until unpriced()
  std::vector<std::vector<std::vector<PriceTag>>> tags;  // by player, block, item
  // By player and account; only kind, axes, count and bytes are set.
  std::vector<std::vector<TrafficRow>> rows;
  std::vector<std::string> what;  // by label of Play::labels: "einsum", "all_reduce tp", ...
  std::vector<PricedWork> works;
  std::vector<PricedCollective> collectives;
  std::vector<PricedMessage> messages;
  std::vector<PricedCopy> copies;
};
// Makes the outline. Beside the programs, the outline depends on which transfers the style overlaps
// and on whether the cluster has a profile.
Result<Outline> make_outline(Lowered& lowered, const Cluster& cluster,
                             const SimulateOptions& options);

struct PricedPlayer {
  std::vector<TrafficRow> rows;      // by account, with the algorithm of the largest transfer
  std::array<double, 5> source_s{};  // device time in a step, by CostSource
  double uncertain_s = 0;            // sum over the items of device time x relative uncertainty
  double flops = 0;                  // executed in a step
  double host_s = 0, launches = 0;   // of all items in a step, as in RankResult
};
struct Priced {
  engine::Play play;
  std::vector<PricedPlayer> players;
};
// Takes the play of the outline, without times. price() fills them in and can be called for the same
// object many times.
Priced unpriced(Outline& outline);
void price(const Outline& outline, const Cluster& cluster, const SimulateOptions& options,
           Priced& out);
// Returns a time that a priced step takes at least (Simulator::least_step_s).
double least_step_s(const Outline& outline, const Priced& priced);

}  // namespace tessera
