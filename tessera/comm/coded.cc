#include "tessera/comm/coded.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/half.h"

namespace tessera::comm {
namespace {

constexpr double kLargestFloat16 = 65504;

template <class T>
T take(const std::byte*& at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

template <class T>
void put(std::byte*& at, T value) {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

double load(const std::byte*& at, DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return take<double>(at);
    case DType::kFloat32: return static_cast<double>(take<float>(at));
    case DType::kBFloat16: return static_cast<double>(half::from_bfloat16(take<uint16_t>(at)));
    case DType::kFloat16: return static_cast<double>(half::from_float16(take<uint16_t>(at)));
    default: break;
  }
  TESSERA_CHECK(false, "no codec for {}", dtype_name(dtype));
}

void store(std::byte*& at, DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat64: return put(at, value);
    case DType::kFloat32: return put(at, static_cast<float>(value));
    case DType::kBFloat16: return put(at, half::to_bfloat16(static_cast<float>(value)));
    case DType::kFloat16: return put(at, half::to_float16(static_cast<float>(value)));
    default: break;
  }
  TESSERA_CHECK(false, "no codec for {}", dtype_name(dtype));
}

// Returns the scale of a chunk of values: the chunk's largest magnitude over `most`, the largest
// integer. If an element of the chunk is not finite, the scale is infinite, so that every element
// of the chunk decodes to NaN.
float integer_scale(const double* values, int64_t n, double most) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, std::abs(values[i]));
  }
  return static_cast<float>(largest / most);
}

// Integers of 8 or 4 bits, one after the other; two of 4 bits share a byte, the first one in its
// lower half.
class Integers {
 public:
  Integers(const Codec& codec, std::byte* at)
      : halves_(codec.kind == Codec::Kind::kInt4), at_(at) {}
  double most() const { return halves_ ? 7 : 127; }
  void put(int64_t i, double value) {
    const auto bits = static_cast<uint8_t>(static_cast<int8_t>(value));
    if (!halves_) {
      at_[i] = std::byte{bits};
    } else if (i % 2 == 0) {
      at_[i / 2] = std::byte{static_cast<uint8_t>(bits & 15U)};
    } else {
      at_[i / 2] |= std::byte{static_cast<uint8_t>(bits << 4U)};
    }
  }
  double take(int64_t i) const {
    if (!halves_) return static_cast<int8_t>(at_[i]);
    const auto byte = static_cast<uint8_t>(at_[i / 2]);
    // The four bits are moved to the top of a signed byte, so that the shift back keeps the sign.
    const auto top = static_cast<int8_t>(i % 2 == 0 ? byte << 4U : byte & 0xF0U);
    return static_cast<double>(top) / 16;  // exact, because the lower four bits are 0
  }

 private:
  bool halves_;
  std::byte* at_;
};

std::byte* after_scales(std::byte* at, int64_t n) {
  return at + 4 * ((n + kIntegerChunk - 1) / kIntegerChunk);
}

void encode_integers(const Codec& codec, const std::vector<double>& values, std::byte* at) {
  const auto n = static_cast<int64_t>(values.size());
  Integers quotients(codec, after_scales(at, n));
  for (int64_t begin = 0; begin < n; begin += kIntegerChunk) {
    const int64_t end = std::min(begin + kIntegerChunk, n);
    const float scale = integer_scale(values.data() + begin, end - begin, quotients.most());
    put(at, scale);
    const bool usable = scale > 0 && std::isfinite(scale);
    for (int64_t i = begin; i < end; ++i) {
      const double value = values[static_cast<size_t>(i)];
      const double quotient = usable ? std::nearbyint(value / static_cast<double>(scale)) : 0.0;
      quotients.put(i, std::clamp(quotient, -quotients.most(), quotients.most()));
    }
  }
}

