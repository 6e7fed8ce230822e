#include <limits>
#include <vector>

#include "tessera/sparse/cuda/spmm_kernel.h"
#include "tessera/sparse/graphs/spmm_device.h"

namespace tessera::sparse {

std::string device_error() {
  const char* const message = cuda::no_device();
  return message == nullptr ? "" : std::string("no CUDA device: ") + message;
}

Status spmm_on_device(const CsrView<float>& graph, const SpmmOptions& options,
                      const Matrix<const float>& x, const Matrix<float>& y) {
  if (const std::string error = device_error(); !error.empty()) return invalid_input(error);
  TESSERA_TRY_VOID(check_operands(graph, options, x, y));
  const auto packed = [](int64_t rows, int64_t columns) {
    return std::vector<float>(static_cast<size_t>(rows * columns));
  };
  std::vector<float> given = packed(x.rows, x.columns);
  std::vector<float> result = packed(y.rows, y.columns);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.columns; ++j) {
      given[static_cast<size_t>(i * x.columns + j)] = x.data[i * x.stride + j];
    }
  }
  const bool sampled = options.sampling.sampler != Sampler::kNone;
  const cuda::Product product{
      graph.rows,
      graph.column_count,
      graph.edges,
      graph.first_row,
      graph.begin,
      graph.end,
      graph.columns,
      graph.values,
      options.sampling.sampler,
      sampled ? options.sampling.width : std::numeric_limits<int32_t>::max(),
      options.sampling.seed,
      options.reduce == Reduce::kMean,
      options.rescale,
      static_cast<float>(options.norm_bias),
      x.columns,
      given.data(),
      result.data()};
  if (const char* const message = cuda::run(product); message != nullptr) {
    return fault(std::string("a sparse product on the CUDA device failed: ") + message);
  }
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < y.columns; ++j) {
      y.data[i * y.stride + j] = result[static_cast<size_t>(i * y.columns + j)];
    }
  }
  return {};
}

}  // namespace tessera::sparse
