// The elastic batch rule of ONES: batch and learning rate grow in proportion to the GPUs until the
// cap on the rate is reached; then the GPUs share the batch of the cap.
#pragma once

#include <cstdint>

namespace tessera::share {

struct ElasticBatch {
  int64_t local = 0, global = 0;
  double rate = 0;
};
// `local` and `rate` are those of one GPU. `most_rate` 0: no cap. The whole division may leave the
// batch below that of the cap.
inline ElasticBatch elastic_batch(int64_t local, double rate, double most_rate, int gpus) {
  if (most_rate <= 0 || rate * gpus <= most_rate) return {local, local * gpus, rate * gpus};
  const auto cap = static_cast<int64_t>(static_cast<double>(local) * most_rate / rate + 1e-9);
  return {cap / gpus, cap / gpus * gpus, most_rate};
}

}  // namespace tessera::share
