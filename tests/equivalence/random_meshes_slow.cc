#include <gtest/gtest.h>

#include "equivalence.h"

TEST(Equivalence, random_plans_of_stages_on_unlike_meshes_equal_the_serial_run) {
  tessera::expect_equal_to_serial(tessera::mesh_cases(), 1000);
}