void decode_integers(const Codec& codec, const std::byte* at, std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  // This cast is safe: the data is only read.
  const Integers quotients(codec, after_scales(const_cast<std::byte*>(at), n));  // NOLINT
  for (int64_t begin = 0; begin < n; begin += kIntegerChunk) {
    const auto scale = static_cast<double>(take<float>(at));
    for (int64_t i = begin; i < std::min(begin + kIntegerChunk, n); ++i)
      values[static_cast<size_t>(i)] = scale * quotients.take(i);
  }
}

// Returns the indices of the `kept` values of largest magnitude, ascending. Among equal magnitudes
// the lowest index goes first. A NaN counts as the largest magnitude.
std::vector<int32_t> largest_of(const double* values, int64_t n, int64_t kept) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const auto magnitude = [&](int32_t i) {
    const double value = std::abs(values[i]);
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  const auto before = [&](int32_t a, int32_t b) {
    const double x = magnitude(a), y = magnitude(b);
    return x != y ? x > y : a < b;
  };
  std::nth_element(order.begin(), order.begin() + (kept - 1), order.end(), before);
  order.resize(static_cast<size_t>(kept));
  std::sort(order.begin(), order.end());
  return order;
}

// Writes and reads numbers of a few bits each, the lowest bit first.
void put_bits(std::byte* at, int64_t first, int bits, uint64_t value) {
  for (int b = 0; b < bits; ++b) {
    const int64_t place = first + b;
    if (((value >> static_cast<unsigned>(b)) & 1U) != 0)
      at[place / 8] |= std::byte{static_cast<uint8_t>(1U << static_cast<unsigned>(place % 8))};
  }
}
uint64_t take_bits(const std::byte* at, int64_t first, int bits) {
  uint64_t value = 0;
  for (int b = 0; b < bits; ++b) {
    const int64_t place = first + b;
    const auto byte = static_cast<uint8_t>(at[place / 8]);
    value |= uint64_t{(byte >> static_cast<unsigned>(place % 8)) & 1U} << static_cast<unsigned>(b);
  }
  return value;
}

// Writes the `kept` values of largest magnitude and where they are.
void encode_top(const std::vector<double>& values, int64_t kept, std::byte* at) {
  const auto n = static_cast<int64_t>(values.size());
  const std::vector<int32_t> chosen = largest_of(values.data(), n, kept);
  for (const int32_t i : chosen) put(at, static_cast<float>(values[static_cast<size_t>(i)]));
  std::fill_n(at, top_index_bytes(kept, n), std::byte{0});
  const int bits = top_index_bits(n);
  const bool bitmap = top_has_bitmap(kept, n);
  for (int64_t k = 0; k < kept; ++k) {
    const auto index = static_cast<uint64_t>(chosen[static_cast<size_t>(k)]);
    if (bitmap) {
      put_bits(at, static_cast<int64_t>(index), 1, 1);
    } else {
      put_bits(at, k * bits, bits, index);
    }
  }
}

void decode_top(const std::byte* at, int64_t kept, std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const std::byte* where = at + 4 * kept;
  if (top_has_bitmap(kept, n)) {
    for (int64_t i = 0; i < n; ++i) {
      if (take_bits(where, i, 1) != 0)
        values[static_cast<size_t>(i)] = static_cast<double>(take<float>(at));
    }
    return;
  }
  const int bits = top_index_bits(n);
  for (int64_t k = 0; k < kept; ++k) {
    const auto index = static_cast<size_t>(take_bits(where, k * bits, bits));
    TESSERA_CHECK(index < values.size(), "element {} of {}", index, values.size());
    values[index] = static_cast<double>(take<float>(at));
  }
}

using Chunk = std::array<double, static_cast<size_t>(kDctSide* kDctSide)>;

