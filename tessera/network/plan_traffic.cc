#include "tessera/network/plan_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tessera/base/text.h"
#include "tessera/network/order_index.h"
#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"

namespace tessera {
namespace {

// The bytes that one collective sends, with the members of its group counted from 0.
struct Sent {
  FlowShape shape = FlowShape::kRing;
  double bytes = 0;              // as GroupFlow::bytes
  std::vector<RankFlow> pieces;  // only kMessages
  double rounds = 0;
};

// Joins messages between the same two ranks.
std::vector<RankFlow> joined_by_ends(std::vector<RankFlow> messages) {
  std::ranges::sort(messages, {},
                    [](const RankFlow& flow) { return std::pair(flow.from, flow.to); });
  std::vector<RankFlow> out;
  for (const RankFlow& flow : messages) {
    if (!out.empty() && out.back().from == flow.from && out.back().to == flow.to) {
      out.back().bytes += flow.bytes;
    } else {
      out.push_back(flow);
    }
  }
  return out;
}

int64_t elements_of(const Issue& issue, bool of_need) {
  int64_t most = 0;
  for (const Transfer& transfer : issue.transfers) {
    int64_t here = 0;
    for (const Box& box : of_need ? transfer.need : transfer.hold)
      here = std::max(here, box.volume());
    most += here;
  }
  return most;
}

// Returns what goes from member to member in an exchange or a permutation.
std::vector<RankFlow> pieces_of(const Issue& issue) {
  std::vector<RankFlow> out;
  const size_t members = issue.transfers[0].hold.size();
  const auto add = [&](size_t from, size_t to, double bytes) {
    if (from != to && bytes > 0)
      out.push_back({static_cast<int32_t>(from), static_cast<int32_t>(to), bytes});
  };
  if (issue.named) {
    for (size_t from = 0; from < members; ++from) {
      for (size_t to = 0; to < members; ++to) {
        if (from != to) add(from, to, static_cast<double>(named_bytes(issue, from, to)));
      }
    }
    return out;
  }
  for (const Transfer& transfer : issue.transfers) {
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    for (size_t to = 0; to < members; ++to) {
      if (issue.combiner) {
        for (size_t from = 0; from < members; ++from) {
          const int64_t part = intersect(transfer.hold[from], transfer.need[to]).volume();
          add(from, to, static_cast<double>(message_bytes(issue.codec, issue.dtype, part)));
        }
        continue;
      }
      for (const Take& take : takes(what, to)) {
        add(take.source, to,
            static_cast<double>(message_bytes(issue.codec, issue.dtype, take.box.volume())));
      }
    }
  }
  return out;
}

Sent sent_by(const Issue& issue) {
  const auto n = static_cast<double>(issue.transfers[0].hold.size());
  const auto bytes = [&](bool of_need) {
    return static_cast<double>(
        message_bytes(issue.codec, issue.dtype, elements_of(issue, of_need)));
  };
  Sent out;
  const double levels = std::ceil(std::log2(std::max(2., n)));
  out.rounds = std::min(n - 1, levels);
  switch (issue.kind) {
    case CollectiveKind::kAllReduce:
      out.bytes = 2 * (n - 1) / n * bytes(false);
      out.rounds *= 2;
      break;
    case CollectiveKind::kAllGather: out.bytes = (n - 1) / n * bytes(true); break;
    case CollectiveKind::kReduceScatter: out.bytes = (n - 1) / n * bytes(false); break;
    case CollectiveKind::kBroadcast: out.bytes = bytes(true); break;
    case CollectiveKind::kReduce: out.bytes = bytes(false); break;
    case CollectiveKind::kAllToAll:
      out.shape = FlowShape::kAllPairs;
      out.bytes = bytes(false) / n;
      out.rounds = 1;
      break;
    case CollectiveKind::kPermute:
    case CollectiveKind::kExchange:
      out.shape = FlowShape::kMessages;
      out.pieces = pieces_of(issue);
      out.rounds = 1;
      break;
  }
  return out;
}

// Returns how often the instruction is executed in a step.
double times_of(const Program& program, BlockRef block, const Instruction& instruction) {
  return instruction.when == When::kAlways ? static_cast<double>(program.runs(block)) : 1;
}

class Counting {
 public:
  explicit Counting(const Lowering& lowering) : lowering_(lowering), plan_(lowering.plan()) {}

