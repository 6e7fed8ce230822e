#include "tessera/models/running_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/graph/carried.h"
#include "tessera/models/config.h"

namespace tessera {
namespace {

// Makes the mean of a statistic over all its dims except the channels. These dims count groups
// of samples.
TensorId mean_over_groups(GraphBuilder& g, const std::string& path, TensorId statistic,
                          const Dim& channels) {
  std::string dims;
  int64_t groups = 1;
  for (const Dim& dim : g.tensor(statistic).dims) {
    if (dim == channels) continue;
    dims += (dims.empty() ? "" : " ") + dim.name;
    groups *= dim.size;
  }
  if (dims.empty()) return statistic;
  return g.op1(path, "reduce_sum", {statistic},
               {{"dims", dims}, {"factor", 1 / static_cast<double>(groups)}});
}

}  // namespace

Status check_running(std::string_view family, double keep) {
  if (keep >= 0 && keep < 1) return {};
  return model_error(family, fmt::format("running={} must be at least 0 and below 1", keep));
}

TensorId running_batch_norm(GraphBuilder& g, const std::string& name, TensorId x,
                            const Dim& channels, std::string_view over, const RunningNorm& how) {
  if (!g.ok()) return {};
  const DType dtype = g.tensor(x).dtype;
  const DType wide = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const TensorId gamma = g.parameter(name + ".weight", {channels}, {Init::Kind::kOnes}, dtype);
  const TensorId beta = g.parameter(name + ".bias", {channels}, {Init::Kind::kZeros}, dtype);
  if (!g.ok()) return {};
  // Passes that share parameters also share the running statistics, so an existing buffer next to
  // the parameter `<name>.weight` is used.
  const std::string& weight = g.tensor(gamma).name;
  const std::string prefix = weight.substr(0, weight.size() - std::string_view("weight").size());
  const auto running = [&](const char* what, Init::Kind init) {
    const TensorId known = g.graph().find_tensor(prefix + what);
    return known.valid() ? known : g.buffer(name + "." + what, {channels}, {init}, wide);
  };
  const TensorId mean = running("running_mean", Init::Kind::kZeros);
  const TensorId variance = running("running_variance", Init::Kind::kOnes);
  const std::vector<TensorId> out = g.op(name, "batch_norm", {x, gamma, beta, mean, variance},
                                         {{"dims", std::string(over)}, {"eps", how.eps}});
  if (!g.ok() || !how.moves) return out[0];
  int64_t elements = 1;
  const std::vector<std::string> shared = split_text(over, ' ');
  for (const Dim& dim : g.tensor(x).dims) {
    if (std::find(shared.begin(), shared.end(), dim.name) != shared.end()) elements *= dim.size;
  }
  carry(g, mean, mean_over_groups(g, name + ".running_mean.now", out[1], channels),
        {.keep = how.keep});
  // The power rstd^-2 is the biased variance plus eps. The carry subtracts eps and makes the
  // variance unbiased.
  const TensorId squares =
      g.op1(name + ".running_variance.squares", "power", {out[2]}, {{"exponent", -2.0}});
  const double unbiased =
      static_cast<double>(elements) / static_cast<double>(std::max<int64_t>(1, elements - 1));
  carry(g, variance, mean_over_groups(g, name + ".running_variance.now", squares, channels),
        {.keep = how.keep, .factor = unbiased, .offset = -how.eps * unbiased});
  return out[0];
}

}  // namespace tessera
