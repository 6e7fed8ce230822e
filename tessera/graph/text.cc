// The text form of a graph; docs/reference/graph-format.md. Each tensor and each op has one line.
// Tensors are in the order of their ids, each before the first op that mentions it, and ops are in
// order. So ids need not be written.
#include "tessera/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "tessera/base/one_line.h"
#include "tessera/graph/graph.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

constexpr std::array kRoles = {Role::kInput,      Role::kParameter, Role::kBuffer,
                               Role::kActivation, Role::kGradient,  Role::kOptimizerState};
constexpr std::array kPhases = {Phase::kForward, Phase::kBackward, Phase::kUpdate};
constexpr std::array kInits = {
    Init::Kind::kNone,        Init::Kind::kZeros,         Init::Kind::kOnes,
    Init::Kind::kConstant,    Init::Kind::kNormal,        Init::Kind::kUniform,
    Init::Kind::kRotaryCos,   Init::Kind::kRotarySin,     Init::Kind::kDistanceBuckets,
    Init::Kind::kWindowPairs, Init::Kind::kWindowRegions, Init::Kind::kLearningRate,
    Init::Kind::kStep};

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '@' || c == '/';
}

// ---- print
// ---------------------------------------------------------------------------------------
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string handle(const Graph& graph, TensorId id) {
  const std::string& name = graph.tensor(id).name;
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), is_bare);
  return "%" + (bare ? name : quoted(name));
}

std::string handles(const Graph& graph, const std::vector<TensorId>& ids) {
  std::string out;
  for (const TensorId id : ids) out += (out.empty() ? "" : ", ") + handle(graph, id);
  return out;
}

// Returns the shortest text that is read back as the same double and cannot be read as an integer.
std::string double_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

std::string attribute_text(const Attribute& attribute) {
  if (const auto* integer = std::get_if<int64_t>(&attribute)) return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&attribute)) return double_text(*number);
  return quoted(std::get<std::string>(attribute));
}

std::string tensor_line(const Graph& graph, const Tensor& tensor) {
  std::string line = fmt::format("{} {} {} {}", role_name(tensor.role), handle(graph, tensor.id),
                                 describe(tensor.dims), dtype_name(tensor.dtype));
  if (tensor.init != Init{}) {
    line += fmt::format(" init={}", init_name(tensor.init.kind));
    if (tensor.init.value != 0) line += fmt::format("({})", double_text(tensor.init.value));
    std::string sizes;
    for (const int64_t size : tensor.init.sizes) {
      sizes += fmt::format("{}{}", sizes.empty() ? "" : " ", size);
    }
    if (!sizes.empty()) line += fmt::format("({})", sizes);
  }
  if (tensor.recompute) line += " recompute=1";
  if (!tensor.trained) line += " trained=0";
  if (!tensor.published.empty()) line += " published=" + quoted(published_text(tensor));
  if (tensor.of.valid()) line += " of=" + handle(graph, tensor.of);
  if (tensor.update_of.valid()) line += " update_of=" + handle(graph, tensor.update_of);
  return line + "\n";
}

std::string op_line(const Graph& graph, const Op& op) {
  std::string line = fmt::format("{} op {}", phase_name(op.phase), quoted(op.path));
  if (op.mirror.valid()) {
    const Op& mirror = graph.op(op.mirror);
    line += " mirror=";
    if (mirror.phase != Phase::kForward) line += fmt::format("{}:", phase_name(mirror.phase));
    line += quoted(mirror.path);
  }
  if (op.step >= 0) line += fmt::format(" step={}", op.step);
  line +=
      fmt::format(" {} = {}({})", handles(graph, op.outputs), op.kind, handles(graph, op.inputs));
  if (!op.attributes.empty()) {
    line += " {";
    const char* separator = "";
    for (const auto& [name, value] : op.attributes) {
      line += fmt::format("{}{}={}", separator, name, attribute_text(value));
      separator = ", ";
    }
    line += "}";
  }
  return line + " : " + to_string(op.annotation) + "\n";
}

