// Random jagged batches of random tables under random plans of them.
#include <gtest/gtest.h>

#include "random_tables.h"
#include "support/seed.h"

namespace tessera {
namespace {

TEST(RandomTables, AreTrainedAsSerially) {
  SCOPED_TRACE(seed_text());
  expect_random_tables_equal(0, 200, test_seed(21));
}

}  // namespace
}  // namespace tessera
