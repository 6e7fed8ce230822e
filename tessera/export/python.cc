#include "tessera/export/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

struct Token {
  enum class Kind : uint8_t { kName, kNumber, kText, kSign, kLineEnd, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;
  size_t begin = 0, end = 0;  // in the text
};

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\n') {
        add(Token::Kind::kLineEnd, 1);
        ++line_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\\') {
        ++at_;
      } else if (c == '\'' || c == '"') {
        TESSERA_TRY_VOID(read_text(c));
      } else {
        size_t size = 1;
        const bool name = starts_name(c);
        const bool number = std::isdigit(static_cast<unsigned char>(c)) != 0;
        while ((name || number) && at_ + size < text_.size() && is_in_name(text_[at_ + size]))
          ++size;
        const auto kind = name     ? Token::Kind::kName
                          : number ? Token::Kind::kNumber
                                   : Token::Kind::kSign;
        add(kind, size);
      }
    }
    add(Token::Kind::kEnd, 0);
    return std::move(out_);
  }

 private:
  void add(Token::Kind kind, size_t size) {
    out_.push_back({kind, text_.substr(at_, size), line_, at_, at_ + size});
    at_ += size;
  }
  Status read_text(char quote) {
    const bool triple = text_.compare(at_, 3, std::string(3, quote)) == 0;
    const std::string close(triple ? 3 : 1, quote);
    const size_t begin = at_;
    const int first = line_;
    size_t end = at_ + close.size();
    while (end >= text_.size() || text_.compare(end, close.size(), close) != 0) {
      if (end >= text_.size() || (!triple && text_[end] == '\n'))
        return invalid_input(fmt::format("line {}: expected the end of a text", first));
      if (text_[end] == '\n') ++line_;
      end += text_[end] == '\\' ? 2 : 1;
    }
    out_.push_back({Token::Kind::kText,
                    text_.substr(begin + close.size(), end - begin - close.size()), first, begin,
                    end + close.size()});
    at_ = end + close.size();
    return {};
  }

  const std::string& text_;
  std::vector<Token> out_;
  size_t at_ = 0;
  int line_ = 1;
};

class Settings {
 public:
  Settings(const std::string& text, std::vector<Token> tokens,
           const std::vector<std::string>& roots)
      : text_(text), tokens_(std::move(tokens)), roots_(roots) {}

  Result<SaidKeys> run() {
    while (now().kind != Token::Kind::kEnd) {
      const bool assigns = now().kind == Token::Kind::kName && is_sign(1, "=") && !is_sign(2, "=");
      const size_t dot = now().text.find('.');
      if (assigns && dot != std::string::npos) {
        const std::string path = now().text.substr(dot + 1);
        const int line = now().line;
        at_ += 2;
        TESSERA_TRY_VOID(read_value(path, line, 0));
      } else if (assigns) {
        at_ += 2;  // a local name; a call of a root may follow
      } else if (now().kind == Token::Kind::kName && is_sign(1, "(") && is_root(now().text)) {
        ++at_;
        TESSERA_TRY_VOID(read_call("", 1));
      } else {
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  // Calls in calls may be this deep.
  static constexpr int kMostDepth = 64;

  const Token& now(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is_sign(size_t ahead, std::string_view sign) const {
    return now(ahead).kind == Token::Kind::kSign && now(ahead).text == sign;
  }
  bool is_root(const std::string& name) const {
    return std::find(roots_.begin(), roots_.end(), name) != roots_.end();
  }

  // Reads the arguments of a call; the current token is "(".
  Status read_call(const std::string& path, int depth) {
    const int first = now().line;
    if (depth > kMostDepth) {
      return invalid_input(
          fmt::format("line {}: expected at most {} calls in calls", first, kMostDepth));
    }
    ++at_;
    while (!is_sign(0, ")")) {
      if (now().kind == Token::Kind::kEnd)
        return invalid_input(fmt::format("line {}: expected ')' for the '(' here", first));
      if (now().kind == Token::Kind::kName && is_sign(1, "=") && !is_sign(2, "=")) {
        const std::string inner = path.empty() ? now().text : path + "." + now().text;
        const int line = now().line;
        at_ += 2;
        TESSERA_TRY_VOID(read_value(inner, line, depth));
      } else if (now().kind == Token::Kind::kLineEnd || is_sign(0, ",")) {
        ++at_;
      } else {
        const size_t before = at_;
        TESSERA_TRY_VOID(skip_value());
        if (at_ == before) ++at_;  // a bracket that closes nothing
      }
    }
    ++at_;
    return {};
  }

  // Returns whether a call is of a configuration class, whose arguments are settings: its last name
  // begins with a capital letter.
  static bool is_class(const std::string& name) {
    const std::string last = name.substr(name.rfind('.') + 1);
    return !last.empty() && std::isupper(static_cast<unsigned char>(last.front())) != 0;
  }

  Status read_value(const std::string& path, int line, int depth) {
    while (now().kind == Token::Kind::kLineEnd && depth > 0) ++at_;
    if (now().kind == Token::Kind::kName && is_sign(1, "(") && is_class(now().text)) {
      out_.push_back({path, now().text, line});
      ++at_;
      return read_call(path, depth + 1);
    }
    const size_t begin = now().begin;
    const bool text = now().kind == Token::Kind::kText;
    const std::string content = now().text;
    const size_t first = at_;
    TESSERA_TRY_VOID(skip_value());
    const size_t end = at_ == first ? begin : tokens_[at_ - 1].end;
    out_.push_back(
        {path, text && at_ == first + 1 ? content : text_.substr(begin, end - begin), line});
    return {};
  }

  // Moves to the comma, bracket or line end after a value.
  Status skip_value() {
    int open = 0;
    const int first = now().line;
    while (true) {
      if (now().kind == Token::Kind::kEnd) {
        if (open == 0) return {};
        return invalid_input(fmt::format("line {}: expected the end of a bracket", first));
      }
      const bool sign = now().kind == Token::Kind::kSign;
      const std::string& text = now().text;
      const bool opens = sign && (text == "(" || text == "[" || text == "{");
      const bool closes = sign && (text == ")" || text == "]" || text == "}");
      if (open == 0 && (closes || (sign && text == ",") || now().kind == Token::Kind::kLineEnd))
        return {};
      open += opens ? 1 : closes ? -1 : 0;
      ++at_;
    }
  }

  const std::string& text_;
  std::vector<Token> tokens_;
  const std::vector<std::string>& roots_;
  size_t at_ = 0;
  SaidKeys out_;
};

}  // namespace

Result<SaidKeys> settings_of_python(const std::string& text,
                                    const std::vector<std::string>& roots) {
  TESSERA_TRY(std::vector<Token> tokens, Lexer(text).run());
  return Settings(text, std::move(tokens), roots).run();
}

std::vector<std::vector<std::string>> lists_of(const std::string& value) {
  std::vector<std::vector<std::string>> out;
  char quote = 0;
  std::string word;
  for (const char c : value) {
    if (quote == 0 && c == '[') {
      out.emplace_back();
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
      if (!out.empty()) out.back().push_back(std::exchange(word, {}));
    } else if (quote != 0) {
      word += c;
    }
  }
  // The outer bracket of a list of lists has no texts of its own.
  if (out.size() > 1 && out.front().empty()) out.erase(out.begin());
  return out;
}

}  // namespace tessera
