// Runs that change their plan in the middle: from one plan of the matrix to another plan of that
// model. Oracle: the serial run, and bytes, messages and memory as predicted.
#pragma once

namespace tessera {

// Registers the test PlanChanges.equal_the_serial_run of `pairs` pairs, drawn with the seed of
// support/seed.h.
void register_plan_changes(int pairs);

}  // namespace tessera
