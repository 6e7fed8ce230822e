#include "tessera/runtime/kernels/windows/pointwise_convolution.h"

#include <utility>

#include "tessera/runtime/kernels/product.h"

namespace tessera::kernels {
namespace {

// If maps have fewer positions than this, the maps of all samples are first joined to one matrix.
// Products with so few columns would not fill the vector registers, and the copies cost less than
// such products lose.
constexpr int64_t kFewPositions = 32;

// Returns maps [samples, channels, positions] as [channels, samples * positions].
at::Tensor by_channel(const at::Tensor& maps) {
  return maps.transpose(0, 1).reshape({maps.size(1), -1});
}

void multiply(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, bool add) {
  Product product = prepare_product(y, a, b, add);
  run_product(product);
}

}  // namespace

void pointwise_convolution(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                           bool add) {
  const int64_t samples = x.size(0), positions = x.size(2);
  if (positions >= kFewPositions) {
    multiply(y, w.unsqueeze(0).expand({samples, w.size(0), w.size(1)}), x, add);
    return;
  }
  const at::Tensor joined =
      w.mm(by_channel(x)).view({w.size(0), samples, positions}).transpose(0, 1);
  if (add) {
    y.add_(joined);
  } else {
    y.copy_(joined);
  }
}

void pointwise_weight_gradient(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x,
                               bool add) {
  if (x.size(2) < kFewPositions) {
    multiply(dw, by_channel(dy), by_channel(x).t(), add);
    return;
  }
  for (int64_t n = 0; n < x.size(0); ++n) multiply(dw, dy[n], x[n].t(), add || n > 0);
}

}  // namespace tessera::kernels
