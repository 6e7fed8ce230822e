// Formulas of recurrences along a sequence. The processor's kernels are the same functions.
#include "tessera/runtime/kernels/recurrences.h"

#include "tessera/runtime/formulas/call.h"

namespace tessera::kernels {
namespace {

template <Tensors (*compute)(const Op&, const Tensors&)>
Values by_tensors(const Call& c) {
  Tensors operands;
  for (size_t i = 0; i < c.inputs(); ++i) operands.push_back(c.in(i));
  return compute(c.op(), operands);
}

}  // namespace

std::span<const Formula> recurrence_formulas() {
  static const std::vector<Formula> formulas = {
      {"state_scan", by_tensors<state_scan>},
      {"state_scan_grad", by_tensors<state_scan_grad>},
      {"gated_delta_rule", by_tensors<gated_delta_rule>},
      {"gated_delta_rule_grad", by_tensors<gated_delta_rule_grad>},
      {"causal_conv", by_tensors<causal_conv>},
      {"causal_conv_grad", by_tensors<causal_conv_grad>},
  };
  return formulas;
}

}  // namespace tessera::kernels
