#include "tessera/program/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/program/verify/interpretation.h"

namespace tessera {
namespace verifying {

// Reports that no rank can go on. Follows from a rank to the rank that it waits for, until a rank
// comes again, which makes a cycle, or a rank has ended.
bool Interpretation::stuck() {
  size_t at = 0;
  while (ranks_[at].done()) ++at;
  std::vector<bool> seen(ranks_.size(), false);
  std::vector<size_t> path;
  while (!ranks_[at].done() && !seen[at]) {
    seen[at] = true;
    path.push_back(at);
    const auto& communication = *communications_[static_cast<size_t>(ranks_[at].waits_for)];
    for (size_t m = 0; m < communication.members.size(); ++m) {
      if (communication.arrivals[m].here) continue;
      at = static_cast<size_t>(communication.members[m]);
      break;
    }
  }
  const auto& waited = *communications_[static_cast<size_t>(ranks_[path.back()].waits_for)];
  const TensorId tensor =
      waited.issue != nullptr
          ? waited.issue->transfers.empty() ? TensorId() : waited.issue->transfers[0].tensor
          : waited.tensor;
  if (ranks_[at].done()) {
    const Rank& last = ranks_[path.back()];
    return reject(&last, "message", tensor,
                  fmt::format("waits for rank {}, which ends without its side", at));
  }
  std::string text = blocking_ ? "with blocking issues, " : "";
  const auto begin = std::find(path.begin(), path.end(), at);
  for (auto r = begin; r != path.end(); ++r) {
    const size_t next = std::next(r) == path.end() ? at : *std::next(r);
    text += r == begin ? fmt::format("rank {} waits", *r) : ", which waits";
    text += fmt::format(" at {} (micro-batch {}) for rank {}", where(ranks_[*r]),
                        ranks_[*r].step().micro_batch, next);
  }
  return reject(&ranks_[at], "order", tensor, text + ": a deadlock");
}

bool Interpretation::finish_step() {
  bool good = true;
  for (Rank& rank : ranks_) good = check_rest(rank) && good;
  return check_coverage() && check_loss() && good;
}

bool Interpretation::check_rest(Rank& rank) {
  int handle = -1;
  for (const auto& [number, pendings] : rank.pending) {
    if (!pendings.empty() && (handle < 0 || number < handle)) handle = number;
  }
  if (handle >= 0) {
    return reject(&rank, "lifetime", {}, fmt::format("handle #{} is never waited for", handle));
  }
  if (!rank.fetched.empty()) {
    return reject(&rank, "rows", {},
                  fmt::format("the rows of fetch #{} are never released", rank.fetched[0].handle));
  }
  bool good = true;
  for (const Home& home : rank.program().homes) {
    const TensorId updated = updated_[home.tensor.index()];
    const TensorId expected = updated.valid() ? updated : home.tensor;
    const View view{home.buffer, Box::whole(home.region.shape())};
    if (Failure failure = rank.state.read(view, 0, expected, home.region, true, nullptr)) {
      good = reject(&rank, "coverage", home.tensor,
                    fmt::format("at the end of the step: {}", failure.message));
    }
  }
  for (const Home& fetch : rank.program().fetches) {
    const View view{fetch.buffer, Box::whole(fetch.region.shape())};
    if (Failure failure = rank.state.read(view, 0, fetch.tensor, fetch.region, true, nullptr)) {
      good = reject(&rank, "coverage", fetch.tensor,
                    fmt::format("fetched at the end of the step: {}", failure.message));
    }
  }
  return good;
}

// Checks that every op is executed over its whole iteration space, and that every persistent tensor
// rests as a whole.
bool Interpretation::check_coverage() {
  bool good = true;
  for (const Op& op : graph_.ops()) {
    if (fused_[op.id.index()] && executed_[op.id.index()].empty()) continue;
    int64_t whole = 1;
    for (const OpDim& dim : op.annotation.dims) whole *= dim.size;
    const int64_t found = volume_of(executed_[op.id.index()]);
    if (found == whole) continue;
    good = reject(nullptr, "coverage", op.outputs.empty() ? TensorId() : op.outputs[0],
                  fmt::format("op {} is executed on {} of the {} points of its iteration space",
                              op.path, found, whole));
  }
  for (const bool fetches : {false, true}) {
    std::map<TensorId, std::vector<Box>> rest;
    for (const Rank& rank : ranks_) {
      for (const Home& home : fetches ? rank.program().fetches : rank.program().homes) {
        add_union(rest[home.tensor], home.region);
      }
    }
    for (const auto& [tensor, boxes] : rest) {
      const int64_t found = volume_of(boxes), whole = graph_.tensor(tensor).elements();
      if (found == whole) continue;
      good = reject(
          nullptr, "coverage", tensor,
          fmt::format("{} hold {} of {} elements", fetches ? "fetches" : "homes", found, whole));
    }
  }
  return good;
}

bool Interpretation::check_loss() {
  if (!graph_.loss.valid()) return true;
  for (const Rank& rank : ranks_) {
    for (const Home& fetch : rank.program().fetches) {
      if (fetch.tensor == graph_.loss) return true;
    }
  }
  return reject(nullptr, "coverage", graph_.loss, "no rank fetches the loss");
}

}  // namespace verifying

std::string Rejection::to_string() const {
  std::string out = rule + ":";
  if (rank >= 0) out += fmt::format(" rank {},", rank);
  if (!instruction.empty()) out += fmt::format(" {},", instruction);
  if (!tensor.empty()) out += fmt::format(" tensor {},", tensor);
  return out + " " + message;
}

std::vector<Rejection> verify(const Graph& graph, const std::vector<Program>& programs,
                              const VerifyOptions& options) {
  std::vector<Rejection> rejections;
  std::vector<verifying::PreparedProgram> prepared;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    prepared.push_back(verifying::prepare(graph, programs, rank, options, rejections));
    if (rejections.size() >= verifying::kMaxRejections) break;
  }
  if (!rejections.empty()) return rejections;
  verifying::Interpretation interpretation(graph, prepared, false);
  if (interpretation.run(rejections) && options.blocking) {
    verifying::Interpretation(graph, prepared, true).run(rejections);
  }
  return rejections;
}

}  // namespace tessera