// Returns the orthonormal matrix of the discrete cosine transform (DCT-II) of kDctSide elements:
// row k, column i.
const Chunk& cosines() {
  static const Chunk matrix = [] {
    Chunk made;
    const auto n = static_cast<double>(kDctSide);
    for (int64_t k = 0; k < kDctSide; ++k) {
      for (int64_t i = 0; i < kDctSide; ++i) {
        const double scale = std::sqrt((k == 0 ? 1 : 2) / n);
        made[static_cast<size_t>(k * kDctSide + i)] =
            scale * std::cos(std::numbers::pi * static_cast<double>(k) *
                             (2 * static_cast<double>(i) + 1) / (2 * n));
      }
    }
    return made;
  }();
  return matrix;
}

const Chunk& transposed_cosines() {
  static const Chunk matrix = [] {
    Chunk made;
    for (int64_t row = 0; row < kDctSide; ++row) {
      for (int64_t column = 0; column < kDctSide; ++column) {
        made[static_cast<size_t>(column * kDctSide + row)] =
            cosines()[static_cast<size_t>(row * kDctSide + column)];
      }
    }
    return made;
  }();
  return matrix;
}

// Adds the product of two matrices: out += a b. The innermost loop adds a multiple of a row to a row,
// which the compiler vectorises.
void add_product(const Chunk& a, const Chunk& b, Chunk& out) {
  for (int64_t row = 0; row < kDctSide; ++row) {
    double* to = out.data() + row * kDctSide;
    for (int64_t i = 0; i < kDctSide; ++i) {
      const double factor = a[static_cast<size_t>(row * kDctSide + i)];
      const double* from = b.data() + i * kDctSide;
      for (int64_t column = 0; column < kDctSide; ++column) to[column] += factor * from[column];
    }
  }
}

// Transforms a chunk along both of its sides: to M X M^T, or back to M^T X M.
void transform(Chunk& chunk, bool back) {
  const Chunk& left = back ? transposed_cosines() : cosines();
  const Chunk& right = back ? cosines() : transposed_cosines();
  Chunk half{};
  add_product(chunk, right, half);
  chunk.fill(0);
  add_product(left, half, chunk);
}

// Writes the largest coefficients of each chunk. The last chunk is filled up with zeros.
void encode_dct(const std::vector<double>& values, int64_t kept, std::byte* at) {
  auto chunk = std::make_unique<Chunk>();
  for (size_t begin = 0; begin < values.size(); begin += chunk->size()) {
    chunk->fill(0);
    const size_t size = std::min(chunk->size(), values.size() - begin);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), size, chunk->begin());
    transform(*chunk, false);
    for (const int32_t i : largest_of(chunk->data(), static_cast<int64_t>(chunk->size()), kept)) {
      put(at, static_cast<float>((*chunk)[static_cast<size_t>(i)]));
      put(at, static_cast<uint16_t>(i));
    }
  }
}

