#include "tessera/graph/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"

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

namespace {

// Returns the first index of piece i, where pieces are counted in the order of indices. For i =
// order.pieces, returns dim_size.
int64_t begin_of(const Order& order, int64_t dim_size, int64_t i) {
  const int64_t each = dim_size / order.pieces, longer = dim_size % order.pieces;
  if (order.kind != Order::Kind::kZigzag) return i * each + std::min(i, longer);
  // Before piece i there are, in turn, pieces from the front and from the back of the positions.
  const int64_t front = (i + 1) / 2, back = i / 2;
  return i * each + std::min(front, longer) + std::max<int64_t>(0, longer - (order.pieces - back));
}

OpRun piece_of(const Order& order, int64_t dim_size, int64_t i) {
  const int64_t begin = begin_of(order, dim_size, i);
  const int64_t size = begin_of(order, dim_size, i + 1) - begin;
  switch (order.kind) {
    case Order::Kind::kNone: return {begin, begin, 1, size};
    case Order::Kind::kStriped: return {begin, i, order.pieces, size};
    case Order::Kind::kZigzag: break;
  }
  const int64_t piece = i % 2 == 0 ? i / 2 : order.pieces - 1 - i / 2;
  return {begin, split_interval({0, dim_size}, order.pieces, piece).begin, 1, size};
}

}  // namespace

std::vector<OpRun> runs_of(const Order& order, int64_t dim_size, Interval interval) {
  // Finds the last piece that begins at or before the begin of the interval, by bisection, because
  // programs of long rings call this function very often.
  int64_t piece = 0;
  for (int64_t end = order.pieces; end - piece > 1;) {
    const int64_t middle = piece + (end - piece) / 2;
    (begin_of(order, dim_size, middle) <= interval.begin ? piece : end) = middle;
  }
  std::vector<OpRun> runs;
  for (; piece < order.pieces; ++piece) {
    const OpRun run = piece_of(order, dim_size, piece);
    if (run.index >= interval.end()) break;
    const Interval kept = intersect({run.index, run.size}, interval);
    if (kept.empty()) continue;
    runs.push_back(
        {kept.begin, run.first + (kept.begin - run.index) * run.stride, run.stride, kept.size});
  }
  return runs;
}

namespace {

// Returns the number of points (i, j), among `queries` x `keys`, with j <= i + shift. A point with
// j = i + shift counts half.
double area_below(double queries, double keys, double shift) {
  // Row i has clamp(i + shift + 1/2, 0, keys) points.
  const auto integral = [&](double from, double to) {  // sum of i + shift + 1/2 over the integers i
    return (to - from) * (shift + 0.5 + (from + to - 1) / 2);
  };
  const double begin = std::clamp(std::ceil(-shift), 0.0, queries);
  const double full = std::clamp(std::floor(keys - shift), begin, queries);
  return integral(begin, full) + (queries - full) * keys;
}

int64_t floor_divide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

bool is_causal(const Op& op) {
  const std::optional<QueryKey> dims = query_key_of(op);
  return dims && dims->skips;
}

bool leaves_out_points(const Op& op) {
  const std::optional<QueryKey> dims = query_key_of(op);
  return dims && (dims->skips || dims->window > 0);
}

double visible_points(const Op& op, const Box& box) {
  const std::optional<QueryKey> dims = query_key_of(op);
  TESSERA_CHECK(dims.has_value(), "op '{}' ({}) has no queries and keys", op.path, op.kind);
  const auto seq = static_cast<size_t>(dims->query), kv = static_cast<size_t>(dims->key);
  const Interval queries = box.dims[seq], keys = box.dims[kv];
  const auto rows = static_cast<double>(queries.size), columns = static_cast<double>(keys.size);
  if (!leaves_out_points(op) || rows * columns == 0) return rows * columns;
  const int64_t all_queries = op.annotation.dims[seq].size, all_keys = op.annotation.dims[kv].size;
  const std::string order_text = op.text("order");
  // Returns the visible area of two runs, one of queries and one of keys. The position of query i
  // minus the position of key j is `apart` + stride (i - j).
  const auto area = [&](double of_queries, double of_keys, int64_t apart, int64_t stride) {
    // Counts in whole strides. If `apart` is no multiple of the stride, no key has the position of
    // a query, so there is no diagonal whose points count half.
    const auto strides = [&](int64_t positions) {
      return static_cast<double>(floor_divide(positions, stride));
    };
    const auto up_to = [&](double shift) { return area_below(of_queries, of_keys, shift); };
    const double half = apart % stride == 0 ? 0 : 0.5;
    const int64_t window = dims->window;
    const double ahead = dims->skips  ? up_to(strides(apart) + half)
                         : window > 0 ? up_to(strides(apart + window - 1) + 0.5)
                                      : of_queries * of_keys;
    return window > 0 ? ahead - up_to(strides(apart - window) + 0.5) : ahead;
  };
  if (order_text.empty()) {  // if there are fewer queries, they have the last positions
    return area(rows, columns, queries.begin + all_keys - all_queries - keys.begin, 1);
  }
  const auto order = parse_order(order_text);
  TESSERA_CHECK(order.has_value(), "op '{}': order '{}'", op.path, order_text);
  double sum = 0;
  for (const OpRun& q : runs_of(*order, all_queries, queries)) {
    for (const OpRun& k : runs_of(*order, all_keys, keys)) {
      sum += area(static_cast<double>(q.size), static_cast<double>(k.size), q.first - k.first,
                  q.stride);
    }
  }
  return sum;
}

}  // namespace tessera