  Result<PlanTraffic> run() {
    std::vector<int32_t> role_of_rank;
    const std::vector<RankClass> roles = lowering_.roles(&role_of_rank);
    for (size_t r = 0; r < roles.size(); ++r) {
      TESSERA_TRY(const Program program, lowering_.lower(roles[r].representative, false));
      std::vector<int> ranks;
      for (size_t rank = 0; rank < role_of_rank.size(); ++rank) {
        if (role_of_rank[rank] == static_cast<int32_t>(r)) ranks.push_back(static_cast<int>(rank));
      }
      count_collectives(program, ranks);
      TESSERA_TRY_VOID(count_messages(program, ranks));
    }
    return finished();
  }

 private:
  // A kind of collective over axes of meshes; the groups of all places with such axes belong to it.
  using Key = std::tuple<std::string, FlowShape>;

  void count_collectives(const Program& program, const std::vector<int>& ranks) {
    // By group and kind: what the issues send in a step.
    std::map<std::pair<int, Key>, Sent> sums;
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue == nullptr || program.groups[index_of(issue->group)].members.size() < 2) continue;
        const Sent once = sent_by(*issue);
        const double times = times_of(program, ref, instruction);
        const Key key{fmt::format("{} over {}", collective_name(issue->kind),
                                  join(program.groups[index_of(issue->group)].axes, " ")),
                      once.shape};
        Sent& sum = sums[{issue->group, key}];
        sum.shape = once.shape;
        sum.bytes += times * once.bytes;
        sum.rounds += times * once.rounds;
        for (RankFlow piece : once.pieces) {
          piece.bytes *= times;
          sum.pieces.push_back(piece);
        }
      }
    }
    for (auto& [which, sum] : sums) {
      sum.pieces = joined_by_ends(std::move(sum.pieces));
      const Group& group = program.groups[index_of(which.first)];
      const Mesh& mesh = plan_.places[group.place.index()].mesh;
      Axes axes;
      for (const std::string& axis : group.axes) axes.push_back(mesh.find(axis));
      TrafficKind& kind = kind_of(which.second, sum.rounds);
      for (const int rank : ranks) {
        const std::vector<int64_t> at = mesh.coordinates(rank);
        // Each group is counted once, at its first member.
        if (std::ranges::any_of(axes, [&](AxisId axis) { return at[axis.index()] != 0; })) continue;
        const std::vector<int> members = mesh.group(at, axes);
        if (sum.shape != FlowShape::kMessages) {
          kind.groups.push_back({{members.begin(), members.end()}, sum.bytes});
          continue;
        }
        for (const RankFlow& piece : sum.pieces) {
          kind.messages.push_back(
              {members[index_of(piece.from)], members[index_of(piece.to)], piece.bytes});
        }
      }
    }
  }

  // Counts what the ranks send to other places. A peer is as many coordinates further on each axis
  // for all ranks of the class, if its mesh has the same axes; otherwise each rank is lowered.
  Status count_messages(const Program& program, const std::vector<int>& ranks) {
    const PlaceId here = plan_.places_of(program.rank)[0];
    const Mesh& mesh = plan_.places[here.index()].mesh;
    const std::vector<int64_t> from = mesh.coordinates(program.rank);
    const std::vector<RankFlow> sends = sends_of(program);
    if (sends.empty()) return {};
    const bool alike = std::ranges::all_of(sends, [&](const RankFlow& send) {
      return plan_.places[plan_.places_of(send.to)[0].index()].mesh.axes == mesh.axes;
    });
    double rounds = 0;
    std::map<int32_t, double> rounds_to;  // by place
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto message = message_of(instruction);
        if (!message || !message->sends) continue;
        rounds += times_of(program, ref, instruction);
        rounds_to[place_of(message->peer)] += times_of(program, ref, instruction);
      }
    }
    TrafficKind& kind = kind_of({"send", FlowShape::kMessages}, rounds);
    const auto add = [&](RankFlow send) {
      const int32_t to = place_of(send.to);
      send.phase = phase_of(kind, place_of(send.from), to, rounds_to[to]);
      kind.messages.push_back(send);
    };
    for (const int rank : ranks) {
      if (!alike && rank != program.rank) {
        TESSERA_TRY(const Program other, lowering_.lower(rank, false));
        for (const RankFlow& send : sends_of(other)) add(send);
        continue;
      }
      const std::vector<int64_t> at = mesh.coordinates(rank);
      for (const RankFlow& send : sends) {
        if (rank == program.rank) {
          add(send);
          continue;
        }
        const Mesh& there = plan_.places[plan_.places_of(send.to)[0].index()].mesh;
        std::vector<int64_t> to = there.coordinates(send.to);
        for (size_t a = 0; a < to.size(); ++a) {
          const int64_t size = mesh.axes[a].size;
          to[a] = (at[a] + to[a] - from[a] + size) % size;
        }
        add({rank, static_cast<int32_t>(there.rank_at(to)), send.bytes});
      }
    }
    return {};
  }

  int32_t place_of(int rank) const {
    return static_cast<int32_t>(plan_.places_of(rank)[0].index());
  }
  static int32_t phase_of(TrafficKind& kind, int32_t from, int32_t to, double rounds) {
    const auto found = std::ranges::find_if(kind.phases, [&](const MessagePhase& phase) {
      return phase.from == from && phase.to == to;
    });
    if (found == kind.phases.end()) {
      kind.phases.push_back({from, to, rounds});
      return static_cast<int32_t>(kind.phases.size() - 1);
    }
    found->rounds = std::max(found->rounds, rounds);
    return static_cast<int32_t>(found - kind.phases.begin());
  }

  static std::vector<RankFlow> sends_of(const Program& program) {
    std::vector<RankFlow> out;
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto message = message_of(instruction);
        if (!message || !message->sends) continue;
        const DType dtype = program.buffer(message->view->buffer).dtype;
        out.push_back({program.rank, message->peer,
                       times_of(program, ref, instruction) *
                           static_cast<double>(
                               message_bytes(*message->codec, dtype, message->region->volume()))});
      }
    }
    return out;
  }

  TrafficKind& kind_of(const Key& key, double rounds) {
    TrafficKind& kind = kinds_[key];
    std::tie(kind.what, kind.shape) = key;
    kind.rounds = std::max(kind.rounds, rounds);
    return kind;
  }

  PlanTraffic finished() {
    PlanTraffic out;
    out.ranks = plan_.ranks;
    for (auto& [key, kind] : kinds_) {
      kind.messages = joined_by_ends(std::move(kind.messages));
      out.kinds.push_back(std::move(kind));
    }
    std::ranges::stable_sort(out.kinds,
                             [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
    return out;
  }

  const Lowering& lowering_;
  const ResolvedPlan& plan_;
  std::map<Key, TrafficKind> kinds_;
};

}  // namespace

double TrafficKind::bytes() const {
  double out = 0;
  for (const GroupFlow& group : groups) {
    const auto n = static_cast<double>(group.members.size());
    out += group.bytes * (shape == FlowShape::kRing ? n : n * (n - 1));
  }
  for (const RankFlow& message : messages) out += message.bytes;
  return out;
}

Result<PlanTraffic> plan_traffic(const Lowering& lowering) { return Counting(lowering).run(); }

}  // namespace tessera
