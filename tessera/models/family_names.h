// The names of the families of models (families.h), for those who only need to know which there are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

std::vector<std::string> family_names();  // in the order of `tessera inspect --models`
bool names_family(std::string_view name);

}  // namespace tessera
