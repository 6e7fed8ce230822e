// Internal to the runtime: measures accuracy during an evaluation, as the share of samples whose
// target class has the largest of the model's logits. Every rank observes the op that compares
// logits with the input `targets`; a rank may see all classes or only some. Rank 0 combines what
// the ranks saw. So this works for every plan, and programs do not change.
//
//   if (const OpId op = ClassEvaluation::op_of(model, graph); op.valid()) classes.emplace(graph, op);
//   for (batch ...) {
//     executor.evaluate(batch, load, classes->observation());
//     classes->gather(world);  // by all ranks
//   }
//   const double accuracy = classes->accuracy();
#pragma once

#include <cstdint>
#include <map>

#include "tessera/comm/communicator.h"
#include "tessera/graph/graph.h"
#include "tessera/models/model.h"
#include "tessera/runtime/data/sample_passes.h"
#include "tessera/runtime/step/interpreter.h"

namespace tessera {

class ClassEvaluation {
 public:
  // Returns the op of the training graph that reads two inputs, integer targets and logits, where
  // the logits have the dims of the targets and then one of classes. All outputs of the op must be
  // read by other ops. Returns an invalid id if there is no such op or more than one, if a batch
  // has more than a million targets, or if the model reads text (its classes would be tokens).
  static OpId op_of(const Model& model, const Graph& graph);
  ClassEvaluation(const Graph& graph, OpId op);
  ClassEvaluation(const ClassEvaluation&) = delete;
  ClassEvaluation& operator=(const ClassEvaluation&) = delete;

  const Observation* observation() const { return &observation_; }
  // Combines what the ranks saw of a batch, which is step `step` (from 0) of `passes`. Samples that
  // were also in an earlier batch do not count; if `passes` is null, all samples count. Call this
  // on all ranks after each batch.
  void gather(comm::Communicator& world, const SamplePasses* passes = nullptr, int64_t step = 0);
  // Returns, on rank 0, the accuracy over all batches so far; NaN if no target counted.
  double accuracy() const;

 private:
  struct Seen {
    double target = 0, logit = 0;
    int64_t at = 0;  // the class that has the logit `logit`
  };
  struct SeenOf {
    int64_t sample = 0;
    Seen seen;
  };
  void see(int64_t sample, double target, double logit, int64_t at);

  const Graph& graph_;
  Observation observation_;
  size_t targets_ = 0, logits_ = 1;  // positions among the op's inputs
  std::map<int64_t, Seen> seen_;     // largest logit of each sample of the batch
  int64_t right_ = 0, count_ = 0;
};

}  // namespace tessera
