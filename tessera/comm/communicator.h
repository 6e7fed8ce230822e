// Communicators: how ranks exchange arrays. One small interface has two back ends: threads in one
// process (the default) and MPI.
//
// Every collective is one thing: a *redistribution*. Member j of a group holds the box hold[j] of a
// (virtual, global) array and wants the box need[j]. Without a combiner each wanted element is
// copied from one member that holds it; with a combiner it is the combination, in member order, of
// the elements of *all* members that hold it. all-gather, reduce-scatter, all-reduce, all-to-all,
// broadcast, reduce and permute are classes of (hold, need); the kind only names the class for
// accounting and lets a back end choose a faster algorithm.
//
// Arrays are strided views into memory that the caller keeps alive and, between issue and wait,
// neither changes (inputs) nor reads (outputs). In an all-reduce, input and output of a member may
// be the same memory. In copies the input may lie in the output, at its place (as in a gather into
// the array that holds the member's own shard).
//
// Issue and wait: issue() never blocks; wait() returns when the member's outputs are complete and
// its inputs may be overwritten. A rank blocked in one wait makes progress on all that it has
// issued, so waits may come in any order; issues on one group must come in the same order on all
// its members.
//
// Determinism: combination is in member order, element by element, so threads and MPI agree bit for
// bit.
//
// Accounting: a rank's count is the bytes that it *sends* under the direct algorithm, in which each
// member sends to every other member exactly what the other member takes from it. In an all-reduce
// of E elements over n members the elements are cut into n chunks, the first ones larger by one if
// n does not divide E. Member r sends each other member that member's chunk, and then its own
// reduced chunk of e_r elements to all others: (E - e_r) + (n-1) e_r elements, which is 2(n-1)/n E
// for equal chunks, as in a ring. Each peer and phase with at least one element makes one message.
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

// One array of a (possibly bucketed) collective call, as this member sees it.
struct Item {
  const Redistribution* what = nullptr;  // kept alive by the caller until wait
  ArrayView in;                          // box == what->hold[me]
  ArrayView out;                         // box == what->need[me]
};

// Describes a call in fault messages: "op blocks.0.mlp.down, tensor y, axis tp".
struct Label {
  std::string op, tensor, axis;
};

struct Counters {
  std::array<Traffic, kCollectiveKinds> collectives;  // by kind
  Traffic point_to_point;                             // counted at the sender
  int64_t total_bytes() const;
  // Returns the bytes sent by kind, without kinds that sent nothing; point-to-point messages are
  // "send".
  std::map<std::string, int64_t> bytes_by_kind() const;
};

// A `CommFault` is thrown by wait(), and by nothing else, when peers do not arrive in time or died,
// or when the world was aborted. It is the only kind of exception that crosses the border between
// ranks.
struct CommFault {
  // "rank 3: op ..., tensor ..., axis ...: no answer from ranks {1, 2} within 60 s"
  std::string message;
  ErrorCode code = ErrorCode::kFault;  // of the error that a rank found and told the others
};

using Handle = int64_t;
inline constexpr Handle kNoHandle = -1;

// One rank's endpoint. It is not thread-safe: only its rank's thread uses it.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Registers a group by its member ranks (this rank among them, order = member order) and returns
  // its number. The list must be equal on all members. A repeated call is cheap.
  virtual int group(const std::vector<int>& members) = 0;
  // Starts a collective call. Its items move together (a bucket): same kind, dtype and combiner.
  virtual Handle issue(int group, std::vector<Item> items, const Label& label) = 0;
  // Starts a point-to-point message. Sends and receives are matched by (source, destination, tag)
  // in order of issue. The boxes of both sides have equal shape.
  virtual Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                            const Label& label) = 0;
  virtual Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                            const Label& label) = 0;
  virtual void wait(Handle handle) = 0;
  virtual void barrier() = 0;  // waits for all ranks
  // Tells all other ranks to stop: their waits throw a CommFault with this reason.
  virtual void abort(const std::string& reason) = 0;
  virtual const Counters& counters() const = 0;
  virtual void reset_counters() = 0;
};

struct Options {
  std::chrono::milliseconds timeout{60'000};  // for every wait
  // For MPI: the rank of each process, by the launcher's process number. If the list is empty, or
  // its length is not the number of processes, ranks are the launcher's numbers.
  std::vector<int> rank_of_process;
};

// Runs `body(communicator)` on `ranks` threads in this process. If a body throws, the other ranks
// are aborted, all threads are joined, and the first fault is returned.
Status run_threads(int ranks, const Options& options,
                   const std::function<void(Communicator&)>& body);

// Returns whether MPI is built in (mpi_launched: whether an MPI launcher started this process with
// more than one rank).
bool mpi_available();
bool mpi_launched();
// Initialises MPI once and returns this process's endpoint over all processes.
Result<std::unique_ptr<Communicator>> mpi_world(const Options& options);
// Makes a process that is ended by SIGTERM print one line that names its rank and the call it was
// in, and exit with code 3. An MPI launcher ends all processes so when one dies (mpi/mpi.cc says
// how).
void mpi_install_fault_handler();

// Copies the elements of `region` from one strided array to another (combine_region: combines them
// into it); both boxes contain `region`. All back ends use it; contiguous runs are vectorised.
void copy_region(DType dtype, const ArrayView& from, const ArrayView& to, const Box& region);
void combine_region(DType dtype, Combiner combiner, const ArrayView& from, const ArrayView& to,
                    const Box& region);  // to = combine(to, from)

}  // namespace tessera::comm
