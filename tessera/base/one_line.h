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

}  // namespace tessera
