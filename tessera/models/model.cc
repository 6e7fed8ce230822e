#include "tessera/models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/check.h"
#include "tessera/base/doing.h"
#include "tessera/base/text.h"
#include "tessera/models/architecture.h"
#include "tessera/models/families.h"
#include "tessera/models/graph_file.h"
#include "tessera/models/huggingface/huggingface.h"
#include "tessera/models/model_name.h"

namespace tessera {
namespace {

// Reads what is no graph: a call of a family, or a configuration with keys behind it. Sets `type` to
// the model type of a configuration.
Result<Call> read_spec(const ModelName& named, std::string& type) {
  Call call;
  if (named.kind == ModelName::Kind::kCall) {
    TESSERA_TRY(call, parse_call(named.call));
  } else {
    TESSERA_TRY(const std::string text, read_file(named.path));
    TESSERA_TRY(HuggingFaceModel file, parse_huggingface_config(text, named.path));
    TESSERA_TRY_VOID(check_exact(file, named.path));
    type = std::move(file.type);
    call = {std::move(file.family), std::move(file.arguments)};
  }
  if (!named.changes.empty()) {
    TESSERA_TRY(const Call changes, parse_call(call.name + named.changes));
    // Later arguments override earlier ones.
    call.arguments.insert(call.arguments.end(), changes.arguments.begin(), changes.arguments.end());
  }
  return call;
}

bool is_graph(const ModelName& named) {
  return named.kind == ModelName::Kind::kGraph || named.kind == ModelName::Kind::kArchive;
}

}  // namespace

std::vector<TensorId> compared_with_targets(const Graph& graph) {
  std::vector<TensorId> compared;
  const auto is_targets = [&](TensorId id) {
    const Tensor& tensor = graph.tensor(id);
    return tensor.role == Role::kInput && tensor.name == "targets";
  };
  for (const Op& op : graph.ops()) {
    if (std::none_of(op.inputs.begin(), op.inputs.end(), is_targets)) continue;
    // Where targets are looked up in a table, nothing is compared.
    std::copy_if(
        op.inputs.begin(), op.inputs.end(), std::back_inserter(compared),
        [&](TensorId id) { return !is_targets(id) && graph.tensor(id).role != Role::kParameter; });
  }
  return compared;
}

Result<int64_t> batch_of(std::string_view spec, int64_t given, int64_t otherwise) {
  if (given != 0) return given;
  TESSERA_TRY(const ModelName named, resolve_model(spec));
  if (!is_graph(named)) return otherwise;
  TESSERA_TRY(const Model model, load_graph_model(named.path, 0, std::nullopt, named.changes));
  return model.batch;
}

Result<Model> build_model_of(std::string_view spec, int64_t given, int64_t otherwise,
                             std::optional<DType> dtype) {
  if (given == 0) {
    const Doing doing("building the model", spec);
    TESSERA_TRY(const ModelName named, resolve_model(spec));
    if (is_graph(named)) return load_graph_model(named.path, 0, dtype, named.changes);
  }
  return build_model(spec, given != 0 ? given : otherwise, dtype);
}

Result<Model> build_model(std::string_view spec, int64_t batch, std::optional<DType> dtype) {
  const Doing doing("building the model", spec);
  if (batch < 1)
    return invalid_input(fmt::format("expected a batch of at least 1, found {}", batch));
  if (dtype && !is_floating(*dtype)) {
    return invalid_input(
        fmt::format("expected a floating dtype for a model, found {}", dtype_name(*dtype)));
  }
  TESSERA_TRY(const ModelName named, resolve_model(spec));
  if (is_graph(named)) return load_graph_model(named.path, batch, dtype, named.changes);
  std::string type;
  TESSERA_TRY(const Call call, read_spec(named, type));
  const ModelFamily* family = find_family(call.name);
  TESSERA_CHECK(family != nullptr, "'{}' resolves to '{}', which is no family", spec, call.name);
  TESSERA_TRY(Model model, family->build(call.arguments, batch, dtype));
  model.huggingface_type = std::move(type);
  model.title = named.title;
  model.remark = named.remark;
  return model;
}

std::string model_help() {
  std::string out = fmt::format(
      "MODEL is one of\n"
      "  family:key=value,key=value   the families and their keys stand below\n"
      "  path/config.json, or path    a Hugging Face configuration, or the folder with it "
      "(model_type {})\n"
      "  name                         a published model, as meta-llama/Meta-Llama-3-8B or "
      "llama-3-8b; the names stand last\n"
      "  path/x.graph, or its folder  a graph in text form\n"
      "  path/x.pt2                   an archive of torch.export.save\n"
      "A configuration and a name may be followed by keys of their family: "
      "llama-3-8b:seq=4096,layers=4\n",
      join(huggingface_model_types(), ", "));
  for (const ModelFamily& family : all_families()) {
    out += fmt::format("\n{}: {}\n", family.name, family.summary);
    for (const ModelKeyText& key : family.keys) {
      out += fmt::format("  {:<15} {:<24} {}", key.name, key.value, key.meaning);
      if (!key.choices.empty()) out += fmt::format(": {}", join(key.choices, ", "));
      out += '\n';
    }
  }
  out += "\nNames:";
  size_t column = 0;
  for (const std::string& title : architecture_titles()) {
    out += column++ % 6 == 0 ? "\n  " : " ";
    out += fmt::format("{:<20}", title);
    if (column % 6 == 0) out.erase(out.find_last_not_of(' ') + 1);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n\nExample: gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304\n";
}

}  // namespace tessera
