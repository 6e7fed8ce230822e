#include "tessera/graph/annotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tessera {
namespace {

enum class TokenKind : uint8_t {
  kName,
  kNumber,
  kArrow,
  kComma,
  kOpen,
  kClose,
  kPlus,
  kCaret,
  kTilde,   // ~
  kOver,    // ~-
  kBeside,  // ~~
  kSlash,
  kLess,
  kBraceOpen,
  kBraceClose,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  size_t column = 1;  // 1-based
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

tl::unexpected<Error> error_at(size_t column, std::string_view message) {
  return invalid_input(fmt::format("annotation column {}: {}", column, message));
}

std::string found(const Token& token) {
  return token.kind == TokenKind::kEnd ? std::string("the end") : fmt::format("'{}'", token.text);
}

std::optional<TokenKind> symbol_kind(char c) {
  switch (c) {
    case ',': return TokenKind::kComma;
    case '(': return TokenKind::kOpen;
    case ')': return TokenKind::kClose;
    case '+': return TokenKind::kPlus;
    case '^': return TokenKind::kCaret;
    case '~': return TokenKind::kTilde;
    case '/': return TokenKind::kSlash;
    case '<': return TokenKind::kLess;
    case '{': return TokenKind::kBraceOpen;
    case '}': return TokenKind::kBraceClose;
    default: return std::nullopt;  // needed because c may be any character
  }
}

Result<std::vector<Token>> lex(std::string_view text) {
  std::vector<Token> tokens;
  size_t at = 0;
  auto take = [&](TokenKind kind, size_t length) {
    tokens.push_back({kind, text.substr(at, length), at + 1});
    at += length;
  };
  while (at < text.size()) {
    const char c = text[at];
    if (c == ' ' || c == '\t') {
      ++at;
    } else if (is_letter(c)) {
      size_t length = 1;
      while (at + length < text.size() &&
             (is_letter(text[at + length]) || is_digit(text[at + length]) ||
              text[at + length] == '.')) {
        ++length;
      }
      take(TokenKind::kName, length);
    } else if (is_digit(c)) {
      size_t length = 1;
      while (at + length < text.size() && is_digit(text[at + length])) ++length;
      if (at + length < text.size() && is_letter(text[at + length])) {
        return error_at(at + 1, "a dim name cannot start with a digit");
      }
      take(TokenKind::kNumber, length);
    } else if (text.substr(at, 2) == "->") {
      take(TokenKind::kArrow, 2);
    } else if (text.substr(at, 2) == "~-") {
      take(TokenKind::kOver, 2);
    } else if (text.substr(at, 2) == "~~") {
      take(TokenKind::kBeside, 2);
    } else if (auto kind = symbol_kind(c)) {
      take(*kind, 1);
    } else {
      return error_at(at + 1, fmt::format("unexpected character '{}'", c));
    }
  }
  tokens.push_back({TokenKind::kEnd, {}, text.size() + 1});
  return tokens;
}

// Sets the marks of the dims. An explicit `^` stays. A dim that is not the first of its
// bracket is hidden, where leading dims of size 1 are not counted. A dim that some output
// lacks is a reduction.
void settle_marks(Annotation& annotation) {
  std::vector<bool> hidden(annotation.dims.size(), false);
  auto mark_hidden = [&](const std::vector<OperandDims>& operands) {
    for (const OperandDims& operand : operands) {
      for (const DimGroup& group : operand.dims) {
        size_t first = 0;
        while (first < group.size() &&
               annotation.dims[static_cast<size_t>(group[first])].size == 1) {
          ++first;
        }
        for (size_t i = first + 1; i < group.size(); ++i) {
          hidden[static_cast<size_t>(group[i])] = true;
        }
      }
    }
  };
  mark_hidden(annotation.inputs);
  mark_hidden(annotation.outputs);
  std::vector<OpDim>& dims = annotation.dims.own();
  for (size_t i = 0; i < dims.size(); ++i) {
    OpDim& dim = dims[i];
    if (dim.mark == Mark::kFrozen && !dim.hidden) continue;
    dim.hidden = hidden[i];
    const bool everywhere = std::all_of(
        annotation.outputs.begin(), annotation.outputs.end(),
        [&](const OperandDims& output) { return output.contains(static_cast<int>(i)); });
    dim.mark = hidden[i] ? Mark::kFrozen : everywhere ? Mark::kSpatial : Mark::kReduction;
  }
}

// The marks of a dim as written, collected from all its occurrences. A column is 0 if the mark
// is absent.
struct WrittenMarks {
  size_t plus = 0;
  size_t caret = 0;
  std::string_view causal;  // name of the query dim
  size_t causal_column = 0;
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Annotation> parse() {
    if (peek().kind == TokenKind::kArrow) {
      ++at_;
    } else {
      TESSERA_TRY_VOID(parse_operands(/*output=*/false));
      if (peek().kind != TokenKind::kArrow) return expected("',' or '->'");
      ++at_;
    }
    TESSERA_TRY_VOID(parse_operands(/*output=*/true));
    if (peek().kind != TokenKind::kEnd) return expected("',' or the end");
    TESSERA_TRY_VOID(apply_marks());
    return std::move(annotation_);
  }

