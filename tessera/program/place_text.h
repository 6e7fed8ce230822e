// A place text has the instructions of the stages at one place (a set of devices that run the same
// stages). It has layouts instead of boxes, so that all ranks of the place share it. Lowering walks
// the graph once and writes the texts of all places (walk.h). Passes then rewrite the texts, and
// the last pass writes all waits. A rank's program is the text of its place with the rank's
// coordinates put in (instantiate.cc); if the meshes of stages overlap, a rank may be at several
// places. Because coordinates are enough, lowering one rank does not visit the other ranks. In a
// place text a BlockRef's chunk is the number of the stage in the plan.
//
// Text form: place_form.h. Rules that every place text keeps: place_check.h.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/base/shared.h"
#include "tessera/plan/layout/layout.h"
#include "tessera/plan/resolve/halos.h"
#include "tessera/program/program.h"

namespace tessera {

// A `StepPiece` is what one step of an op's time loop covers of a tensor dim. The first `prefix`
// axes that cut the dim give each rank an interval, and the piece is the part of that interval that
// the step has in the loop's order (step_interval).
struct StepPiece {
  size_t dim = 0;
  size_t prefix = 0;
  int64_t steps = 1;
  int64_t step = 0;
  StepOrder order = StepOrder::kAligned;
  std::vector<SkewAxis> skew;
  int64_t grain = 1;
  // Set if the loop cuts an op dim that reads the tensor dim through windows. The piece is then all
  // that the step's part of the op dim reads, and the pieces of two steps overlap.
  std::optional<WindowRead> read{};
  // For keys of a causal pair: the piece is empty on a rank if all queries of the rank come before
  // it. The queries of a rank are its interval of a dim of `queries` elements that `query_axes`
  // cut. `queries` = 0: the piece is never left out.
  int64_t queries = 0;
  Axes query_axes;
  // For attention with a band: the piece is also empty on a rank if it ends more than `reach`
  // elements before the first query of the rank. 0: there is no such rule.
  int64_t reach = 0;
  void leave_out_nowhere() { queries = reach = 0; }
  // For a loop over interior and rims (plan/resolve/halos.h): the tensor's looped dims, used instead of
  // `dim`. Empty: another loop.
  struct Rim {
    size_t dim = 0;  // dim of the tensor
    RimCut cut;
    std::optional<WindowRead> read{};  // as StepPiece::read
    friend bool operator==(const Rim&, const Rim&) = default;
  };
  std::vector<Rim> rims;
  // Returns whether pieces of two steps may have elements in common.
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

// A `Region` gives each rank, by its coordinates, a box of a tensor: the rank's box in the layout,
// intersected with the step's piece if there is one.
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
  bool accumulates = false;  // the buffer sums over micro-batches and lives for the step
  // More than 1: the buffer's messages are sent from so many copies, which micro-batches use in
  // turn, so that a copy is not overwritten before its message has left.
  int64_t slots = 1;
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
struct TextNamedRows {  // as NamedRows
  OpId op;
  std::vector<TextView> ids;
};
struct TextIssue {
  int handle = 0;
  CollectiveKind kind = CollectiveKind::kExchange;
  bool classify = false;  // true: `kind` is not decided here but follows from the ranks' boxes
  Axes axes;
  std::optional<Combiner> combiner;
  std::vector<TextTransfer> transfers;
  // Compression of what is sent. Unset with `classify`: the plan's compression for the kind that
  // the collective turns out to have is used.
  std::optional<Compression> compression;
  // The unit of ops (prefetch.h) for which the gather was moved ahead; -1: it was not moved. Only
  // issues for the same unit may share a bucket.
  int unit = -1;
  std::optional<TextNamedRows> named{};
};
struct CrossRoute {
  int64_t from = 0, to = 0;  // ranks
  Box region;
};
using CrossRoutes = std::vector<CrossRoute>;
// A `TextCross` is one side of a transfer to another place: every rank of `to_place` receives its
// region from the nearest holders at `from_place`. A rank that is at both places does not send to
// itself; the receiving side copies within the rank instead.
struct TextCross {
  // Handle of the first message. The messages of one rank have consecutive handles, from a range
  // that no other instruction uses.
  int handle = 0;
  bool sends = false;  // whether this place sends
  PlaceId from_place, to_place;
  TensorId tensor;
  int64_t tag = 0;
  TextView from, to;  // only the buffer of this side is valid
  // Planned routes; null: cross_sources() (crossing.h) finds the senders by its rule.
  std::shared_ptr<const CrossRoutes> routes;
  // Routes for the smaller micro-batches; null: `routes` serves them too.
  std::shared_ptr<const CrossRoutes> smaller_routes;
};
struct TextWait {
  int handle = 0;
  int lag = 0;  // as in Wait
};
struct TextCopy {
  TensorId tensor;
  TextView from, to;
  Write write = Write::kSet;
  int handle = -1;  // -1: the copy is done at once
};
struct TextLoad {
  TensorId tensor;
  TextView to;
};

struct TextInstruction {
  std::variant<TextCompute, TextIssue, TextCross, TextWait, TextCopy, TextLoad> body;
  When when = When::kAlways;
  OpId cause;
  int64_t order = 0;  // position in the order in which the walk wrote the instructions of all texts
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
  // Due marks: the latest point of the wait for a handle. A handle with the mark n is awaited
  // before the first instruction of its block whose `order` is n or more. This bounds the memory of
  // transfers that are under way. Only used until waits are written.
  std::map<int, int64_t> due;
};

// A `ShapeRule` gives the shape that a tensor has in a block of one micro-batch: the micro-batch
// dim has the size of one micro-batch. This is a larger micro-batch unless `smaller` is set.
struct ShapeRule {
  const Graph* graph = nullptr;
  std::string micro_batch_dim;
  int64_t micro_batches = 1;
  bool smaller = false;
  // Returns the size of one micro-batch of a dim that has `size` elements in all.
  int64_t micro_batch(int64_t size) const {
    return (size + (smaller ? 0 : micro_batches - 1)) / micro_batches;
  }
  std::vector<int64_t> shape(TensorId tensor) const;
  std::vector<int64_t> space(const Op& op) const;  // sizes of the iteration space
};

// Returns the part of the interval `whole` that a rank has at a step of a time loop. `order` and
// `skew` say which part it is (StepOrder, plan/plan.h).
Interval step_interval(Interval whole, int64_t steps, int64_t step, StepOrder order,
                       const std::vector<SkewAxis>& skew, const Mesh& mesh,
                       const std::vector<int64_t>& coordinates);
Box evaluate(const Region& region, const Mesh& mesh, const std::vector<int64_t>& shape,
             const std::vector<int64_t>& coordinates);
// Returns the box of the iteration space that a rank works on at a step.
Box compute_box(const Op& op, const OpPlan& plan, const ShapeRule& shapes, const Mesh& mesh,
                const std::vector<int64_t>& coordinates, int64_t step);

// Returns the block that a run of the schedule runs.
BlockRef block_of(const BlockRun& run);

class BlockOrder;  // the order in which blocks run (needs.h)

// Joins collectives of one block into buckets of at most `bytes` each. Collectives may share a
// bucket if they have the same kind, group, combiner and dtype and are first needed later in this
// block, after the last of them is issued. A bucket is issued where its last member was issued.
void bucket_collectives(PlaceText& text, const ShapeRule& shapes, const BlockOrder& order,
                        int64_t bytes);

// Moves the second collectives of conversions that take two (such as the all-gather that ends a
// compressed all-reduce) to a later point of their block: to where the second collectives held back
// would make more than `bytes`, or to before the first instruction that needs one. So the first
// collectives of several conversions can share a bucket, and the second ones another.
void gather_second_steps(PlaceText& text, const ShapeRule& shapes, int64_t bytes);

// Moves gathers of tensors at rest to an earlier point of the block: before the unit of ops
// (prefetch.h) that is prefetch.ahead units before the unit of the first reader.
void prefetch_at_rest(PlaceText& text, const Graph& graph, const BlockOrder& order,
                      const Prefetch& prefetch);

// Orders a block's instructions such that each transfer is issued before the first instruction that
// needs it.
void issue_together(PlaceText& text, BlockRef block);

// Returns the first handle that the text does not use.
int end_of_handles(const PlaceText& text);

// Adds copies between tiers, because an op works in one tier and a tensor may rest in another. The
// copies are issued ahead of their use. `next_handle`: the first handle that no text uses; it is
// advanced past the handles of the copies.
void stage_tiers(PlaceText& text, const ShapeRule& shapes, const ResolvedPlan& plan,
                 const BlockOrder& order, int& next_handle);

// Writes all waits of all texts. This is the last pass: the texts have no waits before it, and
// nothing moves a wait after it. It also decides how many copies the buffers have from which
// messages are sent. `orders`: by place.
void place_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan,
                 const std::vector<BlockOrder>& orders);
// Writes the waits of one place, except those for sends. This is the first half of place_waits.
void await_needs(PlaceText& text, const BlockOrder& order);

class MemberBoxes;

// An `InstantiateInput` has all that a rank's program is made of, above all the texts of its
// places. The program that is made has lifetimes, frees and arena offsets (memory.cc).
struct InstantiateInput {
  const Graph* graph = nullptr;
  const ResolvedPlan* plan = nullptr;
  const std::vector<OpPlan>* ops = nullptr;       // effective splits
  const std::vector<PlaceText>* texts = nullptr;  // by place
  // The shapes for micro-batches of one size. `sizes` has an element for the larger and one for the
  // smaller micro-batches; only one element if all have the same size.
  struct Sizes {
    ShapeRule rule;
    std::vector<std::vector<int64_t>> shapes;  // by tensor, as blocks see it
  };
  const std::vector<Sizes>* sizes = nullptr;
  int64_t micro_batch_size = 0, larger = 0;  // as in Program
  MemberBoxes* boxes = nullptr;              // of all programs of the lowering
};
// Returns a rank's program. `offsets`: as in Lowering::lower.
Result<Program> instantiate(const InstantiateInput& input, int rank, bool offsets);
// Gives the buffers their lifetimes, adds the frees, and, if `offsets`, places the buffers in
// arenas.
void plan_memory(Program& program, bool offsets);
// Lays memory out as plan_memory does, for a program that has blocks for two sizes of
// micro-batches. Each buffer is planned once, for all that the blocks of either size touch.
// `ordinals`: by block and instruction, the number of the instruction of the place text from which
// the instruction was made. Instructions of the two blocks of a family that have the same number
// correspond.
void plan_memory_of_both(Program& program, const ByBlock<std::vector<size_t>>& ordinals,
                         bool offsets);

}  // namespace tessera
