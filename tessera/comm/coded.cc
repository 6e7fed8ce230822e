#include "tessera/comm/coded.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

// Returns the scale of a chunk of values: the chunk's largest magnitude over 127. If an element of
// the chunk is not finite, the scale is infinite, so that every element of the chunk decodes to
// NaN.
float int8_scale(const double* values, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, std::abs(values[i]));
  }
  return static_cast<float>(largest / 127);
}

void encode_int8(const std::vector<double>& values, std::byte* at) {
  const auto n = static_cast<int64_t>(values.size());
  std::byte* quotients = at + 4 * ((n + kInt8Chunk - 1) / kInt8Chunk);
  for (int64_t begin = 0; begin < n; begin += kInt8Chunk) {
    const int64_t size = std::min(kInt8Chunk, n - begin);
    const double* chunk = values.data() + begin;
    const float scale = int8_scale(chunk, size);
    put(at, scale);
    for (int64_t i = 0; i < size; ++i) {
      const bool usable = scale > 0 && std::isfinite(scale);
      const double quotient = usable ? std::nearbyint(chunk[i] / static_cast<double>(scale)) : 0.0;
      put(quotients, static_cast<int8_t>(std::clamp(quotient, -127.0, 127.0)));
    }
  }
}

void decode_int8(const std::byte* at, std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const std::byte* quotients = at + 4 * ((n + kInt8Chunk - 1) / kInt8Chunk);
  for (int64_t begin = 0; begin < n; begin += kInt8Chunk) {
    const auto scale = static_cast<double>(take<float>(at));
    const int64_t end = std::min(begin + kInt8Chunk, n);
    for (int64_t i = begin; i < end; ++i)
      values[static_cast<size_t>(i)] = scale * take<int8_t>(quotients);
  }
}

// Returns whether a top-K message marks elements by bits, which are then fewer bytes than indices.
bool has_bits(const Codec& codec, int64_t elements) {
  return (elements + 7) / 8 < 4 * kept_elements(codec, elements);
}

// Writes the values of largest magnitude, and their indices or bits. Among equal magnitudes the
// lowest index goes first. A NaN counts as the largest magnitude.
void encode_top(const Codec& codec, const std::vector<double>& values, std::byte* at) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t kept = kept_elements(codec, n);
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto magnitude = [&](int32_t i) {
    const double value = std::abs(values[static_cast<size_t>(i)]);
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  const auto before = [&](int32_t a, int32_t b) {
    const double x = magnitude(a), y = magnitude(b);
    return x != y ? x > y : a < b;
  };
  std::nth_element(order.begin(), order.begin() + (kept - 1), order.end(), before);
  std::sort(order.begin(), order.begin() + kept);
  for (int64_t k = 0; k < kept; ++k)
    put(at, static_cast<float>(values[static_cast<size_t>(order[static_cast<size_t>(k)])]));
  if (!has_bits(codec, n)) {
    for (int64_t k = 0; k < kept; ++k) put(at, order[static_cast<size_t>(k)]);
    return;
  }
  std::vector<uint8_t> bits(static_cast<size_t>((n + 7) / 8));
  for (int64_t k = 0; k < kept; ++k) {
    const auto index = static_cast<unsigned>(order[static_cast<size_t>(k)]);
    bits[index / 8] = static_cast<uint8_t>(bits[index / 8] | 1U << index % 8);
  }
  for (const uint8_t byte : bits) put(at, byte);
}

void decode_top(const Codec& codec, const std::byte* at, std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t kept = kept_elements(codec, n);
  const std::byte* indices = at + 4 * kept;
  if (has_bits(codec, n)) {
    int64_t left = kept;
    for (size_t i = 0; i < values.size(); i += 8) {
      const auto bits = take<uint8_t>(indices);
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((bits >> bit & 1) == 0) continue;
        TESSERA_CHECK(i + bit < values.size() && left-- > 0, "element {} of {}, of {} kept",
                      i + bit, n, kept);
        values[i + bit] = static_cast<double>(take<float>(at));
      }
    }
    return;
  }
  for (int64_t k = 0; k < kept; ++k) {
    const auto index = static_cast<size_t>(take<int32_t>(indices));
    TESSERA_CHECK(index < values.size(), "element {} of {}", index, values.size());
    values[index] = static_cast<double>(take<float>(at));
  }
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
  for (size_t i = 0; i < values.size(); ++i) values[i] += static_cast<double>(residual[i]);
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
  } else if (codec.kind == Codec::Kind::kInt8) {
    encode_int8(values, at);
  } else if (codec.kind == Codec::Kind::kTopK) {
    encode_top(codec, values, at);
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
  if (coded && codec.kind == Codec::Kind::kInt8) {
    decode_int8(from, values);
  } else if (coded && codec.kind == Codec::Kind::kTopK) {
    decode_top(codec, from, values);
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
