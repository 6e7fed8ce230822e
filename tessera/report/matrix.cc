// Counts the bytes that ranks send to each other, from the instructions of the programs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/check.h"
#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"
#include "tessera/report/report.h"

namespace tessera {
namespace {

// The bytes that a rank sends in a step, by receiving rank.
using Sent = std::map<int, int64_t>;

int64_t elements_taken(const Redistribution& what, size_t from, size_t to) {
  if (what.combiner) return intersect(what.hold[from], what.need[to]).volume();
  int64_t sum = 0;
  for (const Take& take : takes(what, to)) {
    if (take.source == from) sum += take.box.volume();
  }
  return sum;
}

// Divides `total` among the peers in proportion to `weights`. The parts add up to exactly `total`.
void share(int64_t total, const std::vector<std::pair<int, int64_t>>& weights, Sent& sent) {
  int64_t sum = 0;
  for (const auto& [peer, weight] : weights) sum += weight;
  if (sum == 0) return;
  int64_t given = 0, before = 0;
  for (const auto& [peer, weight] : weights) {
    before += weight;
    const auto until = static_cast<int64_t>(static_cast<double>(total) *
                                            static_cast<double>(before) / static_cast<double>(sum));
    const int64_t part = before == sum ? total - given : until - given;
    if (part > 0) sent[peer] += part;
    given += part;
  }
}

void add_issue(const Program& program, const Issue& issue, int64_t times, Sent& sent) {
  const Group& group = program.groups[static_cast<size_t>(issue.group)];
  const auto self = static_cast<size_t>(group.index);
  if (issue.named) {
    for (size_t to = 0; to < group.members.size(); ++to) {
      const int64_t bytes = to == self ? 0 : named_bytes(issue, self, to);
      if (bytes > 0) sent[group.members[to]] += bytes * times;
    }
    return;
  }
  for (const Transfer& transfer : issue.transfers) {
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    int64_t bytes = traffic(what, self).bytes;
    if (issue.codec) {  // the codec scales all bytes alike
      const int64_t whole = transfer.hold[self].volume() * dtype_bytes(issue.dtype);
      const int64_t coded = message_bytes(issue.codec, issue.dtype, transfer.hold[self].volume());
      if (whole > 0) bytes = bytes * coded / whole;
    }
    std::vector<std::pair<int, int64_t>> weights;
    for (size_t j = 0; j < group.members.size(); ++j) {
      if (j == self) continue;
      // In an all-reduce, each other member gets an equal weight, because chunks go to each of them
      // in both phases.
      const int64_t weight =
          issue.kind == CollectiveKind::kAllReduce ? 1 : elements_taken(what, self, j);
      if (weight > 0) weights.emplace_back(group.members[j], weight);
    }
    share(bytes * times, weights, sent);
  }
}

Sent sent_by(const Program& program) {
  Sent sent;
  for (const auto& [ref, block] : program.blocks) {
    const int64_t runs = program.runs(ref);
    for (const Instruction& instruction : block) {
      const int64_t times = instruction.when == When::kAlways ? runs : std::min<int64_t>(runs, 1);
      if (times == 0) continue;
      match(
          instruction, [&](const Issue& issue) { add_issue(program, issue, times, sent); },
          [&](const Send& send) {
            const DType dtype = program.buffer(send.view.buffer).dtype;
            const int64_t bytes = message_bytes(send.codec, dtype, send.region.volume());
            if (bytes > 0) sent[send.peer] += bytes * times;
          },
          [](const OneOf<Compute, Recv, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
    }
  }
  return sent;
}

std::vector<StageId> stages_of(const ResolvedPlan& plan, int64_t rank) {
  std::vector<StageId> out;
  for (const PlaceId place : plan.places_of(rank)) {
    const auto& stages = plan.places[place.index()].stages;
    out.insert(out.end(), stages.begin(), stages.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<CommunicationMatrix> of_ranks(const Lowering& lowering) {
  CommunicationMatrix matrix;
  matrix.note = "Rows send, columns receive; bytes of a step under the direct algorithm.";
  for (int rank = 0; rank < static_cast<int>(lowering.plan().ranks); ++rank) {
    matrix.labels.push_back(fmt::format("{}", rank));
    TESSERA_TRY(const Program program, lowering.lower(rank));
    for (const auto& [peer, bytes] : sent_by(program)) matrix.cells.push_back({rank, peer, bytes});
  }
  return matrix;
}

Result<CommunicationMatrix> of_classes(const Lowering& lowering) {
  CommunicationMatrix matrix;
  matrix.note =
      "Rows send, columns receive; one rank of each stage is looked at, a cell is what it sends to "
      "all ranks of the other stage in a step.";
  const std::vector<RankClass> roles = lowering.roles();
  std::map<std::vector<StageId>, int32_t> index;
  for (const RankClass& role : roles) {
    const auto [found, is_new] =
        index.emplace(role.stages, static_cast<int32_t>(matrix.labels.size()));
    if (!is_new) continue;
    std::string label = "stage";
    for (const StageId stage : role.stages) label += fmt::format(" {}", stage.value);
    matrix.labels.push_back(std::move(label));
    TESSERA_TRY(const Program program, lowering.lower(role.representative));
    std::map<std::vector<StageId>, int64_t> sums;
    for (const auto& [peer, bytes] : sent_by(program)) {
      sums[stages_of(lowering.plan(), peer)] += bytes;
    }
    for (const auto& [stages, bytes] : sums) {
      const auto to = std::find_if(roles.begin(), roles.end(),
                                   [&](const RankClass& other) { return other.stages == stages; });
      TESSERA_CHECK(to != roles.end(), "a rank without a class receives");
      matrix.cells.push_back({found->second, static_cast<int32_t>(to - roles.begin()), bytes});
    }
  }
  // Several classes may have the same stages and then share a label. So positions in `roles` are
  // replaced by indices of labels.
  for (auto& cell : matrix.cells) cell.to = index.at(roles[static_cast<size_t>(cell.to)].stages);
  return matrix;
}

}  // namespace

Result<CommunicationMatrix> communication_matrix(const Lowering& lowering, int64_t most_ranks) {
  if (lowering.plan().ranks <= most_ranks) return of_ranks(lowering);
  return of_classes(lowering);
}

}  // namespace tessera
