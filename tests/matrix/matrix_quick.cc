#include <gtest/gtest.h>

#include "changes.h"
#include "matrix.h"
#include "narrow.h"
#include "random_recipes.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tessera::register_matrix(/*only_quick=*/true);
  tessera::register_narrow_matrix(/*only_quick=*/true);
  tessera::register_random_recipes(12);
  tessera::register_plan_changes(8);
  return RUN_ALL_TESTS();
}
