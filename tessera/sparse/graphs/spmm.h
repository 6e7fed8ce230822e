// Products of a sparse matrix in compressed rows with a dense matrix, sampled on the fly:
//
//   y[i, :] = scale_i * sum over slots k of row i of value[e_k] * x[column[e_k], :]
//
// e_k are the edges that sample.h chooses; all edges without a sampler. scale_i is
//   sum             1, or n_i / s_i with `rescale` (n_i edges of which s_i are used)
//   mean            1 / (s_i + norm_bias), and 0 where that is 0: rows without edges are 0
//
//   const SpmmOptions options{.reduce = Reduce::kMean, .sampling = {Sampler::kPermutation, 16, 1}};
//   TESSERA_TRY_VOID(spmm(view_of(graph), options, features, result, threads));
//
// The backward pass evaluates the same formula again and stores nothing:
//   spmm_grad_x       dx = A_s^T dy: dx[column[e_k], :] += scale_i * value[e_k] * dy[i, :]
//   spmm_grad_values  dvalue[e] = scale_i * <dy[i, :], x[column[e], :]> at sampled edges, once for each
//                     slot that has the edge, and 0 at others
//
// Order of additions: an element of y is summed over the slots in their order, an element of dx
// over the rows in theirs, a value's gradient in 16 interleaved partial sums that are then added
// pairwise. Multiplications are not fused into additions. So results are the same bit for bit with
// any number of threads and each instruction set (Instructions). The best set that the processor
// has is chosen at run time; the plain one is simple code and the oracle of the others.
//
// Threads share rows (y, values) or features (dx), each with about equal work; small products stay
// on one thread.
//
// Errors, one line: operands whose sizes do not fit, a sampler without a width, a degree of 2^31 or
// more. The graph itself is not checked here (check() in csr.h does that once): a column out of
// range reads or writes memory outside the operand.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/sparse/graphs/csr.h"
#include "tessera/sparse/graphs/sample.h"

namespace tessera::sparse {

enum class Reduce : uint8_t { kSum, kMean };
Result<Reduce> parse_reduce(std::string_view name);  // "sum", "mean"

struct SpmmOptions {
  Reduce reduce = Reduce::kSum;
  Sampling sampling = {};
  double norm_bias = 0;  // for the mean: 1 counts the node itself
  bool rescale = false;  // for the sum: by the edges over those used
};

// A graph that the caller holds. Row i has the edges begin[i] .. end[i]; end may be begin + 1, the
// offsets of compressed rows. `first_row` is the number of row 0 in the whole graph.
template <class T>
struct CsrView {
  int64_t rows = 0, column_count = 0, edges = 0;
  const int64_t* begin = nullptr;
  const int64_t* end = nullptr;
  const int32_t* columns = nullptr;
  const T* values = nullptr;  // null: all 1
  int64_t first_row = 0;
};
CsrView<float> view_of(const CsrGraph& graph);
// Returns a view with values of another type, one an edge, or none.
template <class T>
CsrView<T> view_of(const CsrGraph& graph, const std::vector<T>& values);

// A matrix whose rows are contiguous, `stride` elements from one to the next.
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;
};

enum class Instructions : uint8_t { kPlain, kAvx2, kAvx512 };
std::string_view instructions_name(Instructions instructions);
bool supported(Instructions instructions);  // built in, and the processor has them
Instructions best_instructions();

// Computes the product, for float and double. Outputs are overwritten and must not overlap inputs.
template <class T>
Status spmm(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& x,
            const Matrix<T>& y, int threads = 1, Instructions instructions = best_instructions());
template <class T>
Status spmm_grad_x(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& dy,
                   const Matrix<T>& dx, int threads = 1,
                   Instructions instructions = best_instructions());
// Computes the gradients of the values; dvalues has one element an edge.
template <class T>
Status spmm_grad_values(const CsrView<T>& graph, const SpmmOptions& options,
                        const Matrix<const T>& dy, const Matrix<const T>& x, T* dvalues,
                        int threads = 1, Instructions instructions = best_instructions());

// Returns the errors of spmm, without the product.
template <class T>
Status check_operands(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& x,
                      const Matrix<T>& y);

}  // namespace tessera::sparse
