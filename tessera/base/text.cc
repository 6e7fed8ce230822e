#include "tessera/base/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "tessera/base/text_file.h"

namespace tessera {
namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number ranges in brackets of a glob: `[0-5]`, `[7]` or `[0-3,8-11]`. number_ranges() returns
// nothing if the brackets have anything else in them.
struct NumberRanges {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  size_t after = 0;  // position in the pattern after the closing bracket
};

std::optional<NumberRanges> number_ranges(std::string_view pattern, size_t open) {
  const size_t close = pattern.find(']', open);
  if (close == std::string_view::npos) return std::nullopt;
  NumberRanges out;
  out.after = close + 1;
  for (const std::string& part : split_text(pattern.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = part.find('-');
    const std::string_view view = part;
    const auto first = parse_int(view.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_int(view.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    out.ranges.emplace_back(*first, *last);
  }
  return out;
}

// Matches a glob by a search over pairs (position in the pattern, position in the text). Each pair
// is visited once, so the time is at most the product of both lengths. At a comma or closing brace
// of `{..}` an alternative is complete, and the search goes on after the closing brace.
class GlobMatcher {
 public:
  GlobMatcher(std::string_view pattern, std::string_view text)
      : pattern_(pattern),
        text_(text),
        after_brace_(pattern.size(), kNowhere),
        alternatives_(pattern.size()),
        visited_((pattern.size() + 1) * (text.size() + 1), false) {
    find_braces();
  }

  bool match() {
    pending_.push_back({0, 0});
    while (!pending_.empty()) {
      const auto [p, t] = pending_.back();
      pending_.pop_back();
      if (p == pattern_.size() && t == text_.size()) return true;
      const size_t cell = p * (text_.size() + 1) + t;
      if (visited_[cell]) continue;
      visited_[cell] = true;
      if (p < pattern_.size()) step(p, t);
    }
    return false;
  }

 private:
  void find_braces() {
    std::vector<std::vector<size_t>>
        open;  // for each open brace: its position, then the positions of its commas
    for (size_t p = 0; p < pattern_.size(); ++p) {
      const char c = pattern_[p];
      if (c == '[') {
        if (auto ranges = number_ranges(pattern_, p)) p = ranges->after - 1;
      } else if (c == '{') {
        open.push_back({p});
      } else if (c == ',' && !open.empty()) {
        open.back().push_back(p);
      } else if (c == '}' && !open.empty()) {
        for (size_t mark : open.back()) {
          alternatives_[open.back().front()].push_back(mark + 1);
          if (mark != open.back().front()) after_brace_[mark] = p + 1;
        }
        after_brace_[p] = p + 1;
        open.pop_back();
      }
    }
  }

  void step(size_t p, size_t t) {
    const char c = pattern_[p];
    if (!alternatives_[p].empty()) {
      for (size_t start : alternatives_[p]) pending_.push_back({start, t});
    } else if (after_brace_[p] != kNowhere) {
      pending_.push_back({after_brace_[p], t});
    } else if (c == '*') {
      pending_.push_back({p + 1, t});
      if (t < text_.size()) pending_.push_back({p, t + 1});
    } else if (c == '[' && number_ranges(pattern_, p)) {
      step_number(*number_ranges(pattern_, p), p, t);
    } else if (t < text_.size() && (c == '?' || c == text_[t])) {
      pending_.push_back({p + 1, t + 1});
    }
  }

  // Matches number ranges with a whole number of the text, that is, with all its digits. The number
  // must begin at `t`, unless the pattern has a digit directly before the bracket.
  void step_number(const NumberRanges& numbers, size_t p, size_t t) {
    size_t end = t;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const bool inside = t > 0 && is_digit(text_[t - 1]) && !(p > 0 && is_digit(pattern_[p - 1]));
    if (end == t || inside) return;
    const auto value = parse_int(text_.substr(t, end - t));
    if (!value) return;
    for (const auto& [first, last] : numbers.ranges) {
      if (first <= *value && *value <= last) {
        pending_.push_back({numbers.after, end});
        return;
      }
    }
  }

  std::string_view pattern_, text_;
  std::vector<size_t> after_brace_;  // by position of ',' and '}': the position after the '}'
  std::vector<std::vector<size_t>> alternatives_;  // by position of '{': begins of alternatives
  std::vector<bool> visited_;
  std::vector<std::pair<size_t, size_t>> pending_;
};

std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string system_error(std::string_view what, const std::string& path, int error) {
  return fmt::format("cannot {} '{}': {}", what, path, std::strerror(error));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }
  int get() const { return fd_; }
  int close() {
    const int status = fd_ >= 0 ? ::close(fd_) : 0;
    fd_ = -1;
    return status;
  }

 private:
  int fd_;
};

// Writes `content` to a file and syncs it to the disk. Returns 0, or errno if this fails.
int write_whole(const std::string& path, std::string_view content, int how = O_CREAT | O_TRUNC) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | how, 0666));
  if (file.get() < 0) return errno;
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(file.get()) != 0 && errno != EINVAL) return errno;
  return file.close() == 0 ? 0 : errno;
}

