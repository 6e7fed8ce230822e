// Products of a sparse matrix in compressed rows and a dense matrix. The edges may be sampled
// during the product:
//
//   y[i, :] = scale_i * sum over slots k of row i of value[e_k] * x[column[e_k], :]
//
// e_k is the edge that sample.h chooses for slot k; without a sampler, the slots are all edges of
// the row. scale_i depends on `reduce`; row i has n_i edges, of which s_i are used:
//   sum             1, or n_i / s_i with `rescale`
//   mean            1 / (s_i + norm_bias); 0 if s_i + norm_bias is 0, so that rows without edges
//                   are 0
//
//   const SpmmOptions options{.reduce = Reduce::kMean, .sampling = {Sampler::kPermutation, 16, 1}};
//   TESSERA_TRY_VOID(spmm(view_of(graph), options, features, result, threads));
//
// The backward pass evaluates the formula of the sample again, so nothing is stored for it:
//   spmm_grad_x       dx = A_s^T dy: dx[column[e_k], :] += scale_i * value[e_k] * dy[i, :]
//   spmm_grad_values  dvalue[e] = scale_i * <dy[i, :], x[column[e], :]> if e is sampled, added up
//                     over the slots that have e; 0 if it is not
//
// Order of additions: an element of y is summed over the slots of its row in their order. An
// element of dx is summed over the rows in their order. The gradient of a value is summed in 16
// interleaved partial sums, which are then added pairwise. Multiplications are not fused with
// additions. So the results are the same, bit for bit, with any number of threads and any
// instruction set (Instructions). The best instruction set of the processor is chosen at run time.
// The plain variant is simple code, and tests compare the others with it.
//
// Threads divide the rows (for y and values) or the features (for dx), so that each has about the
// same work. Small products run on one thread.
//
// Errors, one line: operands whose sizes do not fit, a sampler without a width, a degree of 2^31 or
// more. The graph is not checked, for speed; call check() of csr.h once. A column out of range
// would read or write memory outside of the operand.
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
  double norm_bias = 0;  // for the mean; 1 counts the node itself as one more edge
  bool rescale = false;  // for the sum: multiplies it by n_i / s_i
};

// A graph in memory that the caller owns. Row i has the edges begin[i] .. end[i] - 1. For the
// offsets of a CsrGraph, `end` is `begin` + 1. `first_row` is the number, in the whole graph, of
// row 0 of the view.
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
// Returns a view of the graph with other values: one for each edge, or none if `values` is empty.
template <class T>
CsrView<T> view_of(const CsrGraph& graph, const std::vector<T>& values);

// A matrix whose rows are contiguous. Neighbouring rows begin `stride` elements apart.
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;
};

enum class Instructions : uint8_t { kPlain, kAvx2, kAvx512 };
std::string_view instructions_name(Instructions instructions);
bool supported(Instructions instructions);  // whether they are built in and the processor has them
Instructions best_instructions();

// Computes the product, for float and double. Outputs are overwritten and must not overlap inputs.
template <class T>
Status spmm(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& x,
            const Matrix<T>& y, int threads = 1, Instructions instructions = best_instructions());
template <class T>
Status spmm_grad_x(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& dy,
                   const Matrix<T>& dx, int threads = 1,
                   Instructions instructions = best_instructions());
// Computes the gradients of the edges' values; dvalues has one element for each edge.
template <class T>
Status spmm_grad_values(const CsrView<T>& graph, const SpmmOptions& options,
                        const Matrix<const T>& dy, const Matrix<const T>& x, T* dvalues,
                        int threads = 1, Instructions instructions = best_instructions());

// Returns the errors that spmm would return, without computing the product.
template <class T>
Status check_operands(const CsrView<T>& graph, const SpmmOptions& options, const Matrix<const T>& x,
                      const Matrix<T>& y);

}  // namespace tessera::sparse
