// Implements TorchRec's estimator of table performance and storage, with its default constants
// (docs/theory/zionex-dlrm.md section 6). All times are ms, all rates bytes/ms. Ids count 8 bytes.
//
//   TorchRecEstimator estimator({});                 // defaults
//   const TorchRecMs ms = estimator.perf(table, piece, 2);
//   ms.total();                                      // 3.9104e-4 of 100 x 10, batch 512, table-wise
//
// Used as a cost model, the cost of a device is the sum of the totals of its pieces, whatever other
// devices do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tables/cost_model.h"

namespace tessera::tables {

enum class TorchRecPipeline : uint8_t { kNone, kSparseDist, kPrefetch };

struct TorchRecConstants {
  double batch = 512;          // samples of each device
  int64_t devices_a_node = 8;  // devices of a node; at most the number of all devices
  double hbm_bytes_per_ms = 897.0 * (int64_t{1} << 30) / 1000;
  double ddr_bytes_per_ms = 51.0 * (int64_t{1} << 30) / 1000;
  double host_bytes_per_ms = 32.0 * (int64_t{1} << 30) / 1000;  // PCIe
  double inside_bytes_per_ms = 600.0 * (int64_t{1} << 30) / 1000;
  double between_bytes_per_ms = 12.5 * (int64_t{1} << 30) / 1000;
  double caching_ratio = 0.2;
  double backward_multiplier = 2;
  double narrow_penalty = 1.75;  // factor for fewer than 64 columns
  double medium_penalty = 1.15;  // factor for 64 to 127 columns
  double weighted_multiplier = 1.1;
  double batched_copy_multiplier = 2.455;
  double replicated_multiplier = 9.22;  // factor for the element-wise work of a dense update
  double id_bytes = 8;
  double forward_bytes = 4;   // bytes of a number in the forward exchange
  double backward_bytes = 4;  // bytes of a number in the backward exchange
  bool cpu = false;           // whether the fused kernel reads DDR
  TorchRecPipeline pipeline = TorchRecPipeline::kNone;
  double prefetch_passes = 1;
  // Storage. Each device keeps memory free: a share of it, 6 times the dense parameters, and the
  // ids of a batch.
  int64_t ddr_bytes = int64_t{128} << 30;  // host memory of a device
  double reserved_share = 0;
  double dense_parameter_bytes = 0;
  int64_t least_columns = 128;  // least width of a column-wise piece
};

struct TorchRecMs {
  double forward_compute = 0, forward_exchange = 0, backward_compute = 0, backward_exchange = 0,
         prefetch = 0;
  double total() const {
    return forward_compute + forward_exchange + backward_compute + backward_exchange + prefetch;
  }
};

struct TorchRecBytes {
  int64_t hbm = 0, ddr = 0;
};

class TorchRecEstimator final : public CostModel {
 public:
  explicit TorchRecEstimator(const TorchRecConstants& constants = {}) : c_(constants) {}
  const TorchRecConstants& constants() const { return c_; }

  TorchRecMs perf(const Table& table, const Piece& piece, int devices) const;
  // Returns the bytes that a piece needs for parameters, optimizer state, cache, ids and vectors.
  TorchRecBytes storage(const Table& table, const Piece& piece, int devices,
                        Optimizer optimizer) const;
  // Returns the bytes that remain of a device's `memory_bytes` for tables, after the reserved
  // share, dense parameters and ids.
  int64_t budget(const std::vector<Table>& tables, int64_t memory_bytes) const;
  int64_t devices_a_node(int devices) const;

  std::string name() const override { return "torchrec"; }
  bool prices(Sharding) const override { return true; }
  size_t width() const override { return 3; }  // compute with prefetch, backward, forward
  void encode(const Table& table, const Piece& piece, int devices,
              std::span<double> code) const override;
  double compute_ms(std::span<const double> sum) const override { return sum[0]; }
  void communicate(std::span<const double> sums, std::span<DeviceCost> costs) const override;
  int64_t working_bytes(const Table& table, const Piece& piece, int devices) const override;
  int64_t device_bytes(const Table& table, const Piece& piece, Optimizer optimizer) const override;
  // Returns the cost if each table is sharded in its cheapest way and all cost is spread evenly
  // over the devices.
  double bound_ms(const Problem& problem) const override;

 private:
  double kernel_rate(Kernel kernel) const;
  double penalty(int64_t columns) const;

  TorchRecConstants c_;
};

}  // namespace tessera::tables
