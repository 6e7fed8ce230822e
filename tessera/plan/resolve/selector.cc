#include "tessera/plan/resolve/selector.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr size_t kMostAlternatives = 4096;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct NumberRanges {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  size_t after = 0;
};

// Reads `[0-5]`, `[7]`, `[0-3,8-11]` at `open`; returns nothing if the brackets hold anything else.
std::optional<NumberRanges> number_ranges(std::string_view pattern, size_t open) {
  const size_t close = pattern.find(']', open);
  if (close == std::string_view::npos) return std::nullopt;
  NumberRanges result;
  result.after = close + 1;
  for (const std::string& part : split_text(pattern.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = part.find('-');
    const auto first = parse_int(std::string_view(part).substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : parse_int(std::string_view(part).substr(dash + 1));
    if (!first || !last) return std::nullopt;
    result.ranges.emplace_back(*first, *last);
  }
  return result;
}

// `Braces` describe the text `{a,b}`: the positions [begin, end) of its parts, and that of the
// closing brace. Without a closing brace there are no parts.
struct Braces {
  std::vector<std::pair<size_t, size_t>> parts;
  size_t close = 0;
};

Braces find_braces(std::string_view pattern, size_t open) {
  Braces braces;
  size_t depth = 0;
  size_t begin = open + 1;
  for (size_t p = open; p < pattern.size(); ++p) {
    const char c = pattern[p];
    if (c == '[') {
      if (const auto ranges = number_ranges(pattern, p)) p = ranges->after - 1;
    } else if (c == '{') {
      ++depth;
    } else if (c == ',' && depth == 1) {
      braces.parts.emplace_back(begin, p);
      begin = p + 1;
    } else if (c == '}' && --depth == 0) {
      braces.parts.emplace_back(begin, p);
      braces.close = p;
      return braces;
    }
  }
  return {};
}

}  // namespace

Glob::Glob(std::string_view pattern) : pattern_(pattern) {
  alternatives_ = expand(pattern_, 0, pattern_.size());
  if (alternatives_.size() > kMostAlternatives) alternatives_.clear();
  if (alternatives_.empty()) last_.set();
  for (const Sequence& sequence : alternatives_) {
    const Ends& ends = ends_.emplace_back(ends_of(sequence));
    const std::string& literal = ends.whole ? ends.head : ends.tail;
    if (literal.empty()) {
      last_.set();
    } else {
      last_.set(static_cast<unsigned char>(literal.back()));
    }
  }
}

Glob::Ends Glob::ends_of(const Sequence& sequence) {
  const auto is_literal = [](const Token& token) { return token.kind == Token::Kind::kChar; };
  const auto head = std::find_if_not(sequence.begin(), sequence.end(), is_literal);
  const auto tail = std::find_if_not(sequence.rbegin(), sequence.rend(), is_literal);
  Ends out;
  for (auto token = sequence.begin(); token != head; ++token) out.head += token->character;
  out.whole = head == sequence.end();
  if (out.whole) return out;
  for (auto token = tail.base(); token != sequence.end(); ++token) out.tail += token->character;
  return out;
}

std::vector<Glob::Sequence> Glob::expand(std::string_view pattern, size_t begin, size_t end) {
  std::vector<Sequence> sequences(1);
  const auto append = [&](const Token& token) {
    for (Sequence& sequence : sequences) sequence.push_back(token);
  };
  for (size_t p = begin; p < end;) {
    const char c = pattern[p];
    if (c == '{') {
      const Braces braces = find_braces(pattern, p);
      if (!braces.parts.empty()) {
        std::vector<Sequence> longer;
        for (const auto& [part_begin, part_end] : braces.parts) {
          for (const Sequence& tail : expand(pattern, part_begin, part_end)) {
            for (const Sequence& head : sequences) {
              longer.push_back(head);
              longer.back().insert(longer.back().end(), tail.begin(), tail.end());
              if (longer.size() > kMostAlternatives) return longer;
            }
          }
        }
        sequences = std::move(longer);
        p = braces.close + 1;
        continue;
      }
    }
    if (c == '[') {
      if (auto numbers = number_ranges(pattern, p)) {
        const bool after_digit = p > 0 && is_digit(pattern[p - 1]);
        append({Token::Kind::kNumber, 0, after_digit, std::move(numbers->ranges)});
        p = numbers->after;
        continue;
      }
    }
    if (c == '*') {
      append({Token::Kind::kStar});
    } else if (c == '?') {
      append({Token::Kind::kAny});
    } else {
      append({Token::Kind::kChar, c});
    }
    ++p;
  }
  return sequences;
}

size_t Glob::step(const Token& token, std::string_view text, size_t position) {
  constexpr size_t kNo = std::string_view::npos;
  switch (token.kind) {
    case Token::Kind::kStar: return position;
    case Token::Kind::kAny: return position < text.size() ? position + 1 : kNo;
    case Token::Kind::kChar:
      return position < text.size() && text[position] == token.character ? position + 1 : kNo;
    case Token::Kind::kNumber: break;
  }
  size_t end = position;
  while (end < text.size() && is_digit(text[end])) ++end;
  const bool inside = position > 0 && is_digit(text[position - 1]) && !token.after_digit;
  if (end == position || inside) return kNo;
  const auto value = parse_int(text.substr(position, end - position));
  if (!value) return kNo;
  for (const auto& [first, last] : token.ranges) {
    if (first <= *value && *value <= last) return end;
  }
  return kNo;
}

// Returns the first position, at or after `position`, at which the token may match; the size of the
// text if there is none.
size_t Glob::first_start(const Token& token, std::string_view text, size_t position) {
  if (token.kind != Token::Kind::kChar) return position;
  return std::min(text.find(token.character, position), text.size());
}

// Matches greedily and goes back only to the last star. The tokens between two stars are matched at
// the earliest position. No later position can be better, because a match that starts later never
// ends earlier.
bool Glob::matches(const Sequence& sequence, std::string_view text) {
  size_t token = 0;
  size_t position = 0;
  size_t star = std::string_view::npos;  // index of the token after the last star
  size_t star_position = 0;
  while (true) {
    if (token == sequence.size()) {
      if (position == text.size()) return true;
    } else if (sequence[token].kind == Token::Kind::kStar) {
      star = ++token;
      if (star == sequence.size()) return true;
      star_position = position = first_start(sequence[star], text, position);
      continue;
    } else {
      const size_t next = step(sequence[token], text, position);
      if (next != std::string_view::npos) {
        ++token;
        position = next;
        continue;
      }
    }
    if (star == std::string_view::npos || star_position >= text.size()) return false;
    token = star;
    position = star_position = first_start(sequence[star], text, star_position + 1);
  }
}

bool Glob::may_begin(std::string_view text) const {
  const auto begins = [&](const Sequence& sequence) {
    size_t position = 0;
    for (const Token& token : sequence) {
      if (position == text.size() || token.kind == Token::Kind::kStar) return true;
      position = step(token, text, position);
      if (position == std::string_view::npos) return false;
    }
    return false;  // a match would end here
  };
  return alternatives_.empty() || std::any_of(alternatives_.begin(), alternatives_.end(), begins);
}

bool Glob::matches(std::string_view text) const {
  if (alternatives_.empty()) return glob_match(pattern_, text);
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    const Ends& ends = ends_[i];
    if (!text.starts_with(ends.head) || !text.ends_with(ends.tail)) continue;
    if (ends.whole ? text == ends.head : matches(alternatives_[i], text)) return true;
  }
  return false;
}

