// The models whose volumes are measured, and predicates that pick tensors of them. In a namespace of
// their own: headers that a neighbour in a batch includes have parameters b, s and h.
#pragma once

#include <string>
#include <vector>

#include "measure.h"

namespace tessera::volumes {

// b, s, h, V of the models below; ffn = 4h in gpt.
inline constexpr int64_t b = 8, s = 8, h = 16, V = 24, layers = 2;
inline constexpr int64_t bsh = b * s * h;
inline const std::string kGpt = "gpt:layers=2,hidden=16,heads=4,seq=8,vocab=24";
inline const std::string kLlama =
    "llama:layers=2,hidden=16,heads=4,kv_heads=4,seq=8,vocab=24,ffn=64";
inline const std::vector<std::string> kModels = {kGpt, kGpt + ",tied=0", kGpt + ",dropout=0.1",
                                                 kLlama, kLlama + ",tied=1"};

inline bool is_gradient(const Tensor& tensor) {  // not the norms of clipping
  return tensor.role == Role::kGradient && !tensor.dims.empty();
}
inline bool is_updated(const Tensor& tensor) {
  return tensor.update_of.valid() && tensor.role == Role::kParameter;
}
inline bool is_parameter(const Tensor& tensor) {
  return tensor.role == Role::kParameter && !tensor.update_of.valid();
}
inline bool is_scalar(const Tensor& tensor) { return tensor.dims.empty(); }
inline bool has_dims(const Tensor& tensor, const std::vector<std::string>& names) {
  if (tensor.dims.size() != names.size()) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (tensor.dims[i].name != names[i]) return false;
  }
  return true;
}
inline bool is_hidden(const Tensor& tensor) { return has_dims(tensor, {"batch", "seq", "hidden"}); }
inline bool is_hidden_of_block(const Tensor& tensor) {
  return is_hidden(tensor) && tensor.name.find("blocks.1.") != std::string::npos;
}
inline bool has_heads(const Tensor& tensor) {
  return tensor.dims.size() >= 4 && tensor.dims[0].name == "batch";
}
inline bool is_token_statistic(const Tensor& tensor) { return has_dims(tensor, {"batch", "seq"}); }

inline bool in_block(const Tensor& tensor) {
  return tensor.name.find("blocks.1.") != std::string::npos;
}
inline bool is_moments(const Tensor& tensor) {
  return has_dims(tensor, {"batch", "seq", "moments"});
}
inline bool is_sums(const Tensor& tensor) { return has_dims(tensor, {"batch", "seq", "sums"}); }
inline bool is_matrix(const Tensor& tensor) {  // an operand or result of the products of a block
  return in_block(tensor) && !is_moments(tensor) && !is_sums(tensor) &&
         !is_token_statistic(tensor) && !tensor.name.ends_with(".bias") && tensor.dims.size() >= 2;
}
inline bool is_vector(const Tensor& tensor) {
  return in_block(tensor) && !is_scalar(tensor) && !is_matrix(tensor) && !is_moments(tensor) &&
         !is_sums(tensor);
}

}  // namespace tessera::volumes
