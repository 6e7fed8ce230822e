#include "tessera/graph/band.h"

#include <algorithm>

#include "tessera/graph/kinds.h"

namespace tessera {

std::optional<Band> band_of(const Op& op) {
  const std::optional<QueryKey> dims = query_key_of(op);
  if (!dims || dims->window <= 0 || !op.text("order").empty()) return std::nullopt;
  const Annotation& annotation = op.annotation;
  const int64_t keys = annotation.dims[static_cast<size_t>(dims->key)].size;
  const int64_t queries = annotation.dims[static_cast<size_t>(dims->query)].size;
  const bool makes_points =
      std::any_of(annotation.outputs.begin(), annotation.outputs.end(), [&](const auto& output) {
        return output.contains(dims->query) && output.contains(dims->key);
      });
  if (keys != queries || dims->window >= keys || makes_points) return std::nullopt;
  const int64_t before = dims->window - 1;
  return Band{dims->query, dims->key, before, dims->skips ? 0 : before, keys};
}

}  // namespace tessera
