#include "tessera/import/pt2/state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/base/array_bytes.h"
#include "tessera/base/json_text.h"
#include "tessera/import/new_folder.h"
#include "tessera/import/tiles.h"
#include "tessera/models/graph_file.h"
#include "tessera/state/source.h"

namespace tessera::pt2 {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kParameters = "parameters";  // key of the metadata and keys of its entries
constexpr const char* kOf = "of";
constexpr const char* kShape = "shape";
constexpr const char* kArrays = "model.safetensors";

std::optional<StateArray> array_of(const std::string& name, const Json& json) {
  if (!json.is_object() || !json.contains(kOf) || !json[kOf].is_string() ||
      !json.contains(kShape) || !json[kShape].is_array())
    return std::nullopt;
  StateArray out{name, {}, json[kOf].get<std::string>()};
  for (const Json& size : json[kShape]) {
    if (!size.is_number_integer() || size.get<int64_t>() < 0) return std::nullopt;
    out.shape.push_back(size.get<int64_t>());
  }
  return out;
}

// Returns the array of the weights that has the elements of `array`. Returns an error if the graph
// or the weights have no such parameter, or if its number of elements or its shape does not fit.
Result<const SourceArray*> source_of(const TensorSource& weights, const Graph& graph,
                                     const StateArray& array) {
  const TensorId id = graph.find_tensor(array.parameter);
  const auto failed = [&](const std::string& expected, const std::string& found) {
    return invalid_input(fmt::format("{}: '{}' ('{}' of the module): expected {}, found {}",
                                     weights.where(), array.parameter, array.name, expected,
                                     found));
  };
  if (!id.valid()) return failed("a parameter of the model", "none");
  const Tensor& tensor = graph.tensor(id);
  const auto text = [](const std::vector<int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
  };
  if (array_bytes(tensor.dtype, array.shape) != array_bytes(tensor.dtype, tensor.shape()))
    return failed("as many elements as " + text(array.shape), text(tensor.shape()));
  const SourceArray* const found = weights.find(array.parameter);
  if (found == nullptr) return failed(text(tensor.shape()), "none");
  if (found->shape != tensor.shape()) return failed(text(tensor.shape()), text(found->shape));
  return found;
}

}  // namespace

std::map<std::string, std::string> state_metadata(const std::vector<StateArray>& arrays) {
  Json parameters = Json::object();
  for (const StateArray& array : arrays)
    parameters[array.name] = {{kOf, array.parameter}, {kShape, array.shape}};
  return {{"format", "pt"}, {kParameters, parameters.dump()}};
}

Result<std::vector<StateArray>> read_state(const SafetensorsFile& file) {
  const auto text = file.metadata().find(kParameters);
  const std::optional<Json> json =
      text == file.metadata().end() ? std::nullopt : parse_json(text->second);
  const auto failed = [&](const std::string& name) {
    return invalid_input(
        fmt::format("{}: metadata '{}': expected parameters by name, each with '{}' and '{}'{}",
                    file.path(), kParameters, kOf, kShape, name));
  };
  if (!json || !json->is_object()) return failed("");
  std::vector<StateArray> out;
  for (const auto& item : json->items()) {
    std::optional<StateArray> array = array_of(item.key(), item.value());
    if (!array) return failed(fmt::format(", found {} as '{}'", shown(item.value()), item.key()));
    out.push_back(std::move(*array));
  }
  return out;
}

Result<ExportedWeights> export_state(const WeightsRequest& request) {
  const std::string path = (fs::path(request.model).parent_path() / kStateFile).string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return invalid_input(
        fmt::format("export: --model {}: expected the graph of a folder that tessera import has "
                    "made of a .pt2 archive, found no {} beside it",
                    request.model, kStateFile));
  }
  TESSERA_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  TESSERA_TRY(const std::vector<StateArray> state, read_state(file));
  TESSERA_TRY(const Model model, load_graph_model(request.model, 0, std::nullopt));
  TESSERA_TRY(const auto weights, open_source(request.weights));
  TESSERA_TRY(const auto rest, open_safetensors(path));
  struct Copy {
    const TensorSource* from;
    const SourceArray* array;
  };
  std::vector<Copy> copies;
  std::vector<ArrayEntry> entries;
  for (const StateArray& array : state) {
    TESSERA_TRY(const SourceArray* found, source_of(*weights, model.graph, array));
    copies.push_back({weights.get(), found});
    entries.push_back({.name = array.name, .dtype = found->dtype, .shape = array.shape});
  }
  for (const SourceArray& array : rest->arrays()) {
    const bool twice = std::any_of(state.begin(), state.end(), [&](const StateArray& other) {
      return other.name == array.name;
    });
    if (twice) {
      return invalid_input(
          fmt::format("{}: expected '{}' once, found an array and a parameter", path, array.name));
    }
    copies.push_back({rest.get(), &array});
    entries.push_back({.name = array.name, .dtype = array.dtype, .shape = array.shape});
  }
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.out));
  TESSERA_TRY(
      SafetensorsWriter writer,
      SafetensorsWriter::create(folder.file(kArrays), std::move(entries), {{"format", "pt"}}));
  for (size_t i = 0; i < copies.size(); ++i)
    TESSERA_TRY_VOID(copy_array(*copies[i].from, *copies[i].array, i, writer));
  TESSERA_TRY_VOID(writer.finish());
  TESSERA_TRY_VOID(folder.commit());
  ExportedWeights report;
  for (const ArrayEntry& entry : writer.arrays())
    report.parameters += entry.bytes / dtype_bytes(entry.dtype);
  report.arrays = std::ssize(writer.arrays());
  report.bytes = writer.bytes();
  return report;
}

}  // namespace tessera::pt2
