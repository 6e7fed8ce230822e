// Writes the collectives that turn one layout of a tensor into another. Private to tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/holds.h"
#include "tessera/program/walk/text_writer.h"

namespace tessera {

class Converter {
 public:
  Converter(const Facts& facts, ConversionPaths& paths, TextWriter& writer)
      : facts_(facts), paths_(paths), writer_(writer) {}

  // Writes all steps of a conversion and returns the result, which is under way: its collective is
  // issued and not waited for. `into`: the buffer for the result (-1: a new one). If the path ends
  // in a slice, the result may be a region of the buffer that it is cut from, because a slice moves
  // nothing.
  Held convert(const Site& site, TensorId tensor, Held from, const Layout& to, int into = -1);

 private:
  const std::optional<Compression>& compression(TensorId tensor, CollectiveKind kind) const;
  std::optional<Compression> step_compression(TensorId tensor,
                                              const std::vector<ConversionStep>& path,
                                              size_t i) const;
  std::vector<ConversionStep> apart(PlaceId place, TensorId tensor, Combiner combiner,
                                    const std::vector<ConversionStep>& path) const;

  const Facts& facts_;
  ConversionPaths& paths_;
  TextWriter& writer_;
};

}  // namespace tessera