void decode_dct(const std::byte* at, int64_t kept, std::vector<double>& values) {
  auto chunk = std::make_unique<Chunk>();
  for (size_t begin = 0; begin < values.size(); begin += chunk->size()) {
    chunk->fill(0);
    for (int64_t k = 0; k < kept; ++k) {
      const auto value = static_cast<double>(take<float>(at));
      const auto index = static_cast<size_t>(take<uint16_t>(at));
      TESSERA_CHECK(index < chunk->size(), "coefficient {} of {}", index, chunk->size());
      (*chunk)[index] = value;
    }
    transform(*chunk, true);
    const size_t size = std::min(chunk->size(), values.size() - begin);
    std::copy_n(chunk->begin(), size, values.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

bool is_integer(const Codec& codec) {
  return codec.kind == Codec::Kind::kInt8 || codec.kind == Codec::Kind::kInt4;
}

// Returns the dtype that the codec sends elements in if it is a 16-bit codec; else `dtype`.
DType element_dtype(const Codec& codec, DType dtype) {
  if (codec.kind == Codec::Kind::kFloat16) return DType::kFloat16;
  return codec.kind == Codec::Kind::kBFloat16 ? DType::kBFloat16 : dtype;
}

ArrayView whole(std::byte* data, const Box& box) {
  return {data, box, row_major_strides(box.shape())};
}

// Returns the elements of `box` in a strided array, in row-major order.
std::vector<double> gather(DType dtype, const ArrayView& from, const Box& box) {
  std::vector<std::byte> bytes(static_cast<size_t>(box.volume() * dtype_bytes(dtype)));
  copy_region(dtype, from, whole(bytes.data(), box), box);
  std::vector<double> values(static_cast<size_t>(box.volume()));
  const std::byte* at = bytes.data();
  for (double& value : values) value = load(at, dtype);
  return values;
}

void scatter(DType dtype, const std::vector<double>& values, const ArrayView& to, const Box& box) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  std::byte* at = bytes.data();
  for (const double value : values) store(at, dtype, value);
  copy_region(dtype, whole(bytes.data(), box), to, box);
}

// Adds the residual of the last call to the values, encodes them, and keeps in `residual` what the
// codec drops now.
std::vector<std::byte> encode_with(const Codec& codec, DType dtype, std::vector<double> values,
                                   float* residual) {
  if (residual == nullptr) return encode(codec, dtype, values);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] += codec.decay * static_cast<double>(residual[i]);
  std::vector<std::byte> bytes = encode(codec, dtype, values);
  const std::vector<double> arrives =
      decode(codec, dtype, static_cast<int64_t>(values.size()), bytes.data());
  for (size_t i = 0; i < values.size(); ++i) {
    const double dropped = values[i] - arrives[i];
    residual[i] = std::isfinite(dropped) ? static_cast<float>(dropped) : 0.0F;
  }
  return bytes;
}

}  // namespace

std::vector<std::byte> encode(const Codec& codec, DType dtype, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<size_t>(message_bytes(codec, dtype, n)));
  std::byte* at = bytes.data();
  if (!is_smaller(codec, dtype, n)) {
    for (const double value : values) store(at, dtype, value);
  } else if (is_integer(codec)) {
    encode_integers(codec, values, at);
  } else if (codec.kind == Codec::Kind::kTopK) {
    encode_top(values, kept_elements(codec, n), at);
  } else if (codec.kind == Codec::Kind::kDct) {
    encode_dct(values, codec.kept, at);
  } else {
    for (double value : values) {
      if (codec.kind == Codec::Kind::kFloat16 && std::isfinite(value))
        value = std::clamp(value, -kLargestFloat16, kLargestFloat16);
      store(at, element_dtype(codec, dtype), value);
    }
  }
  return bytes;
}

std::vector<double> decode(const Codec& codec, DType dtype, int64_t elements,
                           const std::byte* from) {
  std::vector<double> values(static_cast<size_t>(elements), 0.0);
  const bool coded = is_smaller(codec, dtype, elements);
  if (coded && is_integer(codec)) {
    decode_integers(codec, from, values);
  } else if (coded && codec.kind == Codec::Kind::kTopK) {
    decode_top(from, kept_elements(codec, elements), values);
  } else if (coded && codec.kind == Codec::Kind::kDct) {
    decode_dct(from, codec.kept, values);
  } else {
    const DType stored = coded ? element_dtype(codec, dtype) : dtype;
    for (double& value : values) value = load(from, stored);
  }
  return values;
}

