// Makes texts from files and users safe to show in messages of one line.
//
// Every message passes through message_line() when it is printed, because it may quote names of
// files, keys, texts of models or names of tensors in a file. So no message writes control
// characters to a terminal, every message is one line, and a long quoted text is shortened.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// The most bytes of a word or a quoted text in a message
inline constexpr size_t kMostQuotedBytes = 300;
// The most bytes of a message before characters are escaped
inline constexpr size_t kMostMessageBytes = 4000;

// Returns the text with special characters escaped: control characters as \n, \t, \x1b or \u009b,
// characters that change the direction of writing or break lines as \u202e, and bytes that are not
// UTF-8 as \xff. A second call on the result changes nothing.
std::string one_line(std::string_view text);

// Returns one_line() of the text if it has at most `most` bytes. Otherwise shortens the text to its
// beginning, three dots and its end; the end is kept because messages end with what was found.
std::string short_line(std::string_view text, size_t most = kMostQuotedBytes);

// Returns a message in the form in which it is shown: one line, shortened to kMostMessageBytes.
// Each text between single quotes and each word in it is shortened to kMostQuotedBytes.
std::string message_line(std::string_view message);

}  // namespace tessera
