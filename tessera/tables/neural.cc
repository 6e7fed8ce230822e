#include "tessera/tables/neural.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/tables/placement.h"

namespace tessera::tables {
namespace {

constexpr size_t kMostWidth = 4096;

std::vector<std::string> known_features() {
  std::vector<std::string> out = {"row", "dim", "pooling_factor", "size"};
  for (size_t bin = 0; bin < kReuseBins; ++bin) out.push_back(fmt::format("bin_{}", bin));
  return out;
}

double feature(const std::string& name, const Table& table, const Piece& piece) {
  if (name == "row") return static_cast<double>(piece.rows);
  if (name == "dim") return static_cast<double>(piece.columns);
  if (name == "pooling_factor") return table.pooling_factor * table.bags * piece.share;
  if (name == "size") return static_cast<double>(piece.rows * piece.columns);
  return table.reuse[static_cast<size_t>(*parse_int(name.substr(4)))];
}

Status finite(const JsonTable& in, const std::string& at, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || std::abs(values[i]) > std::numeric_limits<float>::max()) {
      return in.error(fmt::format("{}[{}]", at, i), "expected a finite number");
    }
  }
  return {};
}

Result<Layer> read_layer(const JsonTable& in, size_t inputs) {
  TESSERA_TRY_VOID(in.require({"weight", "bias"}));
  std::vector<std::vector<double>> weight;
  std::vector<double> bias;
  const double least = -std::numeric_limits<double>::infinity();
  TESSERA_TRY_VOID(in.matrix("weight", weight, least));
  TESSERA_TRY_VOID(in.reals("bias", bias, least));
  TESSERA_TRY_VOID(in.done());
  Layer layer;
  layer.inputs = inputs;
  layer.outputs = bias.size();
  if (layer.outputs == 0 || layer.outputs > kMostWidth) {
    return in.error("bias",
                    fmt::format("expected 1 to {} numbers, found {}", kMostWidth, layer.outputs));
  }
  const size_t columns = weight.empty() ? 0 : weight.front().size();
  if (weight.size() != layer.outputs || columns != inputs) {
    return in.error("weight", fmt::format("expected {} rows of {} numbers, found {} of {}",
                                          layer.outputs, inputs, weight.size(), columns));
  }
  TESSERA_TRY_VOID(finite(in, "bias", bias));
  layer.bias.assign(bias.begin(), bias.end());
  layer.weights.resize(inputs * layer.outputs);
  for (size_t j = 0; j < layer.outputs; ++j) {
    TESSERA_TRY_VOID(finite(in, fmt::format("weight[{}]", j), weight[j]));
    for (size_t i = 0; i < inputs; ++i) {
      layer.weights[i * layer.outputs + j] = static_cast<float>(weight[j][i]);
    }
  }
  return layer;
}

// Reads a network. `outputs`: number of outputs that the last layer must have; 0: any number.
Result<Network> read_network(const JsonTable& in, const std::string& key, size_t inputs,
                             size_t outputs) {
  TESSERA_TRY(const auto layers, in.tables(key));
  if (layers.empty()) return in.error(key, "expected at least one layer");
  Network out;
  for (const JsonTable& layer : layers) {
    TESSERA_TRY(Layer read, read_layer(layer, out.empty() ? inputs : out.back().outputs));
    out.push_back(std::move(read));
  }
  if (outputs > 0 && out.back().outputs != outputs) {
    return in.error(key, fmt::format("expected {} outputs of the last layer, found {}", outputs,
                                     out.back().outputs));
  }
  return out;
}

