// Predicts the cost of work on one device. In general the time of a kernel is max(arithmetic,
// memory) + tail, at rates that are shares of the peaks (constants.h).
#include "tessera/cost/op_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "tessera/cost/constants.h"
#include "tessera/cost/launches.h"
#include "tessera/cost/matmul.h"

namespace tessera {
namespace {

double score_elements(const OpWork& work) {
  return work.batch * work.heads * work.queries * work.keys;
}

// A `Key` is the key of a known cost. A `KeyView` is used for look-ups, so that these do not copy
// the work.
struct Key {
  OpWork work;
  double occupied_units = 0;
};
struct KeyView {
  const OpWork& work;
  double occupied_units = 0;
};
// Returns the share of the full rate at which a product runs by kAlignments if n or k is `size`.
// Sizes up to 64 elements run at full rate, because they fit into one operand of the units.
double aligned_share(double size) {
  const auto whole = static_cast<int64_t>(size);
  if (whole <= kAlignments.front().multiple) return 1;
  for (const Alignment& row : kAlignments) {
    if (whole % row.multiple == 0) return row.share;
  }
  return kAlignments.back().share;
}

struct Hash {
  using is_transparent = void;
  template <class K>
  size_t operator()(const K& key) const noexcept {
    const OpWork& w = key.work;
    size_t hash = std::hash<std::string_view>{}(w.op);
    for (const double value : {w.flops, w.bytes_read, w.bytes_written, w.m, w.n, w.k, w.queries,
                               w.keys, key.occupied_units}) {
      hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};
struct Equal {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const noexcept {
    return a.occupied_units == b.occupied_units && a.work == b.work;
  }
};

}  // namespace

struct OpCosts::Impl {
  Device device;
  Style style;
  const Profile* profile = nullptr;
  int64_t ranks_a_node = 1;
  double host_rate = 0;
  const DeviceConstants* constants = nullptr;
  std::unordered_map<Key, OpCost, Hash, Equal> known;  // never iterated

  // ---- rates Returns the arithmetic and its FLOP/s. If the device lacks it, returns what is used
  // in its place: fp8 for fp4, bf16 or fp16 for fp8, fp32 for 16 bits; for fp64, half of the rate
  // of fp32.
  std::pair<std::string_view, double> peak(std::string_view arithmetic) const {
    const auto at = [&](std::string_view name) {
      const auto found = device.peak.find(std::string(name));
      return found == device.peak.end() ? 0.0 : found->second * device.sustained;
    };
    if (const double direct = at(arithmetic); direct > 0) return {arithmetic, direct};
    if (arithmetic == "fp4" && at("fp8") > 0) return {"fp8", at("fp8")};
    if (arithmetic == "fp4" || arithmetic == "fp8") {
      return peak(at("bf16") > 0 ? "bf16" : "fp16");
    }
    if (arithmetic == "fp64") return {"fp64", at("fp32") / 2};
    return {"fp32", at("fp32")};
  }

  static std::string_view plain_arithmetic(DType dtype) {
    switch (dtype) {
      case DType::kFloat64: return "fp64";
      case DType::kBFloat16: return "bf16";
      case DType::kFloat16: return "fp16";
      default: return "fp32";
    }
  }

  std::string_view matmul_arithmetic(const OpWork& work) const {
    const std::string_view plain = plain_arithmetic(work.dtype);
    const std::string_view wanted = style.matmul_arithmetic;
    const bool narrow = wanted == "fp8" || wanted == "fp4";
    // Only linear layers of blocks use fp8 and fp4. A product with a batch is one of two
    // activations, unless the batch counts experts. Products of experts stay in fp8, because fp4 is
    // not faster for them: their sizes are small, and every operand is transformed and scaled in
    // kernels of its own (TransformerEngine, issue 2281).
    if (narrow && dtype_bytes(work.dtype) == 2 && work.block && (work.batch == 1 || work.grouped))
      return work.grouped ? "fp8" : wanted;
    return wanted == "tf32" && plain == "fp32" ? wanted : plain;
  }

