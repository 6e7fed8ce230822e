// Texts of files and of users in messages of one line.
//
// Whatever a message quotes (names of files, keys, texts of models, names of tensors that a file
// holds), it goes through message_line() where it is printed: so no message writes control
// characters to a terminal, none takes more than one line, and none is as long as what it quotes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr size_t kMostQuotedBytes = 300;    // of a name or a quoted text in a message
inline constexpr size_t kMostMessageBytes = 4000;  // of a message, before anything is escaped

// Returns the text with what is no plain character written out: control characters as \n, \t,
// \x1b or \u009b, characters that turn the direction of writing or break lines as \u202e, and bytes
// that are no UTF-8 as \xff. Applied twice it changes nothing more.
std::string one_line(std::string_view text);

// Returns the same of at most so many bytes of the text and three dots: its beginning, and its end,
// where messages say what was found. A file may hold a name of any length.
std::string short_line(std::string_view text, size_t most = kMostQuotedBytes);

// Returns a message as it is shown: one line, in which a text between single quotes or a word
// without spaces has at most kMostQuotedBytes, and which is cut at kMostMessageBytes.
std::string message_line(std::string_view message);

}  // namespace tessera
