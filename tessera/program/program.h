// The program of one rank: what the simulator prices, the verifier proves and the runtime executes.
//
// A program consists of buffers, blocks and a schedule. The block "prologue" runs once a step and
// does all that does not depend on the micro-batch. The blocks "forward", "backward" and "weight"
// of each stage on the rank run once a micro-batch. ("weight" exists only if the schedule splits
// the backward pass: it is the part that only gradients of parameters need.) The block "update"
// runs once a step. The schedule is a list of (block, micro-batch). A block's text is the same for
// every micro-batch: a box that contains the micro-batch dim is written as for micro-batch 0, and
// each run shifts it to the start of its micro-batch. A buffer of lifetime kMicroBatch has one copy
// (a "slot") for each micro-batch in flight: slot = micro-batch mod slots.
//
// Micro-batches may have two sizes (10 elements in 4, 3, 3). The first micro-batches are then
// larger by one element. The smaller micro-batches have blocks of their own, which have the same
// buffers and handles but smaller boxes and views. Two blocks of the same kind and stage, one for
// each size, are a family. Statements about a block's runs (the first, the last, n runs before)
// count the runs of both blocks of its family.
//
// Coordinates: a `Box` field called `region` or `box` is global, which means a box of the tensor or
// of the op's iteration space. A `View` is local, which means a box inside a buffer. If the box of
// a compute is projected on an operand (project()), the result has the shape of that operand's
// view.
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
  kStep,        // within a step, from the first write to the last read, across micro-batches
                // (gradient accumulators)
  kMicroBatch,  // from forward to backward of a micro-batch: a slot for each micro-batch in flight
  kBlock,       // inside one run of one block
};
std::string_view lifetime_name(Lifetime lifetime);

