// Writes to whoever called the program (caller.h), a terminal in most cases. Each answer is written
// to standard output in one piece; an error is one line on standard error, `tessera: <message>`. If all ranks of an MPI run find the same error,
// only rank 0 reports it.
//
// With --json (answer_in_json) the first object of an answer begins with "schema", the number of the
// format (kJsonSchema), and with what was said first (say_first) as "notes". An error then is an
// object on standard output as well, {"schema": 1, "error": {"code": 2, "message": "..."}}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

// The number rises when a key of an answer changes its meaning or goes away; new keys do not count.
inline constexpr int kJsonSchema = 1;
// Says that answers are JSON from now on.
void answer_in_json();
// Keeps a line that stands before the next text that is printed: what a default or a word was taken
// for. Before a plan or another text of comments (it begins with '#') it is a comment itself; before
// JSON for another program it goes to standard error.
void say_first(std::string line);

// Writes the text to standard output and flushes. Returns 0; if standard output cannot be written
// to, prints a message and returns 3.
int print(std::string_view text);
// Writes a text beside the answer, to standard error.
void note(std::string_view text);
// Prints the error's line and returns its exit code.
int fail(const Error& error);

// A table of text. Each column is as wide as its widest cell. The first column is flush left, the
// others are flush right. The first row is the head. Control characters in cells are escaped
// (one_line), because a cell may have text of a user's file.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row);
  std::string to_string(std::string_view indent = "") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string grouped(int64_t value);                        // "12,345"
std::string short_bytes(int64_t bytes);                    // "1.50 GiB"
std::string short_number(double value);                    // "1.3 T", "20.5 M", "7"
std::string short_seconds(double seconds);                 // "12.5 us", "3.21 ms", "105 s"
std::string accuracy_text(double share);                   // "accuracy 81.30 %", "accuracy none"
std::string plural(int64_t count, std::string_view noun);  // "1 rank", "2,000 ranks"

}  // namespace tessera::cli
