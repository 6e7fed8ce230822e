#include <gtest/gtest.h>

#include "every_export.h"

namespace tessera {
namespace {

TEST(EveryExport, of_the_whole_matrix_comes_back_or_is_refused) {
  expect_every_export_comes_back(false);
}

}  // namespace
}  // namespace tessera
