#include "refusals.h"

#include <gtest/gtest.h>

TEST(RefusalsOfMany, of_recipes_are_those_of_the_table) {
  tessera::expect_known_refusals(70, "refusals_of_many.txt");
}
