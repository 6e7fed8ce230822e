// Crossings to another place: a send there, a receipt here, and the layout in which the tensor
// lands. Private to tessera/program.
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

  // Brings the tensor, which the block of place `source` holds, to the reader's place, where it
  // gets a home.
  void cross(TensorId tensor, PlaceId source, BlockRef block, const Op& reader);
  // Brings the tensor to the reader's place from the place where it is made.
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
