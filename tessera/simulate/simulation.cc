#include "tessera/simulate/simulation.h"

#include <unordered_map>

#include "tessera/program/instructions.h"

namespace tessera {

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::kHost: return "host";
    case Lane::kCompute: return "compute";
    case Lane::kCollective: return "collective";
    case Lane::kMessage: return "message";
    case Lane::kCopy: return "copy";
  }
  return "";
}

std::string_view spent_name(Spent what) {
  switch (what) {
    case Spent::kCompute: return "compute";
    case Spent::kRecompute: return "recompute";
    case Spent::kUpdate: return "update";
    case Spent::kCollective: return "collective";
    case Spent::kMessage: return "message";
    case Spent::kCopy: return "copy";
    case Spent::kHost: return "host";
    case Spent::kBubble: return "bubble";
  }
  return "";
}

void number_matches(std::vector<TraceEvent>& events) {
  std::unordered_map<int32_t, int32_t> parts, numbers;  // for look-up only
  for (const TraceEvent& event : events) ++parts[event.match];
  for (TraceEvent& event : events) {
    if (event.match < 0) continue;
    if (parts[event.match] == 1) {
      event.match = -1;
      continue;
    }
    const auto next = static_cast<int32_t>(numbers.size());
    event.match = numbers.try_emplace(event.match, next).first->second;
  }
}

MessageChannels message_channels(const Program& program) {
  MessageChannels out;
  auto next = static_cast<int32_t>(program.groups.size()) + 1;
  const auto add = [&](std::map<int, int32_t>& channels, int peer) {
    if (channels.try_emplace(peer, next).second) ++next;
  };
  for (const bool sends : {true, false}) {
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto message = message_of(instruction);
        if (message && message->sends == sends) add(sends ? out.to : out.from, message->peer);
      }
    }
  }
  return out;
}

}  // namespace tessera
