#include "tessera/import/pt2/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/import/pt2/names.h"

namespace tessera::pt2 {
namespace {

using Json = nlohmann::json;

// A value of the JSON document, with the text that says in errors where it is.
class Field {
 public:
  Field(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}
  const Json& json() const { return *json_; }

  tl::unexpected<Error> expected(std::string_view what) const { return found(what, shown(*json_)); }
  tl::unexpected<Error> found(std::string_view what, std::string_view text) const {
    return invalid_input(fmt::format("{}: expected {}, found {}", where_, what, text));
  }
  Result<Field> at(const std::string& key) const {
    if (!json_->is_object()) return expected(fmt::format("an object with a field '{}'", key));
    const auto found = json_->find(key);
    if (found == json_->end())
      return invalid_input(fmt::format("{}: expected a field '{}', found none", where_, key));
    return Field(*found, fmt::format("{}: {}", where_, key));
  }
  bool has(const std::string& key) const {
    return json_->is_object() && json_->contains(key) && !(*json_)[key].is_null();
  }
  Result<std::string> text() const {
    if (!json_->is_string()) return expected("a text");
    return json_->get<std::string>();
  }
  Result<std::string> text(const std::string& key) const {
    TESSERA_TRY(const Field field, at(key));
    return field.text();
  }
  Result<int64_t> integer() const {
    if (!json_->is_number_integer()) return expected("an integer");
    return json_->get<int64_t>();
  }
  Result<double> number() const {
    if (json_->is_number()) return json_->get<double>();
    const std::string name = json_->is_string() ? json_->get<std::string>() : "";
    if (name == "Infinity") return std::numeric_limits<double>::infinity();
    if (name == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
    return expected("a number");
  }
  Result<bool> truth() const {
    if (!json_->is_boolean()) return expected("true or false");
    return json_->get<bool>();
  }
  Result<std::vector<Field>> list() const {
    if (!json_->is_array()) return expected("a list");
    std::vector<Field> out;
    for (const Json& item : *json_)
      out.emplace_back(item, fmt::format("{} [{}]", where_, out.size()));
    return out;
  }
  // Reads a union, which is an object with one key, the tag. Returns the tag and its value.
  Result<std::pair<std::string, Field>> tagged() const {
    if (!json_->is_object() || json_->size() != 1) return expected("an object of one tag");
    const auto item = json_->begin();
    return std::pair{item.key(), Field(item.value(), fmt::format("{}: {}", where_, item.key()))};
  }

 private:
  const Json* json_;
  std::string where_;
};

// Reads a size of a tensor. Refuses a dynamic size, because all sizes of a graph are fixed.
Result<int64_t> read_size(const Field& field) {
  TESSERA_TRY(const auto tagged, field.tagged());
  if (tagged.first != "as_int")
    return field.expected("a fixed size (export the module without dynamic shapes)");
  TESSERA_TRY(const int64_t size, tagged.second.integer());
  if (size < 0 || size > kMaxElements) return field.expected("a size from 0 to 2^48");
  return size;
}

Result<std::vector<int64_t>> read_sizes(const Field& field) {
  TESSERA_TRY(const auto items, field.list());
  if (std::ssize(items) > kMaxRank) return field.expected(fmt::format("at most {} dims", kMaxRank));
  std::vector<int64_t> out;
  for (const Field& item : items) {
    TESSERA_TRY(const int64_t size, read_size(item));
    out.push_back(size);
  }
  return out;
}

Result<TensorMeta> read_meta(const Field& field) {
  TensorMeta meta;
  TESSERA_TRY(const Field dtype, field.at("dtype"));
  TESSERA_TRY(const int64_t number, dtype.integer());
  const std::optional<DType> known = dtype_of(number);
  if (!known) return dtype.expected("the number of a floating dtype, an integer dtype or bool");
  meta.dtype = *known;
  TESSERA_TRY(const Field sizes, field.at("sizes"));
  TESSERA_TRY(meta.sizes, read_sizes(sizes));
  TESSERA_TRY(const Field strides, field.at("strides"));
  TESSERA_TRY(meta.strides, read_sizes(strides));
  if (meta.strides.size() != meta.sizes.size()) return strides.expected("as many strides as sizes");
  TESSERA_TRY(const Field offset, field.at("storage_offset"));
  TESSERA_TRY(meta.storage_offset, read_size(offset));
  if (field.has("requires_grad")) {
    TESSERA_TRY(const Field trained, field.at("requires_grad"));
    TESSERA_TRY(meta.requires_grad, trained.truth());
  }
  if (!elements_of(meta.sizes)) return sizes.expected("sizes whose product is at most 2^48");
  return meta;
}

template <class T, class Read>
Result<Argument> read_list(const Field& field, Read read) {
  TESSERA_TRY(const auto items, field.list());
  std::vector<T> out;
  for (const Field& item : items) {
    TESSERA_TRY(const T value, read(item));
    out.push_back(value);
  }
  return Argument(std::move(out));
}

Result<std::string> read_name(const Field& field) { return field.text("name"); }

Result<std::string> read_optional_name(const Field& field) {
  TESSERA_TRY(const auto tagged, field.tagged());
  if (tagged.first == "as_none") return std::string();
  if (tagged.first != "as_tensor") return field.expected("as_tensor or as_none");
  return read_name(tagged.second);
}

template <class Read>
Result<TensorsArg> read_tensors(const Field& field, Read read) {
  TESSERA_TRY(const auto items, field.list());
  TensorsArg out;
  for (const Field& item : items) {
    TESSERA_TRY(std::string name, read(item));
    out.names.push_back(std::move(name));
  }
  return out;
}

// Reads a symbolic integer. Refuses one that is not fixed.
Result<int64_t> read_symbol(const Field& field) {
  TESSERA_TRY(const auto tagged, field.tagged());
  if (tagged.first != "as_int") return field.expected("a fixed number, not a symbol");
  return tagged.second.integer();
}

using Reader = Result<Argument> (*)(const Field&);
constexpr std::pair<std::string_view, Reader> kReaders[] = {
    {"as_none", [](const Field&) -> Result<Argument> { return Argument(NoneArg{}); }},
    {"as_tensor",
     [](const Field& f) -> Result<Argument> {
       TESSERA_TRY(std::string name, read_name(f));
       return Argument(TensorArg{std::move(name)});
     }},
    {"as_tensors",
     [](const Field& f) -> Result<Argument> {
       TESSERA_TRY(TensorsArg names, read_tensors(f, read_name));
       return Argument(std::move(names));
     }},
    {"as_optional_tensors",
     [](const Field& f) -> Result<Argument> {
       TESSERA_TRY(TensorsArg names, read_tensors(f, read_optional_name));
       return Argument(std::move(names));
     }},
    {"as_optional_tensor",
     [](const Field& f) -> Result<Argument> {
       TESSERA_TRY(std::string name, read_optional_name(f));
       if (name.empty()) return Argument(NoneArg{});
       return Argument(TensorArg{std::move(name)});
     }},
    {"as_int", [](const Field& f) -> Result<Argument> { return f.integer(); }},
    {"as_sym_int", [](const Field& f) -> Result<Argument> { return read_symbol(f); }},
    {"as_float", [](const Field& f) -> Result<Argument> { return f.number(); }},
    {"as_bool", [](const Field& f) -> Result<Argument> { return f.truth(); }},
    {"as_string", [](const Field& f) -> Result<Argument> { return f.text(); }},
    {"as_ints",
     [](const Field& f) {
       return read_list<int64_t>(f, [](const Field& i) { return i.integer(); });
     }},
    {"as_sym_ints", [](const Field& f) { return read_list<int64_t>(f, read_symbol); }},
    {"as_floats",
     [](const Field& f) {
       return read_list<double>(f, [](const Field& i) { return i.number(); });
     }},
    {"as_bools",
     [](const Field& f) { return read_list<bool>(f, [](const Field& i) { return i.truth(); }); }},
    {"as_scalar_type",
     [](const Field& f) -> Result<Argument> {
       TESSERA_TRY(const int64_t number, f.integer());
       return Argument(DTypeArg{number});
     }},
    {"as_device", [](const Field&) -> Result<Argument> { return Argument(IgnoredArg{}); }},
    {"as_layout", [](const Field&) -> Result<Argument> { return Argument(IgnoredArg{}); }},
    {"as_memory_format", [](const Field&) -> Result<Argument> { return Argument(IgnoredArg{}); }},
};

Result<Argument> read_argument(const Field& field) {
  TESSERA_TRY(const auto tagged, field.tagged());
  for (const auto& [tag, read] : kReaders) {
    if (tag == tagged.first) return read(tagged.second);
  }
  return field.found("an argument of a known tag", fmt::format("'{:.40}'", tagged.first));
}

// Returns the path of the last module in a stack of modules: "blocks.0.attn" for
// "L__self__,,Net;L__self__blocks.0.attn,blocks.0.attn,Attention". Removes the "@1" that follows
// the path in the second call of a module.
std::string innermost_module(std::string_view stack) {
  const size_t last = stack.rfind(';');
  const std::string_view entry = last == std::string_view::npos ? stack : stack.substr(last + 1);
  const std::vector<std::string> parts = split_text(entry, ',');
  if (parts.size() < 2) return "";
  return parts[1].substr(0, parts[1].find('@'));
}

Result<Node> read_node(const Field& field) {
  Node node;
  TESSERA_TRY(node.target, field.text("target"));
  TESSERA_TRY(const Field inputs, field.at("inputs"));
  TESSERA_TRY(const auto arguments, inputs.list());
  for (const Field& item : arguments) {
    TESSERA_TRY(const std::string name, item.text("name"));
    TESSERA_TRY(const Field value, item.at("arg"));
    TESSERA_TRY(Argument argument, read_argument(value));
    if (!node.arguments.emplace(name, std::move(argument)).second)
      return item.expected("each argument once");
  }
  TESSERA_TRY(const Field outputs, field.at("outputs"));
  TESSERA_TRY(const auto results, outputs.list());
  for (const Field& item : results) {
    TESSERA_TRY(const Argument output, read_argument(item));
    if (const auto* one = std::get_if<TensorArg>(&output)) {
      node.outputs.push_back(one->name);
    } else if (const auto* several = std::get_if<TensorsArg>(&output)) {
      node.outputs.insert(node.outputs.end(), several->names.begin(), several->names.end());
    } else if (!std::holds_alternative<NoneArg>(output)) {
      return item.expected("a tensor or several");
    } else {
      node.outputs.emplace_back();
    }
  }
  if (field.has("name")) {
    TESSERA_TRY(node.name, field.text("name"));
  } else if (!node.outputs.empty()) {
    node.name = node.outputs[0];
  }
  if (field.has("metadata")) {
    TESSERA_TRY(const Field metadata, field.at("metadata"));
    if (metadata.has("nn_module_stack")) {
      TESSERA_TRY(const std::string stack, metadata.text("nn_module_stack"));
      node.module = innermost_module(stack);
    }
  }
  return node;
}

// ---- regions
// A region is a node that contains a graph. Its arguments are some settings, the graph, and the
// graph's operands. One of the settings says whether the region has an effect.
struct RegionKind {
  std::string_view target;
  size_t settings, enabled;    // number of settings; index of the one that says so
  bool frozen_if_off;          // if this setting is false, nodes have no gradient (torch.no_grad)
  const char* expected_if_on;  // error if it is true: what is expected; null: the region is read
};
constexpr RegionKind kRegions[] = {
    {"torch.ops.higher_order.wrap_with_set_grad_enabled", 1, 0, true, nullptr},
    {"torch.ops.higher_order.wrap_with_autocast", 4, 2, false,
     "a module that is exported without torch.autocast (--precision says in which dtype a run "
     "computes)"}};
constexpr std::string_view kHigherOrder = "torch.ops.higher_order.";
constexpr int kMaxDepth = 16;

Status read_graph(const Field& graph, bool frozen, int depth, Program& out);

// Adds a node that gives the tensor `from` the second name `to`.
void add_alias(const std::string& from, const std::string& to, Program& out) {
  if (from == to || from.empty() || to.empty()) return;
  Node node;
  node.name = to;
  node.target = "torch.ops.aten.alias.default";
  node.arguments.emplace("self", TensorArg{from});
  node.outputs = {to};
  out.nodes.push_back(std::move(node));
}

// Returns the names of the tensors in a list of arguments. Returns an error if an argument is not a
// tensor.
Result<std::vector<std::string>> read_names(const std::vector<Field>& fields) {
  std::vector<std::string> out;
  for (const Field& field : fields) {
    TESSERA_TRY(const Argument argument, read_argument(field));
    const auto* const tensor = std::get_if<TensorArg>(&argument);
    if (tensor == nullptr) return field.expected("a tensor");
    out.push_back(tensor->name);
  }
  return out;
}

Status read_region(const Field& field, const RegionKind& kind, bool frozen, int depth,
                   Program& out) {
  if (depth >= kMaxDepth)
    return field.expected(fmt::format("at most {} regions in another", depth));
  TESSERA_TRY(const Field inputs, field.at("inputs"));
  TESSERA_TRY(const auto items, inputs.list());
  std::vector<Field> arguments;
  for (const Field& item : items) {
    TESSERA_TRY(Field argument, item.at("arg"));
    arguments.push_back(std::move(argument));
  }
  const auto first = static_cast<std::ptrdiff_t>(kind.settings);
  if (arguments.size() <= kind.settings)
    return inputs.expected("a region's settings and its graph");
  TESSERA_TRY(const Field enabled, arguments[kind.enabled].at("as_bool"));
  TESSERA_TRY(const bool on, enabled.truth());
  if (on && kind.expected_if_on != nullptr)
    return field.found(kind.expected_if_on, fmt::format("a region of {}", kind.target));
  TESSERA_TRY(const Field holder, arguments[kind.settings].at("as_graph"));
  TESSERA_TRY(const Field graph, holder.at("graph"));
  TESSERA_TRY(const std::vector<std::string> operands,
              read_names({arguments.begin() + first + 1, arguments.end()}));
  const auto names_at = [](const Field& from, const char* key) -> Result<std::vector<std::string>> {
    TESSERA_TRY(const Field list, from.at(key));
    TESSERA_TRY(const auto fields, list.list());
    return read_names(fields);
  };
  TESSERA_TRY(const std::vector<std::string> inner_inputs, names_at(graph, "inputs"));
  TESSERA_TRY(const std::vector<std::string> inner_outputs, names_at(graph, "outputs"));
  TESSERA_TRY(const std::vector<std::string> outputs, names_at(field, "outputs"));
  if (inner_inputs.size() != operands.size() || inner_outputs.size() != outputs.size())
    return field.expected("a graph with an input for each operand and an output for each result");
  for (size_t i = 0; i < operands.size(); ++i) add_alias(operands[i], inner_inputs[i], out);
  TESSERA_TRY_VOID(read_graph(graph, frozen || (kind.frozen_if_off && !on), depth + 1, out));
  for (size_t i = 0; i < outputs.size(); ++i) add_alias(inner_outputs[i], outputs[i], out);
  return {};
}

// Reads the tensors and nodes of a graph and appends them to those of `out`.
Status read_graph(const Field& graph, bool frozen, int depth, Program& out) {
  TESSERA_TRY(const Field tensors, graph.at("tensor_values"));
  if (!tensors.json().is_object()) return tensors.expected("an object");
  for (const auto& item : tensors.json().items()) {
    TESSERA_TRY(const Field field, tensors.at(item.key()));
    TESSERA_TRY(out.tensors[item.key()], read_meta(field));
  }
  TESSERA_TRY(const Field nodes, graph.at("nodes"));
  TESSERA_TRY(const auto list, nodes.list());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& json = list[i].json();
    const bool named = json.is_object() && json.contains("name") && json["name"].is_string();
    const std::string called =
        named ? json["name"].get<std::string>() : fmt::format("number {}", i);
    const Field field(json, fmt::format("{}: node '{}'", out.where, called));
    TESSERA_TRY(const std::string target, field.text("target"));
    const auto* const region =
        std::find_if(std::begin(kRegions), std::end(kRegions),
                     [&](const RegionKind& kind) { return kind.target == target; });
    if (region != std::end(kRegions)) {
      TESSERA_TRY_VOID(read_region(field, *region, frozen, depth, out));
      continue;
    }
    if (target.starts_with(kHigherOrder)) {
      return field.found("ops without graphs of their own",
                         fmt::format("'{:.60}'", one_line(target.substr(kHigherOrder.size()))));
    }
    TESSERA_TRY(Node node, read_node(field));
    node.frozen = frozen;
    out.nodes.push_back(std::move(node));
  }
  return {};
}

Result<InputSpec> read_input(const Field& field) {
  TESSERA_TRY(const auto tagged, field.tagged());
  const Field& body = tagged.second;
  InputSpec spec;
  TESSERA_TRY(const Field arg, body.at("arg"));
  if (tagged.first == "user_input") {
    TESSERA_TRY(const Argument argument, read_argument(arg));
    const auto* tensor = std::get_if<TensorArg>(&argument);
    if (tensor == nullptr) return arg.expected("inputs that are tensors");
    spec.tensor = spec.name = tensor->name;
    return spec;
  }
  const std::array<std::pair<std::string_view, InputSpec::Kind>, 3> kinds = {
      {{"parameter", InputSpec::Kind::kParameter},
       {"buffer", InputSpec::Kind::kBuffer},
       {"tensor_constant", InputSpec::Kind::kConstant}}};
  for (const auto& [tag, kind] : kinds) {
    if (tag != tagged.first) continue;
    spec.kind = kind;
    TESSERA_TRY(spec.tensor, read_name(arg));
    TESSERA_TRY(spec.name, body.text(std::string(tag) + "_name"));
    return spec;
  }
  return field.found("an input of a known tag", fmt::format("'{:.40}'", tagged.first));
}

Result<OutputSpec> read_output(const Field& field) {
  TESSERA_TRY(const auto tagged, field.tagged());
  OutputSpec spec;
  spec.user = tagged.first == "user_output" || tagged.first == "loss_output";
  if (!spec.user && tagged.first != "buffer_mutation") {
    return field.found("an output of a known tag (a module that changes its inputs has another)",
                       fmt::format("'{:.40}'", tagged.first));
  }
  TESSERA_TRY(const Field arg, tagged.second.at("arg"));
  if (!spec.user || tagged.first == "loss_output") {
    TESSERA_TRY(spec.tensor, read_name(arg));
    return spec;
  }
  TESSERA_TRY(const Argument argument, read_argument(arg));
  if (const auto* tensor = std::get_if<TensorArg>(&argument)) spec.tensor = tensor->name;
  return spec;
}

// Parses the JSON document in an entry of the archive.
Result<Json> parse(const Archive& archive, const std::string& entry) {
  TESSERA_TRY(const std::string text, archive.text(entry));
  std::optional<Json> json = parse_json(text);
  if (!json) {
    return invalid_input(
        fmt::format("{}: entry '{}': expected JSON of at most {} levels, found other text",
                    archive.path(), entry, kMostJsonDepth));
  }
  return std::move(*json);
}

// Reads the payloads that are listed in an entry with the configuration of weights or of constants.
Status read_payloads(const Archive& archive, const std::string& entry, std::string_view folder,
                     bool state, Program& out) {
  TESSERA_TRY(const Json json, parse(archive, entry));
  const Field root(json, fmt::format("{}: {}", archive.path(), entry));
  TESSERA_TRY(const Field config, root.at("config"));
  if (!config.json().is_object()) return config.expected("an object");
  for (const auto& item : config.json().items()) {
    TESSERA_TRY(const Field field, config.at(item.key()));
    Payload payload;
    if (field.has("use_pickle")) {
      TESSERA_TRY(const Field pickled, field.at("use_pickle"));
      TESSERA_TRY(const bool pickle, pickled.truth());
      if (pickle) return pickled.expected("raw bytes: a plain tensor, no subclass");
    }
    TESSERA_TRY(const std::string name, field.text("path_name"));
    payload.entry = std::string(folder) + name;
    TESSERA_TRY(const Field meta, field.at("tensor_meta"));
    TESSERA_TRY(payload.meta, read_meta(meta));
    payload.state = state;
    if (archive.has(payload.entry) && elements_of(payload.meta.sizes).value_or(0) > 0) {
      TESSERA_TRY(const int64_t bytes, archive.size(payload.entry));
      if (bytes == 0) payload.absent = item.key();
    }
    if (field.has("is_param")) {
      TESSERA_TRY(const Field parameter, field.at("is_param"));
      TESSERA_TRY(payload.parameter, parameter.truth());
    }
    if (!out.payloads.emplace(item.key(), std::move(payload)).second)
      return field.found("a name that no weight has", fmt::format("'{}'", item.key()));
  }
  return {};
}

Status check_text(const Archive& archive, std::string_view entry, std::string_view wanted) {
  TESSERA_TRY(const std::string found, archive.text(entry));
  if (trim(found) == wanted) return {};
  return invalid_input(fmt::format("{}: entry '{}': expected '{}', found '{}'", archive.path(),
                                   entry, wanted, trim(found).substr(0, 40)));
}

// Returns the name of the model, "model" for the entry models/model.json. Returns an error if the
// archive has no such entry or several.
Result<std::string> model_name(const Archive& archive) {
  std::string out;
  for (const std::string& name : archive.names()) {
    if (!name.starts_with(kModels) || !name.ends_with(kModelEnding)) continue;
    if (!out.empty()) {
      return invalid_input(fmt::format("{}: expected one model in the archive, found '{}' and '{}'",
                                       archive.path(), out, name));
    }
    out = name.substr(kModels.size(), name.size() - kModels.size() - kModelEnding.size());
  }
  if (out.empty()) {
    return invalid_input(
        fmt::format("{}: expected an entry {}*{} (an archive of torch.export.save), found none",
                    archive.path(), kModels, kModelEnding));
  }
  return out;
}

Status check_version(const Field& root) {
  TESSERA_TRY(const Field version, root.at("schema_version"));
  TESSERA_TRY(const Field major, version.at("major"));
  TESSERA_TRY(const int64_t number, major.integer());
  if (number != kSchemaMajor)
    return major.expected(fmt::format("version {} of the format", kSchemaMajor));
  return {};
}

Status read_signature(const Field& module, Program& out) {
  TESSERA_TRY(const Field signature, module.at("signature"));
  TESSERA_TRY(const Field inputs, signature.at("input_specs"));
  TESSERA_TRY(const auto input_list, inputs.list());
  for (const Field& item : input_list) {
    TESSERA_TRY(InputSpec spec, read_input(item));
    out.inputs.push_back(std::move(spec));
  }
  TESSERA_TRY(const Field outputs, signature.at("output_specs"));
  TESSERA_TRY(const auto output_list, outputs.list());
  for (const Field& item : output_list) {
    TESSERA_TRY(OutputSpec spec, read_output(item));
    out.outputs.push_back(std::move(spec));
  }
  return {};
}

}  // namespace

std::optional<int64_t> elements_of(const std::vector<int64_t>& sizes) {
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t size : sizes) {
    if (size < 0 || size > kMaxElements) return std::nullopt;
    empty = empty || size == 0;
    if (size > 0 && elements > kMaxElements / size) return std::nullopt;
    elements *= std::max<int64_t>(size, 1);
  }
  return empty ? 0 : elements;
}

