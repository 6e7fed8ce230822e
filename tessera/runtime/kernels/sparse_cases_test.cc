// The cases of sparse products.
#include <string>

#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera::testing {
namespace {

// Multiplies a matrix of 5 rows and 9 edges. Rows have no, some or all edges; some edges are in several
// rows.
Case product(const char* name, const Attributes& attributes, bool with_values = true) {
  return {name, [=](GraphBuilder& g, DType t) {
            const Dim rows{"s", 5}, edges{"e", 9};
            const Init normal{Init::Kind::kNormal, 1.0};
            std::vector<TensorId> operands = {g.input("segments_begin", {rows}, DType::kInt64),
                                              g.input("end", {rows}, DType::kInt64),
                                              g.input("columns", {edges}, DType::kInt64),
                                              g.parameter("x", {{"v", 11}, {"h", 8}}, normal, t)};
            if (with_values) operands.push_back(g.parameter("values", {edges}, normal, t));
            return g.op1("op", "spmm", operands, attributes);
          }};
}

Attributes sampled(const char* sampler, int64_t width, int64_t seed) {
  return {{"sampler", std::string(sampler)}, {"width", width}, {"seed", seed}};
}

}  // namespace

std::vector<Case> sparse_cases() {
  Attributes mean = {{"reduce", std::string("mean")}},
             mean_of_a_sample = sampled("permutation", 3, 5), rescaled = sampled("quadratic", 2, 0);
  mean_of_a_sample["reduce"] = std::string("mean");
  mean_of_a_sample["norm_bias"] = 1.0;
  rescaled["rescale"] = int64_t{1};
  return {product("spmm", {}), product("spmm_mean", mean, /*with_values=*/false),
          product("spmm_mean_of_a_sample", mean_of_a_sample),
          product("spmm_of_strides", sampled("stride", 3, 4)),
          product("spmm_rescaled_without_values", rescaled, /*with_values=*/false)};
}

}  // namespace tessera::testing
