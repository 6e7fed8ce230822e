// Values that are assumed of runs where their rows are silent: named values of
// tessera/predict/data/assumptions.toml, each with its reason or source.
//
//   const double usable = assumed("usable_memory");
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tessera/base/data_file.h"

namespace tessera {

struct Assumption {
  double value = 0;
  Origin origin;
};
using Assumptions = std::map<std::string, Assumption, std::less<>>;

// Reads the values. Errors: file:line of an unknown key, a name twice, a value without kind and
// source.
Result<Assumptions> parse_assumptions(std::string_view toml, std::string_view file);

// Returns the program's value of that name, which must be there.
double assumed(std::string_view name);
int64_t assumed_whole(std::string_view name);

}  // namespace tessera
