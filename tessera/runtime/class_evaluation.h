// Internal to the runtime: the share of samples whose class has the largest of a model's logits,
// found while an evaluation runs. The op that compares logits with the input `targets` is observed
// on every rank; rank 0 combines what the ranks saw, of all classes or of some. So this works for
// every plan, and programs do not change.
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
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/sample_passes.h"

namespace tessera {

class ClassEvaluation {
 public:
  // Returns the op of the training graph that reads integer targets and logits with one dim more,
  // that of the classes, and whose outputs are all read. Returns an invalid id if there is no such
  // op or several, if a batch has more than a million targets, or if the model reads text, whose
  // classes are tokens.
  static OpId op_of(const Model& model, const Graph& graph);
  ClassEvaluation(const Graph& graph, OpId op);
  ClassEvaluation(const ClassEvaluation&) = delete;
  ClassEvaluation& operator=(const ClassEvaluation&) = delete;

  const Observation* observation() const { return &observation_; }
  // Combines what the ranks saw of a batch, which is step `step` (from 0) of `passes`. Samples that
  // an earlier batch had do not count; with null, all count. Call it after each batch.
  void gather(comm::Communicator& world, const SamplePasses* passes = nullptr, int64_t step = 0);
  // Returns the share over all batches so far, on rank 0; NaN without any target that counts.
  double accuracy() const;

 private:
  struct Seen {
    double target = 0, logit = 0;
    int64_t at = 0;  // the class with that logit
  };
  struct SeenOf {
    int64_t sample = 0;
    Seen seen;
  };
  void see(int64_t sample, double target, double logit, int64_t at);

  const Graph& graph_;
  Observation observation_;
  size_t targets_ = 0, logits_ = 1;  // of the op's inputs
  std::map<int64_t, Seen> seen_;     // largest logit of each sample of the batch
  int64_t right_ = 0, count_ = 0;
};

}  // namespace tessera
