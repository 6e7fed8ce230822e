// For every plan that is compared with the serial run (tests/matrix), and every target: either one
// line that names the plan refuses it, or the text is read back with an equal predicted step (with
// a near one where the text says what it lacks).
#pragma once

namespace tessera {

// `only_quick`: of the quick cases.
void expect_every_export_comes_back(bool only_quick);

}  // namespace tessera
