#include "acceptance.h"

#include <gtest/gtest.h>

TEST(Acceptance, every_random_plan_lowers_to_programs_that_the_verifier_accepts) {
  tessera::expect_lowered_programs_are_accepted(tessera::random_case, 300);
}

TEST(Acceptance, every_random_plan_of_unlike_meshes_lowers_to_programs_that_the_verifier_accepts) {
  tessera::expect_lowered_programs_are_accepted(tessera::random_mesh_case, 300, 4);
}
