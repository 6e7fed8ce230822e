// The dtypes in which a model is trained, and the scale that keeps gradients in the range of
// float16. A plan states them ([precision]), apply_precision() and differentiate() write them into
// the graph; later stages do not know of them.
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
  double initial = 65536;  // the scale, if it is not dynamic
  double growth = 2;       // factor after `interval` steps in a row without overflow
  int64_t interval = 1000;
  double backoff = 0.5;    // factor at an overflow, from the `hysteresis`-th one on
  int64_t hysteresis = 2;  // overflows since the scale grew
  double min = 1, max = 4294967296.0;
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// Fields that are unset leave the dtypes as the model has them.
struct Precision {
  std::optional<DType> compute;    // for activations, and casts of parameters that ops read
  std::optional<DType> gradient;   // for parameter gradients: accumulated and reduced in it
  std::optional<DType> state;      // for optimizer state; unset: the parameter's, float32 at least
  std::optional<DType> parameter;  // for parameters at rest
  std::optional<LossScale> loss_scale;
  friend bool operator==(const Precision&, const Precision&) = default;
};

// The dtype in which a run computes (`precision` of RUN.toml, --precision). float64: the model is
// stored in it too. float32: as the plan says. A narrower dtype is the plan's `compute`, whatever
// the plan says.
inline constexpr std::array kRunDtypes{"float32", "float64", "bfloat16", "float16"};
inline DType storage_dtype(DType run) {
  return run == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}
inline Precision computing_in(DType run, Precision of_plan) {
  if (run != storage_dtype(run)) of_plan.compute = run;
  return of_plan;
}

}  // namespace tessera
