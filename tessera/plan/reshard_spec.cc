#include "tessera/plan/reshard_spec.h"

#include <fmt/format.h>

#include <set>

#include "tessera/base/text.h"

namespace tessera {

Result<ReshardSpec> parse_reshard_spec(std::string_view text, size_t rank) {
  const auto wrong = [&](const std::string& expected) {
    return invalid_input(fmt::format("layout '{}': expected {}, such as S0RR@2x4", text, expected));
  };
  const size_t at = text.find('@');
  if (at == std::string_view::npos) return wrong("LAYOUT@HOSTSxDEVICES");
  const std::string_view sizes = text.substr(at + 1);
  const size_t x = sizes.find('x');
  if (x == std::string_view::npos) return wrong("HOSTSxDEVICES behind '@'");
  const auto hosts = parse_int(sizes.substr(0, x)), devices = parse_int(sizes.substr(x + 1));
  constexpr int64_t kMost = 4096;
  if (!hosts || !devices || *hosts < 1 || *devices < 1 || *hosts > kMost || *devices > kMost) {
    return wrong(fmt::format("two sizes from 1 to {} behind '@'", kMost));
  }
  ReshardSpec spec{Mesh::row_major({{"host", *hosts}, {"device", *devices}}), {}};
  std::set<AxisId> used;
  const std::string_view dims = text.substr(0, at);
  for (size_t i = 0; i < dims.size();) {
    const bool cut = dims[i] == 'S';
    if (!cut && dims[i] != 'R') return wrong("R, S0, S1, S01 or S10 by dim");
    spec.layout.shards.emplace_back();
    for (++i; i < dims.size() && (dims[i] == '0' || dims[i] == '1'); ++i) {
      const AxisId axis(static_cast<size_t>(dims[i] - '0'));
      if (!cut || !used.insert(axis).second) return wrong("each axis once, behind an S");
      spec.layout.shards.back().push_back(axis);
    }
    if (cut && spec.layout.shards.back().empty()) return wrong("an axis behind S");
  }
  if (spec.layout.shards.size() != rank) {
    return wrong(fmt::format("{} dims, found {}", rank, spec.layout.shards.size()));
  }
  spec.layout.grain.assign(rank, 1);
  return spec;
}

ReshardSide side_of(const ReshardSpec& spec, const std::vector<int64_t>& shape, int64_t first_rank,
                    int64_t first_host) {
  const Layout layout = normalise(spec.layout, spec.mesh, shape);
  ReshardSide side = reshard_side(spec.mesh, layout, shape, spec.devices_per_host());
  for (ReshardHolder& holder : side) {
    holder.rank += first_rank;
    holder.host += first_host;
  }
  return side;
}

}  // namespace tessera