// ---- parse
// ---------------------------------------------------------------------------------------
//
// A reading position in one line.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) { skip_blanks(); }

  bool at_end() const { return at_ == text_.size(); }
  bool at(char c) const { return !at_end() && text_[at_] == c; }
  std::string_view rest() const { return text_.substr(at_); }

  bool take(char c) {
    if (!at(c)) return false;
    ++at_;
    skip_blanks();
    return true;
  }
  bool take_word(std::string_view word) {
    const size_t end = at_ + word.size();
    if (text_.substr(at_, word.size()) != word) return false;
    if (end < text_.size() && is_bare(text_[end])) return false;
    at_ = end;
    skip_blanks();
    return true;
  }
  Status expect(char c) {
    if (take(c)) return {};
    return expected(fmt::format("'{}'", c));
  }
  tl::unexpected<Error> expected(std::string_view what) const {
    std::string_view next = rest();
    next = next.substr(0, std::max<size_t>(1, next.find_first_of(" ,")));
    return invalid_input(fmt::format("column {}: expected {}, found {}", at_ + 1, what,
                                     at_end() ? "the end of the line" : fmt::format("'{}'", next)));
  }
  Result<std::string> word(std::string_view what) {
    size_t end = at_;
    while (end < text_.size() && is_bare(text_[end])) ++end;
    if (end == at_) return expected(what);
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    skip_blanks();
    return out;
  }
  Result<std::string> quoted_text(std::string_view what) {
    if (!at('"')) return expected(what);
    std::string out;
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '"') {
        at_ = i + 1;
        skip_blanks();
        return out;
      }
      if (text_[i] == '\\' && i + 1 < text_.size()) {
        ++i;
        out += text_[i] == 'n' ? '\n' : text_[i];
      } else {
        out += text_[i];
      }
    }
    return invalid_input(fmt::format("column {}: a quote is not closed", at_ + 1));
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  std::string_view text_;
  size_t at_ = 0;
};

class GraphParser {
 public:
  explicit GraphParser(std::string_view file) : file_(file) {}

  Result<Graph> parse(std::string_view text) {
    const std::vector<std::string> lines = split_text(text, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      line_ = i + 1;
      const std::string_view line = trim(lines[i]);
      if (line.empty() || line[0] == '#') continue;
      TESSERA_TRY_VOID(located(parse_line(Cursor(line))));
    }
    TESSERA_TRY_VOID(resolve_links());
    TESSERA_TRY_VOID(graph_.verify([this](const Op* op, const Tensor* tensor) {
      if (op != nullptr) return fmt::format("{}:{}: ", file_, op_lines_[op->id.index()]);
      if (tensor != nullptr)
        return fmt::format("{}:{}: ", file_, tensor_lines_[tensor->id.index()]);
      return file_ + ": ";
    }));
    return std::move(graph_);
  }

 private:
  struct Link {
    TensorId from;
    std::string to;
    bool update = false;
    size_t line = 0;
  };

  Status located(Status status) const {
    if (status) return status;
    return invalid_input(fmt::format("{}:{}: {}", file_, line_, status.error().message));
  }

  Status parse_line(Cursor cursor) {
    if (cursor.take_word("graph")) {
      TESSERA_TRY(graph_.name, cursor.quoted_text("the graph's name in quotes"));
      return cursor.at_end() ? Status{} : cursor.expected("the end of the line");
    }
    if (cursor.take_word("loss")) {
      TESSERA_TRY(graph_.loss, tensor(cursor));
      return cursor.at_end() ? Status{} : cursor.expected("the end of the line");
    }
    for (const Role role : kRoles) {
      if (cursor.take_word(role_name(role))) return parse_tensor(cursor, role);
    }
    for (const Phase phase : kPhases) {
      if (cursor.take_word(phase_name(phase))) return parse_op(cursor, phase);
    }
    return cursor.expected("'graph', 'loss', a role or a phase");
  }

  static Result<std::string> tensor_name(Cursor& cursor) {
    if (!cursor.take('%')) return cursor.expected("a tensor (%name)");
    if (cursor.at('"')) return cursor.quoted_text("a tensor name");
    return cursor.word("a tensor name");
  }

  Result<TensorId> tensor(Cursor& cursor) const {
    TESSERA_TRY(const std::string name, tensor_name(cursor));
    const auto it = tensors_.find(name);
    if (it != tensors_.end()) return it->second;
    return invalid_input(fmt::format("tensor '{}' is not declared above", name));
  }

  Result<std::vector<TensorId>> tensor_list(Cursor& cursor) const {
    std::vector<TensorId> ids;
    do {
      TESSERA_TRY(const TensorId id, tensor(cursor));
      ids.push_back(id);
    } while (cursor.take(','));
    return ids;
  }

