// Prices tables by cost networks as published for table placement
// (docs/strategies/planning-tables.md section 8): one network for the computation of a device, and
// for each number of devices two networks for the exchanges. The networks are read from JSON
// (format: docs/reference/tables.md).
//
//   computation: features of a piece, standardised -> encoder (ReLU) -> sum over the device's pieces
//                -> head (ReLU between layers) -> ms
//   backward:    sums of columns by device -> ms by device
//   forward:     those sums, then by device how much later than the first it starts -> ms by device
//
// Outputs below zero count as zero. A device without pieces computes nothing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/json_table.h"
#include "tessera/tables/cost_model.h"

namespace tessera::tables {

// A `Layer` is y = W x + b, with weights by input so that the inner loop runs over outputs.
struct Layer {
  size_t inputs = 0, outputs = 0;
  std::vector<float> weights;  // inputs x outputs
  std::vector<float> bias;     // outputs
};
using Network = std::vector<Layer>;

// Runs the layers on `x` with ReLU between them, and leaves the result in `x`. `relu_last`: apply
// ReLU after the last layer, too. `scratch`: any buffer.
void run_network(const Network& network, bool relu_last, std::vector<float>& x,
                 std::vector<float>& scratch);

struct NeuralCosts {
  std::string name = "neural";
  double batch = 65536;
  // Names of a piece's features, in the order of the encoder's inputs.
  std::vector<std::string> features;
  std::vector<double> mean, deviation;
  Network encoder, head;
  struct Exchange {
    Network backward, forward;
  };
  std::map<int, Exchange> exchanges;  // by number of devices
  // The rate of an all-reduce, for replicated tables; unset: these cannot be priced.
  std::optional<double> all_reduce_bytes_per_ms;
  // The ranges on which the networks were trained, as least and most value: of a piece's features,
  // by position in `features`, and of the columns of a device.
  std::map<size_t, std::pair<double, double>> trained;
  std::optional<std::pair<double, double>> trained_columns;
};

class NeuralCostModel final : public CostModel {
 public:
  explicit NeuralCostModel(NeuralCosts costs);
  // Reads a model. Errors: file:key of what is missing, of layers that do not fit each other, of a
  // weight that is no finite number, of an unknown feature.
  static Result<NeuralCostModel> parse(const JsonTable& in);

  std::string name() const override { return costs_.name; }
  Status check(int devices) const override;
  bool prices(Sharding kind) const override;
  bool in_range(const Table& table, const Piece& piece) const override;
  std::optional<std::pair<double, double>> range_of_columns() const override {
    return costs_.trained_columns;
  }
  size_t width() const override { return encoded_ + 2; }  // then columns, all-reduce ms
  void encode(const Table& table, const Piece& piece, int devices,
              std::span<double> code) const override;
  double compute_ms(std::span<const double> sum) const override;
  void communicate(std::span<const double> sums, std::span<DeviceCost> costs) const override;
  // Returns a bound on the computation. The head is a sum of ramps. Ramps with a positive weight
  // are convex, so their mean over devices is at least their value at the mean of all sums; ramps
  // with a negative weight are at least a chord over all sums that a device can have. The convex
  // function that remains is bounded by a tangent, which each table minimises by itself over its
  // ways to be split. Heads with more than one hidden layer, and exchanges, count as 0.
  double bound_ms(const Problem& problem) const override;

 private:
  NeuralCosts costs_;
  size_t encoded_ = 0;
};

}  // namespace tessera::tables
