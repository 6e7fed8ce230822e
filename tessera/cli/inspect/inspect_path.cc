// tessera inspect 'S0R -> RS0' --mesh 2x4: shows how a tensor changes layout on one mesh.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/inspect/inspect.h"
#include "tessera/cli/output.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/plan/layout/reshard_spec.h"
#include "tessera/simulate/path_price.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct LayoutPath {
  Mesh mesh;
  std::vector<int64_t> shape;
  // Whether the user gave the shape. If not, the sizes were chosen here, and only shares of the
  // tensor mean something.
  bool has_shape = false;
  DType dtype = DType::kFloat32;
  Layout from, to;
  std::vector<ConversionStep> steps;
  std::vector<StepPrice> prices;
  std::optional<Cluster> cluster;

  double tensor_bytes() const {
    auto bytes = static_cast<double>(dtype_bytes(dtype));
    for (const int64_t size : shape) bytes *= static_cast<double>(size);
    return bytes;
  }
};

// Chooses the sizes of a tensor so that all axes divide them and so that it is large compared with
// the number of steps.
std::vector<int64_t> usual_shape(size_t rank, const Mesh& mesh) {
  constexpr int64_t kLeastElements = int64_t{1} << 24;
  std::vector<int64_t> shape(rank, mesh.size());
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (elements < kLeastElements) elements *= size;
  }
  shape.front() *= (kLeastElements + elements - 1) / elements;
  return shape;
}

Result<LayoutPath> path_of(const InspectOptions& options) {
  const std::string_view text = options.subject;
  const size_t arrow = text.find("->");
  const std::string_view before = trim(text.substr(0, arrow)),
                         behind = trim(text.substr(arrow + 2));
  LayoutPath out;
  TESSERA_TRY(out.mesh, parse_mesh_sizes(options.mesh));
  TESSERA_TRY(out.dtype, parse_dtype(options.precision));
  out.has_shape = !options.shape.empty();
  for (const int64_t size : options.shape) {
    if (size >= 1) continue;
    return invalid_input(fmt::format("inspect: --shape: expected sizes >= 1, found {}", size));
  }
  const size_t named = dims_of_layout_spec(before);
  const size_t rank = out.has_shape ? options.shape.size() : named;
  constexpr size_t kMostDims = 6;
  if (rank < 1 || rank > kMostDims) {
    return invalid_input(fmt::format("layout '{}': expected 1 to {} dims, such as S0R, found {}",
                                     before, kMostDims, rank));
  }
  TESSERA_TRY(const Layout from, parse_layout_spec(before, out.mesh, rank));
  TESSERA_TRY(const Layout to, parse_layout_spec(behind, out.mesh, rank));
  out.shape = out.has_shape ? options.shape : usual_shape(rank, out.mesh);
  constexpr double kMostElements = 1e15;
  if (out.tensor_bytes() > kMostElements) {
    return invalid_input("inspect: --shape: expected a tensor of at most 1e15 bytes");
  }
  out.from = normalise(from, out.mesh, out.shape);
  out.to = normalise(to, out.mesh, out.shape);
  if (!out.to.complete() && out.to.partial != out.from.partial) {
    return invalid_input(fmt::format(
        "layout '{}': expected no parts of a sum, or those of '{}': nothing makes parts of a value",
        behind, before));
  }
  out.steps = conversion_path(out.from, out.to, out.mesh, out.shape);
  TESSERA_TRY(const Style style, parse_style("tessera"));
  if (!options.cluster.empty()) {
    if (!out.has_shape) {
      return invalid_input(fmt::format(
          "inspect: expected --shape beside --cluster for '{}', the sizes of the tensor's dims, as "
          "1024,1024",
          options.subject));
    }
    TESSERA_TRY(out.cluster, load_cluster(options.cluster));
  }
  TESSERA_TRY(out.prices, price_path(out.from, out.steps, out.mesh, out.shape, out.dtype,
                                     out.cluster ? &*out.cluster : nullptr, style));
  return out;
}

std::string step_name(const ConversionStep& step) {
  return step.slice ? "slice" : std::string(collective_name(step.kind));
}

std::vector<size_t> axes_of(const ConversionStep& step) {
  std::vector<size_t> out;
  for (const AxisId axis : step.axes) out.push_back(axis.index());
  return out;
}

