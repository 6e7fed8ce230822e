// Hold -> need: makes a tensor available at an op's place in the layout that the op needs, by what
// is missing for it: a crossing from another place, a conversion, a load. Private to
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

  // Issued, not waited for.
  Held materialise(const Op& reader, TensorId tensor, const Layout& need);
  // The layout of a tensor, no input of the step, at the reader's place, in whatever it is there;
  // it crosses if it is not there yet.
  const Layout& held_layout(const Op& reader, TensorId tensor);
  // What the reader may take from while its need is on its way: the tensor at rest at its place, in
  // device memory. None: it needs no transfer.
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
