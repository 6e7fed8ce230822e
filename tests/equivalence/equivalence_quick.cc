#include <gtest/gtest.h>

#include "equivalence.h"

TEST(Equivalence, random_graphs_under_random_plans_equal_the_serial_run) {
  tessera::expect_random_plans_equal_serial(300);
}
