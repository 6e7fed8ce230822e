// The property: whatever graph, whatever plan, what lowering writes is accepted by the verifier.
#pragma once

namespace tessera {

void expect_lowered_programs_are_accepted(int cases);

}  // namespace tessera
