#include "every_plan.h"

#include <gtest/gtest.h>

namespace tessera {

TEST(Simulate, AllPlansOfTheMatrixArePlayed) { expect_every_plan_is_played(false); }

}  // namespace tessera
