#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

const RowTable& choose_table() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return avx512_row_table();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_row_table();
#endif
  return baseline_row_table();
}

const RowTable& table() {
  static const RowTable& chosen = choose_table();
  return chosen;
}

}  // namespace

template <>
const RowOps<float>& row_ops<float>() {
  return table().f32;
}
template <>
const RowOps<double>& row_ops<double>() {
  return table().f64;
}

void philox_words(uint32_t* words, uint64_t seed, uint64_t stream, uint64_t first, int64_t count) {
  table().philox(words, seed, stream, first, count);
}

}  // namespace tessera::kernels
