// Completion of parts of a sum: decides when the parts are added up, in which layout, and by how
// many collectives. The completed value becomes the tensor's home (docs/theory/lowering.md section
// 7). Private to tessera/program.
#pragma once

#include <optional>

#include "tessera/program/walk/convert.h"
#include "tessera/program/walk/named_rows.h"

namespace tessera {

class Completion {
 public:
  Completion(const Facts& facts, ConversionPaths& paths, Holds& holds, Converter& converter,
             NamedRowsMover& named)
      : facts_(facts), paths_(paths), holds_(holds), converter_(converter), named_(named) {}

  // Completes the parts `from` and makes the result the tensor's home. The result has the layout
  // `wanted` if that is given and complete. Else it has the layout of `from` without the partial
  // axes, so that all ranks on these axes have the whole sum.
  Held complete(const Site& site, TensorId tensor, const Held& from,
                const std::optional<Layout>& wanted);

  struct Early {
    Held parts, done;
    Site site;
  };
  // Completes the op's output early: as soon as it is made, and in the layout that its first reader
  // `reader` wants. A sum over micro-batches is completed in the last run of the block. Returns
  // nothing if the value is complete already or stays in parts, as it does if the reader is a
  // linear op that may work on the parts.
  std::optional<Early> complete_early(const Op& op, TensorId tensor, const Op& reader);

 private:
  Held begin(const Site& site, TensorId tensor, const Held& made,
             const std::optional<Layout>& target);
  int64_t collectives_to(PlaceId place, TensorId tensor, const Held& made,
                         const std::optional<Layout>& target);
  bool scales_alone(const Op& op) const;
  bool is_read_elsewhere_alone(PlaceId place, TensorId tensor) const;

  const Facts& facts_;
  ConversionPaths& paths_;
  Holds& holds_;
  Converter& converter_;
  NamedRowsMover& named_;
};

}  // namespace tessera
