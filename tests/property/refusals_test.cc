#include "refusals.h"

#include <gtest/gtest.h>

TEST(Refusals, of_recipes_are_those_of_the_table) {
  tessera::expect_known_refusals(2, "refusals.txt");
}
