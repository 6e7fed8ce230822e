// The seed of random tests. They draw the same cases in each run, unless TESSERA_SEED is set:
// `make test-slow` sets it to the date, so that each day tries others. A test that uses the seed
// prints it when it starts and with each failure; the same value repeats the cases.
//
//   TEST(Reshard, of_random_layouts) {
//     SCOPED_TRACE(seed_text());
//     std::mt19937_64 random(test_seed(/*fixed=*/7));
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tessera {

// Returns "TESSERA_SEED=20261122", or a text that says that no seed is set.
inline std::string seed_text() {
  const char* given = std::getenv("TESSERA_SEED");
  return given == nullptr ? "TESSERA_SEED is not set: the cases of each run"
                          : "TESSERA_SEED=" + std::string(given);
}

// Returns TESSERA_SEED, or `fixed` if it is not set.
inline uint64_t test_seed(uint64_t fixed) {
  std::printf("random cases: %s\n", seed_text().c_str());
  std::fflush(stdout);  // before a test that may stop the process
  const char* given = std::getenv("TESSERA_SEED");
  return given == nullptr ? fixed : std::stoull(given);
}

}  // namespace tessera
