#include "tessera/state/move.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace tessera {
namespace {

Box no_elements(size_t dims) {
  Box box;
  for (size_t d = 0; d < dims; ++d) box.dims.push_back({0, 0});
  return box;
}

// Returns the box of a scalar as a box with one dim of one element; returns other boxes unchanged.
// A box without dims is never empty, so it could not express that a rank does not have the scalar.
Box with_a_dim(const Box& box) {
  if (box.rank() > 0) return box;
  Box out;
  out.dims.push_back({0, 1});
  return out;
}

}  // namespace

Result<std::vector<RestingTensor>> resting_state(const Graph& graph,
                                                 const std::vector<Program>& programs) {
  std::map<TensorId, RestingTensor> found;
  for (const Program& program : programs) {
    for (const Home& home : program.homes) {
      const Tensor& tensor = graph.tensor(home.tensor);
      RestingTensor& at = found[home.tensor];
      if (at.regions.empty()) {
        at = {tensor.name,    home.tensor, program.buffer(home.buffer).dtype,
              tensor.shape(), false,       {}};
        at.of_a_parameter = tensor.role == Role::kParameter ||
                            (tensor.of.valid() && graph.tensor(tensor.of).role == Role::kParameter);
        at.regions.assign(programs.size(), no_elements(std::max<size_t>(1, at.shape.size())));
      }
      Box& region = at.regions[static_cast<size_t>(program.rank)];
      const Box here = with_a_dim(home.region);
      if (!region.empty() && region != here) {
        return invalid_input(
            fmt::format("tensor {}: expected one region on rank {}, found {} and {}", tensor.name,
                        program.rank, region.to_string(), here.to_string()));
      }
      region = here;
    }
  }
  std::vector<RestingTensor> state;
  state.reserve(found.size());
  for (auto& [id, tensor] : found) state.push_back(std::move(tensor));
  return state;
}

Result<StateMove> plan_move(const std::vector<RestingTensor>& from,
                            const std::vector<RestingTensor>& to) {
  std::map<std::string, const RestingTensor*> held;
  for (const RestingTensor& tensor : from) held[tensor.name] = &tensor;
  StateMove move;
  for (const auto* side : {&from, &to}) {
    for (const RestingTensor& tensor : *side)
      move.ranks = std::max(move.ranks, static_cast<int64_t>(tensor.regions.size()));
  }
  const auto members = static_cast<size_t>(move.ranks);
  move.sent.resize(members);
  for (const RestingTensor& tensor : to) {
    const auto found = held.find(tensor.name);
    if (found == held.end() && !tensor.of_a_parameter) {
      move.begun_anew.push_back(tensor.name);
      continue;
    }
    if (found == held.end()) {
      return invalid_input(
          fmt::format("tensor {}: the plan before the change does not keep it", tensor.name));
    }
    const RestingTensor& before = *found->second;
    if (before.shape != tensor.shape || before.dtype != tensor.dtype) {
      return invalid_input(
          fmt::format("tensor {}: expected {} [{}] after the change as before it, found {} [{}]",
                      tensor.name, dtype_name(before.dtype), fmt::join(before.shape, ", "),
                      dtype_name(tensor.dtype), fmt::join(tensor.shape, ", ")));
    }
    const Box nothing = no_elements(std::max<size_t>(1, tensor.shape.size()));
    std::vector<Box> hold = before.regions, need = tensor.regions;
    hold.resize(members, nothing);
    need.resize(members, nothing);
    MovedTensor& moved = move.tensors.emplace_back();
    moved.name = tensor.name;
    moved.from = before.tensor;
    moved.to = tensor.tensor;
    moved.what.kind = CollectiveKind::kExchange;
    moved.what.dtype = tensor.dtype;
    moved.what.hold = SharedBoxes(std::move(hold));
    moved.what.need = SharedBoxes(std::move(need));
    for (size_t rank = 0; rank < members; ++rank) move.sent[rank] += traffic(moved.what, rank);
  }
  return move;
}

int64_t StateMove::bytes() const {
  int64_t bytes = 0;
  for (const Traffic& one : sent) bytes += one.bytes;
  return bytes;
}

}  // namespace tessera
