// Test support: a table of redistributions of every kind, and a reference that computes each
// expected element by brute force and shares no code with the back ends. The tests of the threads
// and the MPI self-test use both.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/base/half.h"
#include "tessera/base/philox.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/gather_bytes.h"

namespace tessera::comm::testing {

struct Case {
  std::string name;
  Redistribution what;
  bool strided = false;   // transposed views with gaps
  bool in_place = false;  // output is the input's memory
};

inline void encode(DType dtype, double value, std::byte* to) {
  const auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  switch (dtype) {
    case DType::kFloat64: return put(value);
    case DType::kFloat32: return put(static_cast<float>(value));
    case DType::kBFloat16: return put(half::to_bfloat16(static_cast<float>(value)));
    case DType::kFloat16: return put(half::to_float16(static_cast<float>(value)));
    case DType::kInt64: return put(static_cast<int64_t>(value));
    case DType::kInt32: return put(static_cast<int32_t>(value));
    case DType::kUInt8: return put(static_cast<uint8_t>(static_cast<int64_t>(value)));
    case DType::kBool: return put(static_cast<uint8_t>(value != 0 ? 1 : 0));
  }
}

template <class T>
T get(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
inline double decode(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kFloat64: return get<double>(from);
    case DType::kFloat32: return static_cast<double>(get<float>(from));
    case DType::kBFloat16: return static_cast<double>(half::from_bfloat16(get<uint16_t>(from)));
    case DType::kFloat16: return static_cast<double>(half::from_float16(get<uint16_t>(from)));
    case DType::kInt64: return static_cast<double>(get<int64_t>(from));
    case DType::kInt32: return static_cast<double>(get<int32_t>(from));
    case DType::kUInt8:
    case DType::kBool: return static_cast<double>(get<uint8_t>(from));
  }
  return 0;
}
inline double rounded(DType dtype, double value) {
  std::array<std::byte, 8> memory{};
  encode(dtype, value, memory.data());
  return decode(dtype, memory.data());
}

using Index = std::vector<int64_t>;

// Returns the element that a member holds at an index. Values differ among members and indices and
// are exact in the dtype, since they are rounded to it.
inline double input_value(const Redistribution& what, size_t member, const Index& at) {
  // Copies of the same element are equal on all members.
  std::vector<int64_t> words = at;
  words.push_back(what.combiner ? static_cast<int64_t>(member) : -1);
  const uint64_t hash =
      stable_hash(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t), 7);
  double value = static_cast<double>(hash % 61);
  if (what.combiner == Combiner::kMoments) {
    if (at.back() == 0) value = static_cast<double>(hash % 4);
  } else if (is_floating(what.dtype)) {
    value = (value - 30) * 0.37;
    if (what.combiner == Combiner::kLogSumExp && hash % 7 == 0) value = -INFINITY;
  } else if (what.dtype == DType::kBool) {
    value = static_cast<double>(hash % 2);
  }
  return rounded(what.dtype, value);
}

template <class T>
T log_sum_exp(T a, T b) {
  const T high = std::max(a, b);
  if (high == -INFINITY) return high;
  return high + std::log1p(std::exp(std::min(a, b) - high));
}

inline double combine_values(DType dtype, Combiner combiner, double a, double b) {
  switch (combiner) {
    case Combiner::kSum: {
      if (dtype == DType::kFloat64 || !is_floating(dtype)) return rounded(dtype, a + b);
      return rounded(dtype, static_cast<double>(static_cast<float>(a) + static_cast<float>(b)));
    }
    case Combiner::kMax: return std::max(a, b);
    case Combiner::kLogSumExp:
      if (dtype == DType::kFloat64) return log_sum_exp(a, b);
      return rounded(
          dtype, static_cast<double>(log_sum_exp(static_cast<float>(a), static_cast<float>(b))));
    case Combiner::kMoments:
    case Combiner::kWeighted: break;
  }
  return 0;
}