 private:
  const Token& peek() const { return tokens_[at_]; }
  tl::unexpected<Error> expected(std::string_view what) const {
    return error_at(peek().column, fmt::format("expected {}, found {}", what, found(peek())));
  }

  Status parse_operands(bool output) {
    for (;;) {
      OperandDims operand;
      TESSERA_TRY_VOID(parse_operand(operand, output));
      (output ? annotation_.outputs : annotation_.inputs).push_back(std::move(operand));
      if (peek().kind != TokenKind::kComma) return {};
      ++at_;
    }
  }

  Status parse_operand(OperandDims& operand, bool output) {
    if (peek().kind == TokenKind::kOpen && tokens_[at_ + 1].kind == TokenKind::kClose) {
      at_ += 2;  // scalar
    } else {
      while (starts_dim(peek().kind)) TESSERA_TRY_VOID(parse_dim(operand));
    }
    if (peek().kind == TokenKind::kBraceOpen) {
      if (!output) return error_at(peek().column, "only an output may name a combiner");
      ++at_;
      if (peek().kind != TokenKind::kName) return expected("a combiner");
      auto combiner = parse_combiner(peek().text);
      if (!combiner) return error_at(peek().column, combiner.error().message);
      operand.combiner = *combiner;
      ++at_;
      if (peek().kind != TokenKind::kBraceClose) return expected("'}'");
      ++at_;
    }
    return {};
  }

  static bool starts_dim(TokenKind kind) {
    return kind == TokenKind::kName || kind == TokenKind::kNumber || kind == TokenKind::kOpen;
  }

  Status parse_dim(OperandDims& operand) {
    operand.dims.emplace_back();
    if (peek().kind != TokenKind::kOpen) return parse_item(operand, /*in_bracket=*/false);
    ++at_;
    if (peek().kind == TokenKind::kClose) return expected("a dim");
    while (peek().kind != TokenKind::kClose) {
      if (peek().kind == TokenKind::kOpen) return error_at(peek().column, "brackets do not nest");
      if (!starts_dim(peek().kind)) return expected("a dim or ')'");
      TESSERA_TRY_VOID(parse_item(operand, /*in_bracket=*/true));
    }
    ++at_;
    return {};
  }

  Status parse_item(OperandDims& operand, bool in_bracket) {
    const Token& token = peek();
    ++at_;
    TESSERA_TRY(const int index, token.kind == TokenKind::kNumber ? literal_dim(operand, token)
                                                                  : named_dim(operand, token));
    operand.dims.back().push_back(index);
    return parse_marks(operand, index, in_bracket);
  }

  int add_dim(std::string_view name) {
    annotation_.dims.own().emplace_back();
    annotation_.dims.own().back().name = std::string(name);
    marks_.emplace_back();
    return static_cast<int>(annotation_.dims.size()) - 1;
  }

