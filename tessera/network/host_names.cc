#include "tessera/network/host_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/base/text.h"

namespace tessera {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <class Before>
std::vector<int64_t> sorted_positions(const std::vector<std::string>& names, const Before& before) {
  std::vector<int64_t> out(names.size());
  std::iota(out.begin(), out.end(), 0);
  std::ranges::stable_sort(out, [&](int64_t a, int64_t b) {
    return before(names[static_cast<size_t>(a)], names[static_cast<size_t>(b)]);
  });
  return out;
}

}  // namespace

bool naturally_before(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (!is_digit(a[0]) || !is_digit(b[0])) {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
      continue;
    }
    const auto take_number = [](std::string_view& text) {
      size_t end = 0;
      while (end < text.size() && is_digit(text[end])) ++end;
      std::string_view number = text.substr(0, end);
      text.remove_prefix(end);
      while (number.size() > 1 && number[0] == '0') number.remove_prefix(1);
      return number;
    };
    const std::string_view x = take_number(a), y = take_number(b);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // node1 and node01
}

std::vector<int64_t> natural_order(const std::vector<std::string>& names) {
  return sorted_positions(names, naturally_before);
}

std::vector<int64_t> spelling_order(const std::vector<std::string>& names) {
  return sorted_positions(names, std::less<>());
}

Result<std::vector<int64_t>> find_hosts(const std::vector<std::string>& hosts,
                                        const std::vector<std::string>& known,
                                        std::string_view file, std::string_view network) {
  std::map<std::string_view, int64_t> numbers;
  for (size_t i = 0; i < known.size(); ++i) numbers.emplace(known[i], static_cast<int64_t>(i));
  std::vector<int64_t> out;
  for (const std::string& host : hosts) {
    const auto found = numbers.find(host);
    if (found == numbers.end()) {
      return invalid_input(fmt::format("{}: expected hosts of {}, found '{}', did you mean '{}'?",
                                       file, network, host, nearest(host, known)));
    }
    out.push_back(found->second);
  }
  return out;
}

}  // namespace tessera
