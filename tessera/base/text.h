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
// Matches a glob against a whole path: `*` is any characters (dots too), `?` one, `[0-5]`,
// `[8-11]`, `[0-3,8-11]` a whole number in one of the ranges, `{a,b}` alternatives that are globs
// themselves. Takes time |pattern| * |text|.
bool glob_match(std::string_view pattern, std::string_view text);
Result<int64_t> parse_int(std::string_view text);
Result<double> parse_double(std::string_view text);
// Returns a text as "1.50 GiB (1,610,612,736 bytes)"; below 1 KiB the bytes alone.
std::string format_bytes(int64_t bytes);
// Returns a share as "12.3 %" or "+12.3 %".
std::string percent(double share, int digits = 1);
std::string signed_percent(double share);
Result<std::string> read_file(const std::string& path);
// Writes to a temporary file beside `path`, then renames it: the file is never half-written.
Status write_file(const std::string& path, std::string_view content);

// name(key=value, key=value) or name:key=value,key=value (recipe calls, model specs). Values keep
// their text; commas and equals signs between brackets or double quotes belong to the value.
struct Call {
  std::string name;
  // A key and a value. A positional argument has an empty key.
  std::vector<std::pair<std::string, std::string>> arguments;
};
Result<Call> parse_call(std::string_view text);

}  // namespace tessera
