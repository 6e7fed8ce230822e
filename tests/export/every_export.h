// Every plan that is compared with the serial run (tests/matrix) and every target: the plan is
// either refused by one line that names it, or what was written is read back with the same
// predicted step (with another one that is near, where the text says what it lacks).
#pragma once

namespace tessera {

// `only_quick`: of the quick cases.
void expect_every_export_comes_back(bool only_quick);

}  // namespace tessera
