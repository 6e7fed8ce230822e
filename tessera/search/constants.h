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
// As constants, they may be mixed with numbers of other types.
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-compare"
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
// A choice that takes more than this many times the best time by formula is not the best, and one
// that exceeds the memory by more will not fit after small changes, because formulas err by less.
TESSERA_CONSTANT(double, kFormulaErrs, 1.3);
// A share that makes little difference: so much slower is nearly as fast, so much of the memory
// stays free where a formula says that a plan surely fits, and what saves less saves nothing.
TESSERA_CONSTANT(double, kLittle, .05);
// So many of the best are followed where a search keeps several, so many programs show how far the
// formula errs, and so many times as much is much more.
TESSERA_CONSTANT(size_t, kFew, 3);

// A search simulates at least so many programs, small multiples of it are a round of a race and a
// search in which programs are cheap, and a few times less are its last edits.
TESSERA_CONSTANT(size_t, kLeastPrograms, 12);
// The most programs of a search; for small models so many on eight devices, and more on fewer.
TESSERA_CONSTANT(size_t, kMostPrograms, 256);
// All programs of a search have about so many ops together, so that large models get fewer.
TESSERA_CONSTANT(size_t, kSearchOps, 20000);
// A model is small if its ops, folded, times the devices are at most so many. Its programs take
// milliseconds, and no choice is left out because of a formula.
TESSERA_CONSTANT(int64_t, kSmallOps, 160);

// A choice is simulated if it is expected to take at most this many times the best program's time
// (PlanQuestion::margin).
TESSERA_CONSTANT(double, kMargin, 1.1);
// The most work (PlanCandidate::work) of a race of recipes, one or two seconds; a quarter of it
// without a gain ends the race.
TESSERA_CONSTANT(double, kRaceWork, 300000);

// The devices of a usual node: axes inside a stage may have as many on any cluster, any number of
// up to so many may stay unused, and rings have at most so many (their square where they are needed,
// since a program has a step for each).
TESSERA_CONSTANT(int64_t, kNodeDevices, 8);
// Micro-batches of up to this many times the fewest sequences show whether more sequences save time.
TESSERA_CONSTANT(int64_t, kTriedSequences, 32);
// The factor between the sizes of buckets that are tried.
TESSERA_CONSTANT(int64_t, kBucketStep, 4);

// Rings are needed if the batch has fewer sequences than this for each group of devices that axes
// inside a stage may have.
TESSERA_CONSTANT(int64_t, kSequencesOfStage, 2);
// The number of bounds on the slowest place that a partition into stages tries.
TESSERA_CONSTANT(int, kBounds, 12);

}  // namespace tessera
