// Gradients whose sum rests sharded (the store rule's `over`): each micro-batch's parts go to their
// shards at once. They are waited for (and added to the sum) once another bucket's worth is under
// way behind them, so that unsharded gradients never pile up and travel beside what computes the
// next. Private to tessera/program.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tessera/program/walk/convert.h"

namespace tessera {

class ShardedGradients {
 public:
  ShardedGradients(const Facts& facts, TextWriter& writer, Holds& holds, Converter& converter)
      : facts_(facts),
        writer_(writer),
        holds_(holds),
        converter_(converter),
        under_way_(writer.places()) {}

  // The op has made parts of a sum over micro-batches: if that rests sharded, they leave.
  void scatter_each_time(const Op& op, TensorId tensor);
  // The parts `made` have left, to arrive as `moved`; nothing if the tensor does not rest sharded
  // or the site is in no backward pass.
  void leave_backward(const Site& site, TensorId tensor, const Held& made, const Held& moved);
  // All that is under way arrives.
  void finish();

 private:
  struct Leaving {  // parts of a gradient that are on their way to their shards
    Held moved;
    std::optional<TextCopy> add;
    Site site;
  };
  struct UnderWay {
    std::vector<Leaving> before, parts;
    int64_t bytes = 0;  // of `parts`
  };

  void leave(const Held& made, Leaving leaving);
  void let_arrive(const std::vector<Leaving>& parts);

  const Facts& facts_;
  TextWriter& writer_;
  Holds& holds_;
  Converter& converter_;
  std::vector<std::map<BlockRef, UnderWay>> under_way_;  // by place
};

}  // namespace tessera
