// Internal to the runtime: what programs load. Regions of graph inputs from text or from random
// numbers; a value depends on seed, step and global index only. Thread-safe.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/model.h"
#include "tessera/runtime/data.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Integer inputs of the stream "tokens" are windows of the text, others zero (models/model.h,
// InputRule). Without rule: "tokens" and, one further on, "targets" [batch, seq].
void load_text(const Model& model, const TextData& data, int64_t seed, int64_t step,
               const Tensor& tensor, const Box& region, const kernels::Array& to);
// Any input: integers are random, by the model's rules (without rule: tokens in [0, vocab); two
// dims: "targets" are the tokens one further on), floating values are uniform in [-1, 1).
void load_random(const Model& model, int64_t seed, int64_t step, const Tensor& tensor,
                 const Box& region, const kernels::Array& to);
// A scalar input ("lr", "step").
void load_scalar(double value, const kernels::Array& to);

}  // namespace tessera