  Result<int> named_dim(const OperandDims& operand, const Token& token) {
    const int index = annotation_.find(token.text);
    if (index < 0) return add_dim(token.text);
    if (operand.contains(index)) {
      return error_at(token.column,
                      fmt::format("dim '{}' occurs twice in one operand", token.text));
    }
    return index;
  }

  // Returns the dim of a literal. The k-th literal n of each operand means the same op dim.
  Result<int> literal_dim(const OperandDims& operand, const Token& token) {
    int64_t size = 0;
    const char* end = token.text.data() + token.text.size();
    const auto parsed = std::from_chars(token.text.data(), end, size);
    if (parsed.ec != std::errc() || size < 1) {
      return error_at(token.column,
                      fmt::format("expected a size of at least 1, found {}", token.text));
    }
    const std::string name = fmt::format("{}", size);
    for (size_t i = 0; i < annotation_.dims.size(); ++i) {
      const int index = static_cast<int>(i);
      if (annotation_.dims[i].name == name && !operand.contains(index)) return index;
    }
    const int index = add_dim(name);
    annotation_.dims.own().back().size = size;
    annotation_.dims.own().back().mark = Mark::kFrozen;
    return index;
  }

  Status parse_marks(OperandDims& operand, int index, bool in_bracket) {
    const bool literal = annotation_.dims[static_cast<size_t>(index)].literal();
    WrittenMarks& marks = marks_[static_cast<size_t>(index)];
    for (;;) {
      const Token& token = peek();
      switch (token.kind) {
        case TokenKind::kPlus:
          marks.plus = token.column;
          ++at_;
          break;
        case TokenKind::kCaret:
          marks.caret = token.column;
          ++at_;
          break;
        case TokenKind::kTilde:
        case TokenKind::kOver:
        case TokenKind::kBeside:
          if (in_bracket) return error_at(token.column, "a window dim cannot stand in brackets");
          TESSERA_TRY_VOID(parse_window(operand, index));
          break;
        case TokenKind::kLess: TESSERA_TRY_VOID(parse_causal(index)); break;
        case TokenKind::kName:
        case TokenKind::kNumber:
        case TokenKind::kArrow:
        case TokenKind::kComma:
        case TokenKind::kOpen:
        case TokenKind::kClose:
        case TokenKind::kSlash:
        case TokenKind::kBraceOpen:
        case TokenKind::kBraceClose:
        case TokenKind::kEnd: return {};
      }
      if (literal && token.kind != TokenKind::kCaret) {
        return error_at(token.column, "a number takes no mark: it is frozen");
      }
    }
  }

  Status parse_window(OperandDims& operand, int index) {
    const size_t column = peek().column;
    Window window;
    const TokenKind mark = peek().kind;
    const WindowUse use = mark == TokenKind::kOver     ? WindowUse::kOver
                          : mark == TokenKind::kBeside ? WindowUse::kBeside
                                                       : WindowUse::kUnder;
    int64_t* const values[] = {&window.kernel, &window.stride, &window.padding};
    for (size_t i = 0; i < 3; ++i) {
      if (peek().kind != (i == 0 ? mark : TokenKind::kSlash)) return expected("'/'");
      ++at_;
      if (peek().kind != TokenKind::kNumber) {
        return expected("a number (~kernel/stride/padding)");
      }
      const std::string_view text = peek().text;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *values[i]);
      if (parsed.ec != std::errc() || (i < 2 && *values[i] < 1)) {
        return error_at(peek().column, fmt::format("window value {} is out of range", text));
      }
      ++at_;
    }
    OpDim& dim = annotation_.dims.own()[static_cast<size_t>(index)];
    if (dim.window && *dim.window != window) {
      return error_at(column, fmt::format("dim '{}' has two different windows", dim.name));
    }
    dim.window = window;
    operand.windowed.push_back({static_cast<int>(operand.dims.size()) - 1, use});
    return {};
  }

