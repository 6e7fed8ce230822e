#include "tessera/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <unordered_set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"

namespace tessera {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kInput: return "input";
    case Role::kParameter: return "parameter";
    case Role::kBuffer: return "buffer";
    case Role::kActivation: return "activation";
    case Role::kGradient: return "gradient";
    case Role::kOptimizerState: return "optimizer_state";
  }
  return "?";
}

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kUpdate: return "update";
  }
  return "?";
}

std::string_view init_name(Init::Kind kind) {
  switch (kind) {
    case Init::Kind::kNone: return "none";
    case Init::Kind::kZeros: return "zeros";
    case Init::Kind::kOnes: return "ones";
    case Init::Kind::kConstant: return "constant";
    case Init::Kind::kNormal: return "normal";
    case Init::Kind::kUniform: return "uniform";
    case Init::Kind::kRotaryCos: return "rotary_cos";
    case Init::Kind::kRotarySin: return "rotary_sin";
    case Init::Kind::kDistanceBuckets: return "distance_buckets";
    case Init::Kind::kWindowPairs: return "window_pairs";
    case Init::Kind::kWindowRegions: return "window_regions";
    case Init::Kind::kLearningRate: return "learning_rate";
    case Init::Kind::kStep: return "step";
  }
  return "?";
}

int size_count(Init::Kind kind) {
  if (kind == Init::Kind::kWindowPairs) return 1;
  return kind == Init::Kind::kDistanceBuckets || kind == Init::Kind::kWindowRegions ? 3 : 0;
}

std::vector<int64_t> Tensor::shape() const {
  std::vector<int64_t> out;
  out.reserve(dims.size());
  for (const Dim& dim : dims) out.push_back(dim.size);
  return out;
}

int64_t Tensor::elements() const {
  int64_t out = 1;
  for (const Dim& dim : dims) out *= dim.size;
  return out;
}

int64_t Op::integer(std::string_view name, int64_t otherwise) const {
  const auto it = attributes.find(name);
  if (it == attributes.end()) return otherwise;
  const auto* value = std::get_if<int64_t>(&it->second);
  return value != nullptr ? *value : otherwise;
}

double Op::number(std::string_view name, double otherwise) const {
  const auto it = attributes.find(name);
  if (it == attributes.end()) return otherwise;
  if (const auto* value = std::get_if<double>(&it->second)) return *value;
  const auto* value = std::get_if<int64_t>(&it->second);
  return value != nullptr ? static_cast<double>(*value) : otherwise;
}

std::string Op::text(std::string_view name, std::string otherwise) const {
  const auto it = attributes.find(name);
  if (it == attributes.end()) return otherwise;
  const auto* value = std::get_if<std::string>(&it->second);
  return value != nullptr ? *value : otherwise;
}

TensorId Graph::add_tensor(Tensor tensor) {
  tensor.id = TensorId(tensors_.size());
  tensors_.push_back(std::move(tensor));
  return tensors_.back().id;
}

static int block_of(std::string_view path) {
  constexpr std::string_view kBlocks = "blocks.";
  if (!path.starts_with(kBlocks)) return -1;
  int number = -1;
  std::from_chars(path.data() + kBlocks.size(), path.data() + path.size(), number);
  return number;
}

OpId Graph::add_op(Op op) {
  op.id = OpId(ops_.size());
  op.info = find_kind(op.kind);
  op.block = block_of(op.path);
  for (const TensorId output : op.outputs) {
    TESSERA_CHECK(output.index() < tensors_.size(), "op '{}'", op.path);
    tensors_[output.index()].producer = op.id;
  }
  ops_.push_back(std::move(op));
  return ops_.back().id;
}

TensorId Graph::find_tensor(std::string_view tensor_name) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.name == tensor_name) return tensor.id;
  }
  return {};
}

TensorId Graph::parameter_of(TensorId id) const {
  while (id.valid() && tensor(id).role != Role::kParameter) {
    const OpId producer = tensor(id).producer;
    if (!producer.valid() || op(producer).inputs.size() != 1) return {};
    id = op(producer).inputs.front();
  }
  return id;
}

