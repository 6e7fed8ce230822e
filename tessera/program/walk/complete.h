// Completion of parts of a sum: when, in which layout, and by how many collectives. The completed
// value becomes the tensor's home (docs/theory/lowering.md section 7). Private to tessera/program.
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

  // Completes parts and makes the result the tensor's home: in the layout `wanted` if that is given
  // and complete, else whole over the partial axes.
  Held complete(const Site& site, TensorId tensor, const Held& from,
                const std::optional<Layout>& wanted);

  struct Early {
    Held parts, done;
    Site site;
  };
  // Completes what the op has made, which `reader` reads first, as soon as it exists and in the
  // layout that the reader wants, unless the reader is linear and may take the parts. Sums over
  // micro-batches are completed in the last run of the block. Returns nothing if the value is
  // complete already, or is left as it is.
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
