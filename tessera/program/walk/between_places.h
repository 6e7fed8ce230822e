// Crossings to another place. This file writes the send at the one place and the receive at the
// other, and decides in which layout the tensor arrives. Private to tessera/program.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "tessera/program/walk/complete.h"

namespace tessera {

class BetweenPlaces {
 public:
  BetweenPlaces(const Facts& facts, TextWriter& writer, Holds& holds, Converter& converter,
                Completion& completion)
      : facts_(facts),
        writer_(writer),
        holds_(holds),
        converter_(converter),
        completion_(completion) {}

  // Brings the tensor from place `source`, where `block` holds it, to the place of the reader. The
  // tensor then has a home there.
  void cross(TensorId tensor, PlaceId source, BlockRef block, const Op& reader);
  // Brings the tensor from the place where it is made to the place of the reader.
  void fetch(TensorId tensor, const Op& reader);

 private:
  BlockRef crossing_block(TensorId tensor) const;
  BlockRef first_reading_block(BlockKind kind, TensorId tensor, const Op& first) const;
  const std::vector<BlockRun>& schedule_of(PlaceId place) const;
  std::shared_ptr<const CrossRoutes> find_routes(const std::vector<int64_t>& shape, PlaceId source,
                                                 PlaceId place, const Layout& from,
                                                 const Layout& to, std::optional<size_t> chunked);
  void send(const Site& from_site, const Site& to_site, TensorId tensor, const Held& from,
            const Held& to);

  std::optional<StepPiece> chunk_of(const Site& from_site, const Site& to_site, TensorId tensor,
                                    const Held& from, const Held& to,
                                    const std::vector<Layout>& spread);
  Held cross_in_chunks(const Site& from_site, const Site& to_site, TensorId tensor,
                       const Held& from, const Held& to, const std::vector<Layout>& spread,
                       const StepPiece& chunk);

  const Facts& facts_;
  TextWriter& writer_;
  Holds& holds_;
  Converter& converter_;
  Completion& completion_;
  std::map<
      std::tuple<PlaceId, PlaceId, std::vector<int64_t>, Layout, Layout, std::optional<size_t>>,
      std::shared_ptr<const CrossRoutes>>
      routes_;
};

}  // namespace tessera
