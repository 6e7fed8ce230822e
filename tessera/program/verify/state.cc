#include "tessera/program/verify/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/rows.h"

namespace tessera::verifying {
namespace {

Box from_view(Box relative, const Box& view) {
  for (size_t i = 0; i < relative.rank(); ++i) relative.dims[i].begin += view.dims[i].begin;
  return relative;
}

Box to_view(Box local, const Box& view) {
  for (size_t i = 0; i < local.rank(); ++i) local.dims[i].begin -= view.dims[i].begin;
  return local;
}

// Returns whether the box `view` of the buffer, shifted as the piece's local box is to its global
// box, is `region`.
bool same_place(const Piece& piece, const Box& view, const Box& region) {
  for (size_t i = 0; i < view.rank(); ++i) {
    if (piece.global.dims[i].begin - piece.local.dims[i].begin !=
        region.dims[i].begin - view.dims[i].begin) {
      return false;
    }
  }
  return true;
}

int64_t common_volume(const Box& a, const Box& b) {
  int64_t volume = 1;
  for (size_t i = 0; i < a.rank(); ++i) volume *= intersect(a.dims[i], b.dims[i]).size;
  return volume;
}

}  // namespace

RankState::RankState(const Graph& graph, const PreparedProgram& prepared)
    : graph_(graph), program_(*prepared.program), planned_(prepared.planned) {
  for (const Buffer& buffer : program_.buffers) {
    first_.push_back(buffer_of_.size());
    for (int64_t slot = 0; slot < buffer.slots; ++slot) buffer_of_.push_back(buffer.id);
  }
  instances_.resize(buffer_of_.size());
}

size_t RankState::instance_of(BufferId buffer, int64_t micro_batch) const {
  return first_[buffer.index()] + static_cast<size_t>(program_.buffer(buffer).slot(micro_batch));
}

int64_t RankState::address(size_t instance) const {
  const Buffer& buffer = program_.buffer(buffer_of_[instance]);
  const int64_t slot = static_cast<int64_t>(instance - first_[buffer.id.index()]);
  return buffer.offset + slot * buffer.slot_bytes;
}

Failure RankState::begin_step() {
  for (const Home& home : program_.homes) {
    const Box whole = Box::whole(home.region.shape());
    Instance& instance = instances_[instance_of(home.buffer, 0)];
    if (!instance.content.empty()) {
      return {"instruction", home.tensor,
              fmt::format("%{} is the home of two tensors", home.buffer.value)};
    }
    const std::vector<Piece> pieces{{whole, home.region, home.tensor, nullptr}};
    if (Failure failure = write({home.buffer, whole}, 0, pieces, nullptr)) return failure;
  }
  return {};
}

Failure RankState::end_block() {
  for (size_t instance : touched_) {
    if (!instances_[instance].in_flight.empty()) {
      return {"lifetime", program_.buffer(buffer_of_[instance]).tensor,
              fmt::format("handle #{} still uses %{} when its block ends",
                          instances_[instance].in_flight[0].handle, buffer_of_[instance].value)};
    }
    kill(instance);
    instances_[instance].freed = false;
  }
  touched_.clear();
  return {};
}

Failure RankState::conflict(const Instance& instance, const View& view, bool writes,
                            const std::string& verb) const {
  for (const InFlight& flight : instance.in_flight) {
    if ((!writes && !flight.writes) || !overlaps(flight.box, view.box)) continue;
    return {
        "lifetime", program_.buffer(view.buffer).tensor,
        fmt::format("{} %{}{} while #{} {} it: expected its wait before", verb, view.buffer.value,
                    view.box.to_string(), flight.handle, flight.writes ? "writes" : "reads")};
  }
  return {};
}

Failure RankState::read(const View& view, int64_t micro_batch, TensorId tensor, const Box& region,
                        bool complete, std::vector<Piece>* out, const RowsThere* named) {
  const Instance& instance = instances_[instance_of(view.buffer, micro_batch)];
  if (!instance.in_flight.empty()) {
    if (Failure failure = conflict(instance, view, false, "reads")) return failure;
  }
  int64_t covered = 0;
  for (const Piece& piece : instance.content) {
    if (!overlaps(piece.local, view.box)) continue;
    if (piece.tensor != tensor) {
      return {
          "operand", tensor,
          fmt::format("expected {} in %{}{}, found {}", graph_.tensor(tensor).name,
                      view.buffer.value, view.box.to_string(), graph_.tensor(piece.tensor).name)};
    }
    if (!same_place(piece, view.box, region)) {
      return {"operand", tensor,
              fmt::format("expected region {} in %{}{}, found {} in {}", region.to_string(),
                          view.buffer.value, view.box.to_string(), piece.global.to_string(),
                          piece.local.to_string())};
    }
    if (complete && piece.parts != nullptr) {
      return {"operand", tensor,
              fmt::format("expected the complete value of {}, found {}", region.to_string(),
                          describe(graph_, piece.parts))};
    }
    if (Failure failure = missing_rows(piece, view, named)) return failure;
    covered += common_volume(piece.local, view.box);
    if (out != nullptr) {
      Piece relative = clip(piece, intersect(piece.local, view.box));
      relative.local = to_view(std::move(relative.local), view.box);
      out->push_back(std::move(relative));
    }
  }
  if (covered == view.box.volume()) return {};
  return {"lifetime", tensor,
          fmt::format("reads %{}{} {}", view.buffer.value, view.box.to_string(),
                      instance.freed ? "after it is freed or overwritten"
                      : covered == 0 ? "before it is written"
                                     : "of which a part was never written")};
}

// Checks that the piece has all rows that the reader needs (`named`; null: all rows). A piece of an
// exchange of named rows may lack rows.
Failure RankState::missing_rows(const Piece& piece, const View& view,
                                const RowsThere* named) const {
  if (!piece.named) return {};
  const Op& came_for = graph_.op(piece.named->op);
  const Interval& rows = piece.named->rows;
  const bool alike = named != nullptr && name_alike(graph_.op(named->op), came_for);
  if (alike && (named->rows.empty() || intersect(named->rows, rows) == named->rows)) return {};
  return {
      "rows", piece.tensor,
      fmt::format("reads %{}{}, which holds no rows but those that rows [{}:{}] of {} name",
                  view.buffer.value, view.box.to_string(), rows.begin, rows.end(), came_for.path)};
}

void RankState::kill(size_t index) {
  Instance& instance = instances_[index];
  instance.content.clear();
  instance.freed = true;
  if (!instance.alive) return;
  instance.alive = false;
  const Buffer& buffer = program_.buffer(buffer_of_[index]);
  if (planned_ && buffer.bytes() > 0) {
    arena_[static_cast<size_t>(buffer.tier)].erase(address(index));
  }
}

Failure RankState::make_alive(BufferId id, size_t index, const View* alias, int64_t micro_batch) {
  Instance& instance = instances_[index];
  if (instance.alive) return {};
  instance.alive = true;
  instance.freed = false;
  const Buffer& buffer = program_.buffer(id);
  if (buffer.lifetime == Lifetime::kBlock) touched_.push_back(index);
  if (!planned_ || buffer.bytes() == 0) return {};
  auto& arena = arena_[static_cast<size_t>(buffer.tier)];
  const int64_t begin = address(index), end = begin + buffer.bytes();
  auto other = arena.lower_bound(begin);
  if (other != arena.begin()) {
    const auto before = std::prev(other);
    if (before->first + program_.buffer(buffer_of_[before->second]).bytes() > begin) other = before;
  }
  if (other != arena.end() && other->first < end) {
    const size_t found = other->second;
    const Buffer& taken = program_.buffer(buffer_of_[found]);
    const bool replaces = alias != nullptr && instance_of(alias->buffer, micro_batch) == found &&
                          address(found) == begin && taken.bytes() == buffer.bytes() &&
                          instances_[found].in_flight.empty();
    if (!replaces) {
      return {"lifetime", buffer.tensor,
              fmt::format("%{} \"{}\" [{}:{}] overlaps %{} \"{}\" [{}:{}], which is alive",
                          id.value, buffer.name, begin, end, taken.id.value, taken.name,
                          other->first, other->first + taken.bytes())};
    }
    kill(found);
  }
  arena.emplace(begin, index);
  return {};
}

void RankState::put(Instance& instance, const View& view, const std::vector<Piece>& pieces) {
  if (!instance.content.empty()) erase_region(instance.content, view.box);
  for (const Piece& piece : pieces) {
    instance.content.push_back(piece);
    Piece& added = instance.content.back();
    added.local = from_view(std::move(added.local), view.box);
  }
}

Failure RankState::write(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
                         const View* alias) {
  const size_t index = instance_of(view.buffer, micro_batch);
  Instance& instance = instances_[index];
  if (!instance.in_flight.empty()) {
    if (Failure failure = conflict(instance, view, true, "writes")) return failure;
  }
  if (Failure failure = make_alive(view.buffer, index, alias, micro_batch)) return failure;
  put(instance, view, pieces);
  return {};
}

Failure RankState::add(const View& view, int64_t micro_batch, const std::vector<Piece>& pieces,
                       Combiner combiner) {
  Instance& instance = instances_[instance_of(view.buffer, micro_batch)];
  if (Failure failure = conflict(instance, view, true, "adds to")) return failure;
  for (const Piece& piece : pieces) {
    const View part{view.buffer, from_view(piece.local, view.box)};
    if (Failure failure = read(part, micro_batch, piece.tensor, piece.global, false, nullptr)) {
      return failure;
    }
    Piece local = piece;
    local.local = part.box;
    std::string error = merge_piece(graph_, instance.content, local, combiner);
    if (!error.empty()) return {"coverage", piece.tensor, std::move(error)};
  }
  return {};
}

Failure RankState::free(BufferId buffer, int64_t micro_batch) {
  const size_t index = instance_of(buffer, micro_batch);
  if (!instances_[index].in_flight.empty()) {
    return {"lifetime", program_.buffer(buffer).tensor,
            fmt::format("frees %{} while #{} uses it: expected its wait before", buffer.value,
                        instances_[index].in_flight[0].handle)};
  }
  kill(index);
  return {};
}

Failure RankState::free_slots(BufferId buffer) {
  for (int64_t slot = 0; slot < program_.buffer(buffer).slots; ++slot) {
    if (Failure failure = free(buffer, slot)) return failure;
  }
  return {};
}

Failure RankState::start(const View& view, int64_t micro_batch, bool writes, size_t communication,
                         int handle, bool adds) {
  const size_t index = instance_of(view.buffer, micro_batch);
  Instance& instance = instances_[index];
  // The communication itself does not count as a conflict, because an all-reduce in place reads and
  // writes the same view.
  std::vector<InFlight> others;
  for (const InFlight& flight : instance.in_flight) {
    if (flight.communication != communication) others.push_back(flight);
  }
  if (!others.empty()) {
    const Instance foreign{{}, std::move(others), true, false};
    const std::string verb = writes ? "lets a message into" : "sends from";
    if (Failure failure = conflict(foreign, view, writes, verb)) return failure;
  }
  if (writes) {
    if (Failure failure = make_alive(view.buffer, index, nullptr, micro_batch)) return failure;
    if (!adds && !instance.content.empty()) erase_region(instance.content, view.box);
  }
  instance.in_flight.push_back({communication, handle, writes, view.box});
  return {};
}

Failure RankState::finish(const View& view, int64_t micro_batch, bool writes, size_t communication,
                          const std::vector<Piece>* pieces) {
  Instance& instance = instances_[instance_of(view.buffer, micro_batch)];
  const auto flight =
      std::find_if(instance.in_flight.begin(), instance.in_flight.end(), [&](const InFlight& f) {
        return f.communication == communication && f.writes == writes && f.box == view.box;
      });
  if (flight != instance.in_flight.end()) instance.in_flight.erase(flight);
  if (pieces != nullptr) put(instance, view, *pieces);
  return {};
}

}  // namespace tessera::verifying