double seconds_of(const StepPrice& price) { return price.cost ? price.cost->seconds() : 0; }

// Returns the bytes if the user gave the tensor's sizes, else the share of the tensor.
std::string amount_text(const LayoutPath& path, int64_t bytes) {
  if (path.has_shape) return short_bytes(bytes);
  return fmt::format("{:.4g}", static_cast<double>(bytes) / path.tensor_bytes());
}

std::string path_text(const InspectOptions& options, const LayoutPath& path) {
  std::string out = fmt::format("{} on {}", options.subject, options.mesh);
  if (path.has_shape) {
    out +=
        fmt::format(", a tensor of {} {}, {}", fmt::join(path.shape, " x "), dtype_name(path.dtype),
                    short_bytes(static_cast<int64_t>(path.tensor_bytes())));
  }
  if (path.cluster) out += fmt::format(", on {}", options.cluster);
  out += "\n";
  if (path.steps.empty()) return out + "Nothing moves: both layouts are the same.\n";
  std::vector<std::string> head = {"step",
                                   "what",
                                   "axes",
                                   "ranks",
                                   "from",
                                   "to",
                                   path.has_shape ? "a rank sends" : "a rank sends, of the tensor"};
  if (path.cluster) head.insert(head.end(), {"time", "algorithm"});
  Table table(head);
  std::string from = layout_spec(path.from);
  int64_t bytes = 0;
  double seconds = 0;
  for (size_t i = 0; i < path.steps.size(); ++i) {
    const ConversionStep& step = path.steps[i];
    const StepPrice& price = path.prices[i];
    const std::string to = layout_spec(step.to);
    std::vector<std::string> cells = {
        std::to_string(i),
        step_name(step),
        step.slice ? "-" : fmt::format("{}", fmt::join(axes_of(step), " ")),
        step.slice ? "-" : std::to_string(price.members),
        from,
        to,
        amount_text(path, price.bytes)};
    if (path.cluster) {
      cells.push_back(price.cost ? short_seconds(seconds_of(price)) : "-");
      cells.push_back(price.cost ? price.cost->algorithm : "-");
    }
    table.add(cells);
    from = to;
    bytes += price.bytes;
    seconds += seconds_of(price);
  }
  out += "\n" + table.to_string() + "\n";
  out += fmt::format("A rank sends {}{} in all", amount_text(path, bytes),
                     path.has_shape ? "" : " of the tensor");
  if (path.cluster)
    out += fmt::format("; the steps take {} one after the other", short_seconds(seconds));
  return out + ".\n";
}

Json path_json(const InspectOptions& options, const LayoutPath& path) {
  Json steps = Json::array();
  int64_t bytes = 0;
  double seconds = 0;
  for (size_t i = 0; i < path.steps.size(); ++i) {
    const ConversionStep& step = path.steps[i];
    const StepPrice& price = path.prices[i];
    Json row = {{"what", step_name(step)},
                {"axes", axes_of(step)},
                {"ranks", price.members},
                {"to", layout_spec(step.to)},
                {"share", static_cast<double>(price.bytes) / path.tensor_bytes()}};
    if (path.has_shape) row["bytes"] = price.bytes;
    if (path.cluster) row["seconds"] = seconds_of(price);
    if (price.cost) row["algorithm"] = price.cost->algorithm;
    steps.push_back(std::move(row));
    bytes += price.bytes;
    seconds += seconds_of(price);
  }
  Json sizes = Json::array();
  for (const MeshAxis& axis : path.mesh.axes) sizes.push_back(axis.size);
  Json out = {{"path", options.subject}, {"mesh", std::move(sizes)}};
  if (path.has_shape) {
    out["shape"] = path.shape;
    out["dtype"] = dtype_name(path.dtype);
  }
  if (path.cluster) out["cluster"] = options.cluster;
  out["steps"] = std::move(steps);
  out["share"] = static_cast<double>(bytes) / path.tensor_bytes();
  if (path.has_shape) out["bytes"] = bytes;
  if (path.cluster) out["seconds"] = seconds;
  return out;
}

}  // namespace

Result<int> inspect_path(const InspectOptions& options) {
  TESSERA_TRY(const LayoutPath path, path_of(options));
  return print(options.json ? dumped(path_json(options, path)) + "\n" : path_text(options, path));
}

}  // namespace tessera::cli
