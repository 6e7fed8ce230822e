// Brings an op's output to where the tensor rests. The output is sent to its readers at other
// places, completed, scattered to its shards, or put back into the tensor that it updates. Private
// to tessera/program.
#pragma once

#include "tessera/program/walk/between_places.h"
#include "tessera/program/walk/sharded_gradients.h"

namespace tessera {

class BringHome {
 public:
  BringHome(const Facts& facts, TextWriter& writer, Holds& holds, Converter& converter,
            Completion& completion, BetweenPlaces& between, ShardedGradients& sharded)
      : facts_(facts),
        writer_(writer),
        holds_(holds),
        converter_(converter),
        completion_(completion),
        between_(between),
        sharded_(sharded) {}

  void produced(const Op& op, TensorId tensor, const Held& made);

 private:
  Held put_back(const Op& op, TensorId tensor, const Held& made);
  void send_to_readers(const Op& op, TensorId tensor);

  const Facts& facts_;
  TextWriter& writer_;
  Holds& holds_;
  Converter& converter_;
  Completion& completion_;
  BetweenPlaces& between_;
  ShardedGradients& sharded_;
};

}  // namespace tessera
