// Every plan that must compute the results of one rank (tests/matrix) is also simulated: on
// machines that differ in their links, for frameworks that differ in what they overlap, in each
// precision, with messages that need their receivers and messages that do not.
#pragma once

namespace tessera {

// `only_quick`: of the quick cases.
void expect_every_plan_is_played(bool only_quick);

}  // namespace tessera
