// Element types of tensors and arrays.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kUInt8,
  kBool
};

int64_t dtype_bytes(DType dtype);  // size of one element in bytes
std::string_view dtype_name(
    DType dtype);  // "float64", "float32", "bfloat16", "float16", "int64", ...
Result<DType> parse_dtype(std::string_view name);
bool is_floating(DType dtype);

// A combiner says how parts of a value are merged into the complete value.
//   sum        element-wise sum
//   max        element-wise maximum
//   logsumexp  log(exp(a) + exp(b)), computed stably; the identity is -inf
//   moments    the last dim holds (count, mean, M2) of disjoint samples (Chan's parallel update)
//   weighted   for an output of an op whose next output has the same dims except the last and the
//              combiner logsumexp. Parts are means, and the parts l_i of the next output are the
//              logarithms of their weights: o = sum of o_i exp(l_i - l) with l = logsumexp of l_i.
//              The identity is 0. The op's kernel merges such parts, over time; no collective does
enum class Combiner : uint8_t { kSum, kMax, kLogSumExp, kMoments, kWeighted };

std::string_view combiner_name(Combiner combiner);  // "sum", "max", "logsumexp", ...
Result<Combiner> parse_combiner(std::string_view name);

}  // namespace tessera
