// Crossings between places: the layouts in which a tensor leaves and lands, the gathering of shares
// behind the messages, and the choice of who sends what to whom (docs/theory/lowering.md section
// 7). Private to tessera/program.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// Returns whether any rank is in both meshes. Such a rank copies instead of sending.
bool share_ranks(const Mesh& a, const Mesh& b);

// Returns `layout`, cut further over those of `axes` that it does not use, so that each replica of
// a piece has a share of it. The dim that is cut is the one that leaves the smallest share. A dim
// that `sender` cuts is preferred if its share is at most a sixteenth larger, because a share then
// lies in one rank's piece; otherwise the first dim wins a tie. The axis whose ranks are
// nearest together is the outermost of the new cuts. Returns `layout` itself if no axis or no dim
// is left.
Layout cut_into_shares(const Layout& layout, const Axes& axes, const Mesh& mesh,
                       const std::vector<int64_t>& shape, const Layout* sender = nullptr);
// Returns the layout cut into shares over all axes: replicas of a piece of `need` each receive a
// share instead of the piece, and gathers inside the place make `need` of the shares.
Layout shared_landing(const Layout& need, const Mesh& mesh, const std::vector<int64_t>& shape,
                      const Layout* sender = nullptr);
// Returns the layouts from shares to `need`, axis by axis, `need` last. The axis whose ranks are
// farthest apart is gathered first: shares are smallest then, and each enters every node once for
// each of its ranks that has another share, not once for each rank. Returns just `need` if
// `landing` is not `need` cut into shares in this way.
std::vector<Layout> gather_steps(const Layout& landing, const Layout& need, const Mesh& mesh,
                                 const std::vector<int64_t>& shape);

// Returns the first chunk of a large tensor that crosses in chunks, or nothing. Chunks serve a
// tensor that is gathered behind the messages: a chunk that has arrived is gathered while the next
// one is under way, so that the time is that of the slower of both and not their sum
// (docs/theory/lowering.md section 7). The chunk is a step of a loop over a dim that no gather
// touches and that senders (`from`) have whole, so that all of them send of each chunk. There are
// no chunks if the shares are small, no dim is long enough, or `spread` (of gather_steps) is no
// sequence of gathers.
std::optional<StepPiece> first_chunk(const Layout& from, const Layout& landing,
                                     const std::vector<Layout>& spread, const Mesh& mesh,
                                     const std::vector<int64_t>& shape, int64_t bytes_per_element);
// Returns the axes along which one gather makes `whole` of `cut`; nothing if another conversion is
// needed.
std::optional<Axes> gathered_axes(const Layout& cut, const Layout& whole);

// Returns the layout in which parts of a sum (`made`) are completed before they cross to a place
// that needs them as `need` (on the sending mesh; nullopt: it lacks the axes). They are scattered
// over their partial axes, so that no sum is made twice and each rank has a share to send.
Layout leaving_layout(const Layout& made, const std::optional<Layout>& need, const Mesh& mesh,
                      const std::vector<int64_t>& shape);

// Returns the layout in which a tensor arrives that is held as `from` and needed as `need`; the
// rest of the way to `need` is a conversion inside the place. The plan's `resharding` decides,
// where no rank is on both sides. "gather": shared_landing(). "direct": `need`. "auto":
// shared_landing() where the meshes differ, and between equal meshes where neither layout only cuts
// the other further. If `need` has only fewer cuts, "auto" chooses the sender's layout, so that
// pieces of several senders are put together behind the messages, once for all replicas; if `need`
// has only more cuts, it chooses `need`.
Layout arriving_layout(std::string_view resharding, const Mesh& from_mesh, const Layout& from,
                       const Mesh& to_mesh, Layout need, const std::vector<int64_t>& shape);

// Returns planned routes, by receiver and in the order of issue. Returns null if the rule of
// cross_sources() serves: because the axes match and one layout only cuts the other further,
// because a rank is on both sides, or because the meshes are too large to visit every pair of
// tiles. The sender of a tile is the holder with the fewest bytes so far (plan/reshard.h, order
// kGenerated with each rank a host of its own). Large pieces are cut in up to four where some rank
// would have a tenth more to send than its share. `chunked`: the dim that the messages of
// successive chunks divide; no piece is cut along it.
std::shared_ptr<const CrossRoutes> plan_routes(const Mesh& from_mesh, const Layout& from,
                                               const Mesh& to_mesh, const Layout& to,
                                               const std::vector<int64_t>& shape,
                                               std::optional<size_t> chunked = std::nullopt);

// A `CrossPiece` is a piece that crosses, and its sender (coordinates on the sending mesh).
struct CrossPiece {
  std::vector<int64_t> source;
  Box region;
};
// Returns the crossing with `routes` set to those of the larger or of the smaller micro-batches.
TextCross of_size(TextCross cross, bool smaller);

// Returns whether each rank sends its twin on the other mesh exactly what it holds.
bool crosses_to_twins(const TextCross& cross, const Mesh& from_mesh, const Mesh& to_mesh);

// Returns the ranks of the sending mesh that serve the rank at `to`, and what each sends. Planned
// routes say so, if there are any. Else, along a sender's axis that does not cut the tensor, the
// sender is the holder with the receiver's own coordinate on the axis of that name. If that axis
// cuts the receiver's piece, the receiver's coordinate on an axis along which its replicas lie is
// taken instead. Without an axis of that name, receivers are spread by their positions. `whole`:
// the tensor's shape as blocks see it.
std::vector<CrossPiece> cross_sources(const TextCross& cross, const Mesh& from_mesh,
                                      const Mesh& to_mesh, const std::vector<int64_t>& whole,
                                      const std::vector<int64_t>& to);
// Returns the receivers that the rank at `at` may serve, as coordinates on the receiving mesh; axes
// known to be equal are not enumerated. The rank's own coordinate comes first, then the next ones
// round the axis, so that ranks do not all serve the same receiver at a time.
std::vector<std::vector<int64_t>> cross_receivers(const TextCross& cross, const Mesh& from_mesh,
                                                  const Mesh& to_mesh,
                                                  const std::vector<int64_t>& at);

}  // namespace tessera