  double memory_rate(WorkClass work) const {
    return device.memory_rate * constants->memory * class_constants(work).memory *
           style.memory_efficiency;
  }

  // ---- parts of costs
  struct Part {
    double seconds = 0;  // without the fixed time of a kernel
    double unit_fraction = 1;
    CostSource source = CostSource::kConstant;
    double uncertainty = 0;
  };

  // Returns the time of a product; `scale` is a factor on its efficiency.
  Part matmul(const MatmulShape& shape, double bytes, std::string_view wanted, double scale,
              double occupied) const {
    const auto [arithmetic, rate] = peak(wanted);
    const MatmulConstants& row = matmul_constants(device.generation, arithmetic);
    const double flops = 2 * shape.batch * shape.m * shape.n * shape.k;
    const auto units = static_cast<double>(device.units);
    const double memory = memory_rate(WorkClass::kMatmul);
    Part part;
    part.uncertainty = row.uncertainty;
    if (flops <= 0) {  // the rank has no share of the batch and only writes zeros
      part.seconds = bytes / memory;
      part.unit_fraction = 0;
      return part;
    }
    if (device.generation->processor || device.units <= 1) {
      const double share = row.best * flops / (flops + row.half_flops);
      const double free = units / std::max(1.0, units - occupied);
      part.seconds = std::max(flops / (rate * share * scale) * free, bytes / memory);
      part.source = CostSource::kCurve;
      return part;
    }
    // Divides by kBestTile, because `row.best` contains the efficiency of the best tile and
    // choose_tiling applies the efficiencies of tiles again.
    const double reached = rate * row.best / kBestTile * scale;
    TilingDevice on;
    on.units = units;
    on.alignment = arithmetic == "fp8" || arithmetic == "fp4" ? 16 : 8;
    on.flops_a_byte = reached / memory;
    Tiling tiling = choose_tiling(shape, bytes, on);
    part.unit_fraction = std::min(1.0, tiling.tiles / units);
    if (occupied > 0) tiling = with_units(shape, tiling, on, std::max(1.0, units - occupied));
    part.seconds =
        std::max(flops / (reached * tiling.share), (bytes + tiling.extra_bytes) / memory);
    part.source = CostSource::kTileModel;
    return part;
  }

  double vector_seconds(double flops, DType dtype) const {
    const double rate = peak(dtype == DType::kFloat64 ? "fp64" : "fp32").second;
    return rate > 0 ? flops / (rate * constants->vector) : 0;
  }

  // ---- classes
  void price_matmul(const OpWork& work, double occupied, OpCost& cost) const {
    const std::string_view arithmetic = matmul_arithmetic(work);
    const double bytes = work.bytes_read + work.bytes_written;
    const bool narrow = arithmetic == "fp8" || arithmetic == "fp4";
    double scale = style.matmul_efficiency;
    if (work.grouped) scale *= narrow ? constants->grouped_narrow : constants->grouped;
    if (!style.pads_products) scale *= std::min(aligned_share(work.n), aligned_share(work.k));
    const auto element = static_cast<double>(dtype_bytes(work.dtype));
    const bool convolution = work.kind == WorkClass::kConvolution;
    if (convolution) scale *= kImplicitProduct;
    if (work.winograd && peak(arithmetic).first == "fp32") scale *= kWinograd;
    // Results that are wider than the operands are found by their bytes. Convolutions are left
    // out, because the gradient of a strided convolution's input has more elements than its
    // implicit product.
    if (!convolution && work.bytes_written > 1.5 * element * work.batch * work.m * work.n)
      scale *= kWideResult;
    const Part part =
        matmul({work.batch, work.m, work.n, work.k}, bytes, arithmetic, scale, occupied);
    cost.kernel_s = part.seconds;
    cost.unit_fraction = part.unit_fraction;
    cost.source = part.source;
    cost.uncertainty = part.uncertainty + (work.grouped ? .2 : convolution ? .1 : 0);
    if (!narrow || peak(arithmetic).first != arithmetic) return;
    // Adds the cast of the activation operand, which is read in 16 bits and written in 8. Casts of
    // weights are not counted, because they happen once a training step.
    const double cast = style.cast_bytes * work.batch * work.m * work.k;
    cost.kernel_s += cast / memory_rate(WorkClass::kElementwise);
    cost.bytes_read += cast * 2 / 3;
    cost.bytes_written += cast / 3;
  }

