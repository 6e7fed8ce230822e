// Shared by the normalisation kinds (normalisation.cc), their gradients (normalisation_grad.cc) and
// the kinds of their expansions (normalisation_part.cc). Private to tessera/graph.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {

// Returns the frozen dim that an expansion frees: the last of the first output, or attribute `dim`.
std::vector<std::string> last_dim(const Op& op);
std::vector<std::string> dim_attribute(const Op& op);

// Gives the ops of an expansion the phase, mirror and output role of the op that they replace.
void begin_expansion(GraphBuilder& builder, const Op& op);
int64_t normalised_size(const GraphBuilder& builder, TensorId x);

using NamedTensors = std::initializer_list<std::pair<const char*, const Tensor*>>;
Status check_norm_operands(const Tensor& x,
                           NamedTensors vectors);  // each has the last dim of x and its dtype
Status check_statistics(const Tensor& x,
                        NamedTensors statistics);  // each has the other dims, in float32 / float64
Result<std::string> spell_with_frozen(const Tensor& x, const std::string& dim);

}  // namespace tessera::kinds