Status read_features(const JsonTable& in, NeuralCosts& out) {
  TESSERA_TRY_VOID(in.require({"features", "mean", "std", "encoder", "head"}));
  TESSERA_TRY_VOID(in.texts("features", out.features));
  const std::vector<std::string> known = known_features();
  for (const std::string& name : out.features) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return in.error("features", fmt::format("unknown feature '{}', did you mean '{}'?",
                                              short_line(name, 40), nearest(name, known)));
    }
  }
  double epsilon = 1e-6;
  TESSERA_TRY_VOID(in.reals("mean", out.mean));
  TESSERA_TRY_VOID(in.reals("std", out.deviation, 0));
  TESSERA_TRY_VOID(in.real("epsilon", epsilon, 0));
  for (const auto& [key, values] :
       {std::pair("mean", &out.mean), std::pair("std", &out.deviation)}) {
    if (values->size() != out.features.size()) {
      return in.error(key, fmt::format("expected {} numbers as there are features, found {}",
                                       out.features.size(), values->size()));
    }
    TESSERA_TRY_VOID(finite(in, key, *values));
  }
  for (double& deviation : out.deviation) deviation += epsilon;
  if (std::any_of(out.deviation.begin(), out.deviation.end(), [](double d) { return d <= 0; })) {
    return in.error("std", "expected numbers above 0");
  }
  return {};
}

// Reads the key `range`: the ranges on which the networks were trained.
Status read_range(const JsonTable& in, NeuralCosts& out) {
  if (!in.has("range")) return {};
  TESSERA_TRY(const JsonTable table, in.table("range"));
  const auto read = [&](const std::string& key) -> Result<std::pair<double, double>> {
    std::vector<double> ends;
    TESSERA_TRY_VOID(table.reals(key, ends, 0));
    if (ends.size() != 2 || ends[0] > ends[1]) {
      return table.error(key, "expected two numbers, the least and the most");
    }
    return std::pair(ends[0], ends[1]);
  };
  if (table.has("device_columns")) {
    TESSERA_TRY(out.trained_columns, read("device_columns"));
  }
  for (size_t i = 0; i < out.features.size(); ++i) {
    if (!table.has(out.features[i])) continue;
    TESSERA_TRY(out.trained[i], read(out.features[i]));
  }
  return table.done();
}

}  // namespace

void run_network(const Network& network, bool relu_last, std::vector<float>& x,
                 std::vector<float>& scratch) {
  for (size_t l = 0; l < network.size(); ++l) {
    const Layer& layer = network[l];
    scratch.assign(layer.bias.begin(), layer.bias.end());
    float* out = scratch.data();
    for (size_t i = 0; i < layer.inputs; ++i) {
      const float value = x[i];
      if (value == 0) continue;  // many values are 0 after a ReLU
      const float* row = &layer.weights[i * layer.outputs];
      for (size_t j = 0; j < layer.outputs; ++j) out[j] += value * row[j];
    }
    if (relu_last || l + 1 < network.size()) {
      for (size_t j = 0; j < layer.outputs; ++j) out[j] = std::max(out[j], 0.0F);
    }
    std::swap(x, scratch);
  }
}

NeuralCostModel::NeuralCostModel(NeuralCosts costs)
    : costs_(std::move(costs)), encoded_(costs_.encoder.back().outputs) {}

Result<NeuralCostModel> NeuralCostModel::parse(const JsonTable& in) {
  NeuralCosts out;
  TESSERA_TRY_VOID(in.require({"compute", "communication"}));
  TESSERA_TRY_VOID(in.text("name", out.name));
  out.name = short_line(out.name, 40);
  TESSERA_TRY_VOID(in.real("batch", out.batch, 1));
  TESSERA_TRY(const JsonTable compute, in.table("compute"));
  TESSERA_TRY_VOID(read_features(compute, out));
  TESSERA_TRY(out.encoder, read_network(compute, "encoder", out.features.size(), 0));
  TESSERA_TRY(out.head, read_network(compute, "head", out.encoder.back().outputs, 1));
  TESSERA_TRY_VOID(compute.done());
  TESSERA_TRY(const auto exchanges, in.tables("communication"));
  for (const JsonTable& item : exchanges) {
    TESSERA_TRY_VOID(item.require({"devices", "backward", "forward"}));
    int64_t devices = 0;
    TESSERA_TRY_VOID(item.whole("devices", devices, 2, 1024));
    const auto n = static_cast<size_t>(devices);
    NeuralCosts::Exchange& exchange = out.exchanges[static_cast<int>(devices)];
    if (!exchange.forward.empty()) return item.error("devices", "is there twice");
    TESSERA_TRY(exchange.backward, read_network(item, "backward", n, n));
    TESSERA_TRY(exchange.forward, read_network(item, "forward", 2 * n, n));
    TESSERA_TRY_VOID(item.done());
  }
  if (in.has("all_reduce_bytes_per_ms")) {
    out.all_reduce_bytes_per_ms = 1;
    TESSERA_TRY_VOID(in.real("all_reduce_bytes_per_ms", *out.all_reduce_bytes_per_ms, 1));
  }
  TESSERA_TRY_VOID(read_range(in, out));
  TESSERA_TRY_VOID(in.done());
  return NeuralCostModel(std::move(out));
}

