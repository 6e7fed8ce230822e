// Crossings: finds the blocks of both sides, the layout of arrival and the routes, and writes both
// sides.
#include "tessera/program/walk/between_places.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/program/crossing.h"
#include "tessera/program/walk/needs.h"

namespace tessera {

void BetweenPlaces::fetch(TensorId tensor, const Op& reader) {
  const PlaceId source = facts_.made_on(tensor);
  TESSERA_CHECK(source != facts_.place_of(reader),
                "tensor '{}' is not held at its own place (reader '{}', block {})",
                facts_.tensor(tensor).name, reader.path, block_name(facts_.block_of(reader)));
  cross(tensor, source, crossing_block(tensor), reader);
}

BlockRef BetweenPlaces::crossing_block(TensorId tensor) const {
  const OpId producer = facts_.tensor(tensor).producer;
  if (!producer.valid()) return BlockKind::kPrologue;
  if (facts_.sums_micro_batches(tensor)) return BlockKind::kUpdate;
  return facts_.block_of(facts_.graph().op(producer));
}

void BetweenPlaces::cross(TensorId tensor, PlaceId source, BlockRef block, const Op& reader) {
  const Site there{source, block, reader.id};
  const PlaceId place = facts_.place_of(reader);
  const Mesh &mesh = facts_.mesh(place), &source_mesh = facts_.mesh(source);
  const Held* hold = holds_.best(source, tensor, block, nullptr);
  TESSERA_CHECK(hold != nullptr, "tensor '{}' is held nowhere at place {}",
                facts_.tensor(tensor).name, source.value);
  Held from = *hold;
  if (!from.region.layout->complete()) {
    const Layout need =
        without_windows(need_of(facts_, reader, operand_index(facts_.graph(), reader, tensor)),
                        mesh, facts_.shape(tensor));
    from = completion_.complete(there, tensor, from, translate(need, mesh, source_mesh));
  }
  if (!from.region.layout->at.empty()) {
    // All ranks of the place send, so a value that only ranks at a pinned coordinate have is first
    // copied to all ranks.
    Layout everywhere = from.region.layout;
    everywhere.at.clear();
    from = converter_.convert(there, tensor, from, everywhere);
  }
  const Layout landing =
      landing_layout(facts_, tensor, reader, translate(from.region.layout, source_mesh, mesh));
  const BlockRef arrives = block.once() ? block : first_reading_block(block.kind, tensor, reader);
  const Site here{place, arrives, reader.id};
  Held to;
  to.region = {arriving_layout(facts_.plan().plan.resharding, source_mesh, *from.region.layout,
                               mesh, landing, facts_.shape(tensor)),
               std::nullopt};
  to.buffer = writer_.new_buffer(place, tensor, "recv", to.region);
  to.block = arrives;
  const std::vector<Layout> spread =
      gather_steps(*to.region.layout, landing, mesh, facts_.shape(tensor));
  if (const auto chunk = chunk_of(there, here, tensor, from, to, spread)) {
    to = cross_in_chunks(there, here, tensor, from, to, spread, *chunk);
  } else {
    send(there, here, tensor, from, to);
    for (const Layout& step : spread) to = converter_.convert(here, tensor, to, step);
  }
  holds_.set_home(place, tensor, to);
}

// Returns the first chunk (crossing.h) if the tensor crosses in chunks, else nothing. A tensor may
// cross in chunks only if it has planned routes and is sent from device memory without a codec.
std::optional<StepPiece> BetweenPlaces::chunk_of(const Site& from_site, const Site& to_site,
                                                 TensorId tensor, const Held& from, const Held& to,
                                                 const std::vector<Layout>& spread) {
  const TensorPlan& plan = facts_.tensor_plan(tensor);
  const bool coded = plan.compress.any();
  if (coded || plan.tier != Tier::kDevice) return std::nullopt;
  const std::vector<int64_t>& shape = facts_.shape(tensor);
  auto chunk =
      first_chunk(*from.region.layout, *to.region.layout, spread, facts_.mesh(to_site.place), shape,
                  dtype_bytes(facts_.tensor(tensor).dtype));
  if (!chunk || !find_routes(shape, from_site.place, to_site.place, from.region.layout,
                             to.region.layout, chunk->dim))
    return std::nullopt;
  return chunk;
}

// Writes a crossing in chunks. The first gather of a chunk is issued before the later gathers of
// the previous chunk.
Held BetweenPlaces::cross_in_chunks(const Site& from_site, const Site& to_site, TensorId tensor,
                                    const Held& from, const Held& to,
                                    const std::vector<Layout>& spread, const StepPiece& chunk) {
  const auto of_step = [&](const Held& held, int64_t step) {
    Held out = held;
    out.region.piece = chunk;
    out.region.piece.own().step = step;
    return out;
  };
  for (int64_t step = 0; step < chunk.steps; ++step)
    send(from_site, to_site, tensor, from, of_step(to, step));
  std::vector<Held> stages{to};
  for (const Layout& layout : spread) {
    if (layout == *stages.back().region.layout) continue;
    Held next;
    next.region = {layout, std::nullopt};
    next.buffer = writer_.new_buffer(to_site.place, tensor,
                                     collective_name(CollectiveKind::kAllGather), next.region);
    next.block = to_site.block;
    stages.push_back(std::move(next));
  }
  const auto gathers = static_cast<int64_t>(stages.size()) - 1;
  for (int64_t turn = 0; turn < chunk.steps + gathers - 1; ++turn) {
    for (int64_t stage = 0; stage < gathers; ++stage) {
      const int64_t step = turn - stage;
      if (step < 0 || step >= chunk.steps) continue;
      const Held &cut = stages[static_cast<size_t>(stage)],
                 &whole = stages[static_cast<size_t>(stage) + 1];
      TextIssue issue;
      issue.handle = writer_.new_handle();
      issue.kind = CollectiveKind::kAllGather;
      issue.axes = *gathered_axes(*cut.region.layout, *whole.region.layout);
      issue.transfers.push_back({tensor, of_step(cut, step).view(), of_step(whole, step).view()});
      writer_.emit(to_site, std::move(issue));
    }
  }
  return stages.back();
}

// Writes both sides of a crossing.
void BetweenPlaces::send(const Site& from_site, const Site& to_site, TensorId tensor,
                         const Held& from, const Held& to) {
  TextCross receiving;
  receiving.from_place = from_site.place;
  receiving.to_place = to_site.place;
  receiving.tensor = tensor;
  receiving.tag = writer_.new_tag();
  receiving.from = from.view();
  receiving.to = to.view();
  const auto routes = [&](const std::vector<int64_t>& shape) {
    const Shared<StepPiece>& chunk = to.region.piece;
    return find_routes(shape, from_site.place, to_site.place, from.region.layout, to.region.layout,
                       chunk ? std::optional(chunk->dim) : std::nullopt);
  };
  receiving.routes = routes(facts_.shape(tensor));
  const std::vector<int64_t> smaller = facts_.smaller_shape(tensor);
  if (smaller != facts_.shape(tensor)) receiving.smaller_routes = routes(smaller);
  receiving.handle = writer_.new_handle();
  TextCross sending = receiving;
  sending.sends = true;
  sending.handle = writer_.new_handle();
  // A rank at both places copies the value in the receiving instruction. If both sides are in the
  // same block, the sending instruction must then come first, because passes put what the sender
  // needs (waits, copies from other tiers) before it.
  const bool copies = to_site.block == from_site.block &&
                      share_ranks(facts_.mesh(from_site.place), facts_.mesh(to_site.place));
  if (copies) writer_.emit(from_site, sending);
  writer_.emit(to_site, std::move(receiving));
  if (!copies) writer_.emit(from_site, std::move(sending));
}

// Returns the first block of this kind, in the order of the place of `first`, with an op that reads
// the tensor; the block of this kind of the stage of `first` if there is none.
BlockRef BetweenPlaces::first_reading_block(BlockKind kind, TensorId tensor,
                                            const Op& first) const {
  const PlaceId place = facts_.place_of(first);
  std::set<int32_t> stages;
  for (OpId reader : facts_.readers(tensor)) {
    const Op& op = facts_.graph().op(reader);
    if (facts_.place_of(op) == place) stages.insert(facts_.op_plan(op).stage.value);
  }
  const auto run_kind = kind == BlockKind::kForward ? BlockRun::kForward : BlockRun::kBackward;
  for (const BlockRun& run : schedule_of(place)) {
    const auto stage = static_cast<int32_t>(run.stage);
    if (run.kind == run_kind && stages.contains(stage)) return {kind, stage};
  }
  return facts_.block_of(first);
}

// Returns the schedule of the first row that has the place.
const std::vector<BlockRun>& BetweenPlaces::schedule_of(PlaceId place) const {
  const ResolvedPlan& plan = facts_.plan();
  size_t row = 0;
  while (std::find(plan.rows[row].begin(), plan.rows[row].end(), place) == plan.rows[row].end())
    ++row;
  return plan.schedule[row];
}

std::shared_ptr<const CrossRoutes> BetweenPlaces::find_routes(const std::vector<int64_t>& shape,
                                                              PlaceId source, PlaceId place,
                                                              const Layout& from, const Layout& to,
                                                              std::optional<size_t> chunked) {
  const auto key = std::make_tuple(source, place, shape, from, to, chunked);
  auto it = routes_.find(key);
  if (it == routes_.end()) {
    it = routes_
             .emplace(key, plan_routes(facts_.mesh(source), from, facts_.mesh(place), to, shape,
                                       chunked))
             .first;
  }
  return it->second;
}

}  // namespace tessera
