// Shared by the normalisation kinds (normalisation.cc), their gradients (normalisation_grad.cc) and
// the kinds of their expansions (normalisation_part.cc). Private to tessera/graph.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {

// Returns the frozen dim that an expansion frees. The first function takes the last dim of the
// first output, the second the dim that attribute `dim` names.
std::vector<std::string> last_dim(const Op& op);
std::vector<std::string> dim_attribute(const Op& op);

// Sets the phase, mirror and output role of the ops of an expansion to those of `op`, which
// they replace.
void begin_expansion(GraphBuilder& builder, const Op& op);
int64_t normalised_size(const GraphBuilder& builder, TensorId x);

using NamedTensors = std::initializer_list<std::pair<const char*, const Tensor*>>;
// Checks that each vector has the last dim of x and the dtype of x.
Status check_norm_operands(const Tensor& x, NamedTensors vectors);
// Checks that each statistic has the dims of x without the last one, in float32 or float64
// (statistics_dtype).
Status check_statistics(const Tensor& x, NamedTensors statistics);
Result<std::string> spell_with_frozen(const Tensor& x, const std::string& dim);

}  // namespace tessera::kinds
