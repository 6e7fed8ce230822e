// The program of one rank: what the simulator prices, the verifier proves and the runtime executes.
//
// A program is buffers + blocks + a schedule. Blocks: "prologue" (once a step: what does not depend
// on the micro-batch), "forward", "backward" and "weight" (of one micro-batch; weight: the part of
// the backward pass that only gradients of parameters need, if the schedule runs it apart) of each
// stage on the rank, "update" (once a step). The schedule is a list of (block, micro-batch). A
// block's text is the same for every micro-batch: a box that contains the micro-batch dim is
// written as for micro-batch 0 and moves to where its micro-batch begins; buffers of lifetime
// kMicroBatch have one copy ("slot") a micro-batch in flight: slot = micro-batch mod slots.
//
// Micro-batches of two sizes (10 elements in 4, 3, 3): the first ones are larger by one element.
// The smaller ones have blocks of their own, with the same buffers and handles, smaller boxes and
// views; a stage's blocks of both sizes are one family. What is said of a block's runs (first,
// last, so many before) counts the runs of its family.
//
// Coordinates. `Box` fields called `region` or `box` are global: of the tensor, or of the op's
// iteration space. A View is local: a box inside a buffer. An instruction's operand view has the
// shape of the projection of the instruction's box.
//
// Text form: docs/reference/program-format.md (to_text / parse_program in text.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/codec.h"
#include "tessera/base/redistribution.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

enum class Lifetime : uint8_t {
  kPersistent,  // across steps: parameters, optimizer states, tables
  kStep,        // from its first write to its last read in the step, across micro-batches (gradient
                // accumulators)
  kMicroBatch,  // from forward to backward of a micro-batch: one slot a micro-batch in flight
  kBlock,       // inside one run of one block
};
std::string_view lifetime_name(Lifetime lifetime);

