// Hold -> need: makes a tensor available at an op's place in the layout that the op needs, by a
// crossing from another place, a conversion or a load. Private to tessera/program.
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

  // Makes the tensor available; its transfers are issued, not waited for.
  Held materialise(const Op& reader, TensorId tensor, const Layout& need);
  // Returns the layout in which the reader's place holds the tensor, which is no input of the step.
  // The tensor crosses if it is not there yet.
  const Layout& held_layout(const Op& reader, TensorId tensor);
  // Returns the value that the reader may take from while its need is on its way: the tensor at
  // rest at its place, in device memory. Returns nothing if the need takes no transfer.
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
