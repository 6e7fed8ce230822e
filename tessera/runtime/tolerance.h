// How far a run under a plan may be from the serial run in the same dtype. The limits of every
// comparison are computed here and nowhere else.
//
// Errors are relative: the largest difference of an element over the largest element of its tensor,
// or over `floor` times the largest element of all gradients (of all parameters), if that is
// larger. The floor is for tensors that are 0 in exact arithmetic, such as the gradient of the bias
// of attention's keys: both runs have rounding noise there. In float64 a gradient that sums the
// elements of one tensor, as that of a bias does, is measured by the largest of these elements if
// that is larger: in front of a norm the elements cancel, and their roundings remain, which may be
// far above 1e-15 of the largest gradient. A parameter with such a gradient moves by roundings
// alone, and is measured by the largest of all parameters.
//
// Float64: 1e-9 unless the caller says otherwise. The two runs differ by 1e-16 for each sum that is
// taken in another order, and a missing or doubled contribution is an error of order 1.
//
// If a float64 run exceeds a limit, the serial run tells whether roundings explain it. It runs
// kOtherRuns times more, each time with its sums rounded in another way (roundings.h). The noise of
// a tensor is the largest difference of its elements between the serial run and one of these runs
// (for each step's loss and gradients, and for the parameters at the end). A difference of up to
// kNoiseMargin times the noise counts as rounding; any other is a fault, however small. Most
// tensors have a noise of some 1e-16 of their size. Tensors whose exact value is 0 have more, and
// so have those behind a norm that divides by the difference of two or three numbers. The two
// constants belong together: for a single number, whose roundings are normally distributed, a
// further run exceeds ten times the maximum of four runs with a probability of 1e-4; for several
// numbers it is less likely.
//
// Narrow dtypes. With u the unit roundoff (2^-24 float32, 2^-11 float16, 2^-8 bfloat16), D the
// number of ops on the longest path through the training graph and K the length of the longest sum
// of an op:
//   - an op that is cut computes its result by other sums than the whole op: the result differs by
//     u(compute), because both are rounded, and by sqrt(K) u(float32), because sums of K terms are
//     accumulated in float32 in another order (rounding errors have either sign, so they grow with
//     the root of their number);
//   - the differences of the D ops on a path add up like a random walk, to sqrt(D) of one of them;
//   - u bounds a rounding error, whose deviation is half of it at most; the largest of some thousands
//     of elements is four deviations out.
// So gradients may differ by 2 sqrt(D) (u(compute) + sqrt(K) u(float32)). Parameters may differ by
// as much, if the optimizer's step is linear in the gradient (SGD): AdamW divides by the size of
// the gradient, so that noise makes a whole step; narrow comparisons use SGD. A further step adds
// little: its gradients differ by the parameters' difference times the step size. The loss is a
// mean over all tokens, in which their errors cancel: it may differ by one rounding, u(compute) +
// sqrt(K) u(float32). verification_test.cc and docs/matrix-narrow.md tell what these limits find
// and what they let pass.
//
//   Tolerances limits = tolerances(DType::kBFloat16, training_graph, 1e-9);
#pragma once

#include "tessera/graph/graph.h"

namespace tessera {

inline constexpr int kOtherRuns = 4;
inline constexpr double kNoiseMargin = 10;

struct Tolerances {
  double loss = 0, gradients = 0, parameters = 0;
  double gradient_floor = 0, parameter_floor = 0;
};

// Returns the limits. `compute` is the dtype that the run computes in, `training` the graph with
// the backward pass, uncut, `wide` the limit of a float64 run.
Tolerances tolerances(DType compute, const Graph& training, double wide);

}  // namespace tessera
