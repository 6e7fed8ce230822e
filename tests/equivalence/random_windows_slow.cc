#include <gtest/gtest.h>

#include "equivalence.h"

TEST(Equivalence, random_windows_under_random_plans_equal_the_serial_run) {
  tessera::expect_equal_to_serial(tessera::window_cases(), 10000);
}
