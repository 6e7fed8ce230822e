// Tests runs that stop and go on, on which users rely, with real training on threads.
#pragma once

namespace tessera {

// Draws (model, plan A, plan B): half from the recipe matrix, half random graphs with random plans.
// A run under A that goes on under A is bit-identical to the run that never stopped, in losses and
// state. A run that goes on under B agrees to 1e-9 in float64 and reads no more than it holds.
void expect_runs_go_on_under_any_plan(int cases);

// Stops a run at `points` operations of its storage, spread over all of them (0: at each), with
// checkpoints that steps wait for, asynchronous ones, and a fast level beside the durable one. The
// ways in which bytes survive take turns (for 0 points, each way at each operation). The run goes
// on from the newest complete checkpoint, has lost no more than an interval, and ends as the
// undisturbed run.
void expect_stopped_runs_end_as_undisturbed_ones(int points);

// Changes, cuts, empties or removes a random file of the newest of two checkpoints, `cases` times,
// manifests included. The run goes on under another random plan: it sets that checkpoint aside,
// begins at the one before, and ends as the undisturbed run to 1e-9.
void expect_damaged_checkpoints_are_passed_over(int cases);

}  // namespace tessera
