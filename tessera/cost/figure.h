// A `Figure` is a predicted or measured time with its source and its uncertainty.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class CostSource : uint8_t { kMeasured, kInterpolated, kTileModel, kCurve, kConstant };
std::string_view source_name(CostSource source);

struct Figure {
  double seconds = 0;
  CostSource source = CostSource::kConstant;
  double uncertainty = 0;  // relative, one standard deviation
};

}  // namespace tessera
