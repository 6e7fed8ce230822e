// Random recommenders under random plans of their tables, each compared with its serial run.
#pragma once

#include <cstdint>

namespace tessera {

// Compares the cases from `first` on, drawn by their numbers and the seed. Fails the test with the
// model and the plan of the first case that is not equal.
void expect_random_tables_equal(int64_t first, int64_t count, uint64_t seed);

}  // namespace tessera