  void price_fused_attention(const OpWork& work, double occupied, OpCost& cost) const {
    const double rate = peak(plain_arithmetic(work.dtype)).second;
    const double best =
        work.backward ? constants->attention_backward : constants->attention_forward;
    const auto small = [](double size, double half) { return size / (size + half); };
    const double head = small(work.head_dim, kAttentionSmallHead) / small(128, kAttentionSmallHead);
    const double share = best * std::min(1.0, head) * small(work.keys, kAttentionShortKeys) *
                         style.attention_efficiency;
    // Tiles on the diagonal of the mask are computed whole, so more scores are computed than
    // are visible.
    const double diagonal = work.visible < 1 ? kAttentionTile / 2 / work.keys : 0;
    const double computed = std::min(1.0, work.visible + diagonal) / std::max(work.visible, 1e-9);
    // A unit computes one tile of queries of one head; in the backward pass, one tile of keys.
    const double rows = work.backward ? work.keys : work.queries;
    const double tiles = work.batch * work.heads * std::ceil(rows / kAttentionTile);
    cost.uncertainty = class_constants(WorkClass::kAttention).uncertainty;
    if (tiles <= 0 || work.flops <= 0) {
      cost.kernel_s = (work.bytes_read + work.bytes_written) / memory_rate(WorkClass::kAttention);
      return;
    }
    const auto units = static_cast<double>(device.units);
    const double left = std::max(1.0, units - occupied);
    const double idle =
        device.generation->processor ? units / left : std::ceil(tiles / left) * units / tiles;
    const double arithmetic = work.flops * computed / (rate * share) * idle;
    const double bytes = work.bytes_read + work.bytes_written;
    cost.kernel_s = std::max(arithmetic, bytes / memory_rate(WorkClass::kAttention));
    cost.unit_fraction = std::min(1.0, tiles / units);
    cost.source = CostSource::kCurve;
  }

  // Prices attention whose scores are written to memory. It has two products (in the backward pass
  // four) and passes over all scores between them.
  void price_unfused_attention(const OpWork& work, double occupied, OpCost& cost) const {
    const double heads = work.batch * work.heads, scores = score_elements(work);
    const double scale = style.attention_efficiency;
    const auto element = static_cast<double>(dtype_bytes(work.dtype));
    const double operand = heads * (work.queries + work.keys) * work.head_dim;
    const double bytes = element * (scores + operand);  // bytes that one product moves
    const std::string_view arithmetic = plain_arithmetic(work.dtype);
    const Part inner =
        matmul({heads, work.queries, work.keys, work.head_dim}, bytes, arithmetic, scale, occupied);
    const Part outer =
        matmul({heads, work.queries, work.head_dim, work.keys}, bytes, arithmetic, scale, occupied);
    const double twice = work.backward ? kUnfusedBackward : 1;
    const double passes = style.attention_passes * (work.backward ? kBackwardPasses : 1);
    const double moved = passes * element * scores;
    cost.kernels = work.backward ? 7 : 4;
    cost.kernel_s =
        twice * (inner.seconds + outer.seconds) + moved / memory_rate(WorkClass::kElementwise);
    cost.flops = twice * 4 * scores * work.head_dim;
    cost.bytes_read = twice * element * (scores + 2 * operand) + moved / 2;
    cost.bytes_written = twice * element * (scores + operand / 2) + moved / 2;
    cost.unit_fraction = std::max(inner.unit_fraction, outer.unit_fraction);
    cost.source = inner.source;
    cost.uncertainty = class_constants(WorkClass::kAttention).uncertainty + .05;
  }

