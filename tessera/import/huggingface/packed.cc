#include "tessera/import/huggingface/packed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/convert.h"
#include "tessera/base/one_line.h"

namespace tessera {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr int64_t kNumbers = 32;  // numbers that share a scale
constexpr int kBias = 127;        // of the scales' exponents
// The numbers that four bits stand for: a sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kValues{0.F,  0.5F,  1.F,  1.5F,  2.F,  3.F,  4.F,  6.F,
                                        -0.F, -0.5F, -1.F, -1.5F, -2.F, -3.F, -4.F, -6.F};

// Returns the bits of a bfloat16 whose value is `value`, which must be exact in bfloat16.
uint16_t bfloat16_bits(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

struct Pair {
  SourceArray blocks, scales;
  int64_t experts = 0, rows = 0, columns = 0;
};

class UnpackedSource : public TensorSource {
 public:
  UnpackedSource(std::unique_ptr<TensorSource> files, std::map<std::string, Pair> pairs)
      : files_(std::move(files)), pairs_(std::move(pairs)) {
    for (const SourceArray& array : files_->arrays()) {
      const bool of_pair = std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& one) {
        return one.second.blocks.name == array.name || one.second.scales.name == array.name;
      });
      if (!of_pair) arrays_.push_back(array);
    }
    for (const auto& [name, pair] : pairs_)
      arrays_.push_back({name, DType::kBFloat16, {pair.experts, pair.columns, pair.rows}});
  }

  std::string where() const override { return files_->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = std::find_if(arrays_.begin(), arrays_.end(),
                                    [&](const SourceArray& array) { return array.name == name; });
    return found == arrays_.end() ? nullptr : &*found;
  }
  int64_t bytes_read() const override { return files_->bytes_read(); }

  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    const auto found = pairs_.find(array.name);
    if (found == pairs_.end()) return files_->read(array, region, dtype, out);
    const Pair& pair = found->second;
    const int64_t each = pair.rows * pair.columns;
    const std::lock_guard lock(mutex_);
    for (const ByteRange& range : byte_ranges(array.shape, 1, region)) {
      int64_t at = range.begin;
      for (int64_t left = range.bytes; left > 0;) {
        TESSERA_TRY_VOID(unpack(array.name, pair, at / each));
        const int64_t inside = at % each, count = std::min(left, each - inside);
        convert(DType::kBFloat16, reinterpret_cast<const std::byte*>(numbers_.data() + inside),
                dtype, out, count);
        out += count * dtype_bytes(dtype);
        at += count;
        left -= count;
      }
    }
    return {};
  }

 private:
  // Unpacks one expert into numbers_ [columns, rows], unless it is there already.
  Status unpack(const std::string& name, const Pair& pair, int64_t expert) const {
    if (held_ == std::pair{name, expert}) return {};
    const int64_t scales = pair.columns / kNumbers;
    std::vector<uint8_t> bytes(static_cast<size_t>(pair.rows * pair.columns / 2)),
        exponents(static_cast<size_t>(pair.rows * scales));
    const auto take = [&](const SourceArray& array, std::vector<uint8_t>& into) {
      Box box = Box::whole(array.shape);
      box.dims[0] = {expert, 1};
      return files_->read(array, box, DType::kUInt8, reinterpret_cast<std::byte*>(into.data()));
    };
    held_ = {};
    TESSERA_TRY_VOID(take(pair.blocks, bytes));
    TESSERA_TRY_VOID(take(pair.scales, exponents));
    numbers_.resize(static_cast<size_t>(pair.rows * pair.columns));
    for (int64_t row = 0; row < pair.rows; ++row) {
      for (int64_t column = 0; column < pair.columns; ++column) {
        const uint8_t both = bytes[static_cast<size_t>((row * pair.columns + column) / 2)];
        const int exponent = exponents[static_cast<size_t>(row * scales + column / kNumbers)];
        const float value = kValues[column % 2 == 0 ? both & 15 : both >> 4];
        numbers_[static_cast<size_t>(column * pair.rows + row)] =
            bfloat16_bits(std::ldexp(value, exponent - kBias));
      }
    }
    held_ = {name, expert};
    return {};
  }

  std::unique_ptr<TensorSource> files_;
  std::map<std::string, Pair> pairs_;
  std::vector<SourceArray> arrays_;
  mutable std::mutex mutex_;  // of what follows: the expert that is unpacked
  mutable std::pair<std::string, int64_t> held_;
  mutable std::vector<uint16_t> numbers_;
};

}  // namespace

Result<UnpackedFiles> unpacked(std::unique_ptr<TensorSource> files) {
  std::map<std::string, Pair> pairs;
  for (const SourceArray& blocks : files->arrays()) {
    if (!blocks.name.ends_with(kBlocks) || blocks.dtype != DType::kUInt8) continue;
    const std::string name = blocks.name.substr(0, blocks.name.size() - kBlocks.size());
    const SourceArray* scales = files->find(name + std::string(kScales));
    const std::vector<int64_t>& shape = blocks.shape;
    const bool whole = scales != nullptr && scales->dtype == DType::kUInt8 && shape.size() == 4 &&
                       shape[3] == kNumbers / 2 &&
                       scales->shape == std::vector<int64_t>(shape.begin(), shape.end() - 1);
    if (!whole) {
      return invalid_input(fmt::format(
          "{}: '{}': expected [experts, rows, blocks, {}] bytes and a scale for each block under "
          "the name {}{}, found [{}]{}",
          files->where(), short_line(blocks.name), kNumbers / 2, short_line(name), kScales,
          fmt::join(shape, ", "),
          scales == nullptr ? " and none"
                            : fmt::format(" and [{}]", fmt::join(scales->shape, ", "))));
    }
    pairs[name] = {blocks, *scales, shape[0], shape[1], shape[2] * kNumbers};
  }
  if (pairs.empty()) return UnpackedFiles{std::move(files), false};
  return UnpackedFiles{std::make_unique<UnpackedSource>(std::move(files), std::move(pairs)), true};
}

}  // namespace tessera