struct Buffer {
  BufferId id;
  std::string name;  // tensor name + what it is: "x", "x@all_gather", "x@step"
  TensorId tensor;   // of which tensor it holds (a region of) a value
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  Tier tier = Tier::kDevice;
  Lifetime lifetime = Lifetime::kBlock;
  int64_t offset =
      -1;  // bytes in the tier's arena; kMicroBatch: of slot 0, slot k lies k * slot_bytes further
  int64_t slots = 1;  // kMicroBatch: micro-batches that hold a copy at the same time
  int64_t slot_bytes = 0;
  int64_t places = 0;  // not 0: there is room for so many of its rows (RowCache)
  int64_t bytes() const;
  int64_t slot(int64_t micro_batch) const { return micro_batch % slots; }
  int64_t offset_at(int64_t micro_batch) const { return offset + slot(micro_batch) * slot_bytes; }
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct View {
  BufferId buffer;
  Box box;  // inside the buffer
  friend bool operator==(const View&, const View&) = default;
};

// When an instruction of a forward or backward block takes place.
enum class When : uint8_t {
  kAlways,
  kFirst,
  kLast
};  // kFirst / kLast: only in the block's first / last run of the step

enum class Write : uint8_t {
  kSet,  // out = f(in)
  kAdd,  // out = combine(out, f(in)) by the combiner of the op's output (sum unless annotated
         // otherwise)
  kAddExceptFirst,  // kSet in the block's first run of the step, then kAdd: accumulation over
                    // micro-batches
};

struct Output {
  View view;
  TensorId tensor;  // what the view holds afterwards (a part of): op.outputs[i], or, where the sum
                    // of several ops' outputs is accumulated in place, the output of that add_n, of
                    // which this is term `term` of `terms`
  Write write = Write::kSet;
  int term = 0, terms = 1;
  friend bool operator==(const Output&, const Output&) = default;
};

struct Compute {
  OpId op;
  std::string
      kind;  // copies of the op's: the program can be read, checked and run without guessing
  Attributes attributes;
  Box box;  // of the iteration space: by op dim, global (micro-batch 0)
  std::vector<View> inputs;
  std::vector<Output> outputs;
  friend bool operator==(const Compute&, const Compute&) = default;
};

// One array of a collective: hold and need are global regions of `tensor`, by member.
struct Transfer {
  TensorId tensor;
  SharedBoxes hold, need;
  std::optional<View> in, out;  // this rank's; absent if the box is empty
  friend bool operator==(const Transfer&, const Transfer&) = default;
};
// An exchange of the rows of a tensor that ids name, and no others (RowNaming, graph/kinds.h). A copy
// brings each member the rows that its op reads; the others stay as they are in memory. A sum takes
// of each member the rows that its op adds to; its parts of the others are zeros. Every member has
// all ids, so all know who names what, and nothing but rows moves.
struct NamedRows {
  OpId op;                     // that names them
  std::vector<View> ids;       // begin, end and columns, whole
  std::vector<Interval> rows;  // by member: the rows of its op
  int64_t most = 0;            // so many ids the op's rows name at most
  // How many rows of member j the rows of member i name, at i * members + j, by the ids of a step;
  // empty: they are not known before the run, and named_count (communication.h) assumes a law.
  std::vector<int64_t> counted{};
  friend bool operator==(const NamedRows&, const NamedRows&) = default;
};

struct Issue {     // of a collective
  int handle = 0;  // unique in the program
  int group = 0;   // index into Program::groups
  CollectiveKind kind = CollectiveKind::kExchange;
  std::optional<Combiner> combiner;
  DType dtype = DType::kFloat32;
  std::vector<Transfer> transfers;  // > 1: a bucket
  std::optional<Codec> codec =
      std::nullopt;  // what moves is encoded (base/codec.h): the values change
  std::optional<View> residual =
      std::nullopt;  // error feedback: float32, persistent, coded_elements() in all
  std::optional<NamedRows> named =
      std::nullopt;  // of kind kExchange, with one transfer and no codec
  friend bool operator==(const Issue&, const Issue&) = default;
};
struct Send {
  int handle = 0;
  int peer = 0;     // rank
  int64_t tag = 0;  // unique a (tensor, receiver need); the runtime adds the micro-batch
  TensorId tensor;
  Box region;
  View view;
  std::optional<Codec> codec = std::nullopt;    // as of an Issue
  std::optional<View> residual = std::nullopt;  // as of an Issue; one element each of the region
  friend bool operator==(const Send&, const Send&) = default;
};
struct Recv {
  int handle = 0;
  int peer = 0;
  int64_t tag = 0;
  TensorId tensor;
  Box region;
  View view;
  std::optional<Codec> codec = std::nullopt;
  friend bool operator==(const Recv&, const Recv&) = default;
};
struct Wait {
  int handle = 0;
  // 0: what was issued under the handle in this run of the block, or in another block for this
  // micro-batch; in prologue and update, all that is still open of this step. n > 0: what was
  // issued n runs of this block before, in this step, if there were so many.
  int lag = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};
// Inside the rank; between tiers where the buffers' tiers differ. With a handle it runs beside the
// instructions behind it, until its wait; copies of a rank run one after the other, as issued.
struct Copy {
  TensorId tensor;
  Box region;
  View from, to;
  Write write = Write::kSet;  // kAdd, kAddExceptFirst: element-wise sum into `to` (accumulation of
                              // what a collective brought)
  int handle = -1;            // -1: it is done when the next instruction begins
  friend bool operator==(const Copy&, const Copy&) = default;
};
struct Load {  // a region of a graph input, from the trainer's data
  TensorId tensor;
  Box region;
  View to;
  friend bool operator==(const Load&, const Load&) = default;
};
// The buffer's space may be reused from here on (for kMicroBatch: in this slot; in a block that
// runs once a step, in all slots).
struct Free {
  BufferId buffer;
  friend bool operator==(const Free&, const Free&) = default;
};

// The rows of a table that ids name get places in its cache (RowCache). Which rows come, which leave
// and what place each has is decided at once; the rows move beside the instructions behind it, until
// the wait of the handle. From there to the release, ops that name rows by these ids may touch them.
// A batch that was fetched ahead is taken over by the next step's fetch of the same ids.
struct RowIds {
  TensorId tensor;
  Box region;
  std::optional<View> view;  // absent where ids of the next step are asked for: the data gives them
  friend bool operator==(const RowIds&, const RowIds&) = default;
};
struct FetchRows {
  int handle = 0;
  int cache = 0;  // index into Program::caches
  std::vector<RowIds> ids;
  bool ahead = false;        // of the next step
  int64_t expected_in = 0;   // rows that move in a run on the average, to the device
  int64_t expected_out = 0;  // and from it, by the law that the plan gives
  friend bool operator==(const FetchRows&, const FetchRows&) = default;
};
// The rows of a fetch may leave from here on. What of them changed and has no slot goes back.
struct ReleaseRows {
  int fetch = 0;         // handle of the fetch
  bool changed = false;  // an op has changed them
  friend bool operator==(const ReleaseRows&, const ReleaseRows&) = default;
};

struct Instruction {
  std::variant<Compute, Issue, Send, Recv, Wait, Copy, Load, Free, FetchRows, ReleaseRows> body;
  When when = When::kAlways;
  OpId cause;  // the op for which it is done (fault messages, traces); = op of a Compute
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Group {
  PlaceId place;                  // whose mesh it is a part of
  std::vector<std::string> axes;  // of that mesh
  std::vector<int> members;       // ranks, in row-major order of the axes
  int index = 0;                  // of this rank
  friend bool operator==(const Group&, const Group&) = default;
};

enum class BlockKind : uint8_t { kPrologue, kForward, kBackward, kWeight, kUpdate };
std::string_view block_name(BlockKind kind);
inline constexpr size_t kBlockKinds = 5;

// A block of a program: its kind and, for those that run once a micro-batch, whose stage's it is
// (index into Program::stages; 0 for prologue and update). Those of the smaller micro-batches are
// numbered behind them: with S stages, index + S.
struct BlockRef {
  BlockKind kind = BlockKind::kPrologue;
  int32_t chunk = 0;
  constexpr BlockRef() = default;
  constexpr BlockRef(BlockKind k, int32_t c = 0)  // NOLINT: a kind alone is chunk 0's block
      : kind(k), chunk(c) {}
  // Runs once a step, not once a micro-batch.
  constexpr bool once() const { return kind == BlockKind::kPrologue || kind == BlockKind::kUpdate; }
  friend constexpr auto operator<=>(const BlockRef&, const BlockRef&) = default;
};
std::string block_name(BlockRef block);  // "forward", "forward@1"
template <class T>
using ByBlock = std::map<BlockRef, T>;

struct BlockRunStep {
  BlockRef block;
  int64_t micro_batch = 0;  // 0 for prologue and update
  friend bool operator==(const BlockRunStep&, const BlockRunStep&) = default;
};

// Where a tensor rests on this rank (parameters, states, tables; fetched tensors at the end of the
// step).
struct Home {
  TensorId tensor;
  BufferId buffer;
  Box region;  // global; view = the whole buffer
  friend bool operator==(const Home&, const Home&) = default;
};

// A table and its states of which the device has some rows. A buffer that is `held` has the shape
// of all rows, and memory for Buffer::places of them; together with the buffer beside it in `rests`
// it holds the tensor's value. The index says which row is where: a word for each row of the table,
// two for each slot. Places behind the slots are for rows of a batch that find no slot.
struct RowCache {
  std::vector<BufferId> held, rests;
  BufferId index;
  Interval rows;  // of the table: the first dim of what is held
  int64_t slots = 0, places = 0;
  std::string policy;
  int64_t window = 0, counted = 0;  // as of the plan
  friend bool operator==(const RowCache&, const RowCache&) = default;
};

struct Program {
  int rank = 0;
  int64_t ranks = 1;
  std::vector<StageId> stages;       // that run on this rank, in order
  std::vector<int64_t> coordinates;  // in the first stage's mesh
  int64_t micro_batches = 1;
  std::string micro_batch_dim;  // op and tensor dims of this name move with the micro-batch
  int64_t micro_batch_size = 0;
  int64_t larger = 0;  // so many micro-batches have that size, the others one less; 0: all have it
  std::array<int64_t, 3> arena_bytes{};  // by Tier
  std::vector<Group> groups;
  std::vector<Buffer> buffers;
  std::vector<RowCache> caches;
  ByBlock<std::vector<Instruction>> blocks;
  std::vector<BlockRunStep> schedule;  // prologue first, update last
  std::vector<Home> homes;
  std::vector<Home>
      fetches;  // complete values at the end of the step (loss; gradients when asked for)

  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
  std::vector<Instruction>& block(BlockRef ref) { return blocks[ref]; }
  const std::vector<Instruction>& block(BlockRef ref) const {  // empty if there is none
    static const std::vector<Instruction> none;
    const auto it = blocks.find(ref);
    return it == blocks.end() ? none : it->second;
  }
  int64_t runs(BlockRef ref) const;  // in a step
  // Is the block one of the smaller micro-batches? And the block of the larger ones beside it,
  // which stands for both; itself if there is none.
  bool smaller(BlockRef ref) const;
  BlockRef family(BlockRef ref) const;
  bool smaller(int64_t micro_batch) const { return larger > 0 && micro_batch >= larger; }
  // How far before it the batch begins, in elements of the micro-batch dim.
  int64_t begin(int64_t micro_batch) const {
    return micro_batch * micro_batch_size - (smaller(micro_batch) ? micro_batch - larger : 0);
  }
  int64_t slots() const;  // the most micro-batches that are in flight
  friend bool operator==(const Program&, const Program&) = default;
};

int cache_of(const Program& program, BufferId held);  // index into Program::caches; -1: none
int64_t row_bytes(const Program& program, const RowCache& cache);  // of a row with its states

// Is the region (of a tensor, or of an op's iteration space) one that moves with the micro-batch,
// and along which dim? -1: no.
int micro_batch_dim_of(const Program& program, const Tensor& tensor);
int micro_batch_dim_of(const Program& program, const Annotation& annotation);
// The region for a micro-batch.
Box at_micro_batch(const Program& program, Box region, int dim, int64_t micro_batch);

// The region of operand dims that a box of the iteration space touches. Brackets: the first
// non-unit member moves, the others are whole.
Box project(const Annotation& annotation, const OperandDims& operand, const Box& box);

// Does the box lie wholly above the diagonal of a causal pair, so that the op makes nothing of it?
bool masked(const Annotation& annotation, const Box& box);
// Does a message or a collective change values on its way?
bool is_lossy(const Program& program);

// What one step of this rank sends, by kind ("all_reduce", ..., "send"), by the contract of
// traffic().
struct Volume {
  std::map<std::string, Traffic> by_kind;
  int64_t bytes() const;
};
Volume volume(const Program& program, const Graph& graph);
// The same, restricted to transfers of tensors for which keep(tensor) holds.
Volume volume(const Program& program, const Graph& graph, bool (*keep)(const Tensor&));

}  // namespace tessera
