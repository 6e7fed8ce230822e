// Internal to the runtime: the quality of a model's predictions of clicks, found while an
// evaluation runs. The op that reads targets and logits together is observed on every rank; rank 0
// combines what the ranks saw, each sample once. So this works for every plan, and programs do not
// change.
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
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/sample_passes.h"

namespace tessera {

class ClickEvaluation {
 public:
  static bool applies(const Model& model);
  // Makes an evaluation. `graph` is the training graph of a model for which applies() holds.
  // `passes` says how the batches visit samples, of which each counts once; null: every batch has
  // samples of its own.
  explicit ClickEvaluation(const Graph& graph, const SamplePasses* passes = nullptr);
  ClickEvaluation(const ClickEvaluation&) = delete;
  ClickEvaluation& operator=(const ClickEvaluation&) = delete;

  // Returns what to observe in the evaluation of a batch (from 1) that was not evaluated before. It
  // is valid until the next call.
  const Observation* observation(int64_t batch);
  // Returns the quality over all batches that were evaluated, on rank 0. Other ranks get NaN.
  ClickQuality gather(comm::Communicator& world);

 private:
  // An op that compares: which of its two inputs are which, and which samples of the batch it has.
  // A loop over the batch has one such op a step, whose targets are a part of the batch's.
  struct Comparison {
    size_t targets = 0, logits = 1;
    std::optional<Within> part;
    int64_t size = 0, inner = 1;  // of the part's dim, and elements for each element of it
    int64_t sample(int64_t element) const;
  };
  struct Seen {
    int64_t number = 0;  // of the sample
    double target = 0, logit = 0;
  };
  std::optional<Comparison> comparison(const Op& op) const;
  void see(const Op& op, const Box& box, std::span<const kernels::Array> inputs);

  const Graph& graph_;
  const SamplePasses* passes_;
  Observation observation_;
  std::map<OpId, Comparison> compares_;
  int64_t first_ = 0;       // number of the batch's first sample
  std::vector<Seen> seen_;  // of this rank
};

}  // namespace tessera
