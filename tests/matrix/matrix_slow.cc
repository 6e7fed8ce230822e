#include <gtest/gtest.h>

#include "changes.h"
#include "matrix.h"
#include "narrow.h"
#include "random_recipes.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tessera::register_matrix(/*only_quick=*/false);
  tessera::register_narrow_matrix(/*only_quick=*/false);
  tessera::register_random_recipes(600);
  tessera::register_plan_changes(500);
  return RUN_ALL_TESTS();
}
