// Common parts of the text forms of programs (text.h) and of place texts (place_text.h): the tokens
// of a line, and the names of tensors and ops. Private to tessera/program.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/program/program.h"

namespace tessera::program_text {

std::string quoted(std::string_view text);
std::string_view write_name(Write write);
std::string tensor_text(const Graph& graph, TensorId id);  // "none" without one
std::string op_text(const Graph& graph, OpId id);
std::string attribute_text(const Attribute& attribute);

// A `Cursor` reads the tokens of a line. It keeps the first error. Callers go on reading after an
// error; what they read then has no meaning, and later errors are dropped.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }
  bool at_end() {
    skip();
    return position_ >= text_.size();
  }
  // Returns whether the text goes on with `token`, a word or a symbol, and skips the token if so.
  bool accept(std::string_view token) {
    skip();
    if (text_.substr(position_, token.size()) != token) return false;
    const size_t end = position_ + token.size();
    const bool word = std::isalnum(static_cast<unsigned char>(token.back())) != 0;
    if (word && end < text_.size() && is_word(text_[end])) return false;
    position_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("expected '{}', found {}", token, rest()));
  }
  std::string word() {
    skip();
    const size_t begin = position_;
    while (position_ < text_.size() && is_word(text_[position_])) ++position_;
    if (position_ == begin) fail(fmt::format("expected a word, found {}", rest()));
    return std::string(text_.substr(begin, position_ - begin));
  }
  int64_t integer() {
    skip();
    int64_t value = 0;
    const char* begin = text_.data() + position_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(fmt::format("expected an integer, found {}", rest()));
    position_ += static_cast<size_t>(end - begin);
    return value;
  }
  int32_t small() {
    const int64_t value = integer();
    if (value < INT32_MIN || value > INT32_MAX) fail(fmt::format("{} is too large", value));
    return static_cast<int32_t>(value);
  }
  std::string quoted();
  std::string_view until(char end);  // all characters before `end`, or else the rest of the line
  Attribute attribute();
  Box box();
  std::vector<int64_t> integers();
  std::vector<std::string> names();
  template <class Read>
  auto list(Read read);  // "[a, b]": read() reads each element
  // Returns the enumerator of the next word. The enumerators are 0 to count - 1 with the names
  // name(enumerator); `what` says in an error what was expected.
  template <class Enum, class Name>
  Enum named(size_t count, Name&& name, std::string_view what);
  DType dtype();
  Write write();
  std::string rest() {
    skip();
    return position_ < text_.size() ? fmt::format("'{}'", text_.substr(position_, 24)) : "the end";
  }

 private:
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  void skip() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }
  std::string_view text_;
  size_t position_ = 0;
  std::string error_;
};

template <class Read>
auto Cursor::list(Read read) {
  std::vector<decltype(read())> out;
  expect("[");
  if (accept("]")) return out;
  do {
    out.push_back(read());
  } while (!failed() && accept(","));
  expect("]");
  return out;
}

template <class Enum, class Name>
Enum Cursor::named(size_t count, Name&& name, std::string_view what) {
  const std::string found = word();
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    names.emplace_back(name(static_cast<Enum>(i)));
    if (names.back() == found) return static_cast<Enum>(i);
  }
  fail(fmt::format("unknown {} '{}', expected one of {}", what, found, join(names, ", ")));
  return Enum{};
}

// A `GraphNames` reads the name of a tensor or of an op and returns the id that it has in the
// graph.
class GraphNames {
 public:
  explicit GraphNames(const Graph& graph);
  TensorId tensor(Cursor& in) const;
  OpId op(Cursor& in) const;

 private:
  const Graph& graph_;
  std::unordered_map<std::string, TensorId> tensors_;
  std::unordered_map<std::string, OpId> ops_;
};

// Calls line(cursor) for each line of the text that is neither empty nor a comment. Returns the
// first error, as "file:line: what".
template <class Line>
Status read_lines(std::string_view text, std::string_view file, const Line& line) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    Cursor in(text.substr(0, end));
    if (!in.at_end() && !in.accept("//")) {
      line(in);
      if (!in.failed() && !in.at_end())
        in.fail(fmt::format("expected the end of the line, found {}", in.rest()));
    }
    if (in.failed()) return invalid_input(fmt::format("{}:{}: {}", file, number, in.error()));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return {};
}

}  // namespace tessera::program_text
