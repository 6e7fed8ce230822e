// parse_program: a hand-written parser, one line at a time (docs/reference/program-format.md).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_map>

#include "tessera/base/text.h"
#include "tessera/program/text.h"

namespace tessera {
namespace {

// Reads tokens of a line. The first failure is kept; after it everything is empty.
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
  // Takes a word or a symbol if it comes next.
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
  Attribute attribute();
  Box box();
  std::vector<int64_t> integers();
  std::vector<std::string> names();
  std::string rest() {
    skip();
    return position_ < text_.size() ? fmt::format("'{}'", text_.substr(position_, 24)) : "the end";
  }

 private:
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  template <class Read>
  auto list(Read read);
  void skip() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }
  std::string_view text_;
  size_t position_ = 0;
  std::string error_;
};

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

// "[a, b]", each read by `read`.
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

std::vector<int64_t> Cursor::integers() {
  return list([this] { return integer(); });
}

std::vector<std::string> Cursor::names() {
  return list([this] { return quoted(); });
}

class Parser {
 public:
  explicit Parser(const Graph& graph) : graph_(graph) {
    for (const Tensor& tensor : graph.tensors()) tensors_.emplace(tensor.name, tensor.id);
    for (const Op& op : graph.ops()) {
      ops_.emplace(std::string(phase_name(op.phase)) + ":" + op.path, op.id);
    }
  }
  Result<Program> parse(std::string_view text, std::string_view file);

 private:
  void line(Cursor& in);
  void header(Cursor& in);
  void group(Cursor& in);
  void buffer(Cursor& in);
  Home home(Cursor& in);
  void schedule(Cursor& in);
  Instruction instruction(Cursor& in);
  Compute compute(Cursor& in);
  Output output(Cursor& in);
  Issue issue(Cursor& in);
  void coding(Cursor& in, std::optional<Codec>& codec, std::optional<View>* residual);
  Transfer transfer(Cursor& in);

  TensorId tensor(Cursor& in);
  OpId op(Cursor& in);
  BufferId buffer_id(Cursor& in);
  View view(Cursor& in);
  int handle(Cursor& in) {
    in.expect("#");
    return in.small();
  }
  BlockRef block(Cursor& in);
  // A word that names one of `count` enumerators.
  template <class Enum, class Name>
  Enum named(Cursor& in, size_t count, Name&& name, std::string_view what);

  const Graph& graph_;
  std::unordered_map<std::string, TensorId> tensors_;
  std::unordered_map<std::string, OpId> ops_;
  Program program_;
  bool started_ = false;
  std::vector<Instruction>* open_ = nullptr;
};

template <class Enum, class Name>
Enum Parser::named(Cursor& in, size_t count, Name&& name, std::string_view what) {
  const std::string word = in.word();
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    names.emplace_back(name(static_cast<Enum>(i)));
    if (names.back() == word) return static_cast<Enum>(i);
  }
  in.fail(fmt::format("unknown {} '{}', expected one of {}", what, word, join(names, ", ")));
  return Enum{};
}

