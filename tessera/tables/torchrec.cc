#include "tessera/tables/torchrec.h"

#include <algorithm>
#include <cmath>

#include "tessera/tables/placement.h"

namespace tessera::tables {
namespace {

bool rows_cut(Sharding kind) {
  return kind == Sharding::kRows || kind == Sharding::kTableRows || kind == Sharding::kGrid;
}

int64_t whole_bytes(double bytes) { return static_cast<int64_t>(std::ceil(bytes)); }

}  // namespace

double TorchRecEstimator::kernel_rate(Kernel kernel) const {
  const double fused = c_.cpu ? c_.ddr_bytes_per_ms : c_.hbm_bytes_per_ms;
  switch (kernel) {
    case Kernel::kFused: return fused;
    case Kernel::kDense: return c_.cpu ? c_.ddr_bytes_per_ms / 2 : c_.hbm_bytes_per_ms / 2;
    case Kernel::kUvm: return c_.host_bytes_per_ms / 10;
    case Kernel::kUvmCaching:
      if (c_.pipeline == TorchRecPipeline::kPrefetch) return c_.hbm_bytes_per_ms;
      return (c_.caching_ratio * c_.hbm_bytes_per_ms +
              (1 - c_.caching_ratio) * c_.host_bytes_per_ms) /
             10;
    case Kernel::kKeyValue: return c_.host_bytes_per_ms;
  }
  return fused;
}

double TorchRecEstimator::penalty(int64_t columns) const {
  if (columns < 64) return c_.narrow_penalty;
  return columns < 128 ? c_.medium_penalty : 1;
}

int64_t TorchRecEstimator::devices_a_node(int devices) const {
  return std::min<int64_t>(c_.devices_a_node, devices);
}

// Returns the times by the formulas of docs/theory/zionex-dlrm.md section 6 and with their letters:
// W devices, L devices of a node, N_in ids and N_out vectors of a device's batch, D columns, s
// bytes of a number.
TorchRecMs TorchRecEstimator::perf(const Table& table, const Piece& piece, int devices) const {
  const double W = devices;
  const auto L = static_cast<double>(devices_a_node(devices));
  const auto D = static_cast<double>(piece.columns);
  const auto s = static_cast<double>(table.element_bytes);
  const double weighted = table.weighted ? 2 : 1;
  const double ids = table.pooling_factor * table.bags * c_.batch;
  const double N_out = table.bags * c_.batch;
  const double rate = kernel_rate(piece.kernel) / (table.weighted ? c_.weighted_multiplier : 1);
  const double inside_all = W <= L ? c_.inside_bytes_per_ms : c_.between_bytes_per_ms;
  const double misses_ms = table.misses * D * s / c_.host_bytes_per_ms;
  TorchRecMs ms;
  if (piece.kind == Sharding::kReplicated) {
    // Hot rows are looked up only for those ids of the device's own samples that name hot rows.
    const double N_in = piece.rows < table.rows ? ids * piece.share * W : ids;
    const double in = std::ceil(N_in * c_.id_bytes * weighted);
    ms.forward_compute = (in + N_in * D * s + N_out * D * s) / rate;
    const double nodes = std::min(std::max(W / L, 1.0), 2.0);
    const double gradient = static_cast<double>(piece.rows) * D * s;
    const double doubled = W > 2 * L ? 2 : 1;
    if (W > 1) {
      ms.backward_exchange =
          doubled * gradient * (2 * nodes - 1) / nodes / (c_.between_bytes_per_ms * L);
    }
    ms.backward_exchange += gradient * c_.replicated_multiplier / rate;
  } else if (rows_cut(piece.kind)) {
    const double N_in = ids * piece.share;
    const double in = std::ceil(N_in * W * c_.id_bytes * weighted);
    const double look = N_in * W * D * s;
    const double out = N_out * W * D * c_.forward_bytes;
    const double back = N_out * W * D * c_.backward_bytes;
    ms.forward_compute = (in + look + out) / rate;
    const bool node = piece.kind != Sharding::kRows;
    const double link = node ? c_.inside_bytes_per_ms : inside_all;
    ms.forward_exchange = out / link;
    ms.backward_exchange = back / link + back * c_.batched_copy_multiplier / rate;
    if (node && W > L) {
      ms.forward_exchange += N_out * (W / L) * D * c_.forward_bytes / c_.between_bytes_per_ms;
      ms.backward_exchange += N_out * (W / L) * D * c_.backward_bytes / c_.between_bytes_per_ms;
    }
    ms.prefetch = misses_ms * piece.share;
  } else {
    const double in = std::ceil(ids * W * c_.id_bytes * weighted);
    const double look = ids * W * std::max(D, 32.0) * s;
    const double out = N_out * W * D * c_.forward_bytes;
    ms.forward_compute = (in + look + out) * penalty(piece.columns) / rate;
    ms.forward_exchange = out / inside_all;
    ms.backward_exchange = N_out * W * D * c_.backward_bytes / inside_all;
    ms.prefetch = misses_ms;
  }
  ms.backward_compute = c_.backward_multiplier * ms.forward_compute;
  return ms;
}

int64_t TorchRecEstimator::device_bytes(const Table& table, const Piece& piece,
                                        Optimizer optimizer) const {
  const int64_t resting = resting_bytes(table, piece, optimizer);
  switch (piece.kernel) {
    case Kernel::kFused:
    case Kernel::kDense: return c_.cpu ? 0 : resting;
    case Kernel::kUvm:
    case Kernel::kKeyValue: return 0;
    case Kernel::kUvmCaching: {
      const double slots = c_.caching_ratio * static_cast<double>(piece.rows);
      return whole_bytes(c_.caching_ratio * static_cast<double>(resting)) + 4 * piece.rows +
             whole_bytes(16 * slots);
    }
  }
  return resting;
}

int64_t TorchRecEstimator::working_bytes(const Table& table, const Piece& piece,
                                         int devices) const {
  const double W = devices;
  const double weighted = table.weighted ? 2 : 1;
  const bool replicated = piece.kind == Sharding::kReplicated;
  const double reach = replicated ? 1 : W * (rows_cut(piece.kind) ? piece.share : 1);
  const double in =
      std::ceil(table.pooling_factor * table.bags * c_.batch * c_.id_bytes * weighted * reach);
  const double out = table.bags * c_.batch * (replicated ? 1 : W) *
                     static_cast<double>(piece.columns) * c_.forward_bytes;
  switch (c_.pipeline) {
    case TorchRecPipeline::kNone: return whole_bytes(in + out);
    case TorchRecPipeline::kSparseDist: return whole_bytes(2 * in);
    case TorchRecPipeline::kPrefetch: {
      const double prefetch = table.misses * static_cast<double>(piece.columns) *
                              static_cast<double>(table.element_bytes);
      return whole_bytes(3 * in + (1 + 6 / c_.prefetch_passes) * prefetch);
    }
  }
  return 0;
}

TorchRecBytes TorchRecEstimator::storage(const Table& table, const Piece& piece, int devices,
                                         Optimizer optimizer) const {
  TorchRecBytes out;
  out.hbm = device_bytes(table, piece, optimizer) + working_bytes(table, piece, devices);
  const bool on_host =
      c_.cpu || piece.kernel == Kernel::kUvm || piece.kernel == Kernel::kUvmCaching;
  if (on_host) out.ddr = resting_bytes(table, piece, optimizer);
  return out;
}

int64_t TorchRecEstimator::budget(const std::vector<Table>& tables, int64_t memory_bytes) const {
  double ids = 0;
  for (const Table& table : tables) {
    ids += table.pooling_factor * table.bags * c_.batch * c_.id_bytes * (table.weighted ? 2 : 1);
  }
  const bool reserves = c_.reserved_share > 0 || c_.dense_parameter_bytes > 0;
  const double left = static_cast<double>(memory_bytes) * (1 - c_.reserved_share) -
                      (reserves ? 6 * c_.dense_parameter_bytes + ids : 0);
  return std::max<int64_t>(0, static_cast<int64_t>(left));
}

void TorchRecEstimator::encode(const Table& table, const Piece& piece, int devices,
                               std::span<double> code) const {
  const TorchRecMs ms = perf(table, piece, devices);
  code[0] = ms.forward_compute + ms.backward_compute + ms.prefetch;
  code[1] = ms.backward_exchange;
  code[2] = ms.forward_exchange;
}

void TorchRecEstimator::communicate(std::span<const double> sums,
                                    std::span<DeviceCost> costs) const {
  for (size_t device = 0; device < costs.size(); ++device) {
    costs[device].backward_ms = sums[3 * device + 1];
    costs[device].forward_ms = sums[3 * device + 2];
  }
}

double TorchRecEstimator::bound_ms(const Problem& problem) const {
  double sum = 0, single = 0;
  for (size_t i = 0; i < problem.tables.size(); ++i) {
    const Table& table = problem.tables[i];
    Piece piece = Piece::whole(i, table);
    // Cut columns are left out: every piece looks up all ids and has at least the whole table's
    // penalty, so the pieces together never cost less.
    double least = perf(table, piece, problem.devices).total();
    const bool rows = problem.splits.rows || may_keep_hot(problem);
    if (!problem.splits.columns && !rows && !problem.splits.replicas) {
      single = std::max(single, least);
    }
    if (rows) {
      for (const Sharding kind : {Sharding::kRows, Sharding::kTableRows}) {
        piece.kind = kind;
        least = std::min(least, perf(table, piece, problem.devices).total());
      }
    }
    if (problem.splits.replicas) {
      piece.kind = Sharding::kReplicated;
      piece.share = 1.0 / problem.devices;
      least = std::min(least, problem.devices * perf(table, piece, problem.devices).total());
    }
    sum += least;
  }
  return std::max(single, sum / problem.devices);
}

}  // namespace tessera::tables
