// Communicators: how ranks exchange arrays. One small interface has two back ends: threads in one
// process (the default) and MPI.
//
// Every collective is a *redistribution*. Member j of a group holds the box hold[j] of a (virtual,
// global) array and wants the box need[j]. Without a combiner, each wanted element is copied from
// one member that holds it. With a combiner, each wanted element is the combination, in member
// order, of the elements of *all* members that hold it. all-gather, reduce-scatter, all-reduce,
// all-to-all, broadcast, reduce and permute are classes of (hold, need). The kind of a call only
// names the class, for the counters and so that a back end can choose a faster algorithm.
//
// Arrays are strided views into memory that the caller keeps alive. Between issue and wait, the
// caller does not change inputs and does not read outputs. In an all-reduce, input and output of a
// member may be the same memory. Without a combiner the input may be a part of the output, if each
// input element already has its place there (as in an all-gather into the array that contains the
// member's own shard).
//
// Issue and wait: issue() never blocks; wait() returns when the member's outputs are complete and
// its inputs may be overwritten. While a rank is blocked in one wait, it makes progress on all
// calls that it has issued, so a rank may wait for its calls in any order. All members of a group
// must issue the calls on this group in the same order.
//
// Determinism: elements are combined in member order, so threads and MPI give the same bits.
//
// Accounting: the counters of a rank count the bytes that it *sends* under the direct algorithm, in
// which each member sends to every other member exactly what the other member takes from it. In an
// all-reduce of E elements over n members, the elements are cut into n chunks, one for each member;
// the first chunks are larger by one element if n does not divide E. Member r first sends each
// other member that member's chunk, and then sends its own reduced chunk of e_r elements to all
// others. In total it sends (E - e_r) + (n-1) e_r elements, which is 2(n-1)/n E for equal chunks,
// as in a ring. Each pair of peer and phase with at least one element counts as one message.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"
#include "tessera/base/redistribution.h"
#include "tessera/base/result.h"

namespace tessera::comm {

using tessera::bucket_traffic;
using tessera::collective_name;
using tessera::CollectiveKind;
using tessera::kCollectiveKinds;
using tessera::Redistribution;
using tessera::Traffic;
using tessera::traffic;

// A strided array whose element (0,..,0) is at box.begin in the coordinates of the redistribution.
struct ArrayView {
  std::byte* data = nullptr;
  Box box;
  std::vector<int64_t> strides;  // in elements, one for each dim of box
};

// One of the arrays that a collective call moves, as this member sees it. A call that moves several
// arrays is called bucketed.
struct Item {
  const Redistribution* what = nullptr;  // the caller keeps it alive until wait
  ArrayView in;                          // its box is what->hold[me]
  ArrayView out;                         // its box is what->need[me]
};

// Describes a call in fault messages: "op blocks.0.mlp.down, tensor y, axis tp".
struct Label {
  std::string op, tensor, axis;
};

struct Counters {
  std::array<Traffic, kCollectiveKinds> collectives;  // by kind
  Traffic point_to_point;                             // counted at the sender
  int64_t total_bytes() const;
  // Returns the bytes sent, for each kind of collective that sent any. Point-to-point messages have
  // the key "send".
  std::map<std::string, int64_t> bytes_by_kind() const;
};

// A `CommFault` is thrown by wait(), and by nothing else, when peers died or do not arrive in time,
// or when a rank aborted the run. No other kind of exception passes from one rank to another.
struct CommFault {
  // "rank 3: op ..., tensor ..., axis ...: no answer from ranks {1, 2} within 60 s"
  std::string message;
  ErrorCode code = ErrorCode::kFault;  // of the error for which a rank aborted the run
};

using Handle = int64_t;
inline constexpr Handle kNoHandle = -1;

// One rank's endpoint. It is not thread-safe: only its rank's thread uses it.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Registers a group and returns its number. `members` are the ranks of the group in member order,
  // this rank among them; all members pass the same list. A repeated call with the same list is
  // cheap.
  virtual int group(const std::vector<int>& members) = 0;
  // Starts a collective call. All its items (a bucket) have the same kind, dtype and combiner and
  // move together.
  virtual Handle issue(int group, std::vector<Item> items, const Label& label) = 0;
  // Starts a point-to-point message. A send matches the receive with the same source, destination
  // and tag; several with the same three match in the order of issue. The boxes of both sides have
  // the same shape.
  virtual Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                            const Label& label) = 0;
  virtual Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                            const Label& label) = 0;
  virtual void wait(Handle handle) = 0;
  virtual void barrier() = 0;  // waits for all ranks
  // Tells all other ranks to stop, so that their waits throw a CommFault with this reason.
  virtual void abort(const std::string& reason) = 0;
  // Returns what this rank has sent. A communicator that moves arrays in another way than the one that it is
  // made over adds to the counters of that one.
  virtual Counters& counters() = 0;
};

struct Options {
  std::chrono::milliseconds timeout{60'000};  // the longest time that a wait may take
  // For MPI: the ranks of the processes. The index is the number that the launcher gave a process.
  // If the list is empty, or its length is not the number of processes, each process has the
  // launcher's number as its rank.
  std::vector<int> rank_of_process;
};

// Runs `body(communicator)` on `ranks` threads in this process. If a body throws, the other ranks
// are aborted, all threads are joined, and the first fault is returned.
Status run_threads(int ranks, const Options& options,
                   const std::function<void(Communicator&)>& body);

// Returns whether MPI is built in.
bool mpi_available();
// Returns whether an MPI launcher started this process with more than one rank.
bool mpi_launched();
// Initialises MPI once and returns this process's endpoint over all processes.
Result<std::unique_ptr<Communicator>> mpi_world(const Options& options);
// Installs a handler for SIGTERM, which an MPI launcher sends to all other processes when one dies
// (mpi/mpi.cc says more). On the signal the process prints one line with its rank and the call that
// it was in, and exits with code 3.
void mpi_install_fault_handler();

// Copies the elements of `region` from one strided array to another; both boxes contain `region`.
// All back ends use this function and combine_region(). Contiguous runs are vectorised.
void copy_region(DType dtype, const ArrayView& from, const ArrayView& to, const Box& region);
// Combines the elements of `region` into another strided array; both boxes contain `region`.
void combine_region(DType dtype, Combiner combiner, const ArrayView& from, const ArrayView& to,
                    const Box& region);  // to = combine(to, from)

}  // namespace tessera::comm
