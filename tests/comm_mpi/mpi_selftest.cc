// Checks of the MPI communicator; every process of an `mpirun -n N` runs this program.
//   comm_mpi_selftest           all cases of tessera/comm/testing.h: against the brute-force
//                               reference, bit for bit against threads, counters against
//                               traffic(); sub-groups, buckets, point to point, gathered bytes
//   comm_mpi_selftest order     these with the processes' ranks in reverse
//   comm_mpi_selftest timeout   the last rank stays away: the others must name it and exit with 3
//   comm_mpi_selftest abort     the last rank aborts: the others must report its reason
//   comm_mpi_selftest chain     each rank waits for the next, the last stays away: rank 0 must
//                               name the last
//   comm_mpi_selftest mismatch  the ranks issue calls that do not match
//   comm_mpi_selftest kill      the last rank kills itself with SIGKILL while the others wait
//   comm_mpi_selftest time      all-reduce of 4 MiB
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <string_view>

#include "tessera/comm/communicator.h"
#include "tessera/comm/region.h"
#include "tessera/comm/testing.h"

namespace tessera::comm {
namespace {

using testing::Arrays;
using testing::Case;

const Label kLabel = {"blocks.0.mlp.down", "y", "tp"};
constexpr size_t kAhead = 17;  // calls in flight

using Results = std::vector<std::vector<std::byte>>;

// Returns the outputs of all cases on this rank; adds differences from the reference to `errors`.
Results run_cases(Communicator& comm, const std::vector<Case>& cases,
                  std::vector<std::string>* errors) {
  const size_t me = static_cast<size_t>(comm.rank());
  const int group = comm.group(testing::all_ranks(comm.size()));
  Results results;
  for (size_t begin = 0; begin < cases.size(); begin += kAhead) {
    std::deque<Arrays> arrays;
    std::vector<Handle> handles;
    for (size_t i = begin; i < std::min(cases.size(), begin + kAhead); ++i) {
      arrays.emplace_back(cases[i], me);
      handles.push_back(comm.issue(group, {arrays.back().item}, kLabel));
    }
    for (size_t k = handles.size(); k-- > 0;) comm.wait(handles[k]);
    for (size_t k = 0; k < arrays.size(); ++k) {
      results.push_back(arrays[k].result());
      if (!errors) continue;
      if (std::string error = arrays[k].error(cases[begin + k]); !error.empty())
        errors->push_back(error);
    }
  }
  return results;
}

void check_cases(Communicator& comm, std::vector<std::string>& errors) {
  const auto cases = testing::all_cases(static_cast<size_t>(comm.size()));
  comm.counters() = {};
  const Results mine = run_cases(comm, cases, &errors);
  Counters want;
  for (const Case& test : cases) {
    const Traffic more = traffic(test.what, static_cast<size_t>(comm.rank()));
    Traffic& kind = want.collectives[static_cast<size_t>(test.what.kind)];
    kind = {kind.bytes + more.bytes, kind.messages + more.messages};
  }
  if (comm.counters().collectives != want.collectives)
    errors.push_back("counters differ from traffic()");

  Results threads;
  Counters threads_counters;
  const Status status = run_threads(comm.size(), {}, [&](Communicator& other) {
    Results results = run_cases(other, cases, nullptr);
    if (other.rank() != comm.rank()) return;
    threads = std::move(results);
    threads_counters = other.counters();
  });
  if (!status) errors.push_back(status.error().message);
  if (threads != mine) errors.push_back("threads and MPI differ");
  if (threads_counters.collectives != want.collectives)
    errors.push_back("threads count differently");
}

void check_bucket_and_groups(Communicator& comm, std::vector<std::string>& errors) {
  const size_t n = static_cast<size_t>(comm.size());
  const size_t me = static_cast<size_t>(comm.rank());
  const auto a = testing::combinations(Box::whole({7, 2}), DType::kFloat32, Combiner::kSum, n);
  const auto b = testing::combinations(Box::whole({2, 5, 3}), DType::kFloat32, Combiner::kSum, n);
  std::vector<int> reversed = testing::all_ranks(comm.size());
  std::reverse(reversed.begin(), reversed.end());
  const int forward = comm.group(testing::all_ranks(comm.size()));
  const int backward = comm.group(reversed);
  for (size_t kind : {0, 1}) {
    const Case first = {"bucket a", a[kind]};
    const Case second = {"bucket b", b[kind], true};
    Arrays x(first, me), y(second, me), z(first, n - 1 - me);
    comm.counters() = {};
    std::array<Handle, 2> handles = {comm.issue(forward, {x.item, y.item}, kLabel),
                                     comm.issue(backward, {z.item}, kLabel)};
    if (me == 0) std::swap(handles[0], handles[1]);
    for (Handle handle : handles) comm.wait(handle);
    for (const std::string& error : {x.error(first), y.error(second), z.error(first)}) {
      if (!error.empty()) errors.push_back(error);
    }
    Traffic want = bucket_traffic({&first.what, &second.what}, me);
    const Traffic more = traffic(first.what, n - 1 - me);
    want = {want.bytes + more.bytes, want.messages + more.messages};
    if (comm.counters().collectives[static_cast<size_t>(first.what.kind)] != want) {
      errors.push_back("a bucket's counters differ from bucket_traffic()");
    }
  }
}

ArrayView view_of(std::vector<float>& data) {
  return packed_view(reinterpret_cast<std::byte*>(data.data()),
                     Box::whole({static_cast<int64_t>(data.size())}));
}

// Sends around a ring, with tags out of order, small and large messages.
void check_point_to_point(Communicator& comm, std::vector<std::string>& errors) {
  const int to = (comm.rank() + 1) % comm.size();
  const int from = (comm.rank() + comm.size() - 1) % comm.size();
  if (to == comm.rank()) return;
  comm.counters() = {};
  for (size_t size : {size_t{3}, size_t{300'000}}) {
    std::vector<std::vector<float>> out(6, std::vector<float>(size)), in = out;
    std::vector<Handle> handles;
    for (size_t i = 0; i < 6; ++i) {
      out[i].assign(size, static_cast<float>(i));
      handles.push_back(comm.issue_send(to, static_cast<int64_t>(i % 2), DType::kFloat32,
                                        view_of(out[i]), kLabel));
      handles.push_back(
          comm.issue_recv(from, i < 3 ? 1 : 0, DType::kFloat32, view_of(in[i]), kLabel));
    }
    for (size_t k = handles.size(); k-- > 0;) comm.wait(handles[k]);
    for (size_t i = 0; i < 6; ++i) {
      const float want = static_cast<float>(i < 3 ? 2 * i + 1 : 2 * (i - 3));
      if (in[i] != std::vector<float>(size, want)) errors.push_back("point to point is wrong");
    }
  }
  if (comm.counters().point_to_point != Traffic{6 * 4 * 300'003, 12}) {
    errors.push_back("point to point is counted wrongly");
  }
}

int report(Communicator& comm, const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank(), error.c_str());
  }
  if (errors.empty() && comm.rank() == 0) std::printf("ok: %d ranks\n", comm.size());
  return errors.empty() ? 0 : 1;
}

void time_all_reduce(Communicator& comm) {
  const size_t n = static_cast<size_t>(comm.size());
  const Box box = Box::whole({1 << 20});
  const Redistribution what = {CollectiveKind::kAllReduce, Combiner::kSum, DType::kFloat32,
                               std::vector<Box>(n, box), std::vector<Box>(n, box)};
  std::vector<float> in(1 << 20, 1.0F), out(1 << 20);
  const int group = comm.group(testing::all_ranks(comm.size()));
  const auto call = [&] {
    comm.wait(comm.issue(group, {{&what, view_of(in), view_of(out)}}, kLabel));
  };
  for (int i = 0; i < 5; ++i) call();
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) call();
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  if (comm.rank() == 0)
    std::printf("all_reduce of 4 MiB, %zu ranks: %.0f us\n", n, spent.count() / 50);
}

void meet_a_fault(Communicator& comm, std::string_view mode) {
  const bool last = comm.rank() == comm.size() - 1;
  const size_t n = static_cast<size_t>(comm.size());
  const auto combiner = mode == "mismatch" && last ? Combiner::kMax : Combiner::kSum;
  const Case test = {"fault",
                     testing::combinations(Box::whole({64}), DType::kFloat32, combiner, n)[0]};
  Arrays arrays(test, static_cast<size_t>(comm.rank()));
  // A rank that is still in a barrier when another aborts would report the barrier.
  if (mode != "abort") comm.barrier();
  if (last && mode == "kill") raise(SIGKILL);
  if (last && mode == "abort") {
    comm.abort("rank " + std::to_string(comm.rank()) + ": disk full");
    throw CommFault{"rank " + std::to_string(comm.rank()) + ": disk full"};
  }
  if (last && (mode == "timeout" || mode == "chain")) pause();  // until the launcher ends it
  if (mode == "chain") {
    std::vector<float> in(64);
    comm.wait(comm.issue_recv(comm.rank() + 1, 0, DType::kFloat32, view_of(in), kLabel));
    return;
  }
  comm.wait(comm.issue(comm.group(testing::all_ranks(comm.size())), {arrays.item}, kLabel));
}

int run(std::string_view mode) {
  const bool faulty = mode != "" && mode != "time" && mode != "order";
  // In a chain, rank 0 must be the first to time out.
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const bool patient = mode == "chain" && rank != nullptr && std::string_view(rank) != "0";
  const bool reversed = mode == "order" && rank != nullptr;
  const char* processes = std::getenv("OMPI_COMM_WORLD_SIZE");
  Options options;
  options.timeout = std::chrono::milliseconds(faulty && !patient ? 2000 : 60'000);
  for (int left = reversed && processes != nullptr ? std::atoi(processes) : 0; left-- > 0;)
    options.rank_of_process.push_back(left);
  auto world = mpi_world(options);
  if (!world) {
    std::fprintf(stderr, "%s\n", world.error().message.c_str());
    return exit_code(world.error().code);
  }
  mpi_install_fault_handler();
  Communicator& comm = **world;
  if (faulty) {
    meet_a_fault(comm, mode);
    std::fprintf(stderr, "rank %d: no fault\n", comm.rank());
    return 1;
  }
  if (mode == "time") {
    time_all_reduce(comm);
    return 0;
  }
  std::vector<std::string> errors;
  if (reversed && comm.rank() != comm.size() - 1 - std::atoi(rank))
    errors.push_back("the process has another rank than it was given");
  check_cases(comm, errors);
  if (std::string error = testing::gather_error(comm); !error.empty()) errors.push_back(error);
  check_bucket_and_groups(comm, errors);
  check_point_to_point(comm, errors);
  comm.barrier();
  return report(comm, errors);
}

}  // namespace
}  // namespace tessera::comm

int main(int argc, char** argv) {
  try {
    return tessera::comm::run(argc > 1 ? argv[1] : "");
  } catch (const tessera::comm::CommFault& fault) {
    std::fprintf(stderr, "tessera: %s\n", fault.message.c_str());
    return 3;
  }
}
