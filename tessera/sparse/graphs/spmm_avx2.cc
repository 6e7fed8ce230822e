// The loops with registers of four doubles or eight floats. Compiled with -mavx2 if the processor
// family has these instructions.
#include "tessera/sparse/graphs/spmm_rows.h"

#if defined(__AVX2__)
#include <immintrin.h>

#include "tessera/sparse/graphs/spmm_vector.h"

namespace tessera::sparse {
namespace {

struct Floats {
  using Value = float;
  using Vector = __m256;
  static constexpr int64_t kLanes = 8;
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector load_first(const float* p, int64_t n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store_first(float* p, Vector v, int64_t n) { _mm256_maskstore_ps(p, mask(n), v); }
  static Vector all(float x) { return _mm256_set1_ps(x); }
  static Vector zero() { return _mm256_setzero_ps(); }
  static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct Doubles {
  using Value = double;
  using Vector = __m256d;
  static constexpr int64_t kLanes = 4;
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  static Vector load_first(const double* p, int64_t n) { return _mm256_maskload_pd(p, mask(n)); }
  static void store_first(double* p, Vector v, int64_t n) { _mm256_maskstore_pd(p, mask(n), v); }
  static Vector all(double x) { return _mm256_set1_pd(x); }
  static Vector zero() { return _mm256_setzero_pd(); }
  static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
};

}  // namespace

const LoopTable* avx2_loops() {
  static constexpr LoopTable kTable = {vector_loops::Loops<Floats>::kTable,
                                       vector_loops::Loops<Doubles>::kTable};
  return &kTable;
}

}  // namespace tessera::sparse

#else

namespace tessera::sparse {
const LoopTable* avx2_loops() { return nullptr; }
}  // namespace tessera::sparse

#endif
