// Internal to the runtime: loads regions of graph inputs from text or from random numbers. A value
// depends on seed, step and global index only. Thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/data/corpus.h"
#include "tessera/graph/graph.h"
#include "tessera/models/model.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Loads integer inputs of the stream "tokens" from the corpus, others as zero (models/model.h,
// InputRule). Without a rule: "tokens" and, one position further on, "targets" [batch, seq]. Behind
// the end of a padded document targets are -1, which a loss ignores, and other inputs have the
// token that ends a document of the model (0, if it has none). Errors: those of TokenCorpus::read.
Status load_text(const Model& model, const TokenCorpus& data, int64_t seed, int64_t step,
                 const Tensor& tensor, const Box& region, const kernels::Array& to);
// Loads any input: integers are random, by the model's rules (without a rule: tokens in [0, vocab);
// two dims: "targets" are the tokens one position further on), floating values are uniform in [-1,
// 1).
void load_random(const Model& model, int64_t seed, int64_t step, const Tensor& tensor,
                 const Box& region, const kernels::Array& to);
// Returns whether a loss compares with the input, so that -1 means "ignore". Its name says so:
// "targets", "targets_1".
bool is_target(std::string_view input);
// Returns whether the input holds bags of ids, whose rows of a table are summed. A bag may be
// shorter than the input's dim: -1 stands in empty places.
bool holds_bags(const Graph& graph, const Tensor& input);
// Returns the bound of the integer input's elements, which are in [0, bound).
int64_t values_of_input(const Model& model, const Tensor& tensor);

// Calls f(local offset in elements of `to`, global row-major index) for each element of the region.
template <class F>
void each_element(const Tensor& tensor, const Box& region, const kernels::Array& to, F&& f) {
  const std::vector<int64_t> strides = row_major_strides(tensor.shape());
  std::vector<int64_t> at(region.rank(), 0);
  const int64_t volume = region.volume();
  for (int64_t i = 0; i < volume; ++i) {
    int64_t index = 0, offset = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      index += (region.dims[d].begin + at[d]) * strides[d];
      offset += at[d] * to.strides[d];
    }
    f(offset, index);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == region.dims[d].size;) at[d] = 0;
  }
}

// Loads a scalar input ("lr", "step").
void load_scalar(double value, const kernels::Array& to);

}  // namespace tessera
