#include "tessera/import/pt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "tessera/base/convert.h"
#include "tessera/base/text.h"
#include "tessera/import/new_folder.h"
#include "tessera/import/pt2/lower.h"
#include "tessera/import/pt2/payloads.h"
#include "tessera/import/pt2/schema.h"
#include "tessera/import/pt2/state.h"

namespace tessera {
namespace {

using pt2::Archive;
using pt2::Constant;
using pt2::Lowered;
using pt2::Payload;
using pt2::Weight;

constexpr const char* kGraphFile = "model.graph";
constexpr const char* kWeightsFile = "weights.safetensors";

// Collects statistics of a parameter's values while the values are written. From the statistics
// come the parameter's initial values for a run that does not load the weights.
class Statistics {
 public:
  void add(const double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum_ += values[i];
      squares_ += values[i] * values[i];
      if (count_ + i == 0) first_ = values[i];
      equal_ = equal_ && values[i] == first_;
    }
    count_ += count;
  }
  Init init() const {
    if (count_ == 0 || !std::isfinite(squares_)) return {Init::Kind::kZeros};
    if (equal_ && first_ == 0) return {Init::Kind::kZeros};
    if (equal_ && first_ == 1) return {Init::Kind::kOnes};
    if (equal_) return {Init::Kind::kConstant, first_};
    const double mean = sum_ / static_cast<double>(count_);
    const double variance = squares_ / static_cast<double>(count_) - mean * mean;
    // Six digits are enough, because the standard deviation only summarises the values.
    return {Init::Kind::kNormal,
            std::stod(fmt::format("{:.6g}", std::sqrt(std::max(variance, 1e-30))))};
  }

 private:
  double sum_ = 0, squares_ = 0, first_ = 0;
  int64_t count_ = 0;
  bool equal_ = true;
};

// Returns the elements as bytes of the constant's dtype.
std::vector<std::byte> bytes_of(const Constant& constant) {
  const std::vector<double>& values = constant.values;
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(constant.dtype)));
  convert(DType::kFloat64, reinterpret_cast<const std::byte*>(values.data()), constant.dtype,
          bytes.data(), std::ssize(values));
  return bytes;
}

Status write_values(const Constant& constant, size_t number, SafetensorsWriter& file,
                    Statistics& statistics) {
  const std::vector<std::byte> bytes = bytes_of(constant);
  statistics.add(constant.values.data(), std::ssize(constant.values));
  return file.write(number, 0, std::ssize(bytes), bytes.data());
}

// Writes the elements of a payload in row-major order, and adds them to `statistics`, which may be
// null.
Status write_payload(const Archive& archive, const Payload& payload, size_t number,
                     SafetensorsWriter& file, Statistics* statistics) {
  const DType dtype = payload.meta.dtype;
  int64_t at = 0;
  return pt2::read_payload(archive, payload, [&](std::span<const char> piece) -> Status {
    const auto* const bytes = reinterpret_cast<const std::byte*>(piece.data());
    TESSERA_TRY_VOID(file.write(number, at, std::ssize(piece), bytes));
    at += std::ssize(piece);
    if (statistics == nullptr) return {};
    const int64_t elements = std::ssize(piece) / dtype_bytes(dtype);
    std::vector<double> values(static_cast<size_t>(elements));
    convert(dtype, bytes, DType::kFloat64, reinterpret_cast<std::byte*>(values.data()), elements);
    statistics->add(values.data(), elements);
    return {};
  });
}

// Returns whether the archive has the elements of no parameter of the graph. An archive that lacks
// some of them is damaged.
bool lacks_weights(const Lowered& lowered) {
  const auto is_read = [](const Weight& weight) { return weight.payload.has_value(); };
  return std::any_of(lowered.weights.begin(), lowered.weights.end(), is_read) &&
         std::all_of(lowered.weights.begin(), lowered.weights.end(), [&](const Weight& weight) {
           return !is_read(weight) || !weight.payload->absent.empty();
         });
}

// Sets the initial values of the parameters of a graph whose archive has no weights, as PyTorch's
// modules have them: vectors that are weights are ones (of norms), those that are biases zeros. The
// others stay normal with the deviation 0.02. Returns the number of all elements.
int64_t set_initial_values(Lowered& lowered) {
  int64_t elements = 0;
  for (const Weight& weight : lowered.weights) {
    Tensor& tensor = lowered.graph.tensor(lowered.graph.find_tensor(weight.name));
    elements += tensor.elements();
    if (weight.shape.size() != 1) continue;
    tensor.init = {weight.name.ends_with("bias") ? Init::Kind::kZeros : Init::Kind::kOnes};
  }
  return elements;
}

