// Random arguments of the recipes that take all of stages, replicas, ZeRO and recomputation, on
// random small models: combinations that the matrix does not list.
#pragma once

namespace tessera {

// Registers the test RandomRecipes.equal_the_serial_run of `cases` cases, drawn with the seed of
// support/seed.h. A call that the recipe refuses (more pieces than heads, than blocks) counts as a
// case.
void register_random_recipes(int cases);

}  // namespace tessera
