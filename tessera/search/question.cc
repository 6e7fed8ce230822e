#include "tessera/search/question.h"

#include "tessera/base/text.h"

namespace tessera {

int64_t fixed_number(const PlanQuestion& question, const std::string& key) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() ? 0 : parse_int(it->second).value_or(0);
}

int64_t fixed_or(const PlanQuestion& question, const std::string& key, int64_t otherwise) {
  const int64_t fixed = fixed_number(question, key);
  return fixed > 0 ? fixed : otherwise;
}

bool allows(const PlanQuestion& question, const std::string& key, int64_t value) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() || parse_int(it->second) == value;
}

bool allows(const PlanQuestion& question, const std::string& key, const std::string& value) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() || it->second == value;
}

std::vector<std::string> texts_of(const PlanQuestion& question, const std::string& key,
                                  const std::vector<std::string>& own) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() ? own : std::vector<std::string>{it->second};
}

std::vector<int64_t> numbers_of(const PlanQuestion& question, const std::string& key,
                                const std::vector<int64_t>& own) {
  const auto it = question.fixed.find(key);
  return it == question.fixed.end() ? own : std::vector<int64_t>{parse_int(it->second).value_or(0)};
}

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= n; ++i) {
    if (n % i == 0) out.push_back(i);
  }
  return out;
}

}  // namespace tessera
