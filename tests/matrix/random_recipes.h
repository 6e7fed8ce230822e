// Random arguments of the recipes that take all of stages, replicas, ZeRO and recomputation, on
// random small models: what the matrix's list does not think of.
#pragma once

namespace tessera {

// Registers the test RandomRecipes.equal_the_serial_run of so many cases, drawn with the seed
// of support/seed.h. A call that the recipe refuses (more pieces than heads, than blocks) counts as a case.
void register_random_recipes(int cases);

}  // namespace tessera
