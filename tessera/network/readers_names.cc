// Names with ranges, and files of hosts.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/limits.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/network/readers.h"

namespace tessera::network {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kMostDigits = 9;

tl::unexpected<Error> wrong_names(const std::string& where, std::string_view expected,
                                  std::string_view found) {
  return invalid_input(
      fmt::format("{}: expected {}, found '{}'", where, expected, short_line(found)));
}

tl::unexpected<Error> too_many(const std::string& where, std::string_view text) {
  return invalid_input(fmt::format("{}: expected at most {} names, found '{}'", where, kMostRanks,
                                   short_line(text)));
}

// Splits at commas that are not inside brackets.
Result<Names> split_list(std::string_view text, const std::string& where) {
  Names out(1);
  bool inside = false;
  for (const char c : text) {
    if (c == '[' || c == ']') {
      if (inside == (c == '[')) return wrong_names(where, "ranges as n[1-3,5]", text);
      inside = c == '[';
    }
    if (c == ',' && !inside) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  if (inside) return wrong_names(where, "ranges as n[1-3,5]", text);
  return out;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns the numbers of "21-23,30" as texts, with the zeros in front that the range has.
Result<Names> numbers_of(std::string_view ranges, const std::string& where) {
  Names out;
  for (const std::string& range : split_text(ranges, ',')) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    if (!is_number(first) || !is_number(last) || std::stol(last) < std::stol(first))
      return wrong_names(where, "ranges of rising numbers as [1-3,5]", fmt::format("[{}]", ranges));
    const int64_t from = std::stol(first), to = std::stol(last);
    if (to - from >= kMostRanks - static_cast<int64_t>(out.size())) return too_many(where, ranges);
    for (int64_t i = from; i <= to; ++i) out.push_back(fmt::format("{:0{}}", i, first.size()));
  }
  return out;
}

Status expand_one(std::string_view name, const std::string& where, Names& out) {
  const size_t open = name.find('[');
  if (open == std::string_view::npos) {
    if (out.size() >= static_cast<size_t>(kMostRanks)) return too_many(where, name);
    out.emplace_back(name);
    return {};
  }
  const size_t close = name.find(']', open);
  TESSERA_TRY(const Names numbers, numbers_of(name.substr(open + 1, close - open - 1), where));
  for (const std::string& number : numbers) {
    TESSERA_TRY_VOID(expand_one(
        fmt::format("{}{}{}", name.substr(0, open), number, name.substr(close + 1)), where, out));
  }
  return {};
}

bool is_host_name(std::string_view name) {
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(".-_:/").find(c) != std::string_view::npos;
  });
}

}  // namespace

Result<Names> expand_names(std::string_view text, const std::string& where) {
  TESSERA_TRY(const Names parts, split_list(text, where));
  Names out;
  for (const std::string& part : parts) {
    const std::string_view name = trim(part);
    if (name.empty()) return wrong_names(where, "names separated by commas", text);
    TESSERA_TRY_VOID(expand_one(name, where, out));
  }
  return out;
}

Result<std::vector<HostLine>> read_hosts(std::string_view text, const std::string& file) {
  std::vector<HostLine> out;
  std::set<std::string> seen;
  int number = 0;
  for (const std::string& line : split_text(text, '\n')) {
    ++number;
    const std::string where = fmt::format("{}:{}", file, number);
    HostLine host;
    std::string words = line.substr(0, line.find('#'));
    std::ranges::replace(words, '\t', ' ');
    for (const std::string& part : split_text(trim(words), ' ')) {
      const std::string word(trim(part));
      if (word.empty()) continue;
      if (word.starts_with("slots=")) {
        const auto slots = parse_int(word.substr(6));
        if (!slots || *slots < 1 || *slots > kMostRanks)
          return wrong_names(where, fmt::format("slots from 1 to {}", kMostRanks), word);
        host.slots = *slots;
      } else if (host.name.empty()) {
        host.name = word;
      } else if (host.known_as.empty() && word.find('=') == std::string::npos) {
        host.known_as = word;
      } else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots=")) {
        return wrong_names(where, "a host, its other name and slots=N", word);
      }
    }
    if (host.name.empty()) continue;
    for (const std::string& name : {host.name, host.known_as}) {
      if (!is_host_name(name))
        return wrong_names(where, "letters, digits and .-_:/ in a name", name);
    }
    if (!seen.insert(host.name).second) return wrong_names(where, "each host once", host.name);
    if (out.size() >= static_cast<size_t>(kMostRanks)) return too_many(where, host.name);
    out.push_back(std::move(host));
  }
  if (out.empty())
    return invalid_input(fmt::format("{}: expected hosts, one a line, found none", file));
  return out;
}

}  // namespace tessera::network
