// How much the quick tests try. The slow entry of a program sets TESSERA_ALL_CASES; then all
// combinations of several choices run. The quick entry tries each value of each choice, but not
// each with each.
//
//   for (const auto& [optimizer, plan] : combinations(kRowOptimizers, plans)) { ... }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

namespace tessera {

inline bool all_cases() { return std::getenv("TESSERA_ALL_CASES") != nullptr; }

// Returns how many random cases run.
inline int cases(int quick, int slow) { return all_cases() ? slow : quick; }

// Returns all pairs; or, in quick tests, as many as the longer list has values, so that each value
// is in one.
template <class A, class B>
std::vector<std::pair<A, B>> combinations(const std::vector<A>& first,
                                          const std::vector<B>& second) {
  std::vector<std::pair<A, B>> pairs;
  if (!all_cases()) {
    for (size_t i = 0; i < std::max(first.size(), second.size()); ++i)
      pairs.emplace_back(first[i % first.size()], second[i % second.size()]);
    return pairs;
  }
  for (const A& one : first) {
    for (const B& other : second) pairs.emplace_back(one, other);
  }
  return pairs;
}

}  // namespace tessera
