// Computes how much the results of a run under a plan may differ from those of the serial run in
// the same dtype. The limits of all comparisons are computed here and nowhere else.
//
// Errors are relative: an error is the largest difference of an element, divided by the largest
// element of the tensor. If `floor` times the largest element of all gradients (for a parameter: of
// all parameters) is larger, that is the divisor. The floor is for tensors that are 0 in exact
// arithmetic, such as the gradient of the bias of attention's keys, because both runs have only
// rounding noise there. In float64 there is one more divisor, for a gradient that is a sum of the
// elements of one tensor, as the gradient of a bias is: the largest of these elements, if the
// gradient is less than 1e-3 of it. The reason: before a norm the elements cancel and their
// roundings remain, which may be far above 1e-15 of the largest gradient. A parameter whose
// gradient is nothing but such roundings changes only by roundings, so its error is divided by the
// largest element of all parameters.
//
// Float64: the limit is 1e-9 unless the caller gives another one. This separates roundings from
// faults: the two runs differ by about 1e-16 for each sum that is taken in another order, and by
// about 1 if a contribution is missing or doubled.
//
// If a float64 run exceeds a limit, further serial runs tell whether roundings explain the
// difference. The serial plan is run kOtherRuns times more, each time with other roundings of its
// sums (roundings.h). The noise of a tensor is the largest difference of an element between the
// serial run and one of these runs (for each step's loss and gradients, and for the parameters at
// the end). A difference of at most kNoiseMargin times the noise counts as rounding. A larger
// difference is a fault, however small it is. Most tensors have a noise of some 1e-16 of their
// size. Two sorts of tensors have more noise: those whose exact value is 0, and those computed from
// the result of a norm that divides by the difference of two or three numbers. The two constants
// were chosen together: if the roundings of a single number are normally distributed, the
// difference of one more run exceeds ten times the maximum of four runs with a probability of 1e-4.
// For tensors of several numbers the probability is smaller.
//
// Narrow dtypes. With u the unit roundoff (2^-24 float32, 2^-11 float16, 2^-8 bfloat16), D the
// number of ops on the longest path through the training graph and K the length of the longest sum
// of an op:
//   - an op that is cut adds in another order than the whole op. The two results differ by
//     u(compute), because both are rounded to the compute dtype, and by sqrt(K) u(float32), because
//     sums of K terms are accumulated in float32 (rounding errors have either sign, so their sum
//     grows with the root of their number);
//   - the differences of the D ops on a path add up like a random walk, to sqrt(D) times the
//     difference of one op;
//   - u bounds a rounding error, so the standard deviation of the error is at most u / 2; among
//     some thousands of elements the largest error is about four standard deviations, that is 2 u.
// So gradients may differ by 2 sqrt(D) (u(compute) + sqrt(K) u(float32)). The limit of the
// parameters is the same, which holds if the optimizer's step is linear in the gradient (SGD).
// AdamW divides by the size of the gradient, so that mere noise would make a whole step; therefore
// narrow comparisons use SGD. Further training steps add little, because the gradients of a further
// step differ only by the difference of the parameters times the step size. The loss may differ by
// one rounding, u(compute) + sqrt(K) u(float32), because it is a mean over all tokens, whose errors
// cancel. verification_test.cc and docs/matrix-narrow.md show which faults these limits find and
// which they let pass.
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

// Returns the limits. `compute` is the dtype in which the run computes, `training` is the graph
// with the backward pass before any plan cuts it, and `wide` is the limit of a float64 run.
Tolerances tolerances(DType compute, const Graph& training, double wide);

}  // namespace tessera
