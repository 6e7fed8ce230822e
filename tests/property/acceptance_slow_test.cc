#include "acceptance.h"

#include <gtest/gtest.h>

TEST(AcceptanceOfMany, every_random_plan_lowers_to_programs_that_the_verifier_accepts) {
  tessera::expect_lowered_programs_are_accepted(tessera::random_case, 10'000);
}

TEST(AcceptanceOfMany, every_random_plan_of_unlike_meshes_lowers_to_programs_that_are_accepted) {
  tessera::expect_lowered_programs_are_accepted(tessera::random_mesh_case, 10'000, 4);
}
