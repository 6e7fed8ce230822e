// Place text: the instructions of the stages at one place (the devices that they share) with
// layouts instead of boxes, common to all its ranks. Lowering walks the graph once and writes the
// texts of all places (walk.h), passes rewrite them, and the last one places all waits. A rank's
// program is the text of its place (of its places, if the meshes of stages overlap) with the rank's
// coordinates put in (instantiate.cc). This is why lowering a rank does not visit the others.
// Blocks are named by the number of their stage.
//
// Text form: place_form.h. What holds of every place text: place_check.h.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/shared.h"
#include "tessera/plan/halos.h"
#include "tessera/plan/layout.h"
#include "tessera/program/program.h"

namespace tessera {

// One step of an op's time loop over a tensor dim: inside the interval that the first `prefix` axes
// of the dim cut, the piece of that step in the loop's order (step_interval).
struct StepPiece {
  size_t dim = 0;
  size_t prefix = 0;
  int64_t steps = 1;
  int64_t step = 0;
  StepOrder order = StepOrder::kAligned;
  std::vector<SkewAxis> skew;
  int64_t grain = 1;
  // The tensor dim is read through windows of the op's dim, which the loop cuts: a step has what its
  // piece of that reads, and pieces overlap.
  std::optional<WindowRead> read{};
  // Keys of a causal pair: the piece is left out (empty) on ranks all of whose queries lie before
  // it: the queries are what these axes cut of a dim of `queries` elements; 0: never left out.
  int64_t queries = 0;
  Axes query_axes;
  // Left out, too, where it ends more than so many elements before all of the queries; 0: never.
  int64_t reach = 0;
  void leave_out_nowhere() { queries = reach = 0; }
  // Of a loop over interior and rims: the tensor's dims of it, instead of the one above.
  struct Rim {
    size_t dim = 0;  // of the tensor
    RimCut cut;
    std::optional<WindowRead> read{};  // as above
    friend bool operator==(const Rim&, const Rim&) = default;
  };
  std::vector<Rim> rims;
  // May pieces of two steps have elements in common?
  bool overlaps() const {
    return read || std::any_of(rims.begin(), rims.end(), [](const Rim& rim) { return rim.read; });
  }
  bool moves_over(size_t d) const {
    if (rims.empty()) return dim == d;
    return std::any_of(rims.begin(), rims.end(), [d](const Rim& rim) { return rim.dim == d; });
  }
  bool skewed_by(AxisId axis) const {
    return std::any_of(skew.begin(), skew.end(), [&](const SkewAxis& s) { return s.axis == axis; });
  }
  friend bool operator==(const StepPiece&, const StepPiece&) = default;
};

// A region as a function of coordinates: what the layout gives, intersected with the step's piece.
struct Region {
  Shared<Layout> layout;
  Shared<StepPiece> piece;
  friend bool operator==(const Region&, const Region&) = default;
};

struct TextBuffer {
  std::string name;
  TensorId tensor;
  Region region;
  DType dtype = DType::kFloat32;
  Tier tier = Tier::kDevice;
  bool persistent = false;
  bool accumulates = false;  // over micro-batches: lives for the step
  int64_t slots = 1;  // more: copies that micro-batches use in turn, until messages have left
};

struct TextView {
  int buffer = -1;  // index into PlaceText::buffers
  Region region;    // inside the buffer's region
  friend bool operator==(const TextView&, const TextView&) = default;
};

struct TextOutput {
  TextView view;
  TensorId tensor;
  Write write = Write::kSet;
  int term = 0, terms = 1;
};
struct TextCompute {
  OpId op;
  int64_t step = 0;  // of the op's time loop
  std::vector<TextView> inputs;
  std::vector<TextOutput> outputs;
};
struct TextTransfer {
  TensorId tensor;
  TextView from, to;
};
struct TextNamedRows {  // as of an Issue
  OpId op;
  std::vector<TextView> ids;
};
struct TextIssue {
  int handle = 0;
  CollectiveKind kind = CollectiveKind::kExchange;
  bool classify = false;  // kind follows from who holds and needs what
  Axes axes;
  std::optional<Combiner> combiner;
  std::vector<TextTransfer> transfers;
  std::optional<Compression> compression;  // unset with `classify`: of the kind that follows
  int unit = -1;  // for which it was moved ahead: joined only with others for the same
  std::optional<TextNamedRows> named{};
};
struct CrossRoute {
  int64_t from = 0, to = 0;  // ranks
  Box region;
};
using CrossRoutes = std::vector<CrossRoute>;
// What crosses to another place: every rank of `to_place` receives its region from the nearest
// holders at `from_place`; what a rank would send to itself is a copy on the receiving side.
struct TextCross {
  int handle = 0;  // of the first piece; pieces get consecutive handles from a range of their own
  bool sends = false;  // this place's side
  PlaceId from_place, to_place;
  TensorId tensor;
  int64_t tag = 0;
  TextView from, to;                                  // the side's own is valid; both regions are
  std::shared_ptr<const CrossRoutes> routes;          // null: the rule of crossing.h
  std::shared_ptr<const CrossRoutes> smaller_routes;  // of smaller micro-batches; null: the same
};
struct TextWait {
  int handle = 0;
  int lag = 0;  // as of a Wait
};
struct TextCopy {
  TensorId tensor;
  TextView from, to;
  Write write = Write::kSet;
  int handle = -1;  // -1: done at once
};
struct TextLoad {
  TensorId tensor;
  TextView to;
};

struct TextInstruction {
  std::variant<TextCompute, TextIssue, TextCross, TextWait, TextCopy, TextLoad> body;
  When when = When::kAlways;
  OpId cause;
  int64_t order = 0;  // of writing, over all places
};

struct TextHome {
  TensorId tensor;
  int buffer = -1;
};

struct PlaceText {
  Mesh mesh;
  std::vector<TextBuffer> buffers;
  ByBlock<std::vector<TextInstruction>> blocks;
  std::vector<TextHome> homes, fetches;
  // While waits are not placed, by handle: it is awaited before what its block writes from that
  // `order` on, so that the memory of what is under way stays bounded.
  std::map<int, int64_t> due;
};

// The shape of a tensor as blocks see it: the micro-batch dim has the size of one micro-batch, of
// the larger ones unless it says `smaller`.
struct ShapeRule {
  const Graph* graph = nullptr;
  std::string micro_batch_dim;
  int64_t micro_batches = 1;
  bool smaller = false;
  int64_t micro_batch(int64_t size) const {  // of a dim of this size
    return (size + (smaller ? 0 : micro_batches - 1)) / micro_batches;
  }
  std::vector<int64_t> shape(TensorId tensor) const;
  std::vector<int64_t> space(const Op& op) const;  // sizes of the iteration space
};

// The piece of `whole` (in units of the cut) at a step; see StepOrder.
Interval step_interval(Interval whole, int64_t steps, int64_t step, StepOrder order,
                       const std::vector<SkewAxis>& skew, const Mesh& mesh,
                       const std::vector<int64_t>& coordinates);
Box evaluate(const Region& region, const Mesh& mesh, const std::vector<int64_t>& shape,
             const std::vector<int64_t>& coordinates);
// The box of the iteration space that a rank works on at a step.
Box compute_box(const Op& op, const OpPlan& plan, const ShapeRule& shapes, const Mesh& mesh,
                const std::vector<int64_t>& coordinates, int64_t step);

// The block that a run of the schedule runs.
BlockRef block_of(const BlockRun& run);

class BlockOrder;  // in which order blocks run (needs.h)

// Passes: place text -> place text. Joins adjacent collectives of the same kind, group, combiner
// and dtype that are needed later, in one block, up to `bytes` a bucket; the bucket is issued where
// its last member was.
void bucket_collectives(PlaceText& text, const ShapeRule& shapes, const BlockOrder& order,
                        int64_t bytes);

// Moves the gathering of tensors at rest before the unit `ahead` before the one that reads them.
void prefetch_at_rest(PlaceText& text, const Graph& graph, const BlockOrder& order,
                      const Prefetch& prefetch);

// The order of a block in which all that it issues goes before what needs it.
void issue_together(PlaceText& text, BlockRef block);

// The first handle that the text does not use.
int end_of_handles(const PlaceText& text);

// Ops work in a tier, what rests in another is staged there: copies between the tiers are put in,
// issued ahead of their use. `next_handle`: the first that no text uses.
void stage_tiers(PlaceText& text, const ShapeRule& shapes, const ResolvedPlan& plan,
                 const BlockOrder& order, int& next_handle);

// The last pass, over the texts of all places: writes every wait. Texts have none before it, and
// nothing moves one afterwards. Also decides how many copies the buffers of messages have. `orders`:
// by place.
void place_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan,
                 const std::vector<BlockOrder>& orders);
