#include "tessera/base/one_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tessera {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

// Reads the character at the beginning of a text that is not empty. A character in a longer form
// than the shortest, or one half of a UTF-16 pair, is not valid UTF-8.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};  // by number of bytes
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  uint32_t code = first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  if (code < kLeast[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, bytes};
}

// Returns whether the character would control a terminal or change how other characters are shown.
bool is_control(uint32_t code) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 8> kRanges = {{
      {0x00, 0x1F},      // C0
      {0x7F, 0x9F},      // DEL and C1
      {0x61C, 0x61C},    // directions of writing
      {0x200B, 0x200F},  // directions, and characters without width
      {0x2028, 0x202E},  // ends of lines and paragraphs, directions
      {0x2066, 0x2069},  // directions
      {0xFEFF, 0xFEFF},  // byte order
      {0xFFF9, 0xFFFB},  // annotations between lines
  }};
  return std::any_of(kRanges.begin(), kRanges.end(), [&](const auto& range) {
    return range.first <= code && code <= range.second;
  });
}

// Returns whether the quote at `at` begins a quoted text and is not part of a word ("don't").
bool opens(std::string_view text, size_t at) {
  return at == 0 || std::string_view(" \t\n([{=:,").find(text[at - 1]) != std::string_view::npos;
}

// Returns the position of the quote that closes the text opened by the quote at `at`, or npos.
size_t closing_of(std::string_view text, size_t at) {
  for (size_t i = text.find('\'', at + 1); i != std::string_view::npos;
       i = text.find('\'', i + 1)) {
    const bool last = i + 1 == text.size();
    if (last || std::string_view(" \n:;,.)]}!?").find(text[i + 1]) != std::string_view::npos)
      return i;
  }
  return std::string_view::npos;
}

// Appends a text to `out` with each word shortened to kMostQuotedBytes.
void add_words(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    out += short_line(text.substr(0, space));
    if (space < text.size()) out += ' ';
    text.remove_prefix(std::min(space + 1, text.size()));
  }
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    if (bytes == 0) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (code == '\n') {
      line += "\\n";
    } else if (code == '\t') {
      line += "\\t";
    } else if (is_control(code)) {
      line += code < 0x80 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      line += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  return line;
}

std::string short_line(std::string_view text, size_t most) {
  const auto inside = [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xC0) == 0x80;
  };
  const size_t half = most / 2;
  if (text.size() <= most) return one_line(text);
  size_t begin = half, end = text.size() - half;
  while (begin > 0 && inside(text[begin])) --begin;  // do not cut a UTF-8 character
  while (end < text.size() && inside(text[end])) ++end;
  return one_line(text.substr(0, begin)) + "..." + one_line(text.substr(end));
}

std::string message_line(std::string_view message) {
  while (!message.empty() && message.back() == '\n') message.remove_suffix(1);
  std::string line;
  size_t at = 0;  // message[0, at) has been added to `line`
  for (size_t quote = message.find('\''); quote != std::string_view::npos;
       quote = message.find('\'', quote + 1)) {
    if (quote < at || !opens(message, quote)) continue;
    const size_t end = closing_of(message, quote);
    if (end == std::string_view::npos) break;
    add_words(message.substr(at, quote - at), line);
    line += "'" + short_line(message.substr(quote + 1, end - quote - 1)) + "'";
    at = end + 1;
    quote = end;
  }
  add_words(message.substr(at), line);
  return short_line(line, kMostMessageBytes);
}

}  // namespace tessera