  Status parse_tensor(Cursor& cursor, Role role) {
    Tensor tensor;
    tensor.role = role;
    TESSERA_TRY(tensor.name, tensor_name(cursor));
    TESSERA_TRY_VOID(cursor.expect('['));
    while (!cursor.at(']')) {
      if (!tensor.dims.empty()) TESSERA_TRY_VOID(cursor.expect(','));
      Dim dim;
      TESSERA_TRY(dim.name, cursor.word("a dim name"));
      TESSERA_TRY_VOID(cursor.expect('='));
      TESSERA_TRY(const std::string size, cursor.word("a size"));
      TESSERA_TRY(dim.size, parse_int(size));
      tensor.dims.push_back(dim);
    }
    TESSERA_TRY_VOID(cursor.expect(']'));
    TESSERA_TRY(const std::string dtype, cursor.word("a dtype"));
    TESSERA_TRY(tensor.dtype, parse_dtype(dtype));
    const TensorId id(graph_.tensors().size());
    while (!cursor.at_end()) TESSERA_TRY_VOID(parse_tensor_option(cursor, tensor, id));
    if (!tensors_.emplace(tensor.name, id).second) {
      return invalid_input(fmt::format("tensor '{}' is declared twice", tensor.name));
    }
    graph_.add_tensor(std::move(tensor));
    tensor_lines_.push_back(line_);
    return {};
  }

  Status parse_tensor_option(Cursor& cursor, Tensor& tensor, TensorId id) {
    if (cursor.take_word("init")) {
      TESSERA_TRY_VOID(cursor.expect('='));
      TESSERA_TRY(tensor.init, parse_init(cursor));
      return {};
    }
    if (cursor.take_word("recompute")) {
      TESSERA_TRY_VOID(cursor.expect('='));
      if (!cursor.take_word("1")) return cursor.expected("1");
      tensor.recompute = true;
      return {};
    }
    if (cursor.take_word("trained")) {
      TESSERA_TRY_VOID(cursor.expect('='));
      if (!cursor.take_word("0")) return cursor.expected("0");
      if (tensor.role != Role::kParameter) {
        return invalid_input(fmt::format("trained=0 is for parameters, '{}' is none", tensor.name));
      }
      tensor.trained = false;
      return {};
    }
    if (cursor.take_word("published")) {
      TESSERA_TRY_VOID(cursor.expect('='));
      TESSERA_TRY(const std::string text, cursor.quoted_text("published dims in quotes"));
      if (tensor.role != Role::kParameter) {
        return invalid_input(
            fmt::format("published= is for parameters, '{}' is none", tensor.name));
      }
      TESSERA_TRY(tensor.published, parse_published(text, tensor.dims));
      return {};
    }
    const bool update = cursor.take_word("update_of");
    if (!update && !cursor.take_word("of")) {
      return cursor.expected(
          "init=, recompute=, trained=, published=, of=, update_of= or the end of the line");
    }
    TESSERA_TRY_VOID(cursor.expect('='));
    TESSERA_TRY(const std::string name, tensor_name(cursor));
    links_.push_back({id, name, update, line_});
    return {};
  }

  static Result<Init> parse_init(Cursor& cursor) {
    Init init;
    TESSERA_TRY(const std::string name, cursor.word("an init"));
    const auto kind = std::find_if(kInits.begin(), kInits.end(),
                                   [&](Init::Kind k) { return init_name(k) == name; });
    if (kind == kInits.end()) {
      std::vector<std::string> names;
      names.reserve(kInits.size());
      for (const Init::Kind known : kInits) names.emplace_back(init_name(known));
      return invalid_input(
          fmt::format("expected an init ({}), found '{}'", join(names, ", "), name));
    }
    init.kind = *kind;
    const auto wanted = static_cast<size_t>(size_count(init.kind));
    if (wanted == 0 && !cursor.take('(')) return init;
    if (wanted == 0) {
      TESSERA_TRY(init.value, number(cursor));
    } else {
      TESSERA_TRY_VOID(cursor.expect('('));
      while (init.sizes.size() < wanted) {
        TESSERA_TRY(const std::string size, cursor.word("an integer"));
        TESSERA_TRY(const int64_t parsed, parse_int(size));
        init.sizes.push_back(parsed);
      }
    }
    TESSERA_TRY_VOID(cursor.expect(')'));
    // Reads the scaling of frequencies that rotary tables may have: rotary_cos(500000.0)(8 1
    // 4 8192).
    if (wanted > 0 || !cursor.take('(')) return init;
    while (!cursor.take(')')) {
      TESSERA_TRY(const std::string size, cursor.word("an integer or ')'"));
      TESSERA_TRY(const int64_t parsed, parse_int(size));
      init.sizes.push_back(parsed);
    }
    return init;
  }

