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

// Loads an integer input [batch, seq]. If the input's rule (models/model.h, InputRule) has the
// stream "tokens", the values come from the corpus, else they are 0. Inputs without a rule are
// "tokens" and "targets", which are the tokens one position further on. After the end of a padded
// document targets are -1, which a loss ignores, and other inputs have the token that ends a
// document of the model (0 if the model has no such token). Errors: those of TokenCorpus::read.
Status load_text(const Model& model, const TokenCorpus& data, int64_t seed, int64_t step,
                 const Tensor& tensor, const Box& region, const kernels::Array& to);
// Loads any input with random values. Floating values are uniform in [-1, 1). Integers follow the
// model's rules; an input without a rule has tokens in [0, vocab), and if it has two dims and the
// name "targets", the tokens one position further on.
void load_random(const Model& model, int64_t seed, int64_t step, const Tensor& tensor,
                 const Box& region, const kernels::Array& to);
// Returns whether the input has the targets of a loss, where -1 means "ignore". Decides by the
// name, which begins with "targets" ("targets", "targets_1").
bool is_target(std::string_view input);
// Returns whether the input holds bags of ids: an op sums the rows of a table that a bag names. A
// bag may be shorter than the input's dim; its empty places are filled with -1.
bool holds_bags(const Graph& graph, const Tensor& input);
// Returns the bound of an integer input: its elements are in [0, bound).
int64_t values_of_input(const Model& model, const Tensor& tensor);

// Calls f(offset, index) for each element of the region. `offset` is the element's offset in `to`,
// in elements; `index` is its row-major index in the whole tensor.
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
