// Makes texts of files and of users fit for messages of one line.
//
// Whatever a message quotes (names of files, keys, texts of models, names of tensors that a file
// holds) passes through message_line() where it is printed. So no message writes control characters
// to a terminal, none takes more than one line, and none is as long as the text that it quotes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr size_t kMostQuotedBytes = 300;    // of a name or a quoted text in a message
inline constexpr size_t kMostMessageBytes = 4000;  // of a message, before anything is escaped

// Returns the text with special characters written out: control characters as \n, \t, \x1b or
// \u009b, characters that turn the direction of writing or break lines as \u202e, and bytes that
// are not UTF-8 as \xff. A second call changes nothing more.
std::string one_line(std::string_view text);

// Returns one_line() of a text that is cut to `most` bytes: its beginning, three dots, and its end,
// because messages end with what was found. A file may hold a name of any length.
std::string short_line(std::string_view text, size_t most = kMostQuotedBytes);

// Returns a message as it is shown: one line, cut at kMostMessageBytes, in which each text between
// single quotes and each word without spaces has at most kMostQuotedBytes.
std::string message_line(std::string_view message);

}  // namespace tessera
