// What of a question is not searched, as planners ask for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/search/planner.h"

namespace tessera {

// The number that `key` is fixed to; 0: it is not fixed.
int64_t fixed_number(const PlanQuestion& question, const std::string& key);
int64_t fixed_or(const PlanQuestion& question, const std::string& key, int64_t otherwise);
// Is the key not fixed, or fixed to this value?
bool allows(const PlanQuestion& question, const std::string& key, int64_t value);
bool allows(const PlanQuestion& question, const std::string& key, const std::string& value);
// The values that a planner tries: its own, or the one that is fixed.
std::vector<std::string> texts_of(const PlanQuestion& question, const std::string& key,
                                  const std::vector<std::string>& own);
std::vector<int64_t> numbers_of(const PlanQuestion& question, const std::string& key,
                                const std::vector<int64_t>& own);

std::vector<int64_t> divisors_of(int64_t n);  // rising

}  // namespace tessera
