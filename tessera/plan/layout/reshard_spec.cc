#include "tessera/plan/layout/reshard_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using Wrong = std::function<tl::unexpected<Error>(const std::string& expected)>;

// Reads a layout such as "S0RR" on a mesh of `axes` axes. If `parts`, "P1" or the like may follow
// the dims.
Result<Layout> read_layout(std::string_view dims, size_t axes, size_t rank, bool parts,
                           const std::string& entries, const Wrong& wrong) {
  Layout layout;
  std::set<AxisId> used;
  for (size_t i = 0; i < dims.size();) {
    const char letter = dims[i];
    const bool is_part = parts && letter == 'P';
    if (letter != 'S' && letter != 'R' && !is_part) return wrong(entries);
    Axes own;
    for (++i; i < dims.size() && dims[i] >= '0' && dims[i] <= '9'; ++i) {
      const auto number = static_cast<size_t>(dims[i] - '0');
      if (number >= axes) {
        return wrong(axes == 1 ? "axis 0, the only one"
                               : fmt::format("axes from 0 to {}", axes - 1));
      }
      if (letter == 'R' || !used.insert(AxisId(number)).second) {
        return wrong(parts ? "each axis once, behind an S or P" : "each axis once, behind an S");
      }
      own.push_back(AxisId(number));
    }
    if (letter != 'R' && own.empty()) return wrong(fmt::format("an axis behind {}", letter));
    if (!is_part) {
      layout.shards.push_back(std::move(own));
      continue;
    }
    if (i < dims.size()) return wrong("P behind all dims");
    layout.partial = std::move(own);
    std::sort(layout.partial.begin(), layout.partial.end());
  }
  if (layout.shards.size() != rank) {
    return wrong(fmt::format("{} dims, found {}", rank, layout.shards.size()));
  }
  layout.grain.assign(rank, 1);
  return layout;
}

}  // namespace

Result<ReshardSpec> parse_reshard_spec(std::string_view text, size_t rank) {
  const Wrong wrong = [&](const std::string& expected) {
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
  TESSERA_TRY(spec.layout, read_layout(text.substr(0, at), 2, rank, false,
                                       "R, S0, S1, S01 or S10 by dim", wrong));
  return spec;
}

Result<Mesh> parse_mesh_sizes(std::string_view text) {
  constexpr size_t kMostAxes = 4;
  constexpr int64_t kMostRanks = 65536;
  const auto wrong = [&] {
    return invalid_input(
        fmt::format("mesh '{}': expected 1 to {} sizes with x between them, of at most {} ranks "
                    "together, such as 2x4",
                    text, kMostAxes, kMostRanks));
  };
  std::vector<std::pair<std::string, int64_t>> axes;
  int64_t ranks = 1;
  for (const std::string& part : split_text(text, 'x')) {
    const auto size = parse_int(part);
    if (!size || *size < 1 || *size > kMostRanks || axes.size() == kMostAxes) return wrong();
    ranks *= *size;
    if (ranks > kMostRanks) return wrong();
    axes.emplace_back(std::to_string(axes.size()), *size);
  }
  return Mesh::row_major(axes);
}

Result<Layout> parse_layout_spec(std::string_view text, const Mesh& mesh, size_t rank) {
  std::vector<std::string> sizes;
  for (const MeshAxis& axis : mesh.axes) sizes.push_back(std::to_string(axis.size));
  const std::string on = join(sizes, "x");
  return read_layout(text, mesh.axes.size(), rank, true,
                     "R, or S and axes, by dim, then perhaps P and axes",
                     [&](const std::string& expected) {
                       return invalid_input(fmt::format(
                           "layout '{}' on mesh {}: expected {}, such as S0R", text, on, expected));
                     });
}

size_t dims_of_layout_spec(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c == 'S' || c == 'R'; }));
}

std::string layout_spec(const Layout& layout) {
  std::string out;
  const auto add = [&](char letter, const Axes& axes) {
    out += letter;
    for (const AxisId axis : axes) out += std::to_string(axis.index());
  };
  for (const Axes& dim : layout.shards) add(dim.empty() ? 'R' : 'S', dim);
  if (!layout.partial.empty()) add('P', layout.partial);
  return out;
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
