#include "tessera/import/pt2.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/convert.h"
#include "tessera/base/text.h"
#include "tessera/import/pt2/lower.h"
#include "tessera/import/pt2/schema.h"
#include "tessera/state/safetensors.h"

namespace tessera {
namespace {

using pt2::Archive;
using pt2::Lowered;
using pt2::Weight;

constexpr int64_t kPieceBytes = 4 << 20;
constexpr const char* kGraphFile = "model.graph";
constexpr const char* kWeightsFile = "weights.safetensors";
constexpr const char* kShapes = "shapes";  // metadata: the module's own, where the graph cuts dims

// What is known of a parameter's values once they were written: how it begins in a run that does
// not load them.
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
    // Six digits: the number is a summary, not a value.
    return {Init::Kind::kNormal,
            std::stod(fmt::format("{:.6g}", std::sqrt(std::max(variance, 1e-30))))};
  }

 private:
  double sum_ = 0, squares_ = 0, first_ = 0;
  int64_t count_ = 0;
  bool equal_ = true;
};

class WeightsFile {
 public:
  WeightsFile(const Archive& archive, std::ofstream& out) : archive_(archive), out_(out) {}

  // The elements in the module's order.
  Result<Init> write(const Weight& weight) {
    Statistics statistics;
    if (!weight.payload) {
      const DType dtype = weight.values.dtype;
      TESSERA_TRY_VOID(write_values(weight.values.values, dtype, statistics));
      return statistics.init();
    }
    const pt2::Payload& payload = *weight.payload;
    if (contiguous(payload.meta)) {
      TESSERA_TRY_VOID(copy(payload, statistics));
    } else {
      TESSERA_TRY_VOID(gather(payload, statistics));
    }
    return statistics.init();
  }

 private:
  static bool contiguous(const pt2::TensorMeta& meta) {
    int64_t stride = 1;
    for (size_t d = meta.sizes.size(); d-- > 0;) {
      if (meta.sizes[d] != 1 && meta.strides[d] != stride) return false;
      stride *= meta.sizes[d];
    }
    return true;
  }

  static int64_t elements(const pt2::TensorMeta& meta) {
    int64_t count = 1;
    for (const int64_t size : meta.sizes) count *= size;
    return count;
  }

  Status put(const std::vector<char>& bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (out_) return {};
    return fault(fmt::format("import: cannot write the weights: the disk may be full"));
  }

  Status copy(const pt2::Payload& payload, Statistics& statistics) {
    const int64_t width = dtype_bytes(payload.meta.dtype);
    const int64_t end = elements(payload.meta) * width;
    for (int64_t at = 0; at < end; at += kPieceBytes) {
      std::vector<char> piece(static_cast<size_t>(std::min(kPieceBytes, end - at)));
      TESSERA_TRY_VOID(
          archive_.read(payload.entry, payload.meta.storage_offset * width + at, piece));
      count(piece, payload.meta.dtype, statistics);
      TESSERA_TRY_VOID(put(piece));
    }
    return {};
  }

  // A transposed parameter: element by element out of its whole storage.
  Status gather(const pt2::Payload& payload, Statistics& statistics) {
    const pt2::TensorMeta& meta = payload.meta;
    const int64_t width = dtype_bytes(meta.dtype);
    TESSERA_TRY(const int64_t stored, archive_.size(payload.entry));
    std::vector<char> all(static_cast<size_t>(stored));
    TESSERA_TRY_VOID(archive_.read(payload.entry, 0, all));
    std::vector<char> piece;
    const int64_t total = elements(meta);
    for (int64_t i = 0; i < total; ++i) {
      int64_t rest = i, place = meta.storage_offset;
      for (size_t d = meta.sizes.size(); d-- > 0;) {
        place += rest % meta.sizes[d] * std::min(meta.strides[d], stored);
        rest /= meta.sizes[d];
      }
      if (place < 0 || place >= stored / width) {
        return invalid_input(
            fmt::format("{}: entry '{}': expected {} elements within it, found {} bytes",
                        archive_.path(), payload.entry, total, stored));
      }
      piece.insert(piece.end(), all.begin() + place * width, all.begin() + (place + 1) * width);
      if (std::ssize(piece) < kPieceBytes && i + 1 < total) continue;
      count(piece, meta.dtype, statistics);
      TESSERA_TRY_VOID(put(piece));
      piece.clear();
    }
    return {};
  }

  static void count(const std::vector<char>& piece, DType dtype, Statistics& statistics) {
    const int64_t elements = std::ssize(piece) / dtype_bytes(dtype);
    std::vector<double> values(static_cast<size_t>(elements));
    convert(dtype, reinterpret_cast<const std::byte*>(piece.data()), DType::kFloat64,
            reinterpret_cast<std::byte*>(values.data()), elements);
    statistics.add(values.data(), elements);
  }

  Status write_values(const std::vector<double>& values, DType dtype, Statistics& statistics) {
    std::vector<char> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
    convert(DType::kFloat64, reinterpret_cast<const std::byte*>(values.data()), dtype,
            reinterpret_cast<std::byte*>(bytes.data()), std::ssize(values));
    statistics.add(values.data(), std::ssize(values));
    return put(bytes);
  }

  const Archive& archive_;
  std::ofstream& out_;
};

