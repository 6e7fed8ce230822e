// Internal to the runtime: which share of samples a model puts into their class, found while an
// evaluation runs. As in click_evaluation.h, the op that reads targets and logits together is
// observed on every rank; what the ranks saw is put together on rank 0, so it holds for every plan,
// also one that cuts the classes.
//
//   if (ClassEvaluation::applies(model, graph)) classes.emplace(graph, model);
//   for (batch ...) executor.evaluate(batch, load, classes->observation(batch));
//   const double accuracy = classes->gather(world);  // by all ranks
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/graph/graph.h"
#include "tessera/models/model.h"
#include "tessera/runtime/interpreter.h"

namespace tessera {

class ClassEvaluation {
 public:
  // Does a loss of the training graph compare one class a sample with logits? The first that does is
  // looked at.
  static bool applies(const Model& model, const Graph& graph);
  ClassEvaluation(const Model& model, const Graph& graph);
  ClassEvaluation(const ClassEvaluation&) = delete;
  ClassEvaluation& operator=(const ClassEvaluation&) = delete;

  // For the next evaluation, of a batch that was not evaluated before. Valid until the next call.
  const Observation* observation(int64_t batch);
  // The class with the largest logit, the first of equals, for each sample that has a target; on
  // rank 0, by number of the sample.
  struct Guess {
    int64_t sample = 0, target = 0, guess = 0;
  };
  std::vector<Guess> guesses(comm::Communicator& world);
  // The share of the guesses that are right, on rank 0; the others get NaN.
  double gather(comm::Communicator& world);

 private:
  const Graph& graph_;
  Observation observation_;
  int64_t first_ = 0;         // number of the batch's first sample
  std::vector<double> seen_;  // of each sample and piece of classes: sample, target, class, logit
};

}  // namespace tessera
