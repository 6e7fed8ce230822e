// Small text helpers shared by parsers and error messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

std::vector<std::string> split_text(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string lower_case(std::string_view text);  // changes ASCII letters only
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// Returns the candidate with the smallest edit distance to `name`, or "" if there is none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);
// Returns whether a glob matches a whole path. `*` matches any number of characters (dots too), `?`
// one character. `[0-5]`, `[8-11]` or `[0-3,8-11]` matches a whole number in one of the ranges.
// `{a,b}` matches one of the alternatives, which are globs themselves. Takes time |pattern| *
// |text|.
bool glob_match(std::string_view pattern, std::string_view text);
Result<int64_t> parse_int(std::string_view text);
Result<double> parse_double(std::string_view text);
// Returns the bytes as a text, "1.50 GiB (1,610,612,736 bytes)"; below 1 KiB only the number of
// bytes.
std::string format_bytes(int64_t bytes);
// Returns a share (a fraction of 1) as a text, "12.3 %". signed_percent() adds a sign, "+12.3 %".
std::string percent(double share, int digits = 1);
std::string signed_percent(double share);
Result<std::string> read_file(const std::string& path);
// Writes the content to a temporary file in the same folder and renames this file to `path`, so
// that the file at `path` is never half-written.
Status write_file(const std::string& path, std::string_view content);

// A recipe call or model spec: name(key=value, key=value) or name:key=value,key=value. Values are
// the texts as written. Commas and equals signs between brackets or double quotes belong to the
// value.
struct Call {
  std::string name;
  // Pairs of key and value, in the order of the text. A positional argument has an empty key.
  std::vector<std::pair<std::string, std::string>> arguments;
};
Result<Call> parse_call(std::string_view text);

}  // namespace tessera