  // Reads a number. It may contain a '+' (1e+20), which is not part of a word.
  static Result<std::string> number_text(Cursor& cursor) {
    TESSERA_TRY(std::string text, cursor.word("a number"));
    if (!cursor.take('+')) return text;
    TESSERA_TRY(const std::string exponent, cursor.word("a number"));
    return text + "+" + exponent;
  }
  static Result<double> number(Cursor& cursor) {
    TESSERA_TRY(const std::string text, number_text(cursor));
    return parse_double(text);
  }

  static Result<Attribute> parse_attribute(Cursor& cursor) {
    if (cursor.at('"')) {
      TESSERA_TRY(std::string text, cursor.quoted_text("a text"));
      return Attribute(std::move(text));
    }
    TESSERA_TRY(const std::string text, number_text(cursor));
    if (auto integer = parse_int(text)) return Attribute(*integer);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();  // as a bound of `clamp`
    if (text == "inf") return Attribute(kInfinity);
    if (text == "-inf") return Attribute(-kInfinity);
    TESSERA_TRY(const double value, parse_double(text));
    return Attribute(value);
  }

  Status parse_mirror(Cursor& cursor, Op& op) {
    TESSERA_TRY_VOID(cursor.expect('='));
    Phase phase = Phase::kForward;
    for (const Phase other : kPhases) {
      if (!cursor.take_word(phase_name(other))) continue;
      phase = other;
      TESSERA_TRY_VOID(cursor.expect(':'));
    }
    TESSERA_TRY(const std::string path, cursor.quoted_text("a path in quotes"));
    const auto it = ops_.find({phase, path});
    if (it == ops_.end()) {
      return invalid_input(
          fmt::format("{} op '{}' is not declared above", phase_name(phase), path));
    }
    op.mirror = it->second;
    return {};
  }

  Status parse_op(Cursor& cursor, Phase phase) {
    Op op;
    op.phase = phase;
    if (!cursor.take_word("op")) return cursor.expected("'op'");
    TESSERA_TRY(op.path, cursor.quoted_text("a path in quotes"));
    if (cursor.take_word("mirror")) TESSERA_TRY_VOID(parse_mirror(cursor, op));
    if (cursor.take_word("step")) {
      TESSERA_TRY_VOID(cursor.expect('='));
      TESSERA_TRY(const std::string step, cursor.word("a step"));
      TESSERA_TRY(op.step, parse_int(step).map([](int64_t n) { return static_cast<int>(n); }));
    }
    TESSERA_TRY(op.outputs, tensor_list(cursor));
    TESSERA_TRY_VOID(cursor.expect('='));
    TESSERA_TRY(op.kind, cursor.word("an op kind"));
    TESSERA_TRY_VOID(cursor.expect('('));
    if (!cursor.at(')')) {
      TESSERA_TRY(op.inputs, tensor_list(cursor));
    }
    TESSERA_TRY_VOID(cursor.expect(')'));
    if (cursor.take('{')) TESSERA_TRY_VOID(parse_attributes(cursor, op.attributes));
    if (cursor.at_end()) {
      TESSERA_TRY_VOID(infer(op));
    } else {
      TESSERA_TRY_VOID(cursor.expect(':'));
      TESSERA_TRY(op.annotation, parse_annotation(cursor.rest()));
      TESSERA_TRY_VOID(bind(op));
    }
    for (const TensorId output : op.outputs) {
      if (graph_.tensor(output).producer.valid()) {
        return invalid_input(fmt::format("tensor '{}' is made twice", graph_.tensor(output).name));
      }
    }
    if (!ops_.emplace(std::pair(phase, op.path), OpId(graph_.ops().size())).second) {
      return invalid_input(
          fmt::format("two {} ops have the path '{}'", phase_name(phase), op.path));
    }
    graph_.add_op(std::move(op));
    op_lines_.push_back(line_);
    return {};
  }