// Its first half, for one place: all waits but those for what is sent.
void await_needs(PlaceText& text, const BlockOrder& order);

// A rank's program from its places' texts; lifetimes, frees and arena offsets included (memory.cc).
struct InstantiateInput {
  const Graph* graph = nullptr;
  const ResolvedPlan* plan = nullptr;
  const std::vector<OpPlan>* ops = nullptr;       // effective splits
  const std::vector<PlaceText>* texts = nullptr;  // by place
  // For the larger and the smaller micro-batches; one where all are equal.
  struct Sizes {
    ShapeRule rule;
    std::vector<std::vector<int64_t>> shapes;  // by tensor, as blocks see it
  };
  const std::vector<Sizes>* sizes = nullptr;
  int64_t micro_batch_size = 0, larger = 0;  // as of a Program
};
// `offsets`: as in Lowering::lower.
Result<Program> instantiate(const InstantiateInput& input, int rank, bool offsets);
void plan_memory(Program& program, bool offsets);
// The same of a program with blocks for two sizes of micro-batches: their buffers are planned once,
// for what either touches. `ordinals`: by block and instruction, for whose instruction of the place
// texts it stands; the blocks of a family have those in common.
void plan_memory_of_both(Program& program, const ByBlock<std::vector<size_t>>& ordinals,
                         bool offsets);

}  // namespace tessera
