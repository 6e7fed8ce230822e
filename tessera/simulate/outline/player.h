// The outline of one player (price.h) while it is made. The programs of all players are read
// (AllPlayers). Then it is decided under which numbers items of several players meet, and where
// collectives are carried out (collectives.cc), and the player's items are written with their prices
// (items.cc). Private to tessera/simulate.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"
#include "tessera/simulate/outline/tables.h"
#include "tessera/simulate/transfer_bytes.h"

namespace tessera {

using engine::Item;
using engine::ItemKind;

struct AllPlayers {  // what the outlines of all players share
  const Lowered& lowered;
  const Cluster& cluster;
  NodeSharing& sharing;
  const SimulateOptions& options;
  Outline& out;
  Works works;
  std::vector<bool> routed;  // by tensor: whether it has tokens on their way to or from experts
  int64_t choices;           // the most experts that a token goes to
  Numbers matches = {};
  std::map<Key, Crossing> crossings = {};
  std::unordered_map<std::string, int32_t> labels = {};  // for look-up only
  std::map<PricedCollective, int32_t> collectives = {};
  std::map<PricedMessage, int32_t> messages = {};
  std::map<PricedCopy, int32_t> copies = {};
  std::map<int64_t, int32_t> pools = {};  // by machine
  // Indices into Outline::works for the ops of a program, in the order of the program. A program
  // that is made from another (alike_programs.h) has ops of the same sizes, and so the same works.
  struct WorksOfProgram {
    int64_t part = 0;
    std::vector<int32_t> works;
  };
  std::map<int, WorksOfProgram> works_of = {};  // by rank
  TransferBytes bytes = {};

  const Lowering& lowering() const { return *lowered.lowering; }
  const Program& program(size_t player) const {
    return lowered.programs.at(out.classes.all[player].representative);
  }
  int32_t class_of(int rank) const { return out.classes.of_rank[static_cast<size_t>(rank)]; }
  // Returns the label for the texts name() and what(); 0 unless SimulateOptions::has_labels.
  template <class Name, class What>
  int32_t label(const Name& name, const What& what) {
    return options.has_labels() ? known_label(name(), what()) : 0;
  }
  int32_t known_label(const std::string& name, const std::string& what);
};

struct PlayerOutline {
  struct GroupFacts {
    bool known = false;
    std::string axes;
    GroupPlacement where;
    std::vector<int64_t> classes;
    std::vector<int64_t> nodes;  // of each member, numbered in the order of first members
  };

  PlayerOutline(AllPlayers& all, int32_t number);

  int64_t times() const { return when == When::kAlways ? runs : std::min<int64_t>(1, runs); }
  int64_t node_of(int64_t rank) const {
    return shared.cluster.locate(shared.lowered.devices.device_of(rank)).node;
  }
  const std::string& stage_axis() const { return shared.lowering().plan().plan.stage_axis; }
  Item& push(ItemKind kind, PriceTag::Type price = PriceTag::kNone, int32_t id = 0);
  void add_wait(int32_t handle, int32_t lag, bool blocks_host);
  // Returns the index of the row for this kind and axes, and adds a transfer of these bytes to it.
  int32_t account(const std::string& kind, const std::string& axes, int64_t bytes);
  int32_t tensor_label(TensorId tensor, const std::string& what) {
    return shared.label([&] { return graph.tensor(tensor).name; }, [&] { return what; });
  }

  AllPlayers& shared;
  int32_t me;
  const Program& program;
  const Graph& graph;
  int64_t device;
  int64_t part;
  const NodeType& type;
  engine::Player player{};
  std::vector<TrafficRow> rows{};
  std::vector<std::vector<PriceTag>> all_tags{};      // by block
  std::vector<int32_t> works{};                       // of the ops that were added so far
  const std::vector<int32_t>* known_works = nullptr;  // of the program that this one is made from
  size_t computes = 0;                                // that were added so far
  std::map<int, int32_t> handles{};                   // handle of the program -> of the player
  std::set<int> receives{};                           // handles of the program's receives
  std::vector<GroupFacts> groups{};
  std::map<std::pair<std::string, std::string>, int32_t> accounts{};
  MessageChannels channels{};
  std::map<Key, int64_t> seen{};
  std::map<Key, int32_t> sent{}, received{};
  // From find_pairs: position of a wait -> of the issue that is played there; all such issues.
  std::map<std::pair<BlockRef, size_t>, size_t> deferred{};
  std::set<std::pair<BlockRef, size_t>> postponed{};
  // State of the block that is being outlined:
  BlockRef ref{};
  engine::Block block{};
  std::vector<PriceTag> tags{};
  std::vector<size_t> late{};  // positions of the block's issues that add_late() will add
  int64_t runs = 0;
  int32_t instruction = 0;
  When when = When::kAlways;
};

// ---- collectives.cc
// Finds collectives that are carried out at their wait: it is in the block that issues them.
void find_pairs(PlayerOutline& p);
void add(PlayerOutline& p, const Issue& issue);
// Adds the collective issued at a position of the block, as if it was issued at the present
// instruction.
void add_issued_at(PlayerOutline& p, size_t position);
// Adds a postponed reduction of gradients, for which the host waits. Such a reduction is added at
// the end of the block, after its work and messages, or where its result is first needed.
void add_late(PlayerOutline& p, size_t which);

// ---- items.cc
void add_item(PlayerOutline& p, const Instruction& instruction);

}  // namespace tessera
