// Place text: the instructions of the stages at one place (the devices that they share) with
// layouts instead of boxes, common to all its ranks. Lowering walks the graph once and writes the
// texts of all places (walk.h), passes rewrite them, and the last one places all waits. A rank's
// program is the text of its place (of its places, if the meshes of stages overlap) with the rank's
// coordinates put in (instantiate.cc). This is why lowering a rank does not visit the others.
// Blocks are named by the number of their stage.
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
#include "tessera/plan/halos.h"
#include "tessera/plan/layout.h"
#include "tessera/program/program.h"

namespace tessera {

// A `StepPiece` is the piece of one step of an op's time loop over a tensor dim: it lies inside the
// interval that the first `prefix` axes of the dim cut, in the loop's order (step_interval).
struct StepPiece {
  size_t dim = 0;
  size_t prefix = 0;
  int64_t steps = 1;
  int64_t step = 0;
  StepOrder order = StepOrder::kAligned;
  std::vector<SkewAxis> skew;
  int64_t grain = 1;
  // Set if the tensor dim is read through windows of the op's dim, which the loop cuts: the piece
  // is then what the step's piece of the op's dim reads, and pieces overlap.
  std::optional<WindowRead> read{};
  // For keys of a causal pair: the piece is left out (empty) on ranks whose queries all lie before
  // it. The queries are what `query_axes` cut of a dim of `queries` elements; 0: the piece is never
  // left out.
  int64_t queries = 0;
  Axes query_axes;
  // The piece is also left out if it ends more than `reach` elements before all queries; 0: it is
  // not.
  int64_t reach = 0;
  void leave_out_nowhere() { queries = reach = 0; }
  // For a loop over interior and rims: the tensor's looped dims, which replace `dim`.
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

// A `Region` is a function of coordinates: the region of the layout, intersected with the step's
// piece.
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
  bool accumulates = false;  // sums over micro-batches and lives for the step
  int64_t slots = 1;  // more than 1: copies that micro-batches use in turn until messages have left
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
  bool classify = false;  // `kind` follows from who holds and needs which region
  Axes axes;
  std::optional<Combiner> combiner;
  std::vector<TextTransfer> transfers;
  std::optional<Compression> compression;  // unset with `classify`: that of the resulting kind
  int unit = -1;  // the unit for which it was moved ahead: joins only issues for this unit
  std::optional<TextNamedRows> named{};
};
struct CrossRoute {
  int64_t from = 0, to = 0;  // ranks
  Box region;
};
using CrossRoutes = std::vector<CrossRoute>;
// A `TextCross` is a transfer to another place: every rank of `to_place` receives its region from
// the nearest holders at `from_place`. A rank copies what it would send to itself, on the
// receiving side.
struct TextCross {
  int handle = 0;  // of the first piece; pieces get consecutive handles from a range of their own
  bool sends = false;  // whether this place sends
  PlaceId from_place, to_place;
  TensorId tensor;
  int64_t tag = 0;
  TextView from, to;                                  // only this side's buffer is valid
  std::shared_ptr<const CrossRoutes> routes;          // null: the rule of crossing.h
  std::shared_ptr<const CrossRoutes> smaller_routes;  // smaller micro-batches; null: `routes`
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
  int64_t order = 0;  // position in the order of writing, over all places
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
  // By handle, while waits are not placed: a handle is awaited before the first instruction of its
  // block that is written from that `order` on. This bounds the memory of what is under way.
  std::map<int, int64_t> due;
};

// A `ShapeRule` gives the shape of a tensor as blocks see it: the micro-batch dim has the size of
// one micro-batch, of the larger ones unless `smaller` is set.
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

// Returns the piece of `whole` (in units of the cut) at a step; see StepOrder.
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

// Passes rewrite place texts. This pass joins adjacent collectives of the same kind, group,
// combiner and dtype that are needed later, in one block, up to `bytes` a bucket. A bucket is
// issued where its last member was issued.
void bucket_collectives(PlaceText& text, const ShapeRule& shapes, const BlockOrder& order,
                        int64_t bytes);

// Moves gathers of tensors at rest to before the unit that comes `ahead` units before the reader.
void prefetch_at_rest(PlaceText& text, const Graph& graph, const BlockOrder& order,
                      const Prefetch& prefetch);

// Orders a block such that everything that it issues stands before what needs it.
void issue_together(PlaceText& text, BlockRef block);

// Returns the first handle that the text does not use.
int end_of_handles(const PlaceText& text);

// Puts in copies between tiers, issued ahead of their use: an op works in one tier, and what rests
// in another is staged there. `next_handle`: the first handle that no text uses.
void stage_tiers(PlaceText& text, const ShapeRule& shapes, const ResolvedPlan& plan,
                 const BlockOrder& order, int& next_handle);

// Writes every wait, as the last pass, over the texts of all places. Texts have no waits before it,
// and nothing moves a wait afterwards. Also decides how many copies the buffers of messages have.
// `orders`: by place.
void place_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan,
                 const std::vector<BlockOrder>& orders);
// Writes all waits of one place but those for sends: the first half of place_waits.
void await_needs(PlaceText& text, const BlockOrder& order);

// The input from which a rank's program is made: the texts of its places. The program includes
// lifetimes, frees and arena offsets (memory.cc).
struct InstantiateInput {
  const Graph* graph = nullptr;
  const ResolvedPlan* plan = nullptr;
  const std::vector<OpPlan>* ops = nullptr;       // effective splits
  const std::vector<PlaceText>* texts = nullptr;  // by place
  // For the larger and the smaller micro-batches; only one element if all are equal.
  struct Sizes {
    ShapeRule rule;
    std::vector<std::vector<int64_t>> shapes;  // by tensor, as blocks see it
  };
  const std::vector<Sizes>* sizes = nullptr;
  int64_t micro_batch_size = 0, larger = 0;  // as in Program
};
// Returns a rank's program. `offsets`: as in Lowering::lower.
Result<Program> instantiate(const InstantiateInput& input, int rank, bool offsets);
void plan_memory(Program& program, bool offsets);
// Lays memory out for a program with blocks for two sizes of micro-batches: their buffers are
// planned once, for all that the blocks of either size touch. `ordinals`: by block and instruction,
// the number of the place text's instruction that it stands for; the blocks of a family have these
// numbers in common.
void plan_memory_of_both(Program& program, const ByBlock<std::vector<size_t>>& ordinals,
                         bool offsets);

}  // namespace tessera
