#include "tessera/data/numbers.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

struct NumberName {
  Number number;
  std::string_view name;
  std::string_view npy;  // value of the key 'descr' in NumPy's head
};
constexpr std::array<NumberName, 10> kNames{{{Number::kUint8, "uint8", "|u1"},
                                             {Number::kInt8, "int8", "|i1"},
                                             {Number::kUint16, "uint16", "<u2"},
                                             {Number::kInt16, "int16", "<i2"},
                                             {Number::kUint32, "uint32", "<u4"},
                                             {Number::kInt32, "int32", "<i4"},
                                             {Number::kUint64, "uint64", "<u8"},
                                             {Number::kInt64, "int64", "<i8"},
                                             {Number::kFloat32, "float32", "<f4"},
                                             {Number::kFloat64, "float64", "<f8"}}};

// Returns the text after `'key':` in the dictionary of a NumPy head, without leading spaces;
// nothing if there is no such key.
std::optional<std::string_view> value_of(std::string_view head, std::string_view key) {
  const size_t found = head.find(fmt::format("'{}'", key));
  if (found == std::string_view::npos) return std::nullopt;
  const size_t colon = head.find(':', found);
  if (colon == std::string_view::npos) return std::nullopt;
  return trim(head.substr(colon + 1));
}

Result<Number> read_descr(std::string_view head) {
  const auto value = value_of(head, "descr");
  if (!value || value->size() < 2 || value->front() != '\'') {
    return invalid_input("expected a NumPy array of numbers, found no 'descr' in its head");
  }
  const std::string_view text = value->substr(1, value->find('\'', 1) - 1);
  for (const NumberName& one : kNames) {
    // The byte order of a one-byte type has no meaning: "|u1", "<u1" and ">u1" are the same.
    if (text == one.npy || (one.npy[0] == '|' && text.size() == one.npy.size() &&
                            text.substr(1) == one.npy.substr(1))) {
      return one.number;
    }
  }
  return invalid_input(fmt::format(
      "expected a NumPy array of little-endian integers or of float32 or float64, found '{}'",
      short_line(text, 60)));
}

Result<std::vector<int64_t>> read_shape(std::string_view head) {
  const auto value = value_of(head, "shape");
  const size_t end = value ? value->find(')') : std::string_view::npos;
  if (end == std::string_view::npos || value->front() != '(') {
    return invalid_input("expected a NumPy array, found no 'shape' in its head");
  }
  std::vector<int64_t> shape;
  for (const std::string& part : split_text(value->substr(1, end - 1), ',')) {
    if (trim(part).empty()) continue;
    const auto size = parse_int(trim(part));
    if (!size || *size < 0) {
      return invalid_input(fmt::format("expected sizes in the 'shape' of a NumPy array, found '{}'",
                                       short_line(trim(part), 60)));
    }
    shape.push_back(*size);
  }
  return shape;
}

}  // namespace

int64_t number_bytes(Number number) {
  return with_number(number, [](auto value) { return static_cast<int64_t>(sizeof value); });
}

bool is_integer(Number number) {
  return with_number(number, [](auto value) { return std::is_integral_v<decltype(value)>; });
}

bool is_signed(Number number) {
  return with_number(number, [](auto value) { return std::is_signed_v<decltype(value)>; });
}

std::string_view number_name(Number number) { return kNames[static_cast<size_t>(number)].name; }

int64_t largest(Number number) {
  return with_number(number, [](auto value) {
    using T = decltype(value);
    if constexpr (sizeof(T) == 8 || !std::is_integral_v<T>) {
      return std::numeric_limits<int64_t>::max();
    } else {
      return static_cast<int64_t>(std::numeric_limits<T>::max());
    }
  });
}

int64_t NpyHeader::volume() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

Result<NpyHeader> read_npy_header(const std::byte* bytes, int64_t size) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr int64_t kFixed = 10;  // magic, version, length of the head
  const std::string_view text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  if (size < kFixed || !text.starts_with(kMagic)) {
    return invalid_input("expected a NumPy array (.npy), found another head");
  }
  const auto version = read_number<uint8_t>(bytes + kMagic.size());
  if (version < 1 || version > 3) {
    return invalid_input(
        fmt::format("expected a NumPy array of format 1, 2 or 3, found {}", version));
  }
  const int64_t begin = version == 1 ? kFixed : kFixed + 2;
  if (size < begin) return invalid_input("expected a NumPy array, found a part of its head");
  const int64_t length =
      version == 1 ? read_number<uint16_t>(bytes + 8) : read_number<uint32_t>(bytes + 8);
  if (length > size - begin) {
    return invalid_input(fmt::format("expected a head of {} bytes, the file has {}", length, size));
  }
  const std::string_view head =
      text.substr(static_cast<size_t>(begin), static_cast<size_t>(length));
  NpyHeader header;
  header.offset = begin + length;
  TESSERA_TRY(header.number, read_descr(head));
  TESSERA_TRY(header.shape, read_shape(head));
  const auto order = value_of(head, "fortran_order");
  if (header.shape.size() > 1 && (!order || !order->starts_with("False"))) {
    return invalid_input("expected a NumPy array in C order, found one in Fortran order");
  }
  // Divides the room by the extents, because their product may overflow. If any dim is empty, the
  // array has no elements, so it always fits.
  int64_t room = (size - header.offset) / number_bytes(header.number);
  bool empty = false;
  for (const int64_t extent : header.shape) empty = empty || extent == 0;
  for (const int64_t extent : header.shape) room = empty ? room : room / extent;
  if (empty || room < 1) {
    return invalid_input(
        fmt::format("expected elements for the shape ({}) of {}, the file has {} bytes",
                    fmt::join(header.shape, ", "), number_name(header.number), size));
  }
  return header;
}

}  // namespace tessera
