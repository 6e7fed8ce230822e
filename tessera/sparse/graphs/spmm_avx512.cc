// The loops with registers of eight doubles or sixteen floats. Compiled with -mavx512f if the
// processor family has these instructions.
#include "tessera/sparse/graphs/spmm_rows.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#include "tessera/sparse/graphs/spmm_vector.h"

namespace tessera::sparse {
namespace {

struct Floats {
  using Value = float;
  using Vector = __m512;
  static constexpr int64_t kLanes = 16;
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector load_first(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_first(float* p, Vector v, int64_t n) { _mm512_mask_storeu_ps(p, mask(n), v); }
  static Vector all(float x) { return _mm512_set1_ps(x); }
  static Vector zero() { return _mm512_setzero_ps(); }
  static __mmask16 mask(int64_t n) { return static_cast<__mmask16>((1U << n) - 1); }
};

struct Doubles {
  using Value = double;
  using Vector = __m512d;
  static constexpr int64_t kLanes = 8;
  static Vector load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Vector v) { _mm512_storeu_pd(p, v); }
  static Vector load_first(const double* p, int64_t n) { return _mm512_maskz_loadu_pd(mask(n), p); }
  static void store_first(double* p, Vector v, int64_t n) { _mm512_mask_storeu_pd(p, mask(n), v); }
  static Vector all(double x) { return _mm512_set1_pd(x); }
  static Vector zero() { return _mm512_setzero_pd(); }
  static __mmask8 mask(int64_t n) { return static_cast<__mmask8>((1U << n) - 1); }
};

}  // namespace

const LoopTable* avx512_loops() {
  static constexpr LoopTable kTable = {vector_loops::Loops<Floats>::kTable,
                                       vector_loops::Loops<Doubles>::kTable};
  return &kTable;
}

}  // namespace tessera::sparse

#else

namespace tessera::sparse {
const LoopTable* avx512_loops() { return nullptr; }
}  // namespace tessera::sparse

#endif
