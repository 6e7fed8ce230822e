// More freedom is never slower: what a question fixes can only make its answer slower.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::planner_test {

// Asks `auto` without anything fixed, then once for each key of --fix that the answer's plan, and the
// best call of a recipe, have a value of, with the key fixed to that value. A failure of the current
// test: an answer with a fixed key is faster than the first one.
void expect_no_fix_is_faster(const std::string& model, const std::string& machine, int64_t batch);

}  // namespace tessera::planner_test
