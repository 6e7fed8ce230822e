#include "tessera/runtime/checkpoint/held_state.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "tessera/graph/ahead.h"
#include "tessera/graph/carried.h"
#include "tessera/program/text/text.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/state/checksum.h"

namespace tessera {
namespace {

std::string name_of_residual(int rank, size_t index, uint64_t text) {
  return fmt::format("{}.rank{}.{}.{}", kResidualRole, rank, index, checksum_text(text));
}

}  // namespace

std::vector<bool> state_of(const Graph& graph) {
  std::vector<bool> state = carried_buffers(graph);
  const std::vector<bool> ahead = buffers_ahead(graph);
  for (const Tensor& tensor : graph.tensors()) {
    // A tensor that a step makes for the next one is not saved, because a run that continues makes
    // it again.
    if (ahead[tensor.id.index()]) state[tensor.id.index()] = false;
    if (tensor.producer.valid()) continue;
    if (tensor.role == Role::kParameter || tensor.role == Role::kOptimizerState)
      state[tensor.id.index()] = true;
  }
  return state;
}

bool is_of_the_run(const Tensor& tensor) {
  return tensor.role == Role::kOptimizerState && !tensor.of.valid();
}

std::vector<const Home*> HeldState::homes() const {
  std::vector<const Home*> homes;
  const std::vector<bool> state = state_of(graph_);
  for (const Home& home : program_.homes) {
    if (state[home.tensor.index()] && !home.region.empty()) homes.push_back(&home);
  }
  return homes;
}

std::string HeldState::residual_name(const RankExecutor& executor, size_t index) {
  if (program_text_ == 0 && !executor.residual_sizes().empty())
    program_text_ = checksum(to_text(program_, graph_));
  return name_of_residual(world_.rank(), index, program_text_);
}

void HeldState::share(const RankExecutor& executor) {
  std::vector<int64_t> mine;
  const auto put = [&](int64_t value) { mine.push_back(value); };
  const std::vector<const Home*> homes = this->homes();
  put(static_cast<int64_t>(homes.size()));
  for (const Home* home : homes) {
    put(home->tensor.value);
    for (const Interval& one : home->region.dims) {
      put(one.begin);
      put(one.size);
    }
  }
  const std::vector<int64_t> residuals = executor.residual_sizes();
  put(static_cast<int64_t>(residuals.size()));
  if (!residuals.empty()) residual_name(executor, 0);  // makes program_text_
  put(static_cast<int64_t>(program_text_));
  for (const int64_t size : residuals) put(size);
  assign(comm::gather_lists(world_, mine));
}

void HeldState::assign(const std::vector<std::vector<int64_t>>& all) {
  std::map<int32_t, size_t> index;  // place of each tensor in `tensors`
  std::vector<std::vector<std::pair<int32_t, Box>>> homes(all.size());
  std::vector<ManifestTensor> residuals;
  std::vector<size_t> residual_owner;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int64_t* at = all[rank].data();
    const auto take = [&] { return *at++; };
    for (int64_t left = take(); left > 0; --left) {
      const auto id = static_cast<int32_t>(take());
      Box box = Box::whole(graph_.tensor(TensorId(id)).shape());
      for (Interval& one : box.dims) {
        one.begin = take();
        one.size = take();
      }
      index[id] = 0;
      homes[rank].emplace_back(id, std::move(box));
    }
    const int64_t count = take();
    const auto text = static_cast<uint64_t>(take());
    for (int64_t i = 0; i < count; ++i) {
      residual_index.push_back(static_cast<size_t>(i));
      ManifestTensor tensor;
      tensor.name = name_of_residual(static_cast<int>(rank), static_cast<size_t>(i), text);
      tensor.role = kResidualRole;
      tensor.dtype = DType::kFloat32;
      tensor.shape = {take()};
      residuals.push_back(std::move(tensor));
      residual_owner.push_back(rank);
    }
  }
  std::vector<int64_t> element_bytes;
  std::map<std::string, size_t> places;  // place by name; the pieces of a tensor share a place
  held.resize(all.size());
  for (auto& [id, place] : index) {
    const Tensor& tensor = graph_.tensor(TensorId(id));
    const PieceOrigin origin = origins.of(tensor.id);
    const auto [known, fresh] = places.try_emplace(origin.name, tensors.size());
    place = known->second;
    if (!fresh) continue;
    ManifestTensor one;
    one.name = origin.name;
    one.role = is_of_the_run(tensor) ? kLossScaleRole : role_name(tensor.role);
    one.dtype = tensor.dtype;
    one.shape = origin.shape;
    tensors.push_back(std::move(one));
    element_bytes.push_back(dtype_bytes(tensor.dtype));
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (auto& [id, box] : homes[rank]) {
      held[rank].push_back({index[id], origins.of(TensorId(id)).in_whole(std::move(box))});
    }
  }
  first_residual = tensors.size();
  for (size_t i = 0; i < residuals.size(); ++i) {
    held[residual_owner[i]].push_back({tensors.size(), Box::whole(residuals[i].shape)});
    element_bytes.push_back(dtype_bytes(DType::kFloat32));
    tensors.push_back(std::move(residuals[i]));
  }
  for (const std::vector<HeldBox>& share : share_out(element_bytes, held)) {
    std::vector<ShardPart>& list = parts.emplace_back();
    for (const HeldBox& one : share) list.push_back({one.tensor, one.box});
  }
}

}  // namespace tessera
