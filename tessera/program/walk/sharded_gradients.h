// Gradients whose sum rests sharded (the store rule's `over`): each micro-batch's parts go to their
// shards at once. They are awaited (and added to the sum) once another bucket's worth of parts is
// under way behind them. So unsharded gradients never pile up, and parts travel beside the ops that
// compute the next ones. Private to tessera/program.
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

  // Sends parts of a sum over micro-batches, which the op has made, to their shards if the sum
  // rests sharded.
  void scatter_each_time(const Op& op, TensorId tensor);
  // Notes that the parts `made` have left, to arrive as `moved`. Does nothing if the tensor does
  // not rest sharded or the site is in no backward pass.
  void leave_backward(const Site& site, TensorId tensor, const Held& made, const Held& moved);
  // Lets all parts arrive that are under way.
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