  Status parse_causal(int index) {
    ++at_;
    if (peek().kind != TokenKind::kName) return expected("the query dim of a causal pair");
    WrittenMarks& marks = marks_[static_cast<size_t>(index)];
    if (!marks.causal.empty() && marks.causal != peek().text) {
      return error_at(peek().column,
                      fmt::format("dim '{}' has two different query dims",
                                  annotation_.dims[static_cast<size_t>(index)].name));
    }
    marks.causal = peek().text;
    marks.causal_column = peek().column;
    ++at_;
    return {};
  }

  Status apply_marks() {
    for (size_t i = 0; i < annotation_.dims.size(); ++i) {
      OpDim& dim = annotation_.dims.own()[i];
      const WrittenMarks& marks = marks_[i];
      if (marks.plus != 0 && marks.caret != 0) {
        return error_at(std::max(marks.plus, marks.caret),
                        fmt::format("dim '{}' is marked both + and ^", dim.name));
      }
      if (marks.caret != 0) dim.mark = Mark::kFrozen;
      if (!marks.causal.empty()) {
        dim.causal_of = annotation_.find(marks.causal);
        if (dim.causal_of < 0 || dim.causal_of == static_cast<int>(i)) {
          return error_at(marks.causal_column,
                          fmt::format("'{}' is not another dim of the op", marks.causal));
        }
      }
    }
    settle_marks(annotation_);
    for (size_t i = 0; i < annotation_.dims.size(); ++i) {
      if (marks_[i].plus != 0 && annotation_.dims[i].mark == Mark::kSpatial) {
        return error_at(marks_[i].plus, fmt::format("dim '{}' is marked + but every output has it",
                                                    annotation_.dims[i].name));
      }
    }
    return {};
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Annotation annotation_;
  std::vector<WrittenMarks> marks_;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Binds sizes operand by operand. It remembers where each size came from, for messages
// about conflicts.
class Binder {
 public:
  explicit Binder(Annotation& annotation)
      : annotation_(annotation), source_(annotation.dims.size(), "the annotation") {}

  Status add(const std::vector<OperandDims>& operands,
             const std::vector<std::vector<int64_t>>& shapes, std::string_view what) {
    if (operands.size() != shapes.size()) {
      return invalid_input(
          fmt::format("expected {} {}s, found {}", operands.size(), what, shapes.size()));
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const OperandDims& operand = operands[i];
      std::string where = fmt::format("{} {}", what, i);
      if (operand.dims.size() != shapes[i].size()) {
        return invalid_input(fmt::format("{}: expected {} dims, found shape {}", where,
                                         operand.dims.size(), shape_text(shapes[i])));
      }
      for (size_t d = 0; d < operand.dims.size(); ++d) {
        items_.push_back({&operand.dims[d], shapes[i][d], where, operand.window_use(d)});
      }
    }
    return {};
  }

  Status bind() {
    for (const Item& item : items_) {
      const bool through = item.use && item.use != WindowUse::kBeside;
      if (item.group->size() == 1 && !through) {
        TESSERA_TRY_VOID(set(item.group->front(), item.size, item.where));
      }
    }
    for (const Item& item : items_) {
      if (item.use && item.use != WindowUse::kBeside) TESSERA_TRY_VOID(bind_window(item));
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (const Item& item : items_) {
        if (item.group->size() > 1) TESSERA_TRY_VOID(bind_bracket(item, progress));
      }
    }
    for (const OpDim& dim : annotation_.dims) {
      if (dim.size < 0) {
        return invalid_input(fmt::format("the size of dim '{}' is unknown", dim.name));
      }
    }
    return {};
  }

 private:
  struct Item {
    const DimGroup* group;
    int64_t size;
    std::string where;
    std::optional<WindowUse> use;
  };

  OpDim& dim(int index) { return annotation_.dims.own()[static_cast<size_t>(index)]; }

  Status set(int index, int64_t size, const std::string& where) {
    OpDim& d = dim(index);
    std::string& source = source_[static_cast<size_t>(index)];
    if (d.size < 0) {
      d.size = size;
      source = where;
    } else if (d.size != size) {
      return invalid_input(
          fmt::format("dim '{}' is {} in {} but {} in {}", d.name, d.size, source, size, where));
    }
    return {};
  }

  Status bind_window(const Item& item) {
    const int index = item.group->front();
    const Window& window = *dim(index).window;
    const bool over = item.use == WindowUse::kOver;
    const int64_t elements = over ? dim(index).size : item.size;
    if (elements < 0) {
      return invalid_input(fmt::format("the size of dim '{}' is unknown", dim(index).name));
    }
    const int64_t span = elements + 2 * window.padding - window.kernel;
    if (span < 0) {
      return invalid_input(fmt::format("dim '{}': size {} in {} is smaller than its window",
                                       dim(index).name, elements, item.where));
    }
    const int64_t positions = span / window.stride + 1;
    if (over && positions != item.size) {
      return invalid_input(fmt::format("dim '{}' of {} has {} windows, found {} in {}",
                                       dim(index).name, elements, positions, item.size,
                                       item.where));
    }
    int64_t& extent = dim(index).window_extent;
    if (extent >= 0 && extent != item.size) {
      return invalid_input(
          fmt::format("dim '{}': its window reads tensor dims of {} and of {} elements",
                      dim(index).name, extent, item.size));
    }
    extent = item.size;
    return over ? Status() : set(index, positions, item.where);
  }

  Status bind_bracket(const Item& item, bool& progress) {
    const int64_t uneven = uneven_extent(annotation_.dims, *item.group);
    if (uneven == item.size) return {};
    if (uneven >= 0) {
      return invalid_input(fmt::format("{}: expected uneven blocks of {} elements, found size {}",
                                       item.where, uneven, item.size));
    }
    int64_t known = 1;
    int unknown = -1;
    std::string names;
    for (const int index : *item.group) {
      names += (names.empty() ? "" : " ") + dim(index).name;
      if (dim(index).size >= 0) {
        known *= dim(index).size;
      } else if (unknown < 0) {
        unknown = index;
      } else {
        return {};  // two unknown sizes: another operand may determine one of them
      }
    }
    const bool fits = unknown < 0 ? known == item.size : known > 0 && item.size % known == 0;
    if (!fits) {
      return invalid_input(fmt::format("{}: bracket ({}) expected {} {}, found size {}", item.where,
                                       names, unknown < 0 ? "size" : "a multiple of", known,
                                       item.size));
    }
    if (unknown < 0) return {};
    progress = true;
    return set(unknown, item.size / known, item.where);
  }

  Annotation& annotation_;
  std::vector<std::string> source_;
  std::vector<Item> items_;
};

// Prints operands. `seen` marks the dims that have been printed before, whose marks are not
// printed again.
void print_operands(std::string& out, const Annotation& annotation,
                    const std::vector<OperandDims>& operands, std::vector<bool>& seen) {
  auto print_item = [&](int index) {
    const OpDim& dim = annotation.dims[static_cast<size_t>(index)];
    out += dim.name;
    if (seen[static_cast<size_t>(index)]) return;
    seen[static_cast<size_t>(index)] = true;
    if (dim.mark == Mark::kReduction) out += '+';
    if (dim.mark == Mark::kFrozen && !dim.hidden && !dim.literal()) out += '^';
    if (dim.causal_of >= 0) out += "<" + annotation.dims[static_cast<size_t>(dim.causal_of)].name;
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const OperandDims& operand = operands[i];
    if (i > 0) out += ", ";
    if (operand.dims.empty()) out += "()";
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      const DimGroup& group = operand.dims[d];
      if (d > 0) out += ' ';
      if (group.size() > 1) out += '(';
      for (size_t g = 0; g < group.size(); ++g) {
        if (g > 0) out += ' ';
        print_item(group[g]);
      }
      if (group.size() > 1) out += ')';
      if (const auto use = operand.window_use(d)) {
        const Window& window = *annotation.dims[static_cast<size_t>(group.front())].window;
        const char* way = *use == WindowUse::kOver ? "-" : *use == WindowUse::kBeside ? "~" : "";
        out += fmt::format("~{}{}/{}/{}", way, window.kernel, window.stride, window.padding);
      }
    }
    if (operand.combiner != Combiner::kSum)
      out += fmt::format(" {{{}}}", combiner_name(operand.combiner));
  }
}

}  // namespace

int64_t uneven_extent(const std::vector<OpDim>& dims, const DimGroup& group) {
  return group.size() > 1 ? dims[static_cast<size_t>(group.back())].uneven_extent : -1;
}

bool OperandDims::contains(int op_dim) const {
  return std::any_of(dims.begin(), dims.end(), [op_dim](const DimGroup& group) {
    return std::find(group.begin(), group.end(), op_dim) != group.end();
  });
}

std::optional<WindowUse> OperandDims::window_use(size_t tensor_dim) const {
  for (const Windowed& dim : windowed) {
    if (dim.dim == static_cast<int>(tensor_dim)) return dim.use;
  }
  return std::nullopt;
}

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }  // b > 0

