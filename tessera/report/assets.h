// Parts of the page that are equal in every report, embedded at build time; empty without npm.
#pragma once

#include <string_view>

namespace tessera::web {

std::string_view html();
std::string_view css();
std::string_view js();
std::string_view echarts();

}  // namespace tessera::web
