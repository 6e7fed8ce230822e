// The property: every recipe, with any arguments, on a model of any family, writes a plan whose
// programs the verifier accepts, or is refused by a message that the table of refusals has
// (refusals.txt). The table counts each message, so a new or more frequent refusal shows as a
// difference of a text.
#pragma once

#include <string>

namespace tessera {

// Draws `each` cases for every pair of a recipe and a family. A pair has its own seeds: new recipes
// and families add rows to the table and change no others. `table`: a file of tests/property, which
// TESSERA_REWRITE_GOLDEN=1 writes anew. With TESSERA_SEED the cases differ, and the counts are not
// compared.
void expect_known_refusals(int each, const std::string& table);

}  // namespace tessera
