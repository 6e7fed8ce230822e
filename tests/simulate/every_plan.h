// Every plan that must compute what one rank computes (tests/matrix) is also played: on machines
// that differ in their links, for frameworks that differ in what they overlap, in each precision,
// with messages that need their receivers and such that do not.
#pragma once

namespace tessera {

// `only_quick`: of the quick cases.
void expect_every_plan_is_played(bool only_quick);

}  // namespace tessera