  // Fills in what a text may leave out: the annotation, and attributes with defaults.
  Status infer(Op& op) const {
    TESSERA_TRY(Inferred inferred, infer_op(graph_, op.kind, op.inputs, op.attributes));
    op.annotation = std::move(inferred.annotation);
    return {};
  }

  // Binds the sizes of the annotation by the shapes of the operands. If the shapes do not determine
  // all sizes (blocks of a slice), uses the sizes that the kind infers, too.
  Status bind(Op& op) const {
    Annotation by_shapes = op.annotation;
    Status bound = bind_sizes(by_shapes, shapes(op.inputs), shapes(op.outputs));
    if (bound) {
      op.annotation = std::move(by_shapes);
      return bound;
    }
    take_sizes_of_kind(op);
    if (bind_sizes(op.annotation, shapes(op.inputs), shapes(op.outputs))) return {};
    return bound;
  }

  void take_sizes_of_kind(Op& op) const {
    Attributes attributes = op.attributes;
    const auto inferred = infer_op(graph_, op.kind, op.inputs, attributes);
    if (!inferred) return;
    for (OpDim& dim : op.annotation.dims.own()) {
      const int known = inferred->annotation.find(dim.name);
      if (known < 0) continue;
      const OpDim& inferred_dim = inferred->annotation.dims[static_cast<size_t>(known)];
      if (dim.size < 0) dim.size = inferred_dim.size;
      dim.uneven_extent = inferred_dim.uneven_extent;
    }
  }

  static Status parse_attributes(Cursor& cursor, Attributes& attributes) {
    do {
      TESSERA_TRY(const std::string name, cursor.word("an attribute name"));
      TESSERA_TRY_VOID(cursor.expect('='));
      TESSERA_TRY(Attribute value, parse_attribute(cursor));
      attributes[name] = std::move(value);
    } while (cursor.take(','));
    return cursor.expect('}');
  }

  std::vector<std::vector<int64_t>> shapes(const std::vector<TensorId>& ids) const {
    std::vector<std::vector<int64_t>> out;
    out.reserve(ids.size());
    for (const TensorId id : ids) out.push_back(graph_.tensor(id).shape());
    return out;
  }

  Status resolve_links() {
    for (const Link& link : links_) {
      const auto it = tensors_.find(link.to);
      if (it == tensors_.end()) {
        return invalid_input(
            fmt::format("{}:{}: tensor '{}' is not declared", file_, link.line, link.to));
      }
      Tensor& tensor = graph_.tensor(link.from);
      (link.update ? tensor.update_of : tensor.of) = it->second;
    }
    return {};
  }

  std::string file_;
  size_t line_ = 0;
  Graph graph_;
  std::vector<size_t> tensor_lines_, op_lines_;  // by id
  std::map<std::string, TensorId, std::less<>> tensors_;
  std::map<std::pair<Phase, std::string>, OpId> ops_;
  std::vector<Link> links_;
};

}  // namespace

std::string to_text(const Graph& graph) {
  std::string out = fmt::format("graph {}\n", quoted(graph.name));
  size_t printed = 0;
  auto print_up_to = [&](size_t count) {
    for (; printed < count; ++printed) out += tensor_line(graph, graph.tensors()[printed]);
  };
  for (const Op& op : graph.ops()) {
    size_t needed = printed;
    for (const TensorId id : op.inputs) needed = std::max(needed, id.index() + 1);
    for (const TensorId id : op.outputs) needed = std::max(needed, id.index() + 1);
    print_up_to(needed);
    out += op_line(graph, op);
  }
  print_up_to(graph.tensors().size());
  if (graph.loss.valid()) out += fmt::format("loss {}\n", handle(graph, graph.loss));
  return out;
}

Result<Graph> parse_graph(std::string_view text, std::string_view file) {
  auto graph = GraphParser(file).parse(text);
  if (graph) return graph;
  // A message begins with the file and quotes names and parts of lines, which may be very long, so
  // the message after the file is shortened.
  const std::string& message = graph.error().message;
  return invalid_input(message.starts_with(file)
                           ? std::string(file) + short_line(message.substr(file.size()))
                           : short_line(message));
}

}  // namespace tessera