Handle CodedCall::begin(Communicator& world, int group, size_t me, const std::vector<Item>& items,
                        const Codec& codec, float* residual, const Label& label) {
  me_ = me;
  codec_ = codec;
  items_ = items;
  for (const Item& item : items_) pieces_.push_back(coded_pieces(*item.what));
  std::vector<Item> moved;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Redistribution& what = *items_[i].what;
    for (const CodedPiece& piece : pieces_[i]) {
      const int64_t n = piece.box.volume(), size = message_bytes(codec, what.dtype, n);
      const bool mine = piece.source == me;
      const bool takes_it =
          std::find(piece.receivers.begin(), piece.receivers.end(), me) != piece.receivers.end();
      Message& message = messages_.emplace_back();
      message.piece = &piece;
      message.item = i;
      if (mine) {
        message.bytes =
            encode_with(codec, what.dtype, gather(what.dtype, items_[i].in, piece.box), residual);
        if (residual != nullptr) residual += n;
      } else if (takes_it) {
        message.bytes.resize(static_cast<size_t>(size));
      }
      if (!piece.leaves()) continue;
      message.what = {what.kind, std::nullopt, DType::kUInt8, {}, {}};
      const Box bytes = Box::whole({size}), none = Box::whole({0});
      for (size_t m = 0; m < what.hold.size(); ++m) {
        const bool takes_one =
            std::find(piece.receivers.begin(), piece.receivers.end(), m) != piece.receivers.end();
        message.what.hold.push_back(m == piece.source ? bytes : none);
        message.what.need.push_back(m != piece.source && takes_one ? bytes : none);
      }
      moved.push_back({&message.what, whole(message.bytes.data(), message.what.hold[me]),
                       whole(message.bytes.data(), message.what.need[me])});
    }
  }
  return moved.empty() ? kNoHandle : world.issue(group, std::move(moved), label);
}

Handle CodedCall::begin_send(Communicator& world, int to, int64_t tag, DType dtype,
                             const ArrayView& from, const Codec& codec, float* residual,
                             const Label& label) {
  Message& message = messages_.emplace_back();
  message.bytes = encode_with(codec, dtype, gather(dtype, from, from.box), residual);
  const Box bytes = Box::whole({static_cast<int64_t>(message.bytes.size())});
  return world.issue_send(to, tag, DType::kUInt8, whole(message.bytes.data(), bytes), label);
}

Handle CodedCall::begin_recv(Communicator& world, int from, int64_t tag, DType dtype,
                             const ArrayView& into, const Codec& codec, const Label& label) {
  codec_ = codec;
  Redistribution& what = whats_.emplace_back();
  what.dtype = dtype;
  items_.push_back({nullptr, into, into});
  pieces_.push_back({{1, into.box, {0}}});
  Message& message = messages_.emplace_back();
  message.piece = &pieces_[0][0];
  message.bytes.resize(static_cast<size_t>(message_bytes(codec, dtype, into.box.volume())));
  const Box bytes = Box::whole({static_cast<int64_t>(message.bytes.size())});
  return world.issue_recv(from, tag, DType::kUInt8, whole(message.bytes.data(), bytes), label);
}

// Decodes the messages of an item and writes the values to the item's output. If several messages
// have the same box, their values are summed in double, in the order of the members.
void CodedCall::write(size_t item, const std::vector<Message*>& messages) const {
  const bool single = items_[item].what == nullptr;
  const DType dtype = single ? whats_[0].dtype : items_[item].what->dtype;
  std::vector<bool> done(messages.size(), false);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (done[i]) continue;
    const Box& box = messages[i]->piece->box;
    std::vector<double> sum(static_cast<size_t>(box.volume()), 0.0);
    for (size_t j = i; j < messages.size(); ++j) {
      if (done[j] || messages[j]->piece->box != box) continue;
      done[j] = true;
      const std::vector<double> values =
          decode(codec_, dtype, box.volume(), messages[j]->bytes.data());
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += values[k];
    }
    scatter(dtype, sum, items_[item].out, box);
  }
}

void CodedCall::finish() {
  for (size_t item = 0; item < items_.size(); ++item) {
    std::vector<Message*> mine;
    for (Message& message : messages_) {
      if (message.item != item) continue;
      const std::vector<size_t>& receivers = message.piece->receivers;
      if (std::find(receivers.begin(), receivers.end(), me_) != receivers.end())
        mine.push_back(&message);
    }
    write(item, mine);
  }
}

}  // namespace tessera::comm
