// Streams of choices for random_case(), drawn and shrunk by RapidCheck; the seed is that of
// support/seed.h unless RC_PARAMS names one.
#pragma once

#include <rapidcheck.h>
#include <rapidcheck/detail/Configuration.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "support/seed.h"

namespace tessera {

// Must be called before the first property of the program. RC_PARAMS overrides these defaults:
// RC_PARAMS="seed=7 max_success=50".
inline void default_properties(int cases) {
  rc::detail::Configuration defaults;
  defaults.testParams.seed = test_seed(/*fixed=*/20'240'607);
  defaults.testParams.maxSuccess = cases;
  const char* given = std::getenv("RC_PARAMS");
  const auto configuration = rc::detail::configFromString(given == nullptr ? "" : given, defaults);
  ::setenv("RC_PARAMS", rc::detail::configToString(configuration).c_str(), 1);
}

// The numbers lie below a multiple of every small number, so that each choice is equally likely.
inline std::vector<uint32_t> random_stream() {
  return *rc::gen::resize(
              400, rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 27'720)))
              .as("stream");
}

}  // namespace tessera
