#include <fmt/format.h>

#include <algorithm>

#include "tessera/program/verify/interpretation.h"

namespace tessera::verifying {

// Reports that no rank can go on. Follows from a rank to the rank that it waits for, until a rank
// comes again, which makes a cycle, or a rank has ended.
bool stuck(Interpreting& v) {
  size_t at = 0;
  while (v.ranks[at].done()) ++at;
  std::vector<bool> seen(v.ranks.size(), false);
  std::vector<size_t> path;
  while (!v.ranks[at].done() && !seen[at]) {
    seen[at] = true;
    path.push_back(at);
    const auto& communication = *v.communications[static_cast<size_t>(v.ranks[at].waits_for)];
    for (size_t m = 0; m < communication.members.size(); ++m) {
      if (communication.arrivals[m].here) continue;
      at = static_cast<size_t>(communication.members[m]);
      break;
    }
  }
  const auto& waited = *v.communications[static_cast<size_t>(v.ranks[path.back()].waits_for)];
  const TensorId tensor =
      waited.issue != nullptr
          ? waited.issue->transfers.empty() ? TensorId() : waited.issue->transfers[0].tensor
          : waited.tensor;
  if (v.ranks[at].done()) {
    const Rank& last = v.ranks[path.back()];
    return v.reject(&last, "message", tensor,
                    fmt::format("waits for rank {}, which ends without its side", at));
  }
  std::string text = v.blocking ? "with blocking issues, " : "";
  const auto begin = std::find(path.begin(), path.end(), at);
  for (auto r = begin; r != path.end(); ++r) {
    const size_t next = std::next(r) == path.end() ? at : *std::next(r);
    text += r == begin ? fmt::format("rank {} waits", *r) : ", which waits";
    text += fmt::format(" at {} (micro-batch {}) for rank {}", v.where(v.ranks[*r]),
                        v.ranks[*r].step().micro_batch, next);
  }
  return v.reject(&v.ranks[at], "order", tensor, text + ": a deadlock");
}

namespace {

bool check_rest(Interpreting& v, Rank& rank) {
  int handle = -1;
  for (const auto& [number, pendings] : rank.pending) {
    if (!pendings.empty() && (handle < 0 || number < handle)) handle = number;
  }
  if (handle >= 0) {
    return v.reject(&rank, "lifetime", {}, fmt::format("handle #{} is never waited for", handle));
  }
  if (!rank.fetched.empty()) {
    return v.reject(
        &rank, "rows", {},
        fmt::format("the rows of fetch #{} are never released", rank.fetched[0].handle));
  }
  bool good = true;
  for (const Home& home : rank.program().homes) {
    const TensorId updated = v.updated[home.tensor.index()];
    const TensorId expected = updated.valid() ? updated : home.tensor;
    const View view{home.buffer, Box::whole(home.region.shape())};
    if (Failure failure = rank.state.read(view, 0, expected, home.region, true, nullptr)) {
      good = v.reject(&rank, "coverage", home.tensor,
                      fmt::format("at the end of the step: {}", failure.message));
    }
  }
  for (const Home& fetch : rank.program().fetches) {
    const View view{fetch.buffer, Box::whole(fetch.region.shape())};
    if (Failure failure = rank.state.read(view, 0, fetch.tensor, fetch.region, true, nullptr)) {
      good = v.reject(&rank, "coverage", fetch.tensor,
                      fmt::format("fetched at the end of the step: {}", failure.message));
    }
  }
  return good;
}

// Checks that every op is executed over its whole iteration space, and that every persistent tensor
// rests as a whole.
bool check_coverage(Interpreting& v) {
  bool good = true;
  for (const Op& op : v.graph.ops()) {
    if (v.fused[op.id.index()] && v.executed[op.id.index()].empty()) continue;
    int64_t whole = 1;
    for (const OpDim& dim : op.annotation.dims) whole *= dim.size;
    const int64_t found = volume_of(v.executed[op.id.index()]);
    if (found == whole) continue;
    good = v.reject(nullptr, "coverage", op.outputs.empty() ? TensorId() : op.outputs[0],
                    fmt::format("op {} is executed on {} of the {} points of its iteration space",
                                op.path, found, whole));
  }
  for (const bool fetches : {false, true}) {
    std::map<TensorId, std::vector<Box>> rest;
    for (const Rank& rank : v.ranks) {
      for (const Home& home : fetches ? rank.program().fetches : rank.program().homes) {
        add_union(rest[home.tensor], home.region);
      }
    }
    for (const auto& [tensor, boxes] : rest) {
      const int64_t found = volume_of(boxes), whole = v.graph.tensor(tensor).elements();
      if (found == whole) continue;
      good = v.reject(
          nullptr, "coverage", tensor,
          fmt::format("{} hold {} of {} elements", fetches ? "fetches" : "homes", found, whole));
    }
  }
  return good;
}

bool check_loss(Interpreting& v) {
  if (!v.graph.loss.valid()) return true;
  for (const Rank& rank : v.ranks) {
    for (const Home& fetch : rank.program().fetches) {
      if (fetch.tensor == v.graph.loss) return true;
    }
  }
  return v.reject(nullptr, "coverage", v.graph.loss, "no rank fetches the loss");
}

}  // namespace

bool finish_step(Interpreting& v) {
  bool good = true;
  for (Rank& rank : v.ranks) good = check_rest(v, rank) && good;
  return check_coverage(v) && check_loss(v) && good;
}

}  // namespace tessera::verifying