// Returns whether the path is a device or a pipe (/dev/stdout). Such a path is written to directly,
// because it cannot be replaced by a renamed file.
bool is_stream(const std::string& path) {
  struct stat found {};
  // /dev/shm is a memory file system, whose files are ordinary files.
  if (path.starts_with("/dev/") && !path.starts_with("/dev/shm/")) return true;
  return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// Splits a text at the commas that are outside all brackets and quotes. Returns an error for
// unpaired brackets.
Result<std::vector<std::string>> split_arguments(std::string_view text) {
  std::vector<std::string> out(1);
  std::string closing;  // the closing brackets that are expected, innermost last
  bool in_quotes = false;
  for (char c : text) {
    if (c == '"') in_quotes = !in_quotes;
    if (in_quotes || c == '"') {
      out.back() += c;
      continue;
    }
    if (c == '(') closing += ')';
    if (c == '[') closing += ']';
    if (c == '{') closing += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (closing.empty() || closing.back() != c) {
        return invalid_input(fmt::format("'{}': found '{}' without its opening bracket", text, c));
      }
      closing.pop_back();
    }
    if (c == ',' && closing.empty()) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  if (in_quotes) closing += '"';
  if (!closing.empty()) {
    return invalid_input(fmt::format("'{}': expected '{}' before the end", text, closing.back()));
  }
  return out;
}

Result<std::pair<std::string, std::string>> parse_argument(std::string_view text) {
  const size_t equals = text.find('=');
  const size_t bracket = text.find_first_of("([{\"");
  if (equals == std::string_view::npos || bracket < equals) {
    const std::string_view value = trim(text);
    if (value.empty()) return invalid_input("expected key=value between the commas, found nothing");
    return std::pair{std::string(), std::string(value)};
  }
  const std::string_view key = trim(text.substr(0, equals));
  const std::string_view value = trim(text.substr(equals + 1));
  if (!is_name(key))
    return invalid_input(fmt::format("expected key=value, found '{}'", trim(text)));
  if (value.empty()) return invalid_input(fmt::format("expected a value after '{}='", key));
  return std::pair{std::string(key), std::string(value)};
}

}  // namespace

std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    out.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = kNowhere;
  for (const std::string& candidate : candidates) {
    // Computes the distance by rows: row[j] = distance(name[0, i), candidate[0, j)). An edit is a
    // letter more, less or other, or two neighbours swapped.
    std::vector<size_t> before, last, row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      before = std::exchange(last, row);
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t replaced = last[j - 1] + (name[i - 1] == candidate[j - 1] ? 0 : 1);
        row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
        if (i > 1 && j > 1 && name[i - 1] == candidate[j - 2] && name[i - 2] == candidate[j - 1])
          row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  if (pattern.find_first_of("*?[{") == std::string_view::npos) return pattern == text;
  return GlobMatcher(pattern, text).match();
}

Result<int64_t> parse_int(std::string_view text) {
  const std::string_view digits = trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) {
    return invalid_input(fmt::format("expected an integer below 2^63, found '{}'", digits));
  }
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return invalid_input(fmt::format("expected an integer, found '{}'", digits));
  }
  return value;
}

Result<double> parse_double(std::string_view text) {
  const std::string_view digits = trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    return invalid_input(fmt::format("expected a number, found '{}'", digits));
  }
  return value;
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes == 1) return "1 byte";
  double value = std::abs(static_cast<double>(bytes));
  if (value < 1024) return fmt::format("{} bytes", bytes);
  size_t unit = 0;
  for (value /= 1024; value >= 1024 && unit + 1 < kUnits.size(); value /= 1024) ++unit;
  return fmt::format("{}{:.2f} {} ({} bytes)", bytes < 0 ? "-" : "", value, kUnits[unit],
                     grouped(bytes));
}

std::string percent(double share, int digits) {
  return fmt::format("{:.{}f} %", 100 * share, digits);
}
std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

Result<std::string> read_file(const std::string& path) {
  return read_text_file(path, kMostTextBytes);
}

Status write_file(const std::string& path, std::string_view content) {
  if (is_stream(path)) {
    const int error = write_whole(path, content, O_APPEND);
    if (error == 0) return {};
    return fault(system_error("write", path, error));
  }
  std::error_code none;  // for a symbolic link the target is replaced, not the link
  const std::filesystem::path target = std::filesystem::canonical(path, none);
  const std::string real = none ? path : target.string();
  // The thread id makes the name unique among all that write at the same time on this machine.
  const std::string temporary = fmt::format("{}.tmp.{}", real, ::gettid());
  int error = write_whole(temporary, content);
  if (error == 0 && ::rename(temporary.c_str(), real.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(temporary.c_str());
  return fault(system_error("write", path, error));
}

Result<Call> parse_call(std::string_view text) {
  const std::string_view whole = trim(text);
  const size_t mark = whole.find_first_of("(:");
  Call call;
  call.name = std::string(trim(whole.substr(0, mark)));
  if (!is_name(call.name)) {
    return invalid_input(fmt::format(
        "expected name, name(key=value, ...) or name:key=value,..., found '{}'", whole));
  }
  if (mark == std::string_view::npos) return call;
  std::string_view arguments = whole.substr(mark + 1);
  if (whole[mark] == '(') {
    if (arguments.empty() || arguments.back() != ')') {
      return invalid_input(fmt::format("'{}': expected ')' at the end", whole));
    }
    arguments.remove_suffix(1);
  }
  if (trim(arguments).empty()) return call;
  TESSERA_TRY(const auto parts, split_arguments(arguments));
  for (const std::string& part : parts) {
    auto argument = parse_argument(part);
    if (!argument) return invalid_input(fmt::format("'{}': {}", whole, argument.error().message));
    for (const auto& [key, value] : call.arguments) {
      if (!key.empty() && key == argument->first) {
        return invalid_input(fmt::format("'{}': '{}' is given twice", whole, key));
      }
    }
    call.arguments.push_back(std::move(*argument));
  }
  return call;
}

}  // namespace tessera
