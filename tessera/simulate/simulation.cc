#include "tessera/simulate/simulation.h"

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

}  // namespace tessera