Interval clamped(int64_t begin, int64_t end, int64_t extent) {
  const int64_t first = std::clamp<int64_t>(begin, 0, extent);
  return {first, std::clamp(end, first, extent) - first};
}

Interval under(const Window& w, Interval positions, int64_t elements) {
  return clamped(positions.begin * w.stride - w.padding,
                 (positions.end() - 1) * w.stride - w.padding + w.kernel, elements);
}

Interval over(const Window& w, Interval elements, int64_t positions) {
  return clamped(floor_div(elements.begin + w.padding - w.kernel, w.stride) + 1,
                 floor_div(elements.end() - 1 + w.padding, w.stride) + 1, positions);
}

}  // namespace

Interval WindowRead::of(Interval piece) const {
  if (piece == Interval{0, size}) return {0, extent};
  if (piece.empty()) return {std::min(piece.begin, extent), 0};
  switch (use) {
    case WindowUse::kUnder: return under(window, piece, extent);
    case WindowUse::kOver: return over(window, piece, extent);
    case WindowUse::kBeside: break;
  }
  const int64_t positions = (size + 2 * window.padding - window.kernel) / window.stride + 1;
  const Interval sharing = over(window, piece, positions);
  if (sharing.empty()) return {piece.begin, 0};
  return under(window, sharing, extent);
}