// Writes the parameters of the graph, and sets the initial values that each has in a run without
// these weights.
Status write_weights(const Archive& archive, Lowered& lowered, const std::string& path,
                     ImportReport& report) {
  std::vector<ArrayEntry> arrays;
  for (const Weight& weight : lowered.weights) {
    const Tensor& tensor = lowered.graph.tensor(lowered.graph.find_tensor(weight.name));
    arrays.push_back({.name = weight.name, .dtype = tensor.dtype, .shape = tensor.shape()});
    report.parameters += tensor.elements();
  }
  TESSERA_TRY(SafetensorsWriter file,
              SafetensorsWriter::create(path, std::move(arrays), {{"format", "pt"}}));
  for (size_t i = 0; i < lowered.weights.size(); ++i) {
    const Weight& weight = lowered.weights[i];
    Statistics statistics;
    TESSERA_TRY_VOID(weight.payload ? write_payload(archive, *weight.payload, i, file, &statistics)
                                    : write_values(weight.values, i, file, statistics));
    Tensor& tensor = lowered.graph.tensor(lowered.graph.find_tensor(weight.name));
    // Ids and masks are ones in a run without weights: a row that exists, a pair that counts.
    tensor.init = is_floating(tensor.dtype) ? statistics.init() : Init{Init::Kind::kOnes};
  }
  TESSERA_TRY_VOID(file.finish());
  report.arrays = std::ssize(lowered.weights);
  report.bytes = file.bytes();
  return {};
}

// The arrays of a module's state: those that are parameters of the graph, and the others.
struct StateParts {
  std::vector<pt2::StateArray> parameters;
  std::vector<std::pair<std::string, const Payload*>> others;
};
StateParts state_parts(const pt2::Program& program, const Lowered& lowered) {
  StateParts parts;
  for (const auto& [name, payload] : program.payloads) {
    if (!payload.state) continue;
    const auto parameter = lowered.parameters.find(pt2::identity(payload));
    if (parameter != lowered.parameters.end()) {
      parts.parameters.push_back({name, payload.meta.sizes, parameter->second});
    } else {
      parts.others.emplace_back(name, &payload);
    }
  }
  return parts;
}

// Writes module.safetensors (pt2/state.h): those arrays of the module's state that are not
// parameters of the graph, and in its metadata the names of the others.
Status write_state(const Archive& archive, const pt2::Program& program, const Lowered& lowered,
                   const std::string& path) {
  const StateParts parts = state_parts(program, lowered);
  std::vector<ArrayEntry> arrays;
  for (const auto& [name, payload] : parts.others)
    arrays.push_back({.name = name, .dtype = payload->meta.dtype, .shape = payload->meta.sizes});
  TESSERA_TRY(
      SafetensorsWriter file,
      SafetensorsWriter::create(path, std::move(arrays), pt2::state_metadata(parts.parameters)));
  for (size_t i = 0; i < parts.others.size(); ++i)
    TESSERA_TRY_VOID(write_payload(archive, *parts.others[i].second, i, file, nullptr));
  return file.finish();
}

// Returns the sizes that the settings state for what the module leaves open.
Result<pt2::StatedSizes> sizes_of(const std::map<std::string, std::string>& settings) {
  pt2::StatedSizes sizes;
  for (const char* name : {"batch", "seq"}) {
    const auto given = settings.find(name);
    if (given == settings.end()) continue;
    const Result<int64_t> size = parse_int(given->second);
    if (!size || *size < 1) {
      return invalid_input(
          fmt::format("import: {}: expected a size, as 8, found '{}'", name, given->second));
    }
    sizes[name] = *size;
  }
  return sizes;
}

Result<pt2::LowerOptions> options_of(const std::map<std::string, std::string>& settings) {
  pt2::LowerOptions options;
  if (const auto loss = settings.find("loss"); loss != settings.end()) {
    if (loss->second != "cross_entropy" && loss->second != "module") {
      return invalid_input(
          fmt::format("import: loss: expected module or cross_entropy, found '{}'", loss->second));
    }
    options.cross_entropy = loss->second == "cross_entropy";
  }
  if (const auto ignored = settings.find("ignored"); ignored != settings.end()) {
    const Result<int64_t> target = parse_int(ignored->second);
    if (!target) {
      return invalid_input(
          fmt::format("import: ignored: expected a target, as -100, found '{}'", ignored->second));
    }
    options.ignored = *target;
  }
  return options;
}

// Reads the graph of an archive. Errors begin with the archive's path.
Result<Lowered> lowered_graph(const std::string& path, const Archive& archive,
                              const pt2::Program& program, const pt2::LowerOptions& options) {
  pt2::Lowering lowering(archive, program, options);
  Result<Lowered> lowered = lowering.run();
  if (lowered || lowered.error().message.starts_with(path)) return lowered;
  return invalid_input(fmt::format("{}: {}", path, lowered.error().message));
}