  // Prices a scan. Its time is the sum of arithmetic and memory time, not the maximum, because it
  // runs as several kernels one after the other, some of which are limited by their small products
  // and others by the memory traffic of the states.
  void price_scan(const OpWork& work, double occupied, OpCost& cost) const {
    const auto units = static_cast<double>(device.units);
    const double rate = peak(plain_arithmetic(work.dtype)).second * constants->scan;
    const double free = units / std::max(1.0, units - occupied);
    const double bytes = work.bytes_read + work.bytes_written;
    const bool forward = !work.gradient;
    cost.kernels = forward ? kScanKernels : kScanKernelsBackward;
    cost.kernel_s = (forward ? 1 : kScanBackward) *
                    (work.flops / rate * free + bytes / memory_rate(WorkClass::kScan));
    cost.source = CostSource::kCurve;
    cost.uncertainty = class_constants(WorkClass::kScan).uncertainty;
  }

  // Returns how often a kernel of the style reads or writes its operands (Style::elementwise_passes
  // and so on); 0 for a view.
  double passes(const OpWork& work) const {
    switch (work.kind) {
      case WorkClass::kElementwise: return work.update ? 1 : style.elementwise_passes;
      case WorkClass::kNorm: return style.norm_passes;
      case WorkClass::kLookup: return work.backward ? style.lookup_gradient_passes : 1;
      case WorkClass::kMove: return work.view && !style.copy_views ? 0 : 1;
      default: return 1;
    }
  }

  void price_memory(const OpWork& work, OpCost& cost) const {
    const double times = passes(work);
    cost.bytes_read = work.bytes_read * times;
    cost.bytes_written = work.bytes_written * times;
    if (work.kind == WorkClass::kLoss && style.loss_passes > 0) {
      const double moved =
          std::max(4 * work.elements * style.loss_passes, cost.bytes_read + cost.bytes_written);
      cost.bytes_read = cost.bytes_written = moved / 2;
      cost.kernels = static_cast<int>(std::max(1.0, std::round(style.loss_passes / 2)));
    }
    if (times == 0) {
      cost.kernels = 0;
      return;
    }
    const double bytes = cost.bytes_read + cost.bytes_written;
    cost.kernel_s =
        std::max(bytes / memory_rate(work.kind), vector_seconds(work.flops, work.dtype));
    cost.unit_fraction = std::min(1.0, work.elements / (static_cast<double>(device.units) * 2048));
    cost.source = CostSource::kCurve;
    cost.uncertainty = class_constants(work.kind).uncertainty;
  }

  // ---- lower bounds that no cut can beat (OpCosts::least_s)
  double least_matmul(double flops, double bytes, std::string_view wanted, double scale) const {
    const auto [arithmetic, rate] = peak(wanted);
    const double best = matmul_constants(device.generation, arithmetic).best;
    return std::max(flops / (rate * best * scale), bytes / memory_rate(WorkClass::kMatmul));
  }

