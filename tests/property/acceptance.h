// The property: whatever graph, whatever plan, what lowering writes is accepted by the verifier.
#pragma once

#include <cstdint>
#include <vector>

#include "random_case.h"

namespace tessera {

// For so many cases. At least so many of them are accepted for each that the plan language refuses.
// To be called with one number of cases in a program.
void expect_lowered_programs_are_accepted(RandomCase (*draw)(const std::vector<uint32_t>& stream),
                                          int cases, int accepted_a_refusal = 9);

}  // namespace tessera
