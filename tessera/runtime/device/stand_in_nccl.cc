#include "tessera/runtime/device/stand_in_nccl.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/runtime/device/played.h"
#include "tessera/runtime/device/stand_in.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr int kSuccess = 0, kFailure = 3;

// A message that its sender offers until the receiver has it.
struct Offer {
  const std::byte* from;
  size_t bytes;
  bool taken = false;
};

// A collective call under way: what each member gives.
struct Meeting {
  std::vector<const std::byte*> given;
  size_t come = 0, done = 0;
};

// The state that the members of a communicator share.
struct Shared {
  explicit Shared(size_t members) : size(members) {}
  const size_t size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Offer>>> offers;  // by sender, receiver
  std::map<int64_t, Meeting> meetings;  // by number of the call

  // Waits for what the other members do; `what` says it in a fault.
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready, const std::string& what) {
    if (!changed.wait_for(lock, kPatience, ready))
      throw std::runtime_error("a member of the communicator does not come: " + what);
  }
};

struct Member {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  int64_t calls = 0;  // collective calls until now
};

struct Message {
  Member* member;
  bool sends;
  int peer;
  std::byte* at;
  size_t bytes;
  PlayedStream* stream;
};

thread_local int open_groups = 0;
thread_local std::vector<Message> grouped;

std::mutex registry_mutex;
std::map<int64_t, std::weak_ptr<Shared>> registry;  // by id
int64_t next_id = 1;

void exchange(const std::vector<Message>& messages) {
  std::vector<std::pair<Shared*, std::shared_ptr<Offer>>> offered;
  for (const Message& one : messages) {
    if (!one.sends) continue;
    Shared& shared = *one.member->shared;
    const std::lock_guard lock(shared.mutex);
    auto& queue = shared.offers[{one.member->rank, one.peer}];
    offered.emplace_back(&shared, queue.emplace_back(std::make_shared<Offer>(one.at, one.bytes)));
    shared.changed.notify_all();
  }
  for (const Message& one : messages) {
    if (one.sends) continue;
    Shared& shared = *one.member->shared;
    std::unique_lock lock(shared.mutex);
    auto& queue = shared.offers[{one.peer, one.member->rank}];
    shared.wait(
        lock, [&] { return !queue.empty(); },
        fmt::format("member {} receives {} bytes from {}", one.member->rank, one.bytes, one.peer));
    const std::shared_ptr<Offer> offer = queue.front();
    queue.pop_front();
    if (offer->bytes != one.bytes) throw std::runtime_error("a message of another size");
    std::memcpy(one.at, offer->from, one.bytes);
    offer->taken = true;
    shared.changed.notify_all();
  }
  for (const auto& [shared, offer] : offered) {
    std::unique_lock lock(shared->mutex);
    shared->wait(
        lock, [&, &mine = *offer] { return mine.taken; },
        fmt::format("{} bytes are not received", offer->bytes));
  }
}

// Lets all members meet, then calls `take` with what each gives, and keeps all until each has taken.
void meet(Shared& shared, int64_t number, int rank, const std::byte* given,
          const std::function<void(const std::vector<const std::byte*>&)>& take) {
  std::unique_lock lock(shared.mutex);
  Meeting& meeting = shared.meetings[number];
  meeting.given.resize(shared.size);
  meeting.given[static_cast<size_t>(rank)] = given;
  ++meeting.come;
  shared.changed.notify_all();
  shared.wait(
      lock, [&] { return meeting.come == shared.size; },
      fmt::format("rank {}: {} of {} members are at call {}", rank, meeting.come, shared.size,
                  number));
  lock.unlock();
  take(meeting.given);
  lock.lock();
  ++meeting.done;
  shared.changed.notify_all();
  shared.wait(
      lock, [&] { return meeting.done >= shared.size; }, "the end of a call");
  if (++meeting.done == 2 * shared.size) shared.meetings.erase(number);
}

DType dtype_of(int type) {
  for (const DType each : {DType::kInt32, DType::kInt64, DType::kFloat16, DType::kFloat32,
                           DType::kFloat64, DType::kBFloat16}) {
    if (nccl_type(each) == type) return each;
  }
  return DType::kUInt8;
}

// Reduces elements of all members into `to`, which may be a member's own.
void reduce(const std::vector<const std::byte*>& given, int64_t begin, int64_t count, int type,
            int op, const at::Tensor& to) {
  const DType dtype = dtype_of(type);
  at::Tensor sum;
  for (const std::byte* each : given) {
    // It is only read.
    auto* from = const_cast<std::byte*>(each) +
                 begin * dtype_bytes(dtype);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    const at::Tensor part = kernels::tensor_of(from, dtype, {count}, {1});
    if (!sum.defined()) {
      sum = part.clone();
    } else {
      sum = op == kNcclMax ? at::maximum(sum, part) : sum + part;
    }
  }
  to.copy_(sum);
}