  // Returns the lower bound of OpCosts::least_s. Losses that depend on the shape (alignment, tiles,
  // waves, small products) are left out. Everything else is as in the functions above.
  double least_seconds(const OpWork& work) const {
    const double bytes = work.bytes_read + work.bytes_written;
    OpCost cost;
    switch (work.kind) {
      case WorkClass::kMatmul:
      case WorkClass::kConvolution: {
        const std::string_view arithmetic = matmul_arithmetic(work);
        const bool narrow = arithmetic == "fp8" || arithmetic == "fp4";
        double scale = style.matmul_efficiency;
        if (work.grouped) scale *= narrow ? constants->grouped_narrow : constants->grouped;
        if (work.kind == WorkClass::kConvolution) scale *= kImplicitProduct;
        if (work.winograd && peak(arithmetic).first == "fp32") scale *= kWinograd;
        return least_matmul(2 * work.batch * work.m * work.n * work.k, bytes, arithmetic, scale);
      }
      case WorkClass::kAttention: {
        if (!style.fused_attention) {
          const double product = 2 * score_elements(work) * work.head_dim;
          const double twice = work.backward ? kUnfusedBackward : 1;
          const double passes = style.attention_passes * (work.backward ? kBackwardPasses : 1);
          const auto element = static_cast<double>(dtype_bytes(work.dtype));
          return 2 * twice *
                     least_matmul(product, 0, plain_arithmetic(work.dtype),
                                  style.attention_efficiency) +
                 passes * element * score_elements(work) / memory_rate(WorkClass::kElementwise);
        }
        const double best =
            work.backward ? constants->attention_backward : constants->attention_forward;
        const double rate = peak(plain_arithmetic(work.dtype)).second;
        return std::max(work.flops / (rate * best * style.attention_efficiency),
                        bytes / memory_rate(WorkClass::kAttention));
      }
      case WorkClass::kScan: price_scan(work, 0, cost); return cost.kernel_s;
      case WorkClass::kElementwise:
      case WorkClass::kNorm:
      case WorkClass::kLoss:
      case WorkClass::kLookup:
      case WorkClass::kRouting:
      case WorkClass::kOptimizer:
      case WorkClass::kMove: price_memory(work, cost); return cost.kernel_s;
    }
    return 0;
  }

  // Returns the number of kernels that the op is for libraries that fuse. It may be below 1, because
  // fused neighbours share a kernel, and so do many tensors of an update.
  double fused_kernels(const OpWork& work, const OpCost& cost) const {
    double count = cost.kernels;
    if (work.update && style.fused_update) count /= kTensorsAnUpdate;
    if (work.kind == WorkClass::kElementwise && !work.update)
      count *= std::min(1.0, style.elementwise_passes);
    return count;
  }

  bool price_measured(const OpWork& work, OpCost& cost) const {
    if (profile == nullptr || work.family.name.empty()) return false;
    const Family* family = find_family(*profile, work.family.name, ranks_a_node, work.family.size);
    if (family == nullptr || family->samples.front().size.size() != work.family.size.size())
      return false;
    const Measured measured = interpolate(*family, work.family.size);
    cost.kernel_s = measured.seconds;
    cost.source = measured.exact ? CostSource::kMeasured : CostSource::kInterpolated;
    cost.uncertainty = measured.uncertainty;
    if (work.kind == WorkClass::kMatmul || work.kind == WorkClass::kConvolution)
      cost.kernel_s /= style.matmul_efficiency;
    if (work.kind == WorkClass::kAttention) cost.kernel_s /= style.attention_efficiency;
    return true;
  }