// Returns component `at.back()` of the moments merged member by member.
inline double merged_moment(const Redistribution& what, const std::vector<size_t>& holders,
                            Index at) {
  const size_t wanted = static_cast<size_t>(at.back());
  std::array<double, 3> sum{};
  for (size_t member : holders) {
    std::array<double, 3> x{};
    for (size_t k = 0; k < 3; ++k) {
      at.back() = static_cast<int64_t>(k);
      x[k] = input_value(what, member, at);
    }
    if (x[0] == 0 && member != holders.front()) continue;
    if (sum[0] == 0) {
      sum = x;
      continue;
    }
    const double n = sum[0] + x[0];
    const double delta = x[1] - sum[1];
    const double m2 = sum[2] + x[2] + delta * delta * (sum[0] * (x[0] / n));
    sum = {rounded(what.dtype, n), rounded(what.dtype, sum[1] + delta * (x[0] / n)),
           rounded(what.dtype, m2)};
  }
  return sum[wanted];
}

inline bool inside(const Box& box, const Index& at) {
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i] < box.dims[i].begin || at[i] >= box.dims[i].end()) return false;
  }
  return true;
}

// Returns the value that a member must find, or nothing if no member holds the element.
inline std::optional<double> expected_value(const Redistribution& what, const Index& at) {
  std::vector<size_t> holders;
  for (size_t j = 0; j < what.hold.size(); ++j) {
    if (inside(what.hold[j], at)) holders.push_back(j);
  }
  if (holders.empty()) return std::nullopt;
  if (what.combiner == Combiner::kMoments) return merged_moment(what, holders, at);
  double value = input_value(what, holders.front(), at);
  if (!what.combiner) return value;
  for (size_t k = 1; k < holders.size(); ++k) {
    value = combine_values(what.dtype, *what.combiner, value, input_value(what, holders[k], at));
  }
  return value;
}

template <class F>
void for_each_index(const Box& box, const F& f) {
  if (box.empty()) return;
  Index at;
  for (const Interval& dim : box.dims) at.push_back(dim.begin);
  while (true) {
    f(at);
    size_t dim = at.size();
    while (dim > 0 && ++at[dim - 1] == box.dims[dim - 1].end()) {
      at[dim - 1] = box.dims[dim - 1].begin;
      --dim;
    }
    if (dim == 0) return;
  }
}

// One member's arrays, surrounded by memory that must not be written.
struct Arrays {
  static constexpr std::byte kCanary{0xA5};
  std::vector<std::byte> in_memory, out_memory;
  ArrayView in, out;
  Item item;