bool NeuralCostModel::in_range(const Table& table, const Piece& piece) const {
  return std::all_of(costs_.trained.begin(), costs_.trained.end(), [&](const auto& item) {
    const double value = feature(costs_.features[item.first], table, piece);
    return value >= item.second.first && value <= item.second.second;
  });
}

Status NeuralCostModel::check(int devices) const {
  if (devices == 1 || costs_.exchanges.contains(devices)) return {};
  std::vector<std::string> known = {"1"};
  for (const auto& [n, exchange] : costs_.exchanges) known.push_back(fmt::format("{}", n));
  return invalid_input(
      fmt::format("cost model {}: expected as many devices as it has networks for ({}), found {}",
                  costs_.name, join(known, ", "), devices));
}

bool NeuralCostModel::prices(Sharding kind) const {
  return kind != Sharding::kReplicated || costs_.all_reduce_bytes_per_ms.has_value();
}

void NeuralCostModel::encode(const Table& table, const Piece& piece, int devices,
                             std::span<double> code) const {
  std::vector<float> x, scratch;
  for (size_t i = 0; i < costs_.features.size(); ++i) {
    const double value = feature(costs_.features[i], table, piece);
    x.push_back(static_cast<float>((value - costs_.mean[i]) / costs_.deviation[i]));
  }
  run_network(costs_.encoder, true, x, scratch);
  std::copy(x.begin(), x.end(), code.begin());
  if (piece.kind != Sharding::kReplicated) {
    code[encoded_] = static_cast<double>(piece.columns) * table.bags;
  } else if (costs_.all_reduce_bytes_per_ms) {
    const double gradient =
        static_cast<double>(piece.rows) * static_cast<double>(piece.columns) * 4;
    code[encoded_ + 1] = gradient * 2 * (devices - 1) / devices / *costs_.all_reduce_bytes_per_ms;
  }
}

double NeuralCostModel::compute_ms(std::span<const double> sum) const {
  thread_local std::vector<float> x, scratch;
  x.assign(sum.begin(), sum.begin() + static_cast<std::ptrdiff_t>(encoded_));
  run_network(costs_.head, false, x, scratch);
  return std::max(0.0F, x[0]);
}

void NeuralCostModel::communicate(std::span<const double> sums, std::span<DeviceCost> costs) const {
  const size_t devices = costs.size();
  const auto known = costs_.exchanges.find(static_cast<int>(devices));
  // Only for one device; check() refuses all other unknown numbers.
  if (known == costs_.exchanges.end()) return;
  thread_local std::vector<float> x, scratch;
  const auto columns = [&](size_t device) {
    return static_cast<float>(sums[device * width() + encoded_]);
  };
  x.clear();
  for (size_t device = 0; device < devices; ++device) x.push_back(columns(device));
  run_network(known->second.backward, false, x, scratch);
  double first = std::numeric_limits<double>::infinity();
  for (size_t device = 0; device < devices; ++device) {
    costs[device].backward_ms = std::max(0.0F, x[device]) + sums[device * width() + encoded_ + 1];
    first = std::min(first, costs[device].compute_ms + costs[device].backward_ms);
  }
  x.clear();
  for (size_t device = 0; device < devices; ++device) x.push_back(columns(device));
  for (const DeviceCost& cost : costs) {
    x.push_back(static_cast<float>(cost.compute_ms + cost.backward_ms - first));
  }
  run_network(known->second.forward, false, x, scratch);
  for (size_t device = 0; device < devices; ++device) {
    costs[device].forward_ms = std::max(0.0F, x[device]);
  }
}

}  // namespace tessera::tables
