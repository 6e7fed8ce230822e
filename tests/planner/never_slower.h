// A question that leaves more room has an answer that is at least as fast: more memory, faster links, more
// freedom. A search that ranks by formulas may break this; these comparisons count how often.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::planner_test {

// Counts the comparisons, and lists the pairs of questions in which more room gave a slower answer, one line
// each. Differences of up to .1 % do not count: within these the search takes the simpler of two plans.
struct NeverSlower {
  int64_t memory = 0, links = 0, freedom = 0;  // comparisons
  std::vector<std::string> slower_with_memory, slower_with_links, slower_with_freedom;
};

// Asks `auto`, with the usual number of programs, about random small questions of these seeds. Each is
// asked as it is; with the memory that its answer needs, and with half as much again; with links of
// twice the rate; and with one key fixed.
NeverSlower compare_rooms(uint64_t first_seed, uint64_t questions);

}  // namespace tessera::planner_test
