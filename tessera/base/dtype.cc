#include "tessera/base/dtype.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace tessera {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 8> kDTypes = {{
    {DType::kFloat64, "float64"},
    {DType::kFloat32, "float32"},
    {DType::kBFloat16, "bfloat16"},
    {DType::kFloat16, "float16"},
    {DType::kInt64, "int64"},
    {DType::kInt32, "int32"},
    {DType::kUInt8, "uint8"},
    {DType::kBool, "bool"},
}};

// Other words that people write.
constexpr std::array<std::pair<std::string_view, DType>, 7> kOtherWords = {{
    {"bf16", DType::kBFloat16},
    {"fp16", DType::kFloat16},
    {"half", DType::kFloat16},
    {"fp32", DType::kFloat32},
    {"float", DType::kFloat32},
    {"fp64", DType::kFloat64},
    {"double", DType::kFloat64},
}};

constexpr std::array<std::pair<Combiner, std::string_view>, 5> kCombiners = {{
    {Combiner::kSum, "sum"},
    {Combiner::kMax, "max"},
    {Combiner::kLogSumExp, "logsumexp"},
    {Combiner::kMoments, "moments"},
    {Combiner::kWeighted, "weighted"},
}};

template <class Table>
std::string names_of(const Table& table) {
  std::string out;
  for (const auto& [value, name] : table) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

}  // namespace

int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64: return 8;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kBFloat16:
    case DType::kFloat16: return 2;
    case DType::kUInt8:
    case DType::kBool: return 1;
  }
  return 0;
}

std::string_view dtype_name(DType dtype) {
  for (const auto& [value, name] : kDTypes) {
    if (value == dtype) return name;
  }
  return "?";
}

Result<DType> parse_dtype(std::string_view text) {
  for (const auto& [value, name] : kDTypes) {
    if (name == text) return value;
  }
  for (const auto& [word, value] : kOtherWords) {
    if (word == text) return value;
  }
  return invalid_input(fmt::format("expected a dtype ({}), found '{}'", names_of(kDTypes), text));
}

bool is_floating(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat16;
}

std::string_view combiner_name(Combiner combiner) {
  for (const auto& [value, name] : kCombiners) {
    if (value == combiner) return name;
  }
  return "?";
}

Result<Combiner> parse_combiner(std::string_view text) {
  for (const auto& [value, name] : kCombiners) {
    if (name == text) return value;
  }
  return invalid_input(
      fmt::format("expected a combiner ({}), found '{}'", names_of(kCombiners), text));
}

}  // namespace tessera