bool Graph::is_parameter_gradient(TensorId id) const {
  const Tensor& gradient = tensor(id);
  if (gradient.role != Role::kGradient || !gradient.of.valid()) return false;
  const TensorId parameter = parameter_of(gradient.of);
  return parameter.valid() && tensor(parameter).dims == gradient.dims;
}

bool Graph::runs_again(const Op& op) const {
  return op.phase == Phase::kBackward && !op.outputs.empty() &&
         tensor(op.outputs[0]).role == Role::kActivation;
}

std::vector<std::vector<OpId>> Graph::consumers() const {
  std::vector<std::vector<OpId>> out(tensors_.size());
  for (const Op& op : ops_) {
    for (const TensorId input : op.inputs) {
      std::vector<OpId>& readers = out[input.index()];
      if (readers.empty() || readers.back() != op.id) readers.push_back(op.id);
    }
  }
  return out;
}

PublishedDims published_dims(const Tensor& tensor) {
  if (!tensor.published.empty()) return tensor.published;
  PublishedDims own;
  for (size_t d = 0; d < tensor.dims.size(); ++d) own.push_back({static_cast<int>(d)});
  return own;
}

std::string published_text(const Tensor& tensor) {
  std::string out;
  for (const std::vector<int>& joined : published_dims(tensor)) {
    std::vector<std::string> names;
    for (const int d : joined) names.push_back(tensor.dims[static_cast<size_t>(d)].name);
    const std::string name = join(names, " ");
    out += (out.empty() ? "" : " ") + (joined.size() == 1 ? name : "(" + name + ")");
  }
  return out;
}

namespace {

// Returns whether each of the `count` dims of a tensor is part of exactly one published dim.
bool is_each_published_once(const PublishedDims& published, size_t count) {
  std::vector<int> times(count, 0);
  for (const std::vector<int>& joined : published) {
    for (const int d : joined) {
      if (d < 0 || static_cast<size_t>(d) >= count || ++times[static_cast<size_t>(d)] > 1)
        return false;
    }
  }
  return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
}

}  // namespace

Result<PublishedDims> parse_published(std::string_view text, const std::vector<Dim>& dims) {
  PublishedDims published;
  bool joining = false, wrong = false;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    const auto dim =
        std::find_if(dims.begin(), dims.end(), [&](const Dim& one) { return one.name == word; });
    wrong = wrong || dim == dims.end();
    if (!joining) published.emplace_back();
    published.back().push_back(static_cast<int>(dim - dims.begin()));
    word.clear();
  };
  for (const char c : text) {
    if (c != ' ' && c != '(' && c != ')') {
      word += c;
      continue;
    }
    end_word();
    wrong = wrong || (c == '(' && joining) || (c == ')' && !joining);
    if (c == '(') published.emplace_back();
    if (c != ' ') joining = c == '(';
  }
  end_word();
  if (wrong || joining || !is_each_published_once(published, dims.size())) {
    return invalid_input(fmt::format(
        "expected published dims that name each dim of {} once, found '{}'", describe(dims), text));
  }
  Tensor plain;
  plain.dims = dims;
  if (published == published_dims(plain)) published.clear();
  return published;
}

int64_t parameter_count(const Graph& graph) {
  int64_t count = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && !tensor.update_of.valid()) count += tensor.elements();
  }
  return count;
}

namespace {

bool is_identifier(std::string_view name) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || !letter(name[0])) return false;
  for (const char c : name) {
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.') return false;
  }
  return true;
}

bool in_range(TensorId id, const Graph& graph) {
  return id.valid() && id.index() < graph.tensors().size();
}

// Makes a text such as "op 'blocks.0.attn.q' (einsum)". It is called only when a message needs
// the text.
using LazyName = std::function<std::string()>;

bool has_producer(Role role) { return role == Role::kActivation || role == Role::kGradient; }

