#include "tessera/cost/figure.h"

namespace tessera {

std::string_view source_name(CostSource source) {
  switch (source) {
    case CostSource::kMeasured: return "measured";
    case CostSource::kInterpolated: return "interpolated";
    case CostSource::kTileModel: return "tile model";
    case CostSource::kCurve: return "curve";
    case CostSource::kConstant: return "constant";
  }
  return "";
}

}  // namespace tessera
