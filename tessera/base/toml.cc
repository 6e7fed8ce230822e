#include "tessera/base/toml.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <string>

namespace tessera {
namespace {

struct Flaw {
  int line = 0;
  size_t at = 0;  // offset in the text
  std::string reason;
};

// Scans a TOML text for the first thing that toml++ cannot handle: a table header whose name does
// not begin like a key, a '}' that closes a list, or a key of too many parts. The scan assumes
// valid TOML; it may be wrong after a syntax error, but toml++ stops at the first error anyway.
class FlawScan {
 public:
  explicit FlawScan(std::string_view text) : text_(text) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  std::optional<Flaw> find() {
    bool fresh = true;  // only blanks on this line so far, and no bracket is open
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const size_t start = at_;
      if (auto flaw = count_dots(c)) return flaw;
      if (c == '\n') {
        ++line_;
        ++at_;
        fresh = open_.empty();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (fresh && c == '[') {
        if (!header_is_fine()) return Flaw{line_, start, "expected the name of a table after '['"};
        for (; at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '#'; ++at_) {
          if (auto flaw = count_dots(text_[at_])) return flaw;
        }
        skip_line();
      } else if (c == '}' && !open_.empty() && open_.back() == '[') {
        return Flaw{line_, start, "expected ']' to close the list, found '}'"};
      } else {
        fresh = false;
        step(c);
      }
    }
    return std::nullopt;
  }

 private:
  // Counts the dots of a key and returns a flaw if there are too many. A key a.b.c makes nested
  // tables, and toml++ visits them recursively.
  std::optional<Flaw> count_dots(char c) {
    constexpr int kMostDots = 64;
    if (c == '\n' || c == ',' || c == '=' || c == '[' || c == '{') dots_ = 0;
    if (c != '.' || ++dots_ <= kMostDots) return std::nullopt;
    return Flaw{line_, at_, fmt::format("expected a key of at most {} parts", kMostDots + 1)};
  }

  bool header_is_fine() {
    const auto skip_blanks = [&] {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    };
    ++at_;
    if (at_ < text_.size() && text_[at_] == '[') ++at_;
    skip_blanks();
    if (at_ == text_.size()) return true;
    const char c = text_[at_];
    // An empty name "[]" and "[ [" are accepted here, because toml++ reports them itself.
    const bool is_key = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
    return is_key || c == '"' || c == '\'' || c == ']';
  }

  void step(char c) {
    if (c == '#') {
      skip_line();
    } else if (c == '"' || c == '\'') {
      skip_string(c);
    } else {
      if (c == '[' || c == '{') open_ += c;
      if ((c == ']' || c == '}') && !open_.empty()) open_.pop_back();
      ++at_;
    }
  }

  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool is_long = text_.substr(at_).starts_with(three);
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        if (!is_long) return;
        ++line_;
      }
      if (c == '\\' && quote == '"') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++line_;
        at_ += 2;
      } else if (is_long && text_.substr(at_).starts_with(three)) {
        at_ += 3;
        while (at_ < text_.size() && text_[at_] == quote)
          ++at_;  // quotes that belong to the string
        return;
      } else {
        ++at_;
        if (!is_long && c == quote) return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  int dots_ = 0;      // dots of the current key (or number)
  std::string open_;  // the brackets that are open, innermost last
};

Result<toml::table> parse_checked(std::string_view text, std::string_view file, int& error_line) {
  try {
    return toml::table(toml::parse(text, file));
  } catch (const toml::parse_error& error) {
    error_line = static_cast<int>(error.source().begin.line);
    std::string reason(error.description());
    for (char& c : reason) {
      if (c == '\n') c = ' ';
    }
    return invalid_input(fmt::format("{}:{}: {}", file, error_line, reason));
  }
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, std::string_view file) {
  int error_line = 0;
  const std::optional<Flaw> flaw = FlawScan(text).find();
  if (!flaw) return parse_checked(text, file, error_line);
  // If the text before the flaw has an error in an earlier line, that error is reported.
  const auto before = parse_checked(text.substr(0, flaw->at), file, error_line);
  if (!before && error_line < flaw->line) return tl::unexpected(before.error());
  return invalid_input(fmt::format("{}:{}: {}", file, flaw->line, flaw->reason));
}

}  // namespace tessera
