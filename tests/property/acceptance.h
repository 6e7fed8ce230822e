// The property: for every graph and every plan, the verifier accepts the lowered programs.
#pragma once

#include <cstdint>
#include <vector>

#include "random_case.h"

namespace tessera {

// Draws `cases` cases. For each case that the plan language refuses, at least `accepted_a_refusal`
// cases are accepted. Must be called with one number of cases in a program.
void expect_lowered_programs_are_accepted(RandomCase (*draw)(const std::vector<uint32_t>& stream),
                                          int cases, int accepted_a_refusal = 9);

}  // namespace tessera
