#include <cstring>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/step/interpreter.h"

namespace tessera {

std::vector<double> HostArray::values() const {
  std::vector<double> values(static_cast<size_t>(region.volume()));
  for (size_t i = 0; i < values.size(); ++i) {
    const std::byte* at = data.data() + static_cast<int64_t>(i) * dtype_bytes(dtype);
    int64_t integer = 0;
    if (dtype == DType::kInt64) {
      std::memcpy(&integer, at, sizeof integer);
      values[i] = static_cast<double>(integer);
    } else {
      values[i] = kernels::load_element<double>(at, dtype);
    }
  }
  return values;
}

}  // namespace tessera