  static ArrayView view(const Box& box, bool strided, DType dtype, std::vector<std::byte>& memory) {
    ArrayView view;
    view.box = box;
    view.strides.assign(box.rank(), 1);
    int64_t stride = strided ? 2 : 1;
    for (size_t k = 0; k < box.rank(); ++k) {
      const size_t dim = strided ? k : box.rank() - 1 - k;
      view.strides[dim] = stride;
      stride *= std::max<int64_t>(1, box.dims[dim].size) + (strided ? 1 : 0);
    }
    memory.assign(static_cast<size_t>((stride + 8) * dtype_bytes(dtype)), kCanary);
    view.data = memory.data() + 4 * dtype_bytes(dtype);
    return view;
  }
  static std::byte* at(const ArrayView& view, DType dtype, const Index& index) {
    int64_t offset = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      offset += (index[i] - view.box.dims[i].begin) * view.strides[i];
    }
    return view.data + offset * dtype_bytes(dtype);
  }

  Arrays(const Case& test, size_t member) {
    const Redistribution& what = test.what;
    in = view(what.hold[member], test.strided, what.dtype, in_memory);
    for_each_index(in.box, [&](const Index& index) {
      encode(what.dtype, input_value(what, member, index), at(in, what.dtype, index));
    });
    out = test.in_place ? in : view(what.need[member], test.strided, what.dtype, out_memory);
    item = {&what, in, out};
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  const std::vector<std::byte>& result() const {
    return out_memory.empty() ? in_memory : out_memory;
  }

  // Returns "" if the output is right and nothing else was written; else what is wrong. Values may
  // differ by `tolerance` of their size.
  std::string error(const Case& test, double tolerance = 0) const {
    const DType dtype = test.what.dtype;
    std::vector<std::byte> memory = result();
    std::string text;
    const size_t bytes = static_cast<size_t>(dtype_bytes(dtype));
    for_each_index(out.box, [&](const Index& index) {
      const std::optional<double> want = expected_value(test.what, index);
      const std::byte* found = at(out, dtype, index);
      std::array<std::byte, 8> wanted;
      wanted.fill(kCanary);
      if (want) encode(dtype, *want, wanted.data());
      const bool close = want && tolerance > 0 &&
                         std::abs(decode(dtype, found) - *want) <= tolerance * std::abs(*want);
      if (std::memcmp(found, wanted.data(), bytes) != 0 && !close && text.empty()) {
        text = fmt::format("{}: expected {}, found {}", test.name, want.value_or(NAN),
                           decode(dtype, found));
      }
      std::memset(memory.data() + (found - result().data()), static_cast<int>(kCanary), bytes);
    });
    for (std::byte b : memory) {
      if (b != kCanary && text.empty()) text = test.name + ": wrote outside the output";
    }
    return text;
  }
};

inline std::vector<Box> split(const Box& whole, size_t dim, size_t pieces) {
  std::vector<Box> boxes(pieces, whole);
  for (size_t i = 0; i < pieces; ++i) {
    boxes[i].dims[dim] =
        split_interval(whole.dims[dim], static_cast<int64_t>(pieces), static_cast<int64_t>(i));
  }
  return boxes;
}
inline std::vector<Box> only(const Box& whole, size_t owner, size_t members) {
  Box none = whole;
  none.dims.front().size = 0;
  std::vector<Box> boxes(members, none);
  boxes[owner] = whole;
  return boxes;
}
inline std::vector<Box> with_halo(std::vector<Box> boxes, const Box& whole) {
  for (Box& box : boxes) {
    Interval& dim = box.dims.front();
    dim = intersect({dim.begin - 1, dim.size + 2}, whole.dims.front());
  }
  return boxes;
}
inline std::vector<Box> rotated(std::vector<Box> boxes) {
  std::rotate(boxes.begin(), boxes.begin() + 1, boxes.end());
  return boxes;
}

inline std::vector<Redistribution> copies(const Box& whole, DType dtype, size_t n) {
  using enum CollectiveKind;
  const std::vector<Box> all(n, whole);
  const std::vector<Box> rows = split(whole, 0, n);
  const std::vector<Box> columns = split(whole, 1, n);
  return {{kAllGather, {}, dtype, rows, all},
          {kAllGather, {}, dtype, columns, all},
          {kAllToAll, {}, dtype, rows, columns},
          {kBroadcast, {}, dtype, only(whole, n - 1, n), all},
          {kPermute, {}, dtype, rows, rotated(rows)},
          {kExchange, {}, dtype, rows, with_halo(rows, whole)},
          {kExchange, {}, dtype, with_halo(rows, whole), rotated(columns)}};
}
inline std::vector<Redistribution> combinations(const Box& whole, DType dtype, Combiner combiner,
                                                size_t n) {
  using enum CollectiveKind;
  const std::vector<Box> all(n, whole);
  const std::vector<Box> rows = split(whole, 0, n);
  return {{kAllReduce, combiner, dtype, all, all},
          {kReduceScatter, combiner, dtype, all, rows},
          {kReduce, combiner, dtype, all, only(whole, n / 2, n)},
          {kExchange, combiner, dtype, with_halo(rows, whole), rotated(rows)},
          {kAllReduce, combiner, dtype, with_halo(rows, whole), all}};
}

