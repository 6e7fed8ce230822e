// Tokens, names, and their text.
#include "tessera/program/text/text_parts.h"

#include <algorithm>

namespace tessera::program_text {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string_view write_name(Write write) {
  switch (write) {
    case Write::kSet: return "set";
    case Write::kAdd: return "add";
    case Write::kAddExceptFirst: return "add_except_first";
  }
  return "?";
}

std::string tensor_text(const Graph& graph, TensorId id) {
  const bool known = id.valid() && id.index() < graph.tensors().size();
  return known ? quoted(graph.tensor(id).name) : "none";
}

std::string op_text(const Graph& graph, OpId id) {
  if (!id.valid() || id.index() >= graph.ops().size()) return "none";
  const Op& op = graph.op(id);
  std::string out = quoted(op.path);
  if (op.phase != Phase::kForward) out += fmt::format("@{}", phase_name(op.phase));
  return out;
}

std::string attribute_text(const Attribute& attribute) {
  if (const auto* integer = std::get_if<int64_t>(&attribute)) return fmt::format("{}", *integer);
  if (const auto* text = std::get_if<std::string>(&attribute)) return quoted(*text);
  std::string number = fmt::format("{}", std::get<double>(attribute));
  if (number.find_first_of(".eni") == std::string::npos) number += ".0";
  return number;
}

std::string Cursor::quoted() {
  expect("\"");
  std::string out;
  while (!failed()) {
    if (position_ >= text_.size()) {
      fail("expected a closing '\"'");
      break;
    }
    char c = text_[position_++];
    if (c == '"') break;
    if (c == '\\' && position_ < text_.size()) {
      c = text_[position_++];
      if (c == 'n') c = '\n';
    }
    out += c;
  }
  return out;
}

std::string_view Cursor::until(char end) {
  const size_t begin = position_;
  position_ = std::min(text_.find(end, begin), text_.size());
  return text_.substr(begin, position_ - begin);
}

Attribute Cursor::attribute() {
  skip();
  if (position_ < text_.size() && text_[position_] == '"') return quoted();
  const size_t begin = position_;
  while (position_ < text_.size() && (is_word(text_[position_]) || text_[position_] == '.' ||
                                      text_[position_] == '-' || text_[position_] == '+')) {
    ++position_;
  }
  const std::string_view token = text_.substr(begin, position_ - begin);
  if (const auto integer = parse_int(token)) return *integer;
  double number = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
  if (error != std::errc() || end != token.data() + token.size()) {
    fail(fmt::format("expected a value, found '{}'", token));
  }
  return number;
}

Box Cursor::box() {
  expect("[");
  Box out;
  if (accept("]")) return out;
  do {
    const int64_t begin = integer();
    expect(":");
    const int64_t end = integer();
    if (!failed() && (end < begin || begin < INT64_MIN / 4 || end > INT64_MAX / 4)) {
      fail(fmt::format("{}:{} is no interval", begin, end));
    }
    if (failed()) return {};
    out.dims.push_back({begin, end - begin});
  } while (accept(","));
  expect("]");
  return out;
}

std::vector<int64_t> Cursor::integers() {
  return list([this] { return integer(); });
}

std::vector<std::string> Cursor::names() {
  return list([this] { return quoted(); });
}

DType Cursor::dtype() {
  const auto found = parse_dtype(word());
  if (!found) fail(found.error().message);
  return found ? *found : DType::kFloat32;
}

Write Cursor::write() { return named<Write>(3, write_name, "write"); }

GraphNames::GraphNames(const Graph& graph) : graph_(graph) {
  for (const Tensor& tensor : graph.tensors()) tensors_.emplace(tensor.name, tensor.id);
  for (const Op& op : graph.ops()) {
    ops_.emplace(std::string(phase_name(op.phase)) + ":" + op.path, op.id);
  }
}

TensorId GraphNames::tensor(Cursor& in) const {
  if (in.accept("none")) return {};
  const std::string name = in.quoted();
  if (in.failed()) return {};
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const Tensor& t : graph_.tensors()) names.push_back(t.name);
  in.fail(fmt::format("unknown tensor '{}', did you mean '{}'?", name, nearest(name, names)));
  return {};
}

OpId GraphNames::op(Cursor& in) const {
  if (in.accept("none")) return {};
  const std::string path = in.quoted();
  const std::string phase = in.accept("@") ? in.word() : std::string(phase_name(Phase::kForward));
  if (in.failed()) return {};
  const auto found = ops_.find(phase + ":" + path);
  if (found != ops_.end()) return found->second;
  std::vector<std::string> paths;
  for (const Op& o : graph_.ops()) paths.push_back(o.path);
  in.fail(fmt::format("unknown {} op '{}', did you mean '{}'?", phase, path, nearest(path, paths)));
  return {};
}

}  // namespace tessera::program_text
