#include "every_plan.h"

#include <gtest/gtest.h>

namespace tessera {

TEST(Simulate, QuickPlansOfTheMatrixArePlayed) { expect_every_plan_is_played(true); }

}  // namespace tessera
