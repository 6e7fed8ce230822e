// What crosses between places: the layouts in which it leaves and lands, how shares are gathered
// behind it, and who sends what to whom (docs/theory/lowering.md section 7). Private to
// tessera/program.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Is any rank in both meshes? What crosses is copied there instead of sent.
bool share_ranks(const Mesh& a, const Mesh& b);

// `layout`, cut further over those of `axes` that it does not use, so that replicas of a piece have a
// share each. The dim that is cut is the one that leaves the smallest share, or one at most a
// sixteenth larger that `sender` cuts, so that a share is in one rank's piece, then the first; the
// axis whose ranks are nearest together is the outermost of the new cuts. `layout` itself if no axis
// or no dim is left.
Layout cut_into_shares(const Layout& layout, const Axes& axes, const Mesh& mesh,
                       const std::vector<int64_t>& shape, const Layout* sender = nullptr);
// Over all axes: replicas of a piece of `need` receive a share each instead of the piece each, and
// gathers inside the place make `need` of it.
Layout shared_landing(const Layout& need, const Mesh& mesh, const std::vector<int64_t>& shape,
                      const Layout* sender = nullptr);
// From shares to `need`, axis by axis, `need` last. The axis whose ranks are farthest apart goes
// first: shares are smallest then, and each enters every node once for each of its ranks that has
// another share, not once for each rank. Just `need` where `landing` is not so made of it.
std::vector<Layout> gather_steps(const Layout& landing, const Layout& need, const Mesh& mesh,
                                 const std::vector<int64_t>& shape);

// A large tensor crosses in chunks if it is gathered behind the messages: what has arrived is gathered
// while the next chunk is under way, so that the time is that of the slower of both and not of their
// sum (docs/theory/lowering.md section 7). The first chunk: a step of a loop over a dim that no gather
// touches and that senders (`from`) have whole, so that all of them send of each chunk; none: the
// shares are small, no dim is long enough, or `spread` (of gather_steps) is no sequence of gathers.
std::optional<StepPiece> first_chunk(const Layout& from, const Layout& landing,
                                     const std::vector<Layout>& spread, const Mesh& mesh,
                                     const std::vector<int64_t>& shape, int64_t bytes_per_element);
// The axes along which a gather makes `whole` of `cut`; none: it takes another conversion.
std::optional<Axes> gathered_axes(const Layout& cut, const Layout& whole);

// In which layout parts of a sum (`made`) are completed before they cross to a place that needs
// them as `need` (of the sending mesh; none: it has not the axes): scattered over the axes over
// which they are parts, so that no sum is made twice and each rank has a share to send.
Layout leaving_layout(const Layout& made, const std::optional<Layout>& need, const Mesh& mesh,
                      const std::vector<int64_t>& shape);

// In which layout a tensor that is held as `from` arrives where it is needed as `need`, both of it;
// what is left to `need` is converted inside the place. By the plan's `resharding`, where no rank
// is on both sides: "gather": shared_landing(). "auto": that where the meshes differ, and between
// equal ones where neither layout only cuts the other further; if `need` has only fewer cuts, the
// sender's layout: what no sender has together is put together behind the messages, once for all
// replicas; if it has only more cuts, `need`. "direct": `need`.
Layout arriving_layout(std::string_view resharding, const Mesh& from_mesh, const Layout& from,
                       const Mesh& to_mesh, Layout need, const std::vector<int64_t>& shape);

// By receiver, in the order of issue. Null: the rule of cross_sources() serves, because the axes
// match and one layout only cuts the other further, because a rank is on both sides, or because the
// meshes are too large to visit every pair of tiles. Senders: the holder with the fewest bytes so far (plan/reshard.h,
// order kGenerated with each rank a host of its own). Large pieces are cut in up to four where some
// rank would have a tenth more to send than its share.
// `chunked`: the dim of which each message takes a part after the other, so that no piece is cut
// along it.
std::shared_ptr<const CrossRoutes> plan_routes(const Mesh& from_mesh, const Layout& from,
                                               const Mesh& to_mesh, const Layout& to,
                                               const std::vector<int64_t>& shape,
                                               std::optional<size_t> chunked = std::nullopt);

// A piece that crosses, and who sends it (coordinates on the sending mesh).
struct CrossPiece {
  std::vector<int64_t> source;
  Box region;
};
// The crossing as it is in the larger or in the smaller micro-batches, in `routes`.
TextCross of_size(TextCross cross, bool smaller);

// Does each rank send its twin on the other mesh what it holds, and nothing else?
bool crosses_to_twins(const TextCross& cross, const Mesh& from_mesh, const Mesh& to_mesh);

// Which ranks of the sending mesh serve the rank at `to` and with what: the planned routes, if
// there are any. Else, axes that do not cut the tensor there: the holder with the receiver's own
// coordinate on the axis of that name; if that cuts the receiver's piece, on one along which its
// replicas lie; else spread by the receiver's position. `whole`: the tensor's shape as blocks see
// it.
std::vector<CrossPiece> cross_sources(const TextCross& cross, const Mesh& from_mesh,
                                      const Mesh& to_mesh, const std::vector<int64_t>& whole,
                                      const std::vector<int64_t>& to);
// Receivers that the rank at `at` may serve: coordinates on the receiving mesh; axes known to be
// equal are not enumerated. The own coordinate first, then the next ones round the axis, so that
// ranks do not all serve the same one at a time.
std::vector<std::vector<int64_t>> cross_receivers(const TextCross& cross, const Mesh& from_mesh,
                                                  const Mesh& to_mesh,
                                                  const std::vector<int64_t>& at);

}  // namespace tessera
