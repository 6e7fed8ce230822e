// Tessera's sparse products as C functions, so that benchmarks/run_sparse.py calls them on the
// arrays that SciPy and PyTorch multiply, in one process. Each returns 0, or 1 after it has printed
// an error.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tessera/sparse/graphs/spmm.h"
#include "tessera/sparse/graphs/test_power_law.h"

namespace {

using namespace tessera;
using namespace tessera::sparse;

int answer(const Status& status) {
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}

struct Call {
  CsrView<float> graph;
  SpmmOptions options;
};
Call call(int64_t rows, int64_t columns, const int64_t* offsets, const int32_t* indices,
          const float* values, int mean, int sampler, int64_t width, uint64_t seed) {
  return {{rows, columns, offsets[rows], offsets, offsets + 1, indices, values},
          {mean != 0 ? Reduce::kMean : Reduce::kSum, {static_cast<Sampler>(sampler), width, seed}}};
}

}  // namespace

extern "C" {

int tessera_power_law(int64_t nodes, int64_t edges, double exponent, uint64_t seed,
                      int64_t* offsets, int32_t* indices) {
  const auto graph =
      power_law_graph({.nodes = nodes, .edges = edges, .exponent = exponent, .seed = seed});
  if (!graph) return answer(tl::unexpected(graph.error()));
  std::memcpy(offsets, graph->offsets.data(), graph->offsets.size() * sizeof(int64_t));
  std::memcpy(indices, graph->columns.data(), graph->columns.size() * sizeof(int32_t));
  return 0;
}

int tessera_spmm(int64_t rows, int64_t columns, const int64_t* offsets, const int32_t* indices,
                 const float* values, int mean, int sampler, int64_t width, uint64_t seed,
                 const float* x, int64_t features, float* y, int threads) {
  const Call c = call(rows, columns, offsets, indices, values, mean, sampler, width, seed);
  return answer(spmm(c.graph, c.options, Matrix<const float>{x, columns, features, features},
                     Matrix<float>{y, rows, features, features}, threads));
}

int tessera_spmm_grad_x(int64_t rows, int64_t columns, const int64_t* offsets,
                        const int32_t* indices, const float* values, int mean, int sampler,
                        int64_t width, uint64_t seed, const float* dy, int64_t features, float* dx,
                        int threads) {
  const Call c = call(rows, columns, offsets, indices, values, mean, sampler, width, seed);
  return answer(spmm_grad_x(c.graph, c.options, Matrix<const float>{dy, rows, features, features},
                            Matrix<float>{dx, columns, features, features}, threads));
}

}  // extern "C"
