// Internal to the runtime: measures the quality of a model's predictions of clicks during an
// evaluation. Every rank observes the op that reads targets and logits together. Rank 0 combines
// what the ranks saw and counts each sample once. So this works for every plan, and programs do
// not change.
//
//   if (ClickEvaluation::applies(model)) clicks.emplace(graph);
//   for (batch ...) executor.evaluate(batch, load, clicks->observation(batch));
//   const ClickQuality quality = clicks->gather(world);  // by all ranks
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/data/click_metrics.h"
#include "tessera/graph/graph.h"
#include "tessera/graph/within.h"
#include "tessera/models/model.h"
#include "tessera/runtime/data/sample_passes.h"
#include "tessera/runtime/step/interpreter.h"

namespace tessera {

class ClickEvaluation {
 public:
  static bool applies(const Model& model);
  // Makes an evaluation. `graph` is the training graph of a model for which applies() holds.
  // `passes` says how the batches visit the samples, so that each sample counts once; null: no
  // sample is in two batches.
  explicit ClickEvaluation(const Graph& graph, const SamplePasses* passes = nullptr);
  ClickEvaluation(const ClickEvaluation&) = delete;
  ClickEvaluation& operator=(const ClickEvaluation&) = delete;

  // Returns what to observe in the evaluation of a batch (counted from 1). The caller evaluates
  // each batch only once. The pointer is valid until the next call.
  const Observation* observation(int64_t batch);
  // Returns the quality over all batches that were evaluated, on rank 0. Other ranks get NaN.
  ClickQuality gather(comm::Communicator& world);

 private:
  // Says of an op that compares targets with logits at which positions it has the two inputs, and
  // which samples of the batch it reads. If the plan loops over the batch, each step of the loop
  // has one such op, which reads only a part of the batch's targets.
  struct Comparison {
    size_t targets = 0, logits = 1;
    std::optional<Within> part;
    int64_t size = 0, inner = 1;  // size of the dim that is cut, and the number of elements for
                                  // each index of this dim
    int64_t sample(int64_t element) const;
  };
  struct Seen {
    int64_t number = 0;  // number of the sample over all batches
    double target = 0, logit = 0;
  };
  std::optional<Comparison> comparison(const Op& op) const;
  void see(const Op& op, const Box& box, std::span<const kernels::Array> inputs);

  const Graph& graph_;
  const SamplePasses* passes_;
  Observation observation_;
  std::map<OpId, Comparison> compares_;
  int64_t first_ = 0;       // number of the batch's first sample
  std::vector<Seen> seen_;  // what this rank has seen
};

}  // namespace tessera