// Returns a dim whose name another dim has too, or null. There are few dims, so all pairs
// are compared.
const Dim* repeated(const std::vector<Dim>& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (dims[i].name == dims[j].name) return &dims[i];
    }
  }
  return nullptr;
}

Status verify_dims(const Tensor& tensor, const LazyName& where) {
  for (const Dim& dim : tensor.dims) {
    if (!is_identifier(dim.name)) {
      return invalid_input(fmt::format(
          "{}: expected a dim name (letters, digits, '_', '.'), found '{}'", where(), dim.name));
    }
    if (dim.size < 1) {
      return invalid_input(
          fmt::format("{}: expected dim '{}' to have a size of at least 1, found {}", where(),
                      dim.name, dim.size));
    }
  }
  if (const Dim* dim = repeated(tensor.dims)) {
    return invalid_input(fmt::format("{}: dim '{}' occurs twice", where(), dim->name));
  }
  return {};
}

// Checks the sizes of a kind without tables of integers. Rotary tables may have a factor of all
// frequencies, or numbers for a scaling by wavelength, or those of YaRN, or a factor of each
// frequency; ones may rise (docs/reference/ops.md).
Status verify_sizes(const Tensor& tensor, const LazyName& where) {
  const Init& init = tensor.init;
  const std::vector<int64_t>& s = init.sizes;
  const bool rotary = init.kind == Init::Kind::kRotaryCos || init.kind == Init::Kind::kRotarySin;
  const bool each = !s.empty() && s[0] == 0;
  const bool positive =
      std::all_of(s.begin() + (each ? 1 : 0), s.end(), [](int64_t size) { return size >= 1; });
  if (each && rotary && positive && tensor.dims.size() == 2 &&
      s.size() == 2 + static_cast<size_t>(tensor.dims[1].size)) {
    return {};
  }
  const bool rises = init.kind == Init::Kind::kOnes && s.size() == 1 && tensor.dims.size() == 1 &&
                     is_floating(tensor.dtype);
  if (rises && positive) return {};
  const bool known = s.size() == 1 || (s.size() == 4 && s[2] >= s[1]) ||
                     (s.size() == 5 && s[2] > s[3] && s[4] <= 2);
  if (s.empty() || (rotary && !each && positive && known)) return {};
  return invalid_input(fmt::format(
      "{}: expected no sizes of {}, or of rotary tables a factor, or factor, low, high "
      "above low and positions, or factor, positions, fast, slow below fast and 1 or 2, "
      "or 0, amplitude and a factor for each column; or of ones with one dim a number of rows",
      where(), init_name(init.kind)));
}

// Checks that a table of integers has two dims, and that its Init's sizes fit the dims.
Status verify_table(const Tensor& tensor, const LazyName& where) {
  const Init& init = tensor.init;
  if (size_count(init.kind) == 0) return verify_sizes(tensor, where);
  const std::vector<int64_t>& s = init.sizes;
  const bool whole = s.size() == static_cast<size_t>(size_count(init.kind)) &&
                     tensor.dims.size() == 2 && tensor.dtype == DType::kInt64;
  const auto fits = [&] {
    const int64_t rows = tensor.dims[0].size, columns = tensor.dims[1].size;
    constexpr int64_t kLargest = int64_t{1} << 20;
    if (s[0] < 1 || s[0] > kLargest) return false;
    switch (init.kind) {
      case Init::Kind::kDistanceBuckets:
        return s[0] % 4 == 0 && s[1] > s[0] / 2 && (s[2] == 0 || s[2] == 1);
      case Init::Kind::kWindowPairs: return rows == s[0] * s[0] && columns == rows;
      default:
        return s[1] >= 0 && s[1] < s[0] && s[2] >= 1 && s[2] <= kLargest && rows == s[0] * s[0] &&
               columns % (s[2] * s[2]) == 0;
    }
  };
  if (whole && fits()) return {};
  return invalid_input(
      fmt::format("{}: expected a table of {} (int64, two dims) and sizes that fit "
                  "it, found {}",
                  where(), init_name(init.kind), describe(tensor)));
}

