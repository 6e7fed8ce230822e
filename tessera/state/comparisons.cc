// Decides which rank compares what when several ranks read a checkpoint together (checkpoint.h).
#include <algorithm>
#include <tuple>

#include "tessera/state/checkpoint.h"

namespace tessera {

std::vector<Comparisons> share_comparisons(const Manifest& manifest,
                                           const std::vector<std::vector<HeldBox>>& wanted) {
  const size_t ranks = wanted.size();
  std::vector<Comparisons> shares(ranks);
  std::vector<int64_t> compared(ranks, 0);
  for (size_t file = 0; file < manifest.files.size(); ++file)
    shares[file % ranks].files.push_back(file);
  std::vector<std::vector<std::pair<size_t, const Box*>>> by_tensor(manifest.tensors.size());
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (const HeldBox& one : wanted[rank]) by_tensor[one.tensor].emplace_back(rank, &one.box);
  }
  for (size_t tensor = 0; tensor < manifest.tensors.size(); ++tensor) {
    const ManifestTensor& of = manifest.tensors[tensor];
    for (size_t box = 0; box < of.boxes.size(); ++box) {
      const Box& stored = of.boxes[box].box;
      std::vector<int64_t> has(ranks, 0);  // elements that each rank reads anyway
      for (const auto& [rank, region] : by_tensor[tensor])
        has[rank] = std::max(has[rank], intersect(stored, *region).volume());
      size_t best = 0;
      for (size_t rank = 1; rank < ranks; ++rank) {
        if (std::tuple(-has[rank], compared[rank]) < std::tuple(-has[best], compared[best]))
          best = rank;
      }
      shares[best].boxes.push_back({tensor, box});
      compared[best] += stored.volume() * dtype_bytes(of.dtype);
    }
  }
  return shares;
}

}  // namespace tessera