  OpCost price(const OpWork& work, double occupied) const {
    OpCost cost;
    cost.flops = work.flops;
    cost.bytes_read = work.bytes_read;
    cost.bytes_written = work.bytes_written;
    const bool view = work.view && !style.copy_views;
    const bool unfused = work.kind == WorkClass::kAttention && !style.fused_attention;
    const bool measured = !view && !unfused && price_measured(work, cost);
    if (measured) {
      const auto units = static_cast<double>(device.units);
      cost.kernel_s *= units / std::max(1.0, units - occupied);
    } else if (work.kind == WorkClass::kMatmul || work.kind == WorkClass::kConvolution) {
      price_matmul(work, occupied, cost);
    } else if (unfused) {
      price_unfused_attention(work, occupied, cost);
    } else if (work.kind == WorkClass::kAttention) {
      price_fused_attention(work, occupied, cost);
    } else if (work.kind == WorkClass::kScan) {
      price_scan(work, occupied, cost);
    } else {
      price_memory(work, cost);
    }
    const double count = fused_kernels(work, cost);
    const bool launched = style.host != Style::Host::kOps && !device.synchronous;
    cost.launches = launched && cost.kernels > 0 ? launches_of(work.op, work.dtype) : count;
    if (!measured) cost.kernel_s += count * constants->tail_s;
    cost.kernel_s += count * style.kernel_gap_s;
    if (work.kind == WorkClass::kLoss && !work.backward) cost.kernel_s += style.loss_overhead_s;
    const double host = work.update     ? style.host_update_s
                        : work.backward ? style.host_backward_s
                                        : style.host_forward_s;
    cost.host_s = cost.launches * (device.host_issue_s + host);
    if (launched && style.host == Style::Host::kGraph) {
      cost.host_s = 0;
      cost.kernel_s += cost.launches * kGraphGapSeconds;
    }
    // If each expert has a kernel of its own, the host only issues the further kernels. They take
    // no more time on the device, because streams run them side by side.
    if (work.grouped && style.kernel_an_expert)
      cost.host_s += (work.batch - 1) * device.host_issue_s;
    const double bytes = cost.bytes_read + cost.bytes_written;
    if (work.on_host && host_rate > 0) {
      cost.kernel_s = std::max(cost.kernel_s, bytes / host_rate);
      return cost;  // the host's work does not use the device's memory rate
    }
    if (cost.kernel_s > 0) {
      cost.memory_fraction = std::min(1.0, bytes / (device.memory_rate * cost.kernel_s));
    }
    return cost;
  }
};

OpCosts::OpCosts(const Device& device, const Style& style, const Profile* profile,
                 int64_t ranks_a_node, double host_rate)
    : impl_(std::make_unique<Impl>()) {
  impl_->device = device;
  impl_->style = style;
  impl_->profile = profile;
  impl_->ranks_a_node = ranks_a_node;
  impl_->host_rate = host_rate;
  impl_->constants = &device_constants(device.generation);
}
OpCosts::~OpCosts() = default;
OpScratch scratch_of(const OpWork& work, const Style& style) {
  const auto element = static_cast<double>(dtype_bytes(work.dtype));
  const auto bytes = [](double count) { return static_cast<int64_t>(std::max(0.0, count)); };
  if (work.kind == WorkClass::kAttention && !style.fused_attention) {
    // The workspace of the forward pass is the scores before the softmax; that of the backward pass
    // is the gradients of the softmax's operand and of its result.
    const double scores = score_elements(work) * element;
    if (work.backward) return {0, bytes(2 * scores)};
    return {bytes(scores * style.attention_saved_bytes / 2), bytes(scores)};
  }
  if (work.kind == WorkClass::kLoss && style.loss_saved > 0) {
    // The memory of the graph already contains the logits, which it keeps for the backward pass. A
    // framework keeps float32 arrays in their place, so the logits are subtracted; while the loss
    // is computed both exist.
    const double elements = work.elements / std::max(1.0, style.loss_chunks);
    const double whole = 4 * elements, logits = element * elements;
    if (work.backward) return {0, bytes(style.loss_workspace * whole - logits)};
    return {bytes(style.loss_saved * whole - logits),
            bytes(logits + std::min(1.0, style.loss_workspace) * whole)};
  }
  return {};
}

OpCosts::OpCosts(OpCosts&&) noexcept = default;

std::optional<double> OpCosts::least_s(const OpWork& work) const {
  if (impl_->profile != nullptr) return {};
  return impl_->least_seconds(work);
}

OpCost OpCosts::cost(const OpWork& work, double occupied_units) const {
  const auto found = impl_->known.find(KeyView{work, occupied_units});
  if (found != impl_->known.end()) return found->second;
  const OpCost cost = impl_->price(work, occupied_units);
  impl_->known.emplace(Key{work, occupied_units}, cost);
  return cost;
}

}  // namespace tessera