int Annotation::find(std::string_view name) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::optional<WindowRead> Annotation::window_read(const OperandDims& operand,
                                                  size_t tensor_dim) const {
  const std::optional<WindowUse> use = operand.window_use(tensor_dim);
  if (!use) return std::nullopt;
  const OpDim& dim = dims[static_cast<size_t>(operand.dims[tensor_dim].front())];
  return WindowRead{*dim.window, *use, dim.size,
                    *use == WindowUse::kBeside ? dim.size : dim.window_extent};
}

bool Annotation::reduces(int op_dim, size_t output) const {
  return !outputs[output].contains(op_dim);
}

Result<Annotation> parse_annotation(std::string_view text) {
  TESSERA_TRY(auto tokens, lex(text));
  return Parser(std::move(tokens)).parse();
}

std::string to_string(const Annotation& annotation) {
  std::string out;
  std::vector<bool> seen(annotation.dims.size(), false);
  print_operands(out, annotation, annotation.inputs, seen);
  out += out.empty() ? "-> " : " -> ";
  print_operands(out, annotation, annotation.outputs, seen);
  return out;
}

Status bind_sizes(Annotation& annotation, const std::vector<std::vector<int64_t>>& input_shapes,
                  const std::vector<std::vector<int64_t>>& output_shapes) {
  Binder binder(annotation);
  TESSERA_TRY_VOID(binder.add(annotation.inputs, input_shapes, "input"));
  TESSERA_TRY_VOID(binder.add(annotation.outputs, output_shapes, "output"));
  TESSERA_TRY_VOID(binder.bind());
  settle_marks(annotation);
  return {};
}

}  // namespace tessera
