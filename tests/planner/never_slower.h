// A question that leaves more room has an answer that is at least as fast: more memory, faster links, more
// freedom. A search that ranks by formulas may break this; these comparisons count how often.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera::planner_test {

// Steps whose ratio is at most this count as equally fast: within it a search takes the simpler plan.
inline constexpr double kEqual = 1.001;

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

// A question, and what once had a faster answer: the same question with more keys fixed, or that to the
// planner `recipes`.
struct Rivalry {
  std::string model, machine;
  int64_t batch = 1;
  DType compute = DType::kFloat32;
  std::string optimizer = "adamw";
  std::map<std::string, std::string> fixed = {};
  int64_t memory_limit_bytes = 0;
  std::map<std::string, std::string> rival_fixes = {};  // empty: the rival is `recipes`
};
// Returns the step of `auto` divided by that of the rival.
double against_rival(const Rivalry& rivalry);

}  // namespace tessera::planner_test
