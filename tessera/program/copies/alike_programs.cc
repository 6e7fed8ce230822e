#include "tessera/program/copies/alike_programs.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "tessera/program/copies/text_comparison.h"
#include "tessera/program/instantiate/instantiate.h"
#include "tessera/program/instructions.h"

namespace tessera {

// A `Comparison` accepts texts that name the same ops, tensors and buffers. Corresponding messages
// may have different tags, and different tensors if the same parts of them move.
class AlikePrograms::Comparison final : public TextComparison {
 public:
  Comparison(const AlikePrograms& of, AlikePlace& place) : of_(of), place_(place) {}

 private:
  bool same(TensorId a, TensorId b) const override { return a == b; }
  bool same(OpId a, OpId b) const override { return a == b; }
  bool same(const TextCross& a, const TextCross& b) override {
    const PlaceId other = a.sends ? a.to_place : a.from_place;
    place_.messages[a.tag] = {&b, other};
    return axes(a.from_place) == axes(b.from_place) && axes(a.to_place) == axes(b.to_place) &&
           !is_coded(a.tensor) && !is_coded(b.tensor);
  }
  const std::vector<MeshAxis>& axes(PlaceId place) const {
    return of_.plan_.places[place.index()].mesh.axes;
  }
  // Returns whether messages of the tensor have a codec. Such a message may need a buffer of its
  // own for error feedback.
  bool is_coded(TensorId tensor) const {
    return of_.plan_.tensors[tensor.index()].compress[kSendEdge].has_value();
  }

  const AlikePrograms& of_;
  AlikePlace& place_;
};

namespace {

// An `OrderOfRuns` describes the runs of a row, as far as the frees of a program depend on it: the
// order of the first and the last runs of blocks, and for each pair of blocks whether the one runs
// after the other in all micro-batches.
struct OrderOfRuns {
  // Index of the stage at the place, kind of block, and whether it is the last run or the first.
  std::vector<std::tuple<int32_t, BlockRun::Kind, bool>> ends;
  std::vector<bool> behind;  // by pair of blocks
  friend bool operator==(const OrderOfRuns&, const OrderOfRuns&) = default;
};

OrderOfRuns order_of_runs(const ResolvedPlan& plan, PlaceId place) {
  const auto& stages = plan.places[place.index()].stages;
  const auto row = std::ranges::find(plan.rows, std::vector<PlaceId>{place}) - plan.rows.begin();
  using Block = std::pair<int32_t, BlockRun::Kind>;  // index of the stage at the place, and kind
  std::map<Block, std::vector<int64_t>> ran_at;      // by micro-batch
  std::map<Block, std::pair<int64_t, int64_t>> ends;
  int64_t at = 0;
  for (const BlockRun& run : plan.schedule[static_cast<size_t>(row)]) {
    const auto chunk =
        std::ranges::find(stages, StageId(static_cast<size_t>(run.stage))) - stages.begin();
    const Block block{static_cast<int32_t>(chunk), run.kind};
    const auto [it, fresh] = ran_at.try_emplace(block);
    if (fresh) it->second.assign(static_cast<size_t>(plan.plan.micro_batches), 0);
    it->second[static_cast<size_t>(run.micro_batch)] = at;
    ends.try_emplace(block, at, at).first->second.second = at;
    ++at;
  }
  std::vector<std::tuple<int64_t, bool, Block>> by_time;
  for (const auto& [block, end] : ends) {
    by_time.emplace_back(end.first, false, block);
    by_time.emplace_back(end.second, true, block);
  }
  std::ranges::sort(by_time);
  OrderOfRuns out;
  for (const auto& [time, last, block] : by_time)
    out.ends.emplace_back(block.first, block.second, last);
  for (const auto& [late, late_at] : ran_at) {
    for (const auto& [early, early_at] : ran_at) {
      out.behind.push_back(
          std::equal(late_at.begin(), late_at.end(), early_at.begin(), std::greater_equal()));
    }
  }
  return out;
}

}  // namespace

AlikePrograms::AlikePrograms(const std::vector<PlaceText>& texts, const ResolvedPlan& plan)
    : texts_(texts), plan_(plan), places_(plan.places.size()) {
  const bool apart =
      std::ranges::all_of(plan.rows, [](const auto& row) { return row.size() == 1; });
  PlaceId first(0);
  for (size_t p = 1; apart && p < texts.size(); ++p) {
    const PlaceId here(p);
    AlikePlace place{first, {}};
    const Place &a = plan.places[first.index()], &b = plan.places[p];
    const bool alike = a.mesh.axes == b.mesh.axes && a.stages.size() == b.stages.size() &&
                       Comparison(*this, place).run(texts[first.index()], texts[p]) &&
                       order_of_runs(plan, first) == order_of_runs(plan, here);
    if (alike) {
      places_[p] = std::move(place);
    } else {
      first = here;
    }
  }
}

std::optional<int> AlikePrograms::like(int rank) const {
  const PlaceId here = plan_.places_of(rank)[0];
  const auto& place = places_[here.index()];
  if (!place) return {};
  const Mesh &mesh = plan_.places[here.index()].mesh,
             &first = plan_.places[place->first.index()].mesh;
  return static_cast<int>(first.rank_at(mesh.coordinates(rank)));
}

std::optional<Program> AlikePrograms::program(const Program& known, int rank, bool offsets) const {
  if (known.larger > 0 || !known.caches.empty()) return {};
  const PlaceId here = plan_.places_of(rank)[0];
  const Mesh& mesh = plan_.places[here.index()].mesh;
  Program out = known;
  out.rank = rank;
  out.stages = plan_.places[here.index()].stages;
  for (Group& group : out.groups) {
    group.place = here;
    Axes axes;
    for (const std::string& name : group.axes) axes.push_back(mesh.find(name));
    group.members = mesh.group(out.coordinates, axes);
  }
  direct_messages(out, *places_[here.index()]);
  const auto& buffers = texts_[here.index()].buffers;
  for (size_t b = 0; b < out.buffers.size(); ++b) {
    Buffer& buffer = out.buffers[b];
    buffer.slots = b < buffers.size() ? buffers[b].slots : 1;
    buffer.offset = -1;
    buffer.slot_bytes = 0;
  }
  out.arena_bytes = {};
  out.schedule.clear();
  write_schedule(out, plan_);
  plan_memory_again(out, offsets);
  return out;
}

void AlikePrograms::direct_messages(Program& program, const AlikePlace& place) const {
  const auto direct = [&](auto& body) {
    const Message& message = place.messages.at(body.tag);
    const TextCross& cross = *message.cross;
    const PlaceId other = cross.sends ? cross.to_place : cross.from_place;
    const Mesh &before = plan_.places[message.other.index()].mesh,
               &now = plan_.places[other.index()].mesh;
    body.peer = static_cast<int>(now.rank_at(before.coordinates(body.peer)));
    body.tag = cross.tag;
    body.tensor = cross.tensor;
  };
  for (auto& [ref, block] : program.blocks) {
    for (Instruction& instruction : block) {
      match(
          instruction, [&](OneOf<Send, Recv> auto& body) { direct(body); },
          [](OneOf<Compute, Issue, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
    }
  }
}

}  // namespace tessera
