// Kernels as formulas: the computation of an op kind, written in functions of libtorch alone, which
// run on every device that libtorch knows. A formula reads no number on the host, and nothing in it
// depends on values. The kernels of the processor (kernels.h) compute the same, faster; each is an
// oracle of the other.
//
// The way in which a value is written (converted, added to present values, merged by the output's
// combiner) is the same for all and stands in formula.cc; call.h says how a formula is written.
#pragma once

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

// Returns whether there is a formula for the op; with `cached`, for the op on a table whose rows lie
// in a cache (KernelCall::row_at).
bool has_formula(const Op& op, bool cached = false);
// Prepares the kernel of a call: by the op's formula if the call's context asks for formulas and the
// op has one, else by prepare_kernel(). Each run of a formula makes new tensors.
Kernel prepare_chosen(const KernelCall& call);

}  // namespace tessera::kernels