namespace {

bool ends_prefix(char c) { return c == '.' || c == '@' || c == '#'; }

// A `Part` identifies a prefix by its parent, which is the next shorter prefix, and by the text
// that it adds to its parent.
struct Part {
  int parent = -1;
  std::string_view text;
  friend bool operator==(const Part&, const Part&) = default;
};
struct PartHash {
  size_t operator()(const Part& part) const {
    return std::hash<std::string_view>{}(part.text) + static_cast<size_t>(part.parent) * 0x9e3779b9;
  }
};

}  // namespace

PathIndex::PathIndex(const std::vector<std::string_view>& paths) {
  std::unordered_map<Part, int, PartHash> known;  // for look-up only; never iterated
  known.reserve(paths.size() * 2);
  node_of_path_.reserve(paths.size());
  std::string_view last;  // paths that follow each other have most prefixes in common
  std::vector<std::pair<size_t, int>> chain;  // prefixes of the last path: (end, node)
  for (std::string_view path : paths) {
    const size_t most = std::min(path.size(), last.size());
    size_t common = 0;
    while (common < most && path[common] == last[common]) ++common;
    if (common > 0 && common < path.size() && !ends_prefix(path[common])) --common;
    while (!chain.empty() && chain.back().first > common) chain.pop_back();
    size_t begin = chain.empty() ? 0 : chain.back().first;
    int parent = chain.empty() ? -1 : chain.back().second;
    while (begin < path.size()) {
      size_t end = begin + 1;
      while (end < path.size() && !ends_prefix(path[end])) ++end;
      const Part part{parent, path.substr(begin, end - begin)};
      const auto [it, added] = known.try_emplace(part, static_cast<int>(nodes_.size()));
      if (added) nodes_.push_back({path.substr(0, end), parent, path[end - 1]});
      parent = it->second;
      chain.emplace_back(end, parent);
      begin = end;
    }
    node_of_path_.push_back(parent);
    last = path;
  }
}

const std::vector<bool>& PathIndex::select(const std::string& pattern) {
  constexpr size_t kMostPatterns = 1024;
  if (cache_.size() == kMostPatterns && !cache_.contains(pattern)) cache_.clear();
  const auto [it, added] = cache_.try_emplace(pattern);
  if (!added) return it->second;
  const Glob glob(pattern);
  enum class Below : uint8_t { kMayHit, kHit, kNever };  // result for all paths with this prefix
  std::vector<Below> below(nodes_.size(), Below::kMayHit);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    if (node.parent >= 0) below[n] = below[static_cast<size_t>(node.parent)];
    if (below[n] != Below::kMayHit) continue;
    if (glob.may_end(node.last) && glob.matches(node.text)) {
      below[n] = Below::kHit;
    } else if (node.parent < 0 ||  // may_end refuses most longer prefixes quickly
               nodes_[static_cast<size_t>(node.parent)].parent < 0) {
      if (!glob.may_begin(node.text)) below[n] = Below::kNever;
    }
  }
  std::vector<bool>& selected = it->second;
  selected.resize(node_of_path_.size(), false);
  for (size_t i = 0; i < node_of_path_.size(); ++i) {
    if (node_of_path_[i] >= 0)
      selected[i] = below[static_cast<size_t>(node_of_path_[i])] == Below::kHit;
  }
  return selected;
}

}  // namespace tessera
