// Turns what ranks hold into what an op needs: makes a tensor available at the op's place in the
// needed layout, by a crossing from another place, a conversion or a load. Private to
// tessera/program.
#pragma once

#include <optional>

#include "tessera/program/walk/between_places.h"

namespace tessera {

class Materialiser {
 public:
  Materialiser(const Facts& facts, TextWriter& writer, Holds& holds, Converter& converter,
               BetweenPlaces& between, Loads& loads, NamedRowsMover& named)
      : facts_(facts),
        writer_(writer),
        holds_(holds),
        converter_(converter),
        between_(between),
        loads_(loads),
        named_(named) {}

  // Makes the tensor available in the layout `need` at the reader's place. The transfers are issued
  // and not waited for.
  Held materialise(const Op& reader, TensorId tensor, const Layout& need);
  // Returns the layout in which the reader's place holds the tensor. If the place does not hold it
  // yet, a crossing brings it there first. The tensor must not be an input of the step.
  const Layout& held_layout(const Op& reader, TensorId tensor);
  // Returns the tensor at rest in device memory at the reader's place, which the reader may read
  // while transfers bring what else it needs. Returns nothing if there is no such value or `need`
  // takes no transfer.
  std::optional<Held> before_need(const Op& reader, TensorId tensor, const Layout& need);

 private:
  void bring(const Op& reader, TensorId tensor);
  void keep_copy(const Op& reader, TensorId tensor, const Layout& need);
  bool read_after(const Site& site, TensorId tensor) const;
  bool kept_for_the_step(TensorId tensor) const;

  const Facts& facts_;
  TextWriter& writer_;
  Holds& holds_;
  Converter& converter_;
  BetweenPlaces& between_;
  Loads& loads_;
  NamedRowsMover& named_;
};

}  // namespace tessera
