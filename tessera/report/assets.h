// The parts of the page that are the same in every report. They are embedded at build time, and are
// empty if the program was built without npm.
#pragma once

#include <string_view>
#include <vector>

namespace tessera::web {

std::string_view html();
std::string_view css();
std::vector<std::string_view> js();  // parts of one script, in their order
std::string_view echarts();

}  // namespace tessera::web
