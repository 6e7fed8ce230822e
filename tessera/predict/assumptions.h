// Values that prediction assumes about a run where the run's row does not state them. They are
// named values in tessera/predict/data/assumptions.toml, each with its reason or source.
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

// Reads the values. Returns an error with file:line for an unknown key, a name that occurs twice,
// or a value without kind and source.
Result<Assumptions> parse_assumptions(std::string_view toml, std::string_view file);

// Returns the value of this name from the program's data file. The name must exist.
double assumed(std::string_view name);
int64_t assumed_whole(std::string_view name);

}  // namespace tessera
