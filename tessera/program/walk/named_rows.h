// Conversions of tables of which an op names rows (NamedRows, program.h). Where a gather would
// bring all rows to the reader, only the rows that the reader names are sent. Where a
// reduce_scatter would send parts of all rows, only the rows to which the op has added are sent.
// Private to tessera/program.
//
// This is done only under these conditions; otherwise the table is converted whole:
//   - the op names rows by inputs of the step, so that every rank can load all ids;
//   - there is one micro-batch;
//   - the op has no time loop and no rims;
//   - the transfer has no codec;
//   - ops make the table anew in each step. (A table at rest is gathered ahead of its readers, by
//     passes that know no ids.)
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

  // Gathers the rows that the reader names from the complete table `from`, in the layout `need`.
  // Readers of the block that name the same rows share the result. The result is never made a home,
  // because it lacks rows. Returns nothing if the conversion is not just a gather along the rows.
  std::optional<Held> gather(const Op& reader, TensorId tensor, const Held& from,
                             const Layout& need);
  // Sends the rows to which the tensor's producer has added to the ranks that hold these rows in
  // the layout `target`. Returns nothing if the conversion is not just a reduce_scatter along the
  // rows.
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
