// Conversions of tables of which an op names rows (NamedRows, program.h). Where a gather would
// bring the reader all rows, only the rows that it names come; where a reduce_scatter would take
// parts of all rows, only those move to which the op has added. Everything else is converted whole.
// Private to tessera/program.
//
// The conditions, beside that the op names rows by inputs of the step, which every rank can load
// whole: one micro-batch, no time loop and no rims in the op, no codec for the transfer, and a
// tensor that ops make anew in each step (what rests is gathered ahead of its readers, by passes
// that know no ids).
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/conversion_paths.h"
#include "tessera/program/walk/loads.h"

namespace tessera {

class NamedRowsMover {
 public:
  NamedRowsMover(const Facts& facts, ConversionPaths& paths, TextWriter& writer, Loads& loads)
      : facts_(facts), paths_(paths), writer_(writer), loads_(loads), fetched_(writer.places()) {}

  // Gathers the named rows of the complete table `from` for the reader, in the reader's layout. The
  // result is shared by readers of the block that name the same rows; it is never a home, since
  // rows are missing. Returns nothing if the conversion is no gather of rows alone.
  std::optional<Held> gather(const Op& reader, TensorId tensor, const Held& from,
                             const Layout& need);
  // Brings the rows that the tensor's producer has added to to the ranks that hold them in this
  // layout.
  std::optional<Held> scatter(const Site& site, TensorId tensor, const Held& from,
                              const Layout& target);

 private:
  struct Fetched {
    TensorId tensor;
    OpId reader;
    Held held;
  };
  bool movable(const Site& site, const Op& op, TensorId tensor, const Held& from) const;
  const ConversionStep* only_step(const Site& site, TensorId tensor, const Held& from,
                                  const Layout& to, CollectiveKind kind);
  Axes axes_of_rows(const Op& op) const;
  Held move(const Site& site, const Op& op, TensorId tensor, const Held& from,
            const ConversionStep& step);

  const Facts& facts_;
  ConversionPaths& paths_;
  TextWriter& writer_;
  Loads& loads_;
  std::vector<std::vector<Fetched>> fetched_;  // by place
};

}  // namespace tessera
