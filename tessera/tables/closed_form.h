// Computes the costs of tables in closed form (docs/reference/tables.md). The formulas have the
// shape of measured costs, and the default constants are set to those measurements
// (docs/strategies/planning-tables.md section 13).
//
//   lookups  = batch bags pooling_factor share
//   work     = lookups (lookup_ms + columns element_bytes / memory) + vectors columns 4 / memory
//   compute  = W + launch (1 - exp(-W / warm))                        W: sum of the device's work
//   exchange = latency + (mean + skew (max - mean)) batch 4 (devices - 1) / devices / link
//              mean, max: of the devices' sums of columns that leave them
//   backward = exchange + gradients of replicas in an all-reduce
//   forward  = exchange + waiting for the device that starts last
#pragma once

#include "tessera/tables/cost_model.h"

namespace tessera::tables {

struct ClosedConstants {
  double batch = 65536;       // samples of all devices
  double lookup_ms = 4.9e-7;  // time of an id, whatever the width of the table
  // Rate for rows that are read forward, and read and written backward.
  double memory_bytes_per_ms = 1e9;
  double launch_ms = 2.66;
  double warm_ms = 0.66;
  double link_bytes_per_ms = 4.57e6;  // rate of a device in each direction
  double backward_latency_ms = 0.7;
  double forward_latency_ms = 0.3;
  double skew = 0.24;  // 0: the mean counts alone, 1: the busiest device
};

class ClosedForm final : public CostModel {
 public:
  explicit ClosedForm(const ClosedConstants& constants = {}) : c_(constants) {}
  std::string name() const override { return "closed"; }
  bool prices(Sharding) const override { return true; }
  size_t width() const override { return 3; }  // work_ms, columns exchanged, all-reduce ms
  void encode(const Table& table, const Piece& piece, int devices,
              std::span<double> code) const override;
  double compute_ms(std::span<const double> sum) const override;
  void communicate(std::span<const double> sums, std::span<DeviceCost> costs) const override;
  // Returns the cost if each table's work is that of the whole table, its exchange that of
  // its columns or (if allowed and cheaper) of its replicas, and both are spread evenly over
  // the devices.
  double bound_ms(const Problem& problem) const override;

 private:
  double ms_of_column(int devices) const;  // milliseconds of a column in the exchange

  ClosedConstants c_;
};

}  // namespace tessera::tables
