// Gradients whose sum over micro-batches rests in shards (`over` in the plan's store entry). Each
// micro-batch's parts are sent to the shards as soon as they are made. The transfers of one bucket
// of parts are awaited, and the results added to the sum, once the transfers of another bucket have
// been issued. So unsharded gradients never pile up, and parts travel while ops compute the next
// parts. Private to tessera/program.
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

  // Sends the parts that the op has made of a sum over micro-batches to the shards, if the sum
  // rests in shards. Else does nothing.
  void scatter_each_time(const Op& op, TensorId tensor);
  // Notes that the parts `made` are on their way and will arrive as `moved`. Does nothing if the
  // tensor does not rest in shards or the site is in no backward pass.
  void leave_backward(const Site& site, TensorId tensor, const Held& made, const Held& moved);
  // Writes the arrival of all parts that are still under way.
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