// The bytes that weights claim are there: before a file of that size is begun.
Status check_payloads(const Archive& archive, const Lowered& lowered) {
  for (const Weight& weight : lowered.weights) {
    if (!weight.payload) continue;
    TESSERA_TRY(const int64_t stored, archive.size(weight.payload->entry));
    const pt2::TensorMeta& meta = weight.payload->meta;
    const int64_t width = dtype_bytes(meta.dtype);
    int64_t last = meta.storage_offset;
    for (size_t d = 0; d < meta.sizes.size(); ++d)
      last += (meta.sizes[d] - 1) * std::min(meta.strides[d], stored);
    // Overlapping elements are no parameter: more of them than the storage has.
    int64_t count = 1;
    for (const int64_t size : meta.sizes) count *= size;
    if (last < stored / width && count <= stored / width) continue;
    return invalid_input(
        fmt::format("{}: parameter '{}': expected its {} elements in entry '{}', found {} bytes",
                    archive.path(), weight.name, count, weight.payload->entry, stored));
  }
  return {};
}

// The module's own shapes of those parameters whose dims the graph cuts.
std::map<std::string, std::string> metadata_of(const Lowered& lowered) {
  nlohmann::ordered_json shapes = nlohmann::ordered_json::object();
  for (const Weight& weight : lowered.weights) {
    const Tensor& tensor = lowered.graph.tensor(lowered.graph.find_tensor(weight.name));
    if (tensor.shape() != weight.shape) shapes[weight.name] = weight.shape;
  }
  std::map<std::string, std::string> out = {{"format", "pt"}};
  if (!shapes.empty()) out[kShapes] = shapes.dump();
  return out;
}

Result<ImportReport> write_folder(const Archive& archive, Lowered& lowered,
                                  const std::filesystem::path& folder) {
  std::vector<ArrayEntry> arrays;
  ImportReport report;
  for (const Weight& weight : lowered.weights) {
    const Tensor& tensor = lowered.graph.tensor(lowered.graph.find_tensor(weight.name));
    arrays.push_back({.name = weight.name, .dtype = tensor.dtype, .shape = tensor.shape()});
    report.parameters += tensor.elements();
  }
  const SafetensorsLayout layout = layout_safetensors(std::move(arrays), metadata_of(lowered));
  const std::filesystem::path path = folder / kWeightsFile;
  std::ofstream out(path, std::ios::binary);
  if (!out)
    return invalid_input(fmt::format("{}: expected a file that can be written", path.string()));
  out << layout.head;
  WeightsFile file(archive, out);
  for (const Weight& weight : lowered.weights) {
    TESSERA_TRY(const Init init, file.write(weight));
    lowered.graph.tensor(lowered.graph.find_tensor(weight.name)).init = init;
  }
  out.close();
  if (!out) {
    return fault(fmt::format("{}: expected to write {} bytes, found a full disk or a fault",
                             path.string(), layout.bytes));
  }
  TESSERA_TRY_VOID(write_file((folder / kGraphFile).string(), to_text(lowered.graph)));
  report.arrays = std::ssize(lowered.weights);
  report.bytes = layout.bytes;
  return report;
}

Result<ImportReport> import_archive(const ImportRequest& request) {
  bool cross_entropy = false;
  if (const auto loss = request.settings.find("loss"); loss != request.settings.end()) {
    if (loss->second != "cross_entropy" && loss->second != "module") {
      return invalid_input(
          fmt::format("import: loss: expected module or cross_entropy, found '{}'", loss->second));
    }
    cross_entropy = loss->second == "cross_entropy";
  }
  namespace fs = std::filesystem;
  if (fs::exists(request.out)) {
    return invalid_input(
        fmt::format("import: {}: expected a folder that does not exist yet", request.out));
  }
  TESSERA_TRY(const Archive archive, Archive::open(request.path));
  TESSERA_TRY(const pt2::Program program, pt2::read_program(archive));
  pt2::Lowering lowering(archive, program, cross_entropy);
  Result<Lowered> lowered = lowering.run();
  if (!lowered) {
    const std::string& message = lowered.error().message;
    if (message.starts_with(request.path)) return tl::unexpected(lowered.error());
    return invalid_input(fmt::format("{}: {}", request.path, message));
  }
  TESSERA_TRY_VOID(check_payloads(archive, *lowered));
  // Whatever fails leaves nothing behind: the folder gets its name when it is complete.
  const fs::path partial = request.out + ".partial";
  std::error_code failed;
  fs::remove_all(partial, failed);
  if (!fs::create_directories(partial, failed)) {
    return invalid_input(
        fmt::format("import: {}: expected a folder that can be made", request.out));
  }
  Result<ImportReport> report = write_folder(archive, *lowered, partial);
  if (report) fs::rename(partial, request.out, failed);
  if (!report || failed) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    if (!report) return report;
    return invalid_input(fmt::format("import: {}: {}", request.out, failed.message()));
  }
  report->model = (fs::path(request.out) / kGraphFile).string();
  report->weights = (fs::path(request.out) / kWeightsFile).string();
  return report;
}

bool is_archive(const std::string& path) {
  return path.ends_with(".pt2") && !std::filesystem::is_directory(path);
}

}  // namespace

Importer pt2_importer() {
  return {
      .name = "pt2",
      .summary = "a .pt2 archive of torch.export.save",
      .accepts = is_archive,
      .run = import_archive,
      .keys = {{"loss",
                "module: the scalar that the module returns (default); cross_entropy: that of its "
                "output, logits, and an input targets"}}};
}

}  // namespace tessera
