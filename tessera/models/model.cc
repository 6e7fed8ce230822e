#include "tessera/models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/doing.h"
#include "tessera/base/text.h"
#include "tessera/models/families.h"
#include "tessera/models/graph_file.h"
#include "tessera/models/huggingface.h"

namespace tessera {
namespace {

Result<Call> read_spec(std::string_view spec) {
  const std::string path(config_file_of(spec));
  if (path.empty()) return parse_call(spec);
  TESSERA_TRY(const std::string text, read_file(path));
  TESSERA_TRY(HuggingFaceModel file, parse_huggingface_config(text, path));
  TESSERA_TRY_VOID(check_exact(file, path));
  Call call{std::move(file.family), std::move(file.arguments)};
  if (path.size() < spec.size()) {
    TESSERA_TRY(const Call changes, parse_call(call.name + std::string(spec.substr(path.size()))));
    // Later arguments override earlier ones.
    call.arguments.insert(call.arguments.end(), changes.arguments.begin(), changes.arguments.end());
  }
  return call;
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
    std::copy_if(op.inputs.begin(), op.inputs.end(), std::back_inserter(compared),
                 [&](TensorId id) { return !is_targets(id); });
  }
  return compared;
}

std::string_view config_file_of(std::string_view spec) {
  constexpr std::string_view kSuffix = ".json";
  spec = trim(spec);
  if (spec.ends_with(kSuffix)) return spec;
  const size_t at = spec.find(".json:");
  return at == std::string_view::npos ? std::string_view() : spec.substr(0, at + kSuffix.size());
}

bool names_graph_file(std::string_view spec) { return trim(spec).ends_with(kGraphSuffix); }

Result<int64_t> batch_of(std::string_view spec, int64_t given, int64_t otherwise) {
  if (given != 0) return given;
  if (!names_graph_file(spec)) return otherwise;
  TESSERA_TRY(const Model model, load_graph_model(std::string(trim(spec)), 0, std::nullopt));
  return model.batch;
}

Result<Model> build_model_of(std::string_view spec, int64_t given, int64_t otherwise,
                             std::optional<DType> dtype) {
  if (given != 0 || !names_graph_file(spec))
    return build_model(spec, given != 0 ? given : otherwise, dtype);
  const Doing doing("building the model", spec);
  return load_graph_model(std::string(trim(spec)), 0, dtype);
}

Result<Model> build_model(std::string_view spec, int64_t batch, std::optional<DType> dtype) {
  const Doing doing("building the model", spec);
  if (batch < 1)
    return invalid_input(fmt::format("expected a batch of at least 1, found {}", batch));
  if (dtype && !is_floating(*dtype)) {
    return invalid_input(
        fmt::format("expected a floating dtype for a model, found {}", dtype_name(*dtype)));
  }
  if (names_graph_file(spec)) return load_graph_model(std::string(trim(spec)), batch, dtype);
  TESSERA_TRY(const Call call, read_spec(trim(spec)));
  if (const ModelFamily* family = find_family(call.name); family != nullptr)
    return family->build(call.arguments, batch, dtype);
  const std::vector<std::string> names = family_names();
  return invalid_input(
      fmt::format("unknown model '{}', did you mean '{}'? (models: {}, or a path to a "
                  "Hugging Face config.json or to a .graph)",
                  call.name, nearest(call.name, names), join(names, ", ")));
}

std::string model_help() {
  std::string out = fmt::format(
      "MODEL is family:key=value,key=value, or a path to a Hugging Face config.json (model_type "
      "{}),\nwhich may be followed by :key=value,key=value of its family, or a path to a graph in "
      "text form (x.graph).\n",
      join(huggingface_model_types(), ", "));
  for (const ModelFamily& family : all_families()) {
    out += fmt::format("\n{}: {}\n", family.name, family.summary);
    for (const ModelKeyText& key : family.keys) {
      out += fmt::format("  {:<15} {:<24} {}", key.name, key.value, key.meaning);
      if (!key.choices.empty()) out += fmt::format(": {}", join(key.choices, ", "));
      out += '\n';
    }
  }
  return out + "\nExample: gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304\n";
}

}  // namespace tessera
