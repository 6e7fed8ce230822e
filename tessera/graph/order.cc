#include "tessera/graph/order.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera {

Result<Order> parse_order(std::string_view text) {
  if (text.empty()) return Order{};
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view number = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const auto pieces = parse_int(number);
  const bool zigzag = name == "zigzag";
  if (!pieces || *pieces < 1 || (!zigzag && name != "striped") || (zigzag && *pieces % 2 != 0)) {
    return invalid_input(fmt::format(
        "expected an order 'zigzag:P' with an even P or 'striped:P', found '{}'", text));
  }
  return Order{zigzag ? Order::Kind::kZigzag : Order::Kind::kStriped, *pieces};
}

std::vector<Run> runs_of(const Order& order, int64_t dim_size, Interval interval) {
  std::vector<Run> runs;
  int64_t index = 0;
  const auto add = [&](int64_t first, int64_t stride, int64_t size) {
    const Interval kept = intersect({index, size}, interval);
    if (!kept.empty()) {
      runs.push_back({kept.begin, first + (kept.begin - index) * stride, stride, kept.size});
    }
    index += size;
  };
  for (int64_t i = 0; i < order.pieces; ++i) {
    switch (order.kind) {
      case Order::Kind::kNone: add(0, 1, dim_size); break;
      case Order::Kind::kZigzag: {
        const Interval piece = split_interval({0, dim_size}, order.pieces,
                                              i % 2 == 0 ? i / 2 : order.pieces - 1 - i / 2);
        add(piece.begin, 1, piece.size);
        break;
      }
      case Order::Kind::kStriped:
        add(i, order.pieces, (dim_size - i + order.pieces - 1) / order.pieces);
        break;
    }
  }
  return runs;
}

}  // namespace tessera
