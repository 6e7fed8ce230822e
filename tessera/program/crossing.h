// Crossings, which are transfers of a tensor from one place to another. This file decides the
// layouts in which a tensor leaves and arrives, the gathers that follow the messages where replicas
// have each received only a share, and which rank sends what to whom (docs/theory/lowering.md
// section 7). Private to tessera/program.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Returns whether any rank is in both meshes. Such a rank copies what it would send to itself.
bool share_ranks(const Mesh& a, const Mesh& b);

// Returns `layout`, cut further over those of `axes` that the layout does not use. The ranks that
// held the same piece (its replicas) then have different shares of the piece. The dim that is cut
// is the one that leaves the smallest share. A dim that `sender` cuts is preferred if its share is
// at most a sixteenth larger than the smallest, because a share is then a part of one sending
// rank's piece; else the first dim wins a tie. The axis whose ranks are nearest together is the
// outermost of the new cuts. Returns `layout` itself if no axis or no dim is left to cut.
Layout cut_into_shares(const Layout& layout, const Axes& axes, const Mesh& mesh,
                       const std::vector<int64_t>& shape, const Layout* sender = nullptr);
// Returns `need` cut into shares over all axes of the mesh (cut_into_shares). Replicas of a piece
// of `need` then each receive a share of the piece instead of the whole piece, and gathers inside
// the place make `need` of the shares.
Layout shared_landing(const Layout& need, const Mesh& mesh, const std::vector<int64_t>& shape,
                      const Layout* sender = nullptr);
// Returns the layouts after each gather on the way from the shares in `landing` to `need`: one axis
// is gathered at a time, and the last layout is `need`. The axis whose ranks are farthest apart is
// gathered first, because the shares are smallest then. Each share then enters a node only once for
// each of the node's ranks that has a different share, not once for each of its ranks. Returns only
// `need` if `landing` is not `need` cut into shares (cut_into_shares).
std::vector<Layout> gather_steps(const Layout& landing, const Layout& need, const Mesh& mesh,
                                 const std::vector<int64_t>& shape);

// Returns the first of the chunks in which a large tensor crosses, or nothing if it crosses at
// once. Chunks help if the tensor is gathered after the messages: one chunk is gathered while the
// next chunk is still sent, so that the time is the longer of the two times and not their sum
// (docs/theory/lowering.md section 7). A chunk is written as a step of a loop over one dim. This
// must be a dim that no gather touches and that the senders' layout `from` does not cut, so that
// every sender has a part of each chunk. Returns nothing if the shares are small, if no dim is long
// enough, or if `spread` (the result of gather_steps) is no sequence of gathers.
std::optional<StepPiece> first_chunk(const Layout& from, const Layout& landing,
                                     const std::vector<Layout>& spread, const Mesh& mesh,
                                     const std::vector<int64_t>& shape, int64_t bytes_per_element);
// Returns the axes along which a single gather turns `cut` into `whole`; nothing if another
// conversion is needed.
std::optional<Axes> gathered_axes(const Layout& cut, const Layout& whole);

// Returns the layout in which parts of a sum, made in the layout `made`, are added up before the
// sum crosses to another place. The sum is scattered over the axes over which `made` is partial, so
// that no sum is made twice and each rank has a share to send. `need`: the layout that the other
// place needs, with the axes of the sending mesh; nullopt if the sending mesh lacks these axes.
Layout leaving_layout(const Layout& made, const std::optional<Layout>& need, const Mesh& mesh,
                      const std::vector<int64_t>& shape);

// Returns the layout in which a tensor arrives at a place. The senders hold the tensor as `from`,
// the place needs it as `need`, and a conversion inside the place leads from the arrival layout to
// `need`. If a rank is in both meshes, this is `need`. Else the plan's `resharding` decides:
//   "direct"  `need`
//   "gather"  shared_landing()
//   "auto"    shared_landing() if the meshes differ. If they are equal: `from` if `from` is `need`
//             with more cuts, so that gathers put the pieces of several senders together once for
//             all replicas; `need` if `need` is `from` with more cuts; else shared_landing()
Layout arriving_layout(std::string_view resharding, const Mesh& from_mesh, const Layout& from,
                       const Mesh& to_mesh, Layout need, const std::vector<int64_t>& shape);

// Returns planned routes, by receiver and in the order of issue. The sender of a tile is the rank
// that holds the tile and has the fewest bytes to send so far (plan/layout/reshard.h, order kGenerated
// with each rank a host of its own). If some rank would have a tenth more to send than its share,
// large pieces are cut into up to four. Returns null where the rule of cross_sources() is used
// instead: if the axes match and one layout is the other with more cuts, if a rank is in both
// meshes, or if the meshes are too large to visit every pair of tiles. `chunked`: the dim along
// which the tensor crosses in chunks (first_chunk); no piece is cut along this dim.
std::shared_ptr<const CrossRoutes> plan_routes(const Mesh& from_mesh, const Layout& from,
                                               const Mesh& to_mesh, const Layout& to,
                                               const std::vector<int64_t>& shape,
                                               std::optional<size_t> chunked = std::nullopt);

// A `CrossPiece` is a region that one rank sends to a receiver. `source`: the coordinates of the
// sender on the sending mesh.
struct CrossPiece {
  std::vector<int64_t> source;
  Box region;
};
// Returns the crossing with `routes` set to those of the larger or of the smaller micro-batches.
TextCross of_size(TextCross cross, bool smaller);

// Returns whether each rank sends exactly what it holds to its twin, the rank with the same
// coordinates on the other mesh.
bool crosses_to_twins(const TextCross& cross, const Mesh& from_mesh, const Mesh& to_mesh);

// Returns the ranks of the sending mesh that send to the receiver at the coordinates `to`, and what
// each sends. If cross.routes are planned, they say so. Else all ranks that hold a part of the
// receiver's region send it. Several ranks hold the same part if an axis of the sending mesh does
// not cut the tensor. Which of them sends is then chosen by this coordinate along the axis:
//   - the receiver's own coordinate on the axis of the same name on its mesh;
//   - if that axis cuts the receiver's piece, the receiver's coordinate on an axis whose ranks all
//     need the same piece, if there is one;
//   - without an axis of the same name, the receiver's position in its mesh modulo the axis size.
// `whole`: the tensor's shape as blocks see it.
std::vector<CrossPiece> cross_sources(const TextCross& cross, const Mesh& from_mesh,
                                      const Mesh& to_mesh, const std::vector<int64_t>& whole,
                                      const std::vector<int64_t>& to);
// Returns the coordinates, on the receiving mesh, of all ranks to which the sender at `at` may
// send. With planned routes these are the receivers of the sender's routes. Else an axis on which
// the receiver must have the sender's own coordinate is not enumerated. On other axes the sender's
// own coordinate comes first, then the next ones around the axis, so that senders do not all send
// to the same receiver at a time.
std::vector<std::vector<int64_t>> cross_receivers(const TextCross& cross, const Mesh& from_mesh,
                                                  const Mesh& to_mesh,
                                                  const std::vector<int64_t>& at);

}  // namespace tessera