struct Buffer {
  BufferId id;
  std::string name;  // the tensor's name and what the buffer is: "x", "x@all_gather", "x@step"
  TensorId tensor;   // the tensor whose value (or a region of it) the buffer holds
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  Tier tier = Tier::kDevice;
  Lifetime lifetime = Lifetime::kBlock;
  // Bytes from the start of the tier's arena; -1: not planned. For kMicroBatch this is the offset
  // of slot 0, and slot k begins k * slot_bytes after it.
  int64_t offset = -1;
  int64_t slots = 1;  // kMicroBatch: micro-batches that hold a copy at the same time
  int64_t slot_bytes = 0;
  int64_t places = 0;  // not 0: there is memory for only this many of the buffer's rows (RowCache)
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

// A `When` says in which runs of a forward or backward block an instruction is executed.
enum class When : uint8_t {
  kAlways,
  kFirst,
  kLast
};  // kFirst / kLast: only in the block's first / last run of the step

enum class Write : uint8_t {
  kSet,  // out = f(in)
  kAdd,  // out = combine(out, f(in)) by the combiner of the op's output (sum unless annotated
         // otherwise)
  kAddExceptFirst,  // kSet in the block's first run of the step, kAdd in later runs: accumulates
                    // over micro-batches
};

struct Output {
  View view;
  // The tensor of which the view holds the value, or a part of it, after the compute. It is
  // op.outputs[i], except where a sum of several ops' outputs is accumulated in place: then it is
  // the output of the add_n that makes the sum, and this output is term `term` of `terms`.
  TensorId tensor;
  Write write = Write::kSet;
  int term = 0, terms = 1;
  friend bool operator==(const Output&, const Output&) = default;
};

struct Compute {
  OpId op;
  // Kind and attributes are copies of the op's, so that a program can be read and run without the
  // graph.
  std::string kind;
  Attributes attributes;
  Box box;  // by op dim: a global box of the iteration space (for micro-batch 0)
  std::vector<View> inputs;
  std::vector<Output> outputs;
  friend bool operator==(const Compute&, const Compute&) = default;
};

// A `Transfer` is one array of a collective. `hold[j]` and `need[j]` are the global regions of
// `tensor` that member j of the group has before and wants after the collective.
struct Transfer {
  TensorId tensor;
  SharedBoxes hold, need;
  std::optional<View> in, out;  // this rank's views; absent if the box is empty
  friend bool operator==(const Transfer&, const Transfer&) = default;
};
// A `NamedRows` describes an exchange that moves only those rows of a tensor that ids name
// (RowNaming, graph/kinds.h). Without a combiner the exchange brings each member the rows that the
// member's op reads; the memory of its other rows stays as it is. With a combiner (a sum) the
// exchange takes from each member the rows to which the member's op adds, because the member's
// parts of other rows are zeros. Every member has all ids and so knows which rows the other members
// name. Therefore only rows are sent, and no ids.
struct NamedRows {
  OpId op;                     // the op that names the rows
  std::vector<View> ids;       // the whole operands begin, end and columns
  std::vector<Interval> rows;  // by member: the rows of the op that the member computes
  int64_t most = 0;            // the largest number of ids that all rows of the op can name
  // counted[i * members + j] is the number of rows held by member j that the ids of member i name
  // in a step. The vector is empty if ids are not known before the run; named_count()
  // (communication.h) then estimates the numbers.
  std::vector<int64_t> counted{};
  friend bool operator==(const NamedRows&, const NamedRows&) = default;
};

struct Issue {     // starts a collective
  int handle = 0;  // unique in the program
  int group = 0;   // index into Program::groups
  CollectiveKind kind = CollectiveKind::kExchange;
  std::optional<Combiner> combiner;
  DType dtype = DType::kFloat32;
  std::vector<Transfer> transfers;  // more than one: a bucket
  std::optional<Codec> codec =
      std::nullopt;  // codec of what is sent (base/codec.h): it changes the values
  // The buffer of error feedback: float32, persistent, with coded_elements() elements for all
  // transfers together.
  std::optional<View> residual = std::nullopt;
  std::optional<NamedRows> named =
      std::nullopt;  // set only for kind kExchange with one transfer and no codec
  friend bool operator==(const Issue&, const Issue&) = default;
};
struct Send {
  int handle = 0;
  int peer = 0;  // rank
  // Number by which send and receive match. It is different for each pair of a tensor and a layout
  // in which a receiver needs the tensor. The runtime adds the micro-batch to it.
  int64_t tag = 0;
  TensorId tensor;
  Box region;
  View view;
  std::optional<Codec> codec = std::nullopt;    // as in Issue
  std::optional<View> residual = std::nullopt;  // as in Issue; one element for each of `region`
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
  // Says which of the issues under the handle is awaited.
  //   0      In a forward, backward or weight block: what was issued in this run of the block, or
  //          in another block for this micro-batch. In prologue and update: everything that was
  //          issued under the handle in this step and was not awaited yet.
  //   n > 0  What was issued n runs of this block earlier in this step. If there were not that many
  //          runs, the wait does nothing.
  int lag = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};
// A `Copy` copies within the rank, and between tiers if the tiers of the two buffers differ. A copy
// with a handle runs at the same time as later instructions, until the wait for its handle. Copies
// with handles run one after the other, in the order of issue.
struct Copy {
  TensorId tensor;
  Box region;
  View from, to;
  Write write = Write::kSet;  // kAdd, kAddExceptFirst: adds element by element to `to` (accumulates
                              // the result of a collective)
  int handle = -1;            // -1: the copy is done when the next instruction begins
  friend bool operator==(const Copy&, const Copy&) = default;
};
struct Load {  // brings a region of a graph input from the trainer's data
  TensorId tensor;
  Box region;
  View to;
  friend bool operator==(const Load&, const Load&) = default;
};
// A `Free` says that the buffer's memory may be reused from here on. For a kMicroBatch buffer it
// frees the slot of the running micro-batch, or all slots if the block runs once a step.
struct Free {
  BufferId buffer;
  friend bool operator==(const Free&, const Free&) = default;
};

// A `RowIds` is one array of ids that name rows of tables.
struct RowIds {
  TensorId tensor;
  Box region;
  std::optional<View> view;  // absent for ids of the next step, which are read from the data
  friend bool operator==(const RowIds&, const RowIds&) = default;
};
// A `FetchRows` gives places in a table's cache (RowCache) to the rows that ids name. The
// instruction itself decides which rows come, which leave and which place each row has. The rows
// then move at the same time as later instructions run, until the wait for the handle. Between that
// wait and the release, ops that name rows by these ids may touch the rows. If `ahead` is set, the
// rows are those of the next step's batch, and that step's own fetch of the same ids takes over the
// places.
struct FetchRows {
  int handle = 0;
  int cache = 0;  // index into Program::caches
  std::vector<RowIds> ids;
  bool ahead = false;  // the ids are those of the next step
  // Average numbers of rows that a run moves to the device and from the device, by the distribution
  // of ids that the plan gives.
  int64_t expected_in = 0;
  int64_t expected_out = 0;
  friend bool operator==(const FetchRows&, const FetchRows&) = default;
};
// A `ReleaseRows` says that the rows of a fetch may leave their places from here on. Rows that have
// changed and that lie in no slot of the cache are written back to the other tier.
struct ReleaseRows {
  int fetch = 0;         // handle of the fetch
  bool changed = false;  // an op has changed them
  friend bool operator==(const ReleaseRows&, const ReleaseRows&) = default;
};

struct Instruction {
  std::variant<Compute, Issue, Send, Recv, Wait, Copy, Load, Free, FetchRows, ReleaseRows> body;
  When when = When::kAlways;
  OpId cause;  // the op that the instruction serves (for faults and traces); of a Compute: its op
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Group {
  PlaceId place;                  // the group is a part of this place's mesh
  std::vector<std::string> axes;  // the axes of that mesh on which the members differ
  std::vector<int> members;       // ranks, in row-major order of the axes' coordinates
  int index = 0;                  // position of this rank in `members`
  friend bool operator==(const Group&, const Group&) = default;
};

enum class BlockKind : uint8_t { kPrologue, kForward, kBackward, kWeight, kUpdate };
std::string_view block_name(BlockKind kind);
inline constexpr size_t kBlockKinds = 5;

// A `BlockRef` names a block of a program: its kind and, for blocks that run once a micro-batch,
// the stage as `chunk`: an index into Program::stages (0 for prologue and update). With S stages,
// the block of stage index i for the smaller micro-batches has chunk i + S.
struct BlockRef {
  BlockKind kind = BlockKind::kPrologue;
  int32_t chunk = 0;
  constexpr BlockRef() = default;
  constexpr BlockRef(BlockKind k, int32_t c = 0)  // NOLINT: a kind alone is chunk 0's block
      : kind(k), chunk(c) {}
  // Returns whether the block runs once a step, not once a micro-batch.
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

// A `Home` is the buffer in which a tensor rests on this rank (parameters, states, tables), or in
// which a fetched tensor is at the end of the step.
struct Home {
  TensorId tensor;
  BufferId buffer;
  Box region;  // global; the value of this region fills the whole buffer
  friend bool operator==(const Home&, const Home&) = default;
};

// A `RowCache` is an embedding table, with its optimizer states, of which the device has only some
// rows. A buffer in `held` has the shape of all rows but memory for only Buffer::places of them. It
// holds the tensor's value together with the buffer in another tier that has the same position in
// `rests`. The buffer `index` says where each row is: it has one word for each row of the table and
// two words for each slot. The first `slots` places are slots; the other places are for rows of a
// batch that find no slot.
struct RowCache {
  std::vector<BufferId> held, rests;
  BufferId index;
  Interval rows;  // the table's rows on this rank: an interval of the first dim of the table
  int64_t slots = 0, places = 0;
  std::string policy;
  int64_t window = 0, counted = 0;  // as in the plan's store entry
  friend bool operator==(const RowCache&, const RowCache&) = default;
};

struct Program {
  int rank = 0;
  int64_t ranks = 1;
  std::vector<StageId> stages;       // the stages that run on this rank, in order
  std::vector<int64_t> coordinates;  // in the first stage's mesh
  int64_t micro_batches = 1;
  std::string micro_batch_dim;  // op and tensor dims of this name move with the micro-batch
  int64_t micro_batch_size = 0;
  // The first `larger` micro-batches have `micro_batch_size` elements and the later ones have one
  // element less; 0: all micro-batches have this size.
  int64_t larger = 0;
  std::array<int64_t, 3> arena_bytes{};  // by Tier
  std::vector<Group> groups;
  std::vector<Buffer> buffers;
  std::vector<RowCache> caches;
  ByBlock<std::vector<Instruction>> blocks;
  std::vector<BlockRunStep> schedule;  // prologue first, update last
  std::vector<Home> homes;
  // Values that are complete at the end of the step: the loss, and gradients when asked for.
  std::vector<Home> fetches;

  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
  std::vector<Instruction>& block(BlockRef ref) { return blocks[ref]; }
  const std::vector<Instruction>& block(BlockRef ref) const {  // empty if there is none
    static const std::vector<Instruction> none;
    const auto it = blocks.find(ref);
    return it == blocks.end() ? none : it->second;
  }
  int64_t runs(BlockRef ref) const;  // number of runs in a step
  // `smaller` returns whether the block belongs to the smaller micro-batches. `family` returns, for
  // such a block, the block of the larger micro-batches in its family; for any other block it
  // returns `ref`.
  bool smaller(BlockRef ref) const;
  BlockRef family(BlockRef ref) const;
  bool smaller(int64_t micro_batch) const { return larger > 0 && micro_batch >= larger; }
  // Returns the element of the micro-batch dim at which the micro-batch begins.
  int64_t begin(int64_t micro_batch) const {
    return micro_batch * micro_batch_size - (smaller(micro_batch) ? micro_batch - larger : 0);
  }
  int64_t slots() const;  // the largest number of micro-batches in flight
  friend bool operator==(const Program&, const Program&) = default;
};

int cache_of(const Program& program, BufferId held);  // index into Program::caches; -1: in none
int64_t row_bytes(const Program& program, const RowCache& cache);  // bytes of a row with its states

// Returns the dim along which a region of the tensor, or of the op's iteration space, moves with
// the micro-batch; -1 if it does not move.
int micro_batch_dim_of(const Program& program, const Tensor& tensor);
int micro_batch_dim_of(const Program& program, const Annotation& annotation);
// Returns `region`, which is written for micro-batch 0, shifted along `dim` to the micro-batch. -1
// as `dim`: the region does not move.
Box at_micro_batch(const Program& program, Box region, int dim, int64_t micro_batch);

// Returns the region of the operand that a box of the iteration space touches. In a bracket
// (several op dims that make one tensor dim) the box may cut only the first op dim that is larger
// than 1; it has the other op dims whole.
Box project(const Annotation& annotation, const OperandDims& operand, const Box& box);

// Returns whether the op makes nothing in the box because all keys of the box come after all of its
// queries (the box lies wholly above the diagonal of a causal pair of dims).
bool masked(const Annotation& annotation, const Box& box);
// Returns whether a message or a collective of the program changes the values that it sends.
bool is_lossy(const Program& program);

// A `Volume` is the traffic that this rank sends in one step, by kind ("all_reduce", ..., "send"),
// counted as traffic() counts it.
struct Volume {
  std::map<std::string, Traffic> by_kind;
  int64_t bytes() const;
};
Volume volume(const Program& program, const Graph& graph);
// Returns the volume of those transfers only whose tensors keep(tensor) accepts.
Volume volume(const Program& program, const Graph& graph, bool (*keep)(const Tensor&));

}  // namespace tessera
