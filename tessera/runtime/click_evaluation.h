// Internal to the runtime: how good a model's predictions of clicks are, found while an evaluation
// runs. The op that reads targets and logits together is observed on every rank; what the ranks saw
// is put together on rank 0, each sample once. So it holds for every plan, and programs are as they
// are without it.
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
  // `graph`: of a model that it applies to, for training. `passes`: how the batches look at samples,
  // of which each counts once; null: every batch has samples of its own.
  explicit ClickEvaluation(const Graph& graph, const SamplePasses* passes = nullptr);
  ClickEvaluation(const ClickEvaluation&) = delete;
  ClickEvaluation& operator=(const ClickEvaluation&) = delete;

  // For the next evaluation, of a batch (from 1) that was not evaluated before. Valid until the next
  // call.
  const Observation* observation(int64_t batch);
  // Of all batches that were evaluated; on rank 0. The others get NaN.
  ClickQuality gather(comm::Communicator& world);

 private:
  // An op that compares: of its two inputs, and of the batch, those samples that it has. A loop over
  // the batch has one for each step, whose targets are a part of them.
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
