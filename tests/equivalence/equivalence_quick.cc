#include <gtest/gtest.h>

#include "equivalence.h"

TEST(Equivalence, random_graphs_under_random_plans_equal_the_serial_run) {
  tessera::expect_equal_to_serial(tessera::all_cases(), 300);
}
