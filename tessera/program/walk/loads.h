// Loads of the step's inputs from the trainer's data. For each layout in which ops of a place need
// an input, the input is loaded once. Private to tessera/program.
#pragma once

#include <map>
#include <vector>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/text_writer.h"

namespace tessera {

class Loads {
 public:
  Loads(const Facts& facts, TextWriter& writer)
      : facts_(facts), writer_(writer), loads_(writer.places()) {}

  Held load(const Site& site, TensorId tensor, const Layout& need);

 private:
  bool seen(BlockRef made, BlockRef used) const;

  const Facts& facts_;
  TextWriter& writer_;
  std::vector<std::map<TensorId, std::vector<Held>>> loads_;  // by place
};

}  // namespace tessera