Result<ImportReport> import_archive(const ImportRequest& request) {
  TESSERA_TRY(const pt2::LowerOptions options, options_of(request.settings));
  TESSERA_TRY(const pt2::StatedSizes sizes, sizes_of(request.settings));
  TESSERA_TRY(const Archive archive, Archive::open(request.path));
  TESSERA_TRY(const pt2::Program program, pt2::read_program(archive, sizes));
  TESSERA_TRY(Lowered lowered, lowered_graph(request.path, archive, program, options));
  ImportReport report;
  const bool without = lacks_weights(lowered);
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.out));
  if (without) {
    report.parameters = set_initial_values(lowered);
    report.arrays = std::ssize(lowered.weights);
    report.notes.emplace_back(
        "the archive has no weights (the module was exported under meta or fake tensors): the "
        "model can be planned and simulated, and a run begins with initial values");
  } else {
    TESSERA_TRY_VOID(write_weights(archive, lowered, folder.file(kWeightsFile), report));
    TESSERA_TRY_VOID(write_state(archive, program, lowered, folder.file(pt2::kStateFile)));
  }
  TESSERA_TRY_VOID(write_file(folder.file(kGraphFile), to_text(lowered.graph)));
  TESSERA_TRY_VOID(folder.commit());
  report.model = (std::filesystem::path(request.out) / kGraphFile).string();
  if (!without) report.weights = (std::filesystem::path(request.out) / kWeightsFile).string();
  return report;
}

// Returns a safetensors file of the parameters that the import has computed; "" if there are none.
std::string constants_file(const Lowered& lowered) {
  std::vector<ArrayEntry> arrays;
  std::vector<std::byte> values;
  for (const Weight& weight : lowered.weights) {
    if (weight.payload) continue;
    const Tensor& tensor = lowered.graph.tensor(lowered.graph.find_tensor(weight.name));
    arrays.push_back({.name = weight.name, .dtype = tensor.dtype, .shape = tensor.shape()});
    const std::vector<std::byte> bytes = bytes_of(weight.values);
    values.insert(values.end(), bytes.begin(), bytes.end());
  }
  if (arrays.empty()) return "";
  std::string file = layout_safetensors(std::move(arrays)).head;
  return file.append(reinterpret_cast<const char*>(values.data()), values.size());
}

bool is_archive(const std::string& path) {
  return path.ends_with(".pt2") && !std::filesystem::is_directory(path);
}

}  // namespace

Result<std::string> archive_graph(const std::string& path, const std::string& keys, int64_t batch) {
  TESSERA_TRY(ArchivedModule module, archived_module(path, keys, batch));
  return std::move(module.graph);
}

Result<ArchivedModule> archived_module(const std::string& path, const std::string& keys,
                                       int64_t batch) {
  const Importer importer = pt2_importer();
  std::map<std::string, std::string> settings;
  if (!keys.empty()) {
    TESSERA_TRY(const Call call, parse_call(importer.name + keys));
    for (const auto& [key, value] : call.arguments) settings[key] = value;
  }
  TESSERA_TRY_VOID(check_settings(importer, settings, path));
  if (batch > 0) settings["batch"] = fmt::format("{}", batch);
  TESSERA_TRY(const pt2::LowerOptions options, options_of(settings));
  TESSERA_TRY(const pt2::StatedSizes sizes, sizes_of(settings));
  TESSERA_TRY(const Archive archive, Archive::open(path));
  TESSERA_TRY(const pt2::Program program, pt2::read_program(archive, sizes));
  TESSERA_TRY(Lowered lowered, lowered_graph(path, archive, program, options));
  set_initial_values(lowered);
  ArchivedModule module{to_text(lowered.graph), {}, {}, constants_file(lowered)};
  StateParts parts = state_parts(program, lowered);
  module.state = std::move(parts.parameters);
  for (const auto& [name, payload] : parts.others) module.others.push_back(name);
  return module;
}

Importer pt2_importer() {
  return {
      .name = "pt2",
      .summary = "a .pt2 archive of torch.export.save",
      .accepts = is_archive,
      .run = import_archive,
      .keys = {{"loss",
                "module: the scalar that the module returns (default); cross_entropy: that of its "
                "output, logits, and an input targets"},
               {"ignored",
                "a target, as -100, that cross entropies leave out of their mean where the module "
                "does not state its ignore_index (default: all targets count)"},
               {"batch",
                "the number of samples, if the module was exported with an open batch (default: "
                "that of its example)"},
               {"seq", "the length of sequences, if the module was exported with an open one"}}};
}

}  // namespace tessera
