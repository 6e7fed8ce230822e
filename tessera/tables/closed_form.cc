#include "tessera/tables/closed_form.h"

#include <algorithm>
#include <cmath>

#include "tessera/tables/placement.h"

namespace tessera::tables {

double ClosedForm::ms_of_column(int devices) const {
  const double others = static_cast<double>(devices - 1) / devices;
  return c_.batch * 4 * others / c_.link_bytes_per_ms;
}

void ClosedForm::encode(const Table& table, const Piece& piece, int devices,
                        std::span<double> code) const {
  const auto columns = static_cast<double>(piece.columns);
  const double lookups = c_.batch * table.bags * table.pooling_factor * piece.share;
  const bool replicated = piece.kind == Sharding::kReplicated;
  const double vectors = c_.batch * table.bags / (replicated ? devices : 1);
  const double row_bytes = columns * static_cast<double>(table.element_bytes);
  code[0] = lookups * (c_.lookup_ms + row_bytes / c_.memory_bytes_per_ms) +
            vectors * columns * 4 / c_.memory_bytes_per_ms;
  if (replicated) {
    const double gradient = static_cast<double>(piece.rows) * columns * 4;
    code[2] = gradient * 2 * (devices - 1) / devices / c_.link_bytes_per_ms;
  } else {
    code[1] = columns * table.bags;
  }
}

double ClosedForm::compute_ms(std::span<const double> sum) const {
  return sum[0] + c_.launch_ms * -std::expm1(-sum[0] / c_.warm_ms);
}

void ClosedForm::communicate(std::span<const double> sums, std::span<DeviceCost> costs) const {
  const size_t devices = costs.size();
  if (devices < 2) return;
  double most = 0, all = 0;
  for (size_t device = 0; device < devices; ++device) {
    most = std::max(most, sums[3 * device + 1]);
    all += sums[3 * device + 1];
  }
  const double mean = all / static_cast<double>(devices);
  const double exchange =
      (mean + c_.skew * (most - mean)) * ms_of_column(static_cast<int>(devices));
  double last = 0;
  for (size_t device = 0; device < devices; ++device) {
    costs[device].backward_ms = c_.backward_latency_ms + exchange + sums[3 * device + 2];
    last = std::max(last, costs[device].compute_ms + costs[device].backward_ms);
  }
  for (DeviceCost& cost : costs) {
    const double waiting = last - cost.compute_ms - cost.backward_ms;
    cost.forward_ms = c_.forward_latency_ms + exchange + waiting;
  }
}

double ClosedForm::bound_ms(const Problem& problem) const {
  const double devices = problem.devices;
  const double ms_a_column = 2 * ms_of_column(problem.devices) / devices;
  double work = 0, exchange = 0, single = 0;
  for (size_t i = 0; i < problem.tables.size(); ++i) {
    const Table& table = problem.tables[i];
    double code[3] = {0, 0, 0};
    Piece piece = Piece::whole(i, table);
    encode(table, piece, problem.devices, code);
    work += code[0];
    double least = code[1] * ms_a_column;
    if (problem.splits.replicas) {
      double replica[3] = {0, 0, 0};
      piece.kind = Sharding::kReplicated;
      piece.share = 1 / devices;
      encode(table, piece, problem.devices, replica);
      least = std::min(least, replica[2]);
    } else if (!problem.splits.rows && !may_keep_hot(problem)) {
      // Every device with a piece has at least the narrowest piece, which looks up all ids.
      double narrow[3] = {0, 0, 0};
      if (problem.splits.columns) {
        piece.columns = std::min(piece.columns, problem.splits.least_columns);
      }
      encode(table, piece, problem.devices, narrow);
      single = std::max(single, narrow[0]);
    }
    exchange += least;
  }
  const double busiest[1] = {std::max(work / devices, single)};
  const double latency =
      problem.devices < 2 ? 0 : c_.backward_latency_ms + c_.forward_latency_ms + exchange;
  return compute_ms(busiest) + latency;
}

}  // namespace tessera::tables
