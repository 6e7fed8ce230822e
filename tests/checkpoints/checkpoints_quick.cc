#include <gtest/gtest.h>

#include "checkpoints.h"

TEST(Checkpoints, runs_go_on_under_any_plan) { tessera::expect_runs_go_on_under_any_plan(10); }

TEST(Checkpoints, stopped_runs_end_as_undisturbed_ones) {
  tessera::expect_stopped_runs_end_as_undisturbed_ones(20);
}

TEST(Checkpoints, damaged_ones_are_passed_over) {
  tessera::expect_damaged_checkpoints_are_passed_over(12);
}