TensorId Parser::tensor(Cursor& in) {
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

OpId Parser::op(Cursor& in) {
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

BufferId Parser::buffer_id(Cursor& in) {
  in.expect("%");
  return BufferId(in.small());
}

View Parser::view(Cursor& in) {
  View out;
  out.buffer = buffer_id(in);
  if (in.failed()) return out;
  Cursor ahead = in;
  if (ahead.accept("[")) {
    out.box = in.box();
  } else if (out.buffer.valid() && out.buffer.index() < program_.buffers.size()) {
    out.box = Box::whole(program_.buffer(out.buffer).shape);
  } else {
    in.fail(fmt::format("unknown buffer %{}", out.buffer.value));
  }
  return out;
}

BlockRef Parser::block(Cursor& in) {
  const auto name = [](BlockKind kind) { return block_name(kind); };
  BlockRef out = named<BlockKind>(in, kBlockKinds, name, "block");
  if (in.accept("@")) out.chunk = in.small();
  return out;
}

void Parser::group(Cursor& in) {
  if (in.integer() != static_cast<int64_t>(program_.groups.size())) {
    in.fail(fmt::format("expected group {}", program_.groups.size()));
  }
  Group out;
  in.expect("place");
  out.place = PlaceId(in.small());
  in.expect("axes");
  out.axes = in.names();
  in.expect("members");
  for (int64_t member : in.integers()) out.members.push_back(static_cast<int>(member));
  in.expect("index");
  out.index = in.small();
  program_.groups.push_back(std::move(out));
}

void Parser::buffer(Cursor& in) {
  Buffer out;
  out.id = buffer_id(in);
  if (out.id != BufferId(program_.buffers.size())) {
    in.fail(fmt::format("expected buffer %{}", program_.buffers.size()));
  }
  out.name = in.quoted();
  in.expect("of");
  out.tensor = tensor(in);
  const auto dtype = parse_dtype(in.word());
  if (dtype) {
    out.dtype = *dtype;
  } else {
    in.fail(dtype.error().message);
  }
  out.shape = in.integers();
  out.tier = named<Tier>(in, 3, tier_name, "tier");
  out.lifetime = named<Lifetime>(in, 4, lifetime_name, "lifetime");
  in.expect("at");
  out.offset = in.integer();
  if (in.accept("slots")) {
    out.slots = in.integer();
    in.expect("x");
    out.slot_bytes = in.integer();
  }
  program_.buffers.push_back(std::move(out));
}

Home Parser::home(Cursor& in) {
  Home out;
  out.tensor = tensor(in);
  out.region = in.box();
  out.buffer = buffer_id(in);
  return out;
}

void Parser::schedule(Cursor& in) {
  if (in.at_end()) return;
  do {
    BlockRunStep step;
    step.block = block(in);
    step.micro_batch = in.integer();
    program_.schedule.push_back(step);
  } while (!in.failed() && in.accept(","));
}

void Parser::header(Cursor& in) {
  if (in.accept("program")) {
    started_ = true;
    in.expect("rank");
    program_.rank = in.small();
    in.expect("of");
    program_.ranks = in.integer();
  } else if (!started_) {
    in.fail(fmt::format("expected 'program rank R of N', found {}", in.rest()));
  } else if (in.accept("stages")) {
    for (int64_t stage : in.integers())
      program_.stages.push_back(StageId(static_cast<int32_t>(stage)));
    in.expect("coordinates");
    program_.coordinates = in.integers();
  } else if (in.accept("micro_batches")) {
    program_.micro_batches = in.integer();
    in.expect("dim");
    program_.micro_batch_dim = in.quoted();
    in.expect("size");
    program_.micro_batch_size = in.integer();
  } else if (in.accept("arena")) {
    for (size_t tier = 0; tier < 3; ++tier) {
      in.expect(tier_name(static_cast<Tier>(tier)));
      program_.arena_bytes[tier] = in.integer();
    }
  } else if (in.accept("group")) {
    group(in);
  } else if (in.accept("buffer")) {
    buffer(in);
  } else if (in.accept("home")) {
    program_.homes.push_back(home(in));
  } else if (in.accept("fetch")) {
    program_.fetches.push_back(home(in));
  } else if (in.accept("schedule")) {
    schedule(in);
  } else {
    open_ = &program_.block(block(in));
    in.expect("{");
    if (!open_->empty()) in.fail("this block is there twice");
  }
}

Output Parser::output(Cursor& in) {
  Output out;
  const auto write_name = [](Write write) {
    switch (write) {
      case Write::kSet: return "set";
      case Write::kAdd: return "add";
      case Write::kAddExceptFirst: return "add_except_first";
    }
    return "?";
  };
  out.write = named<Write>(in, 3, write_name, "write");
  out.tensor = tensor(in);
  out.view = view(in);
  if (in.accept("term")) {
    out.term = in.small();
    in.expect("of");
    out.terms = in.small();
  }
  return out;
}

Compute Parser::compute(Cursor& in) {
  Compute out;
  out.op = op(in);
  out.kind = in.word();
  out.box = in.box();
  in.expect("(");
  if (!in.accept(")")) {
    do {
      out.inputs.push_back(view(in));
    } while (!in.failed() && in.accept(","));
    in.expect(")");
  }
  in.expect("->");
  in.expect("(");
  if (!in.accept(")")) {
    do {
      out.outputs.push_back(output(in));
    } while (!in.failed() && in.accept(","));
    in.expect(")");
  }
  if (in.accept("{")) {
    do {
      const std::string name = in.word();
      in.expect("=");
      out.attributes[name] = in.attribute();
    } while (!in.failed() && in.accept(","));
    in.expect("}");
  }
  return out;
}

Transfer Parser::transfer(Cursor& in) {
  Transfer out;
  out.tensor = tensor(in);
  for (SharedBoxes* boxes : {&out.hold, &out.need}) {
    if (boxes == &out.need) in.expect("->");
    in.expect("(");
    while (!in.failed() && !in.accept(")")) boxes->push_back(in.box());
  }
  if (in.accept("in")) out.in = view(in);
  if (in.accept("out")) out.out = view(in);
  return out;
}

void Parser::coding(Cursor& in, std::optional<Codec>& codec, std::optional<View>* residual) {
  if (!in.accept("with")) return;
  const auto parsed = parse_codec(in.quoted());
  if (parsed) codec = *parsed;
  if (!parsed) in.fail(parsed.error().message);
  if (residual != nullptr && in.accept("residual")) *residual = view(in);
}

Issue Parser::issue(Cursor& in) {
  Issue out;
  out.handle = handle(in);
  out.kind = named<CollectiveKind>(in, kCollectiveKinds, collective_name, "collective");
  if (in.accept("by")) {
    const auto combiner = parse_combiner(in.word());
    if (combiner) out.combiner = *combiner;
    if (!combiner) in.fail(combiner.error().message);
  }
  const auto dtype = parse_dtype(in.word());
  if (dtype) out.dtype = *dtype;
  if (!dtype) in.fail(dtype.error().message);
  in.expect("group");
  out.group = in.small();
  coding(in, out.codec, &out.residual);
  in.expect("{");
  if (in.accept("}")) return out;
  do {
    out.transfers.push_back(transfer(in));
  } while (!in.failed() && in.accept(";"));
  in.expect("}");
  return out;
}

Instruction Parser::instruction(Cursor& in) {
  Instruction out;
  if (in.accept("first")) out.when = When::kFirst;
  if (in.accept("last")) out.when = When::kLast;
  if (in.accept("compute")) {
    Compute body = compute(in);
    out.cause = body.op;
    out.body = std::move(body);
  } else if (in.accept("issue")) {
    out.body = issue(in);
  } else if (in.accept("wait")) {
    Wait body{handle(in), 0};
    if (in.accept("lag")) body.lag = in.small();
    out.body = body;
  } else if (in.accept("copy")) {
    Copy body;
    Cursor ahead = in;
    if (ahead.accept("#")) body.handle = handle(in);
    body.tensor = tensor(in);
    body.region = in.box();
    body.from = view(in);
    in.expect("->");
    if (in.accept("add")) body.write = Write::kAdd;
    if (in.accept("add_except_first")) body.write = Write::kAddExceptFirst;
    body.to = view(in);
    out.body = std::move(body);
  } else if (in.accept("load")) {
    Load body;
    body.tensor = tensor(in);
    body.region = in.box();
    in.expect("->");
    body.to = view(in);
    out.body = std::move(body);
  } else if (in.accept("free")) {
    out.body = Free{buffer_id(in)};
  } else {
    const bool sends = in.accept("send");
    if (!sends && !in.accept("recv")) in.fail(fmt::format("unknown instruction {}", in.rest()));
    const int number = handle(in);
    in.expect(sends ? "to" : "from");
    const int peer = in.small();
    in.expect("tag");
    const int64_t tag = in.integer();
    const TensorId what = tensor(in);
    Box region = in.box();
    View where = view(in);
    std::optional<Codec> codec;
    std::optional<View> residual;
    coding(in, codec, sends ? &residual : nullptr);
    if (sends) {
      out.body =
          Send{number, peer, tag, what, std::move(region), std::move(where), codec, residual};
    } else {
      out.body = Recv{number, peer, tag, what, std::move(region), std::move(where), codec};
    }
  }
  if (in.accept("for")) out.cause = op(in);
  return out;
}

void Parser::line(Cursor& in) {
  if (in.at_end()) return;
  if (in.accept("//")) return;
  if (open_ == nullptr) {
    header(in);
  } else if (in.accept("}")) {
    open_ = nullptr;
  } else {
    open_->push_back(instruction(in));
  }
  if (!in.failed() && !in.at_end())
    in.fail(fmt::format("expected the end of the line, found {}", in.rest()));
}

Result<Program> Parser::parse(std::string_view text, std::string_view file) {
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    Cursor in(text.substr(0, end));
    line(in);
    if (in.failed()) return invalid_input(fmt::format("{}:{}: {}", file, number, in.error()));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  if (!started_) return invalid_input(fmt::format("{}:1: expected 'program rank R of N'", file));
  if (open_ != nullptr) {
    return invalid_input(fmt::format("{}:{}: expected '}}' before the end", file, number));
  }
  return std::move(program_);
}

}  // namespace

Result<Program> parse_program(std::string_view text, const Graph& graph, std::string_view file) {
  return Parser(graph).parse(text, file);
}

}  // namespace tessera
