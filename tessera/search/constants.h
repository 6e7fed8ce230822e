// The numbers that tune the search. Each is weighed by benchmarks/run_constants.py, which asks what
// the answers lose at half and at twice its value (docs/results/search-constants.md). A number that
// follows from a format, a model or a name is no constant of the search and stands where it is used.
//
// A build with -DTESSERA_TUNABLE_SEARCH=ON, for that measurement alone, reads other values from
// the environment variable TESSERA_SEARCH_CONSTANTS, "kGain=.999,kFew=2".
#pragma once

#include <cstddef>
#include <cstdint>
#ifdef TESSERA_TUNABLE_SEARCH
#include <cstdlib>
#include <string>
#endif

namespace tessera {

#ifdef TESSERA_TUNABLE_SEARCH
inline double tuned(const std::string& name, double value) {
  const char* all = std::getenv("TESSERA_SEARCH_CONSTANTS");
  const std::string text = "," + std::string(all == nullptr ? "" : all);
  const auto at = text.find("," + name + "=");
  return at == std::string::npos ? value : std::stod(text.substr(at + name.size() + 2));
}
#define TESSERA_CONSTANT(type, name, value)                                                        \
  inline const type name = static_cast<type>(tuned(#name, value))
#else
#define TESSERA_CONSTANT(type, name, value) inline constexpr type name = value
#endif

// A change of a plan or of a list of dims is kept if it takes at most this share of the time.
TESSERA_CONSTANT(double, kGain, .9995);
// What takes more than this many times the best time by formula is not the best, and what exceeds
// the memory by more will not fit after small changes, because formulas err by less.
TESSERA_CONSTANT(double, kFormulaErrs, 1.3);
// A share that makes little difference: so much slower is nearly as fast, so much of the memory
// stays free where a formula says that a plan surely fits, and what saves less saves nothing.
TESSERA_CONSTANT(double, kLittle, .05);
// So many of the best are followed where a search keeps several, so many programs show how far the
// formula errs, and so many times as much is much more.
TESSERA_CONSTANT(size_t, kFew, 3);

}  // namespace tessera