// Returns the dtype that has this number in torch/_export/serde/schema.py. The numbers of
// c10::ScalarType are different.
std::optional<DType> dtype_of(int64_t number) {
  switch (number) {
    case 1: return DType::kUInt8;
    case 4: return DType::kInt32;
    case 5: return DType::kInt64;
    case 6: return DType::kFloat16;
    case 7: return DType::kFloat32;
    case 8: return DType::kFloat64;
    case 12: return DType::kBool;
    case 13: return DType::kBFloat16;
    default: return std::nullopt;
  }
}

Result<Program> read_program(const Archive& archive, const StatedSizes& stated) {
  TESSERA_TRY_VOID(check_text(archive, kFormatEntry, kFormat));
  TESSERA_TRY_VOID(check_text(archive, kVersionEntry, kVersion));
  if (archive.has(kByteOrderEntry)) {
    TESSERA_TRY_VOID(check_text(archive, kByteOrderEntry, kByteOrder));
  }
  TESSERA_TRY(const std::string name, model_name(archive));
  const std::string entry = fmt::format("{}{}{}", kModels, name, kModelEnding);
  TESSERA_TRY(Json json, parse(archive, entry));
  TESSERA_TRY_VOID(check_version(Field(json, fmt::format("{}: {}", archive.path(), entry))));
  if (const Status fixed = fix_symbols(json, stated); !fixed)
    return invalid_input(fmt::format("{}: {}", archive.path(), fixed.error().message));
  const Field root(json, fmt::format("{}: {}", archive.path(), entry));

  Program out;
  TESSERA_TRY(const Field module, root.at("graph_module"));
  TESSERA_TRY_VOID(read_signature(module, out));
  TESSERA_TRY(const Field graph, module.at("graph"));
  out.where = fmt::format("{}: {}", archive.path(), entry);
  TESSERA_TRY_VOID(read_graph(graph, false, 0, out));
  for (const auto& [folder, ending] :
       {std::pair{kWeights, kWeightsConfigEnding}, std::pair{kConstants, kConstantsConfigEnding}}) {
    const std::string config = fmt::format("{}{}{}", folder, name, ending);
    TESSERA_TRY_VOID(read_payloads(archive, config, folder, folder == kWeights, out));
  }
  return out;
}

}  // namespace tessera::pt2
