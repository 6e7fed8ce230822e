// Runs that stop and go on: what a user relies on, with real training on threads.
#pragma once

namespace tessera {

// Draws (model, plan A, plan B): half of the recipe matrix, half random graphs with random plans. A
// run under A that goes on under A is bit-identical to the one that never stopped, losses and state;
// one that goes on under B agrees to 1e-9 in float64 and reads no more than it holds.
void expect_runs_go_on_under_any_plan(int cases);

// A run is stopped at `points` operations of its storage, spread over all of them (0: at each), with
// checkpoints that steps wait for, asynchronous ones, and a fast level beside the durable one, and with
// every way in which bytes survive in turn (of 0 points: each way at each). It goes on from the
// newest complete checkpoint, has lost no more than an interval, and ends as the undisturbed run.
void expect_stopped_runs_end_as_undisturbed_ones(int points);

// A random file of the newest of two checkpoints is changed, cut, emptied or removed, `cases` times,
// manifests among them. The run goes on under a random other plan: it sets that checkpoint aside,
// begins at the one before, and ends as the undisturbed run to 1e-9.
void expect_damaged_checkpoints_are_passed_over(int cases);

}  // namespace tessera