Status verify_published(const Tensor& tensor, const LazyName& where) {
  if (tensor.published.empty()) return {};
  if (tensor.role != Role::kParameter)
    return invalid_input(fmt::format("{}: published= is for parameters", where()));
  if (is_each_published_once(tensor.published, tensor.dims.size())) return {};
  return invalid_input(fmt::format("{}: expected published dims that name each dim of {} once",
                                   where(), describe(tensor.dims)));
}

Status verify_tensor(const Graph& graph, const Tensor& tensor, size_t position) {
  const LazyName where = [&] { return fmt::format("tensor '{}'", tensor.name); };
  if (tensor.name.empty()) return invalid_input(fmt::format("tensor {} has no name", position));
  if (tensor.id.index() != position) {
    return invalid_input(
        fmt::format("{}: expected id {}, found {}", where(), position, tensor.id.value));
  }
  TESSERA_TRY_VOID(verify_dims(tensor, where));
  TESSERA_TRY_VOID(verify_table(tensor, where));
  TESSERA_TRY_VOID(verify_published(tensor, where));
  if (tensor.update_of.valid() && !in_range(tensor.update_of, graph)) {
    return invalid_input(fmt::format("{}: update_of is no tensor of the graph", where()));
  }
  if (tensor.of.valid() && !in_range(tensor.of, graph)) {
    return invalid_input(fmt::format("{}: of is no tensor of the graph", where()));
  }
  if (tensor.producer.valid()) {
    if (tensor.producer.index() >= graph.ops().size()) {
      return invalid_input(fmt::format("{}: its producer is no op of the graph", where()));
    }
    const std::vector<TensorId>& outputs = graph.op(tensor.producer).outputs;
    if (std::find(outputs.begin(), outputs.end(), tensor.id) == outputs.end()) {
      return invalid_input(fmt::format("{}: its producer '{}' does not make it", where(),
                                       graph.op(tensor.producer).path));
    }
  }
  if (has_producer(tensor.role) && !tensor.producer.valid()) {
    return invalid_input(fmt::format("{}: expected an op that makes this {}, found none", where(),
                                     role_name(tensor.role)));
  }
  if (!has_producer(tensor.role) && tensor.producer.valid() && !tensor.update_of.valid()) {
    return invalid_input(fmt::format("{}: op '{}' may not make a tensor of role {}", where(),
                                     graph.op(tensor.producer).path, role_name(tensor.role)));
  }
  return {};
}

Status verify_op_inference(const Graph& graph, const Op& op, const LazyName& where) {
  Attributes attributes = op.attributes;
  auto inferred = infer_op(graph, op.kind, op.inputs, attributes);
  if (!inferred) return invalid_input(fmt::format("{}: {}", where(), inferred.error().message));
  if (attributes != op.attributes) {
    for (const auto& [name, value] : attributes) {
      const auto it = op.attributes.find(name);
      if (it == op.attributes.end() || it->second != value) {
        return invalid_input(
            fmt::format("{}: attribute '{}' is missing or of the wrong type", where(), name));
      }
    }
  }
  if (inferred->outputs.size() != op.outputs.size()) {
    return invalid_input(fmt::format("{}: expected {} outputs, found {}", where(),
                                     inferred->outputs.size(), op.outputs.size()));
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const Tensor& output = graph.tensor(op.outputs[i]);
    if (output.dims != inferred->outputs[i] || output.dtype != inferred->dtypes[i]) {
      Tensor wanted = output;
      wanted.dims = inferred->outputs[i];
      wanted.dtype = inferred->dtypes[i];
      return invalid_input(fmt::format("{}: expected output {} to be {}, found {}", where(), i,
                                       describe(wanted), describe(output)));
    }
  }
  if (op.annotation != inferred->annotation) {
    const std::string wanted = to_string(inferred->annotation);
    const std::string found = to_string(op.annotation);
    return invalid_input(fmt::format("{}: expected the annotation '{}', found '{}'{}", where(),
                                     wanted, found, wanted == found ? " with other sizes" : ""));
  }
  return {};
}