// Returns cases of every kind, dtype, combiner and shape (even, uneven, empty pieces), contiguous,
// strided and in place.
inline std::vector<Case> all_cases(size_t n) {
  std::vector<Case> out;
  const auto add = [&](const std::vector<Redistribution>& list) {
    for (const Redistribution& what : list) {
      const std::string name = fmt::format(
          "{} {} {} {} members, hold {} need {}", collective_name(what.kind),
          what.combiner ? combiner_name(*what.combiner) : "copy", dtype_name(what.dtype), n,
          what.hold.front().to_string(), what.need.front().to_string());
      out.push_back({name, what, false, false});
      out.push_back({name + ", strided", what, true, false});
      if (what.kind == CollectiveKind::kAllReduce && what.hold == what.need) {
        out.push_back({name + ", in place", what, false, true});
        out.push_back({name + ", strided in place", what, true, true});
      }
    }
  };
  using enum DType;
  const int64_t m = static_cast<int64_t>(n);
  const std::vector<Box> shapes = {Box::whole({2 * m, 2 * m}),
                                   Box({{3, 2 * m + 1}, {1, m + 2}, {0, 3}}),
                                   Box({{0, std::max<int64_t>(1, m - 1)}, {2, 2}})};
  for (DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool}) {
    for (const Box& shape : shapes) {
      add(copies(shape, dtype, n));
      for (Combiner combiner : {Combiner::kSum, Combiner::kMax, Combiner::kLogSumExp}) {
        if (dtype == kBool && combiner == Combiner::kSum) continue;  // for bool a sum is max
        if (!is_floating(dtype) && combiner == Combiner::kLogSumExp) continue;
        add(combinations(shape, dtype, combiner, n));
      }
    }
    if (is_floating(dtype)) add(combinations(shapes[1], dtype, Combiner::kMoments, n));
  }
  return out;
}

// Tries gather_bytes and gather_bytes_at with bytes on no rank, one byte on each, different
// lengths, long lengths, and bytes on the first rank alone. Returns the name of the first gather
// whose result differs from the ranks' bytes; "" if none does.
inline std::string gather_error(Communicator& world) {
  const auto bytes = [](int rank, size_t length) {
    std::string text(length, '\0');
    for (size_t i = 0; i < length; ++i)
      text[i] = static_cast<char>((i * 7 + static_cast<size_t>(rank)) % 256);
    return text;
  };
  using Length = size_t (*)(int rank);
  const std::pair<const char*, Length> forms[] = {
      {"none", [](int) -> size_t { return 0; }},
      {"one", [](int) -> size_t { return 1; }},
      {"unequal", [](int rank) -> size_t { return static_cast<size_t>(3 * rank); }},
      {"falling",
       [](int rank) -> size_t { return rank > 2 ? 0 : static_cast<size_t>(300 - 100 * rank); }},
      {"of the first rank", [](int rank) -> size_t { return rank == 0 ? 9 : 0; }},
      {"long", [](int rank) -> size_t { return rank == 0 ? 3'000'017 : 70'001; }}};
  for (const auto& [name, length] : forms) {
    std::vector<std::string> want;
    for (int rank = 0; rank < world.size(); ++rank) want.push_back(bytes(rank, length(rank)));
    const std::string& mine = want[static_cast<size_t>(world.rank())];
    if (gather_bytes(world, mine) != want) return fmt::format("gather_bytes, {}", name);
    for (int to = 0; to < world.size(); ++to) {
      const auto at = gather_bytes_at(world, to, mine);
      if (at != (to == world.rank() ? want : std::vector<std::string>{}))
        return fmt::format("gather_bytes_at {}, {}", to, name);
    }
  }
  return "";
}

inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(i);
  return ranks;
}

}  // namespace tessera::comm::testing
