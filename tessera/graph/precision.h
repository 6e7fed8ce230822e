// The dtypes in which a model is trained, and the scale that keeps gradients in the range of
// float16. A plan states them ([precision]), and apply_precision() and differentiate() write them
// into the graph. The code that runs after these two (lowering, runtime) reads them from the graph.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "tessera/base/dtype.h"

namespace tessera {

// The loss gradient is multiplied by the scale, and the parameters' gradients are divided by it
// before they are used. A step with a gradient that is not finite changes nothing but the scale. A
// dynamic scale follows the state machine of the op kind loss_scale (docs/reference/ops.md); its
// defaults are those of docs/strategies/mixed-precision.md.
struct LossScale {
  bool dynamic = true;
  double initial = 65536;  // the first scale; the only one, if it is not dynamic
  double growth = 2;       // factor of the scale after `interval` steps in a row without overflow
  int64_t interval = 1000;
  double backoff = 0.5;  // factor of the scale at an overflow, from overflow number `hysteresis` on
  int64_t hysteresis = 2;  // overflows are counted from the last time that the scale grew
  double min = 1, max = 4294967296.0;
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// Fields without a value leave the dtypes as the model has them.
struct Precision {
  std::optional<DType> compute;  // of activations, and of casts of parameters that ops read
  // The dtype of parameter gradients, in which they are accumulated and reduced.
  std::optional<DType> gradient;
  // The dtype of optimizer state; no value: the parameter's dtype, but at least float32.
  std::optional<DType> state;
  std::optional<DType> parameter;  // for parameters at rest
  std::optional<LossScale> loss_scale;
  friend bool operator==(const Precision&, const Precision&) = default;
};

// The dtypes in which a run can compute (`precision` of RUN.toml, --precision). With float64 the
// model is also stored in float64. With float32 the plan's precision holds. A narrower dtype
// replaces the plan's `compute`.
inline constexpr std::array kRunDtypes{"float32", "float64", "bfloat16", "float16"};
inline DType storage_dtype(DType run) {
  return run == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}
inline Precision computing_in(DType run, Precision of_plan) {
  if (run != storage_dtype(run)) of_plan.compute = run;
  return of_plan;
}

}  // namespace tessera
