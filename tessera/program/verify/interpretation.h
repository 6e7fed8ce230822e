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

class Interpretation {
 public:
  Interpretation(const Graph& graph, const std::vector<PreparedProgram>& programs, bool blocking);
  // Runs one step; returns false after a rejection.
  bool run(std::vector<Rejection>& rejections);

 private:
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

  bool advance(size_t rank);  // runs until the rank blocks or ends; false: rejected
  static bool sets(Rank& rank, Write write);
  bool execute(Rank& rank, const Instruction& instruction, const Prepared& prepared);
  bool compute(Rank& rank, const Compute& compute, const Prepared& prepared);
  std::vector<Piece> results(const Compute& compute, const Prepared& prepared, size_t output,
                             const std::vector<std::vector<Piece>>& inputs, int64_t micro_batch);
  bool issue(Rank& rank, const Instruction& instruction, const Issue& issue,
             const Prepared& prepared);
  bool read_names(Rank& rank, const Issue& issue, const Prepared& prepared, size_t me,
                  const std::vector<Piece>& values);
  bool agree(Rank& rank, Communication& communication, const Issue& issue,
             const Prepared& prepared);
  bool message(Rank& rank, const Instruction& instruction, const MessageEnd& message,
               const Prepared& prepared);
  bool wait(Rank& rank, const Wait& wait);
  bool finish(Rank& rank, const Pending& pending);
  bool finish_collective(Rank& rank, const Pending& pending, const Issue& issue);
  bool copy(Rank& rank, const Instruction& instruction, const Copy& copy, const Prepared& prepared);
  bool finish_copy(Rank& rank, const Pending& pending, const Copy& copy);
  bool fetch_rows(Rank& rank, const Instruction& instruction, const FetchRows& fetch,
                  const Prepared& prepared);
  bool finish_rows(Rank& rank, const FetchRows& fetch);
  bool release_rows(Rank& rank, const ReleaseRows& release);
  bool touch_rows(Rank& rank, const Compute& compute, const Prepared& prepared);
  const std::vector<Piece>* collected(Rank& rank, Communication& communication, size_t transfer,
                                      size_t member);
  bool other_size(const Rank& rank, const Wait& wait) const;
  Pending* find_pending(Rank& rank, const Wait& wait);
  void block_at(Rank& rank, size_t communication, const Instruction& instruction, int handle);

  bool next_block(Rank& rank);
  bool stuck();
  bool finish_step();
  bool check_rest(Rank& rank);
  bool check_coverage();
  bool check_loss();

  std::string where(const Rank& rank) const;
  bool reject(const Rank* rank, std::string rule, TensorId tensor, std::string message);
  bool check(const Rank& rank, const Failure& failure);

  const Graph& graph_;
  bool blocking_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Communication>> communications_;
  std::map<std::vector<int>, std::vector<size_t>> collectives_;  // by member list, in order
  std::map<std::pair<int, std::vector<int>>, size_t> issued_;    // by rank and member list
  // A `Channel` has the messages with one source, destination, tag and micro-batch, and how many of
  // these messages each end has sent or received so far.
  struct Channel {
    std::vector<size_t> messages;
    std::array<size_t, 2> ends{};
  };
  std::map<std::tuple<int, int, int64_t, int64_t>, Channel> channels_;
  std::vector<std::vector<Box>> executed_;  // by op
  std::vector<TensorId> updated_;           // by tensor: its new value, if an op updates it
  std::vector<bool> fused_;                 // by op: an add_n whose terms were accumulated
  std::vector<Rejection>* rejections_ = nullptr;
};

}  // namespace tessera::verifying
