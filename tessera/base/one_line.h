// Texts of files in messages of one line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tessera {

// The text with control characters written as \n, \t or \x1b. Errors are one line, whatever a file
// that they quote holds.
inline std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      line += "\\n";
    } else if (letter == '\t') {
      line += "\\t";
    } else if (code < 0x20 || code == 0x7F) {
      line += fmt::format("\\x{:02x}", code);
    } else {
      line += letter;
    }
  }
  return line;
}

// The same, and at most so many bytes of it and three dots: its beginning, and its end, where messages
// say what was found. A file may hold a name of any length.
inline std::string short_line(std::string_view text, size_t most = 300) {
  const auto inside = [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xC0) == 0x80;
  };
  const size_t half = most / 2;
  if (text.size() <= most) return one_line(text);
  size_t begin = half, end = text.size() - half;
  while (begin > 0 && inside(text[begin])) --begin;  // no part of a character
  while (end < text.size() && inside(text[end])) ++end;
  return one_line(text.substr(0, begin)) + "..." + one_line(text.substr(end));
}

}  // namespace tessera