Status verify_op(const Graph& graph, const Op& op, size_t position, bool infer) {
  const LazyName where = [&] { return fmt::format("op '{}' ({})", op.path, op.kind); };
  if (op.id.index() != position) {
    return invalid_input(
        fmt::format("{}: expected id {}, found {}", where(), position, op.id.value));
  }
  for (const TensorId input : op.inputs) {
    if (!in_range(input, graph)) {
      return invalid_input(fmt::format("{}: an input is no tensor of the graph", where()));
    }
    const Tensor& tensor = graph.tensor(input);
    if (tensor.producer.valid() && tensor.producer.index() >= position) {
      return invalid_input(
          fmt::format("{}: reads '{}', which a later op makes", where(), tensor.name));
    }
  }
  for (const TensorId output : op.outputs) {
    if (!in_range(output, graph)) {
      return invalid_input(fmt::format("{}: an output is no tensor of the graph", where()));
    }
    const Tensor& tensor = graph.tensor(output);
    if (tensor.producer != op.id) {
      return invalid_input(
          fmt::format("{}: its output '{}' has another producer", where(), tensor.name));
    }
    if (tensor.update_of.valid() && op.phase != Phase::kUpdate) {
      return invalid_input(fmt::format("{}: only an update op may update '{}'", where(),
                                       graph.tensor(tensor.update_of).name));
    }
  }
  if (op.mirror.valid() && op.mirror.index() >= graph.ops().size()) {
    return invalid_input(fmt::format("{}: its mirror is no op of the graph", where()));
  }
  return infer ? verify_op_inference(graph, op, where) : Status();
}

}  // namespace

std::string describe(const std::vector<Dim>& dims) {
  std::string out = "[";
  for (const Dim& dim : dims)
    out += fmt::format("{}{}={}", out.size() > 1 ? ", " : "", dim.name, dim.size);
  return out + "]";
}

std::string describe(const Tensor& tensor) {
  return fmt::format("'{}' {} {}", tensor.name, describe(tensor.dims), dtype_name(tensor.dtype));
}

namespace {

Status verify_graph(const Graph& graph, bool infer, const Graph::Place& place = nullptr) {
  const auto at = [&](const Op* op, const Tensor* tensor, Status status) {
    if (status || !place) return status;
    return Status(invalid_input(place(op, tensor) + status.error().message));
  };
  std::unordered_set<std::string_view> names;  // for look-up only
  names.reserve(graph.tensors().size());
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    TESSERA_TRY_VOID(at(nullptr, &tensor, verify_tensor(graph, tensor, i)));
    if (!names.insert(tensor.name).second) {
      return at(nullptr, &tensor,
                invalid_input(fmt::format("two tensors have the name '{}'", tensor.name)));
    }
  }
  std::array<std::unordered_set<std::string_view>, 3> paths;  // by phase; for look-up only
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (!paths[static_cast<size_t>(op.phase)].insert(op.path).second) {
      return at(&op, nullptr,
                invalid_input(
                    fmt::format("two {} ops have the path '{}'", phase_name(op.phase), op.path)));
    }
    TESSERA_TRY_VOID(at(&op, nullptr, verify_op(graph, op, i, infer)));
  }
  if (!graph.loss.valid()) return {};
  if (!in_range(graph.loss, graph)) {
    return at(nullptr, nullptr, invalid_input("the loss is no tensor of the graph"));
  }
  const Tensor& loss = graph.tensor(graph.loss);
  if (loss.dims.empty()) return {};
  return at(nullptr, &loss,
            invalid_input(fmt::format("expected a scalar loss, found {}", describe(loss))));
}

}  // namespace

Status Graph::verify(const Place& place) const { return verify_graph(*this, true, place); }

Status Graph::verify_made() const {
  static const bool infers_again = std::getenv("TESSERA_CHECK_GRAPHS") != nullptr;
  return verify_graph(*this, infers_again);
}

}  // namespace tessera
