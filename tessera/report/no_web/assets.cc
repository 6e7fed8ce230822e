#include "tessera/report/assets.h"

namespace tessera::web {

std::string_view html() { return {}; }
std::string_view css() { return {}; }
std::vector<std::string_view> js() { return {}; }
std::string_view echarts() { return {}; }

}  // namespace tessera::web
