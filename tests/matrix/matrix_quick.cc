#include <gtest/gtest.h>

#include "matrix.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tessera::register_matrix(/*only_quick=*/true);
  return RUN_ALL_TESTS();
}