int get_version(int* version) {
  *version = 22'000;
  return kSuccess;
}

int get_unique_id(NcclId* id) {
  const std::lock_guard lock(registry_mutex);
  const int64_t number = next_id++;
  std::memcpy(id->bytes.data(), &number, sizeof(number));
  return kSuccess;
}

int comm_init_rank(NcclComm* comm, int ranks, NcclId id, int rank) {
  int64_t number = 0;
  std::memcpy(&number, id.bytes.data(), sizeof(number));
  const std::lock_guard lock(registry_mutex);
  std::shared_ptr<Shared> shared = registry[number].lock();
  if (shared == nullptr) registry[number] = shared = std::make_shared<Shared>(ranks);
  *comm = new Member{std::move(shared), rank};
  return kSuccess;
}

int comm_destroy(NcclComm comm) {
  delete static_cast<Member*>(comm);
  return kSuccess;
}

int group_start() {
  ++open_groups;
  return kSuccess;
}

int group_end() {
  if (--open_groups > 0) return kSuccess;
  const std::vector<Message> messages = std::exchange(grouped, {});
  if (messages.empty()) return kSuccess;
  for (const Message& one : messages) {
    if (one.stream != messages.front().stream) return kFailure;
  }
  messages.front().stream->launch([messages] { exchange(messages); });
  return kSuccess;
}

int message(bool sends, std::byte* at, size_t bytes, int peer, NcclComm comm, void* stream) {
  const int opened = group_start();
  grouped.push_back({static_cast<Member*>(comm), sends, peer, opened_address(at), bytes,
                     static_cast<PlayedStream*>(stream)});
  return opened != kSuccess ? opened : group_end();
}

int send(const void* from, size_t count, int /*type*/, int peer, NcclComm comm, void* stream) {
  // It is only read.
  auto* at = static_cast<std::byte*>(
      const_cast<void*>(from));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return message(true, at, count, peer, comm, stream);
}

int recv(void* to, size_t count, int /*type*/, int peer, NcclComm comm, void* stream) {
  return message(false, static_cast<std::byte*>(to), count, peer, comm, stream);
}

// Launches a collective call. `take` gets what all members give, and this member's number.
int collective(const void* from, NcclComm comm, void* stream,
               std::function<void(const std::vector<const std::byte*>&, int)> take) {
  auto& member = *static_cast<Member*>(comm);
  static_cast<PlayedStream*>(stream)->launch([shared = member.shared, number = member.calls++,
                                              rank = member.rank, given = opened_address(from),
                                              take = std::move(take)] {
    meet(*shared, number, rank, given, [&](const auto& all) { take(all, rank); });
  });
  return kSuccess;
}

int all_reduce(const void* from, void* to, size_t count, int type, int op, NcclComm comm,
               void* stream) {
  // The members' inputs may be their outputs, so all reduce before any writes.
  const auto elements = static_cast<int64_t>(count);
  const auto sum = std::make_shared<at::Tensor>();
  const DType dtype = dtype_of(type);
  const int first = collective(from, comm, stream, [=](const auto& all, int) {
    *sum = at::empty({elements}, at::TensorOptions(kernels::scalar_type(dtype)));
    reduce(all, 0, elements, type, op, *sum);
  });
  static_cast<PlayedStream*>(stream)->launch([sum, dtype, elements, at = opened_address(to)] {
    kernels::tensor_of(at, dtype, {elements}, {1}).copy_(*sum);
  });
  return first;
}

int all_gather(const void* from, void* to, size_t sent, int type, NcclComm comm, void* stream) {
  const size_t bytes = sent * static_cast<size_t>(dtype_bytes(dtype_of(type)));
  return collective(from, comm, stream, [bytes, at = opened_address(to)](const auto& all, int) {
    for (size_t i = 0; i < all.size(); ++i) std::memmove(at + i * bytes, all[i], bytes);
  });
}

int reduce_scatter(const void* from, void* to, size_t received, int type, int op, NcclComm comm,
                   void* stream) {
  const auto elements = static_cast<int64_t>(received);
  return collective(from, comm, stream, [=, at = opened_address(to)](const auto& all, int rank) {
    reduce(all, rank * elements, elements, type, op,
           kernels::tensor_of(at, dtype_of(type), {elements}, {1}));
  });
}

const char* error_string(int code) { return code == kSuccess ? "no error" : "invalid usage"; }

}  // namespace

const Nccl& stand_in_nccl() {
  static const Nccl nccl{error_string, get_version, get_unique_id, comm_init_rank,
                         comm_destroy, group_start, group_end,     send,
                         recv,         all_reduce,  all_gather,    reduce_scatter};
  return nccl;
}

}  // namespace tessera::device
