// The verifier's interpreter runs the programs of all ranks side by side over the expanded
// schedule. It computes pieces (verify_parts.h) instead of numbers. An issue never blocks, unless
// `blocking` is set. A wait blocks until every partner has issued. A value in flight is the value
// at the time of the issue. As in a Kahn network, the outcome does not depend on how the ranks'
// instructions are interleaved, so one interleaving is enough.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tessera/program/instructions.h"
#include "tessera/program/verify/state.h"

namespace tessera::verifying {

// Runs one step of the programs; returns false after a rejection.
bool interpret(const Graph& graph, const std::vector<PreparedProgram>& programs, bool blocking,
               std::vector<Rejection>& rejections);

// A `Communication` is one run of a collective, or one message. An `Arrival` is what one member
// has brought to a communication.
struct Arrival {
  bool here = false;
  std::vector<std::vector<Piece>> values;  // by transfer; relative to hold's view
};
struct Communication {
  std::vector<int> members;
  std::vector<Arrival> arrivals;  // by member
  size_t arrived = 0;
  // From here to `codec`: the description that the first rank to arrive has given of the
  // communication. The descriptions of the other ranks must agree with it.
  int first_rank = -1;
  std::string first_where;
  const Issue* issue = nullptr;
  std::vector<SharedBoxes> hold, need;  // by transfer and member
  TensorId tensor;                      // only of messages, as are region and codec
  Box region;
  std::optional<Codec> codec;
  // By transfer: the last box that a member needed and the result for it. It is kept because
  // members often need the same box.
  std::vector<std::pair<Box, std::vector<Piece>>> cached;
  bool complete() const { return arrived == members.size(); }
  void arrive(size_t member) {
    arrivals[member].here = true;
    ++arrived;
  }
};
struct Pending {
  size_t communication = 0;
  BlockRef block;   // the family of the block that issued it
  int64_t run = 0;  // the number of runs of the family before that
  int64_t micro_batch = 0;
  const Instruction* instruction = nullptr;
  bool sets = true;  // false for a copy that adds to its target
};
// A `Fetched` is a fetch of rows that is not released yet. `there`: the fetch was awaited.
// `changed`: an op has changed the rows.
struct Fetched {
  int handle = 0;
  int cache = 0;
  std::vector<std::pair<TensorId, Box>> ids;
  bool there = false;
  bool changed = false;
};
struct Rank {
  explicit Rank(const Graph& graph, const PreparedProgram& p) : prepared(&p), state(graph, p) {}
  const PreparedProgram* prepared;
  RankState state;
  size_t position = 0;   // in the schedule
  size_t index = 0;      // in the block
  ByBlock<int64_t> run;  // by family
  BlockRef family() const { return program().family(step().block); }
  int64_t runs_before() { return run[family()]; }
  std::unordered_map<int, std::vector<Pending>> pending;
  std::vector<Fetched> fetched;
  int waits_for = -1;  // the communication at which the rank is blocked
  const Program& program() const { return *prepared->program; }
  const BlockRunStep& step() const { return program().schedule[position]; }
  bool done() const { return position >= program().schedule.size(); }
};
// A `Channel` has the messages with one source, destination, tag and micro-batch, and how many of
// these messages each end has sent or received so far.
struct Channel {
  std::vector<size_t> messages;
  std::array<size_t, 2> ends{};
};

// A step that is being interpreted.
struct Interpreting {
  const Graph& graph;
  bool blocking;
  std::vector<Rejection>& rejections;
  std::vector<Rank> ranks{};
  std::vector<std::unique_ptr<Communication>> communications{};
  std::map<std::vector<int>, std::vector<size_t>> collectives{};  // by member list, in order
  std::map<std::pair<int, std::vector<int>>, size_t> issued{};    // by rank and member list
  std::map<std::tuple<int, int, int64_t, int64_t>, Channel> channels{};
  std::vector<std::vector<Box>> executed{};  // by op
  std::vector<TensorId> updated{};           // by tensor: its new value, if an op updates it
  std::vector<bool> fused{};                 // by op: an add_n whose terms were accumulated

  std::string where(const Rank& rank) const;
  // Appends to `rejections` and returns false. `rank`: null if no rank is to blame.
  bool reject(const Rank* rank, std::string rule, TensorId tensor, std::string message);
  bool check(const Rank& rank, const Failure& failure);
  // Adds a communication of these members, none of which has arrived. Returns its index.
  size_t add_communication(std::vector<int> members);
  // Notes that the rank has issued the communication, at which it blocks if issues do.
  void block_at(Rank& rank, size_t communication, const Instruction& instruction, int handle);
};

// Returns whether a write sets its view in the present run of the block; else it adds.
bool sets(Rank& rank, Write write);
// Returns the box relative to the begin of another one.
Box relative(const Box& box, const Box& origin);

// ---- computes.cc
bool run_compute(Interpreting& v, Rank& rank, const Compute& compute, const Prepared& prepared);
// Executes a fetch of rows. The ids are read now, and the rows are there from the wait on.
bool fetch_rows(Interpreting& v, Rank& rank, const Instruction& instruction, const FetchRows& fetch,
                const Prepared& prepared);
bool release_rows(Interpreting& v, Rank& rank, const ReleaseRows& release);

// ---- communications.cc
// Executes a copy. A copy with a handle is treated as a message of the rank to itself that arrives
// at once and is put into its target at the wait.
bool start_copy(Interpreting& v, Rank& rank, const Instruction& instruction, const Copy& copy,
                const Prepared& prepared);
bool start_collective(Interpreting& v, Rank& rank, const Instruction& instruction,
                      const Issue& issue, const Prepared& prepared);
bool start_message(Interpreting& v, Rank& rank, const Instruction& instruction,
                   const MessageEnd& message, const Prepared& prepared);
// Ends what the instruction of `done` started, which must be complete.
bool finish(Interpreting& v, Rank& rank, const Pending& done);

// ---- end_of_step.cc
// Reports that no rank can go on.
bool stuck(Interpreting& v);
bool finish_step(Interpreting& v);

}  // namespace tessera::verifying
