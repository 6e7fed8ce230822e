// time_links; see calibration.h.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <thread>

#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/measure/calibration.h"
#include "tessera/runtime/step/ranks.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double now_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Returns the box of a whole array of `elements` float32; piece() returns piece j of it, if the
// array is cut into n pieces.
Box whole(int64_t elements) { return Box({{0, elements}}); }
Box piece(int64_t elements, int64_t n, int64_t j) {
  const int64_t begin = elements * j / n;
  return Box({{begin, elements * (j + 1) / n - begin}});
}

// Makes a collective of n members. `bytes` is the size by which the cost model counts it: that of
// the whole array of one member (cost/collective_cost.h).
Redistribution make_collective(CollectiveKind kind, int64_t n, int64_t bytes) {
  Redistribution what;
  what.kind = kind;
  const int64_t elements = std::max<int64_t>(bytes / 4, n);
  const int64_t side = elements / n * n;
  for (int64_t j = 0; j < n; ++j) {
    switch (kind) {
      case CollectiveKind::kAllReduce:
        what.hold.push_back(whole(elements));
        what.need.push_back(whole(elements));
        break;
      case CollectiveKind::kAllGather:
        what.hold.push_back(piece(elements, n, j));
        what.need.push_back(whole(elements));
        break;
      case CollectiveKind::kReduceScatter:
        what.hold.push_back(whole(elements));
        what.need.push_back(piece(elements, n, j));
        break;
      case CollectiveKind::kAllToAll:
        what.hold.push_back(Box({{j, 1}, {0, side}}));
        what.need.push_back(Box({{0, n}, {j * (side / n), side / n}}));
        break;
      case CollectiveKind::kBroadcast:
        what.hold.push_back(j == 0 ? whole(elements) : Box({{0, 0}}));
        what.need.push_back(whole(elements));
        break;
      case CollectiveKind::kReduce:
        what.hold.push_back(whole(elements));
        what.need.push_back(j == 0 ? whole(elements) : Box({{0, 0}}));
        break;
      case CollectiveKind::kPermute:
      case CollectiveKind::kExchange:
        what.hold.push_back(Box({{j * elements, elements}}));
        what.need.push_back(Box({{(j + 1) % n * elements, elements}}));
        break;
    }
  }
  const bool reduces = kind == CollectiveKind::kAllReduce ||
                       kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kReduce;
  if (reduces) what.combiner = Combiner::kSum;
  return what;
}

// Arrays in the memory of a device or of the process, and the communicator that moves them.
class Links {
 public:
  static Result<std::unique_ptr<Links>> open(comm::Communicator& world, const std::string& device) {
    std::unique_ptr<Links> links(new Links(world));
    TESSERA_TRY(links->device_, device::open(device, &world));
    if (links->device_ == nullptr) return links;
    links->stream_ = links->device_->stream({});
    device::Connections connections;
    connections.groups.emplace_back(static_cast<size_t>(world.size()));
    std::iota(connections.groups[0].begin(), connections.groups[0].end(), 0);
    if (world.rank() < 2) connections.messages.push_back({0, 1, 1});
    TESSERA_TRY(links->own_, links->device_->communicator(world, connections));
    links->communicator_ = links->own_.get();
    return links;
  }

  // Returns an array in memory of its own.
  comm::ArrayView array(const Box& box) {
    const int64_t bytes = std::max<int64_t>(box.volume(), 1) * dtype_bytes(DType::kFloat32);
    std::byte* data = nullptr;
    if (device_ == nullptr) {
      auto& memory = host_.emplace_back(static_cast<size_t>(bytes / dtype_bytes(DType::kFloat32)));
      data = reinterpret_cast<std::byte*>(memory.data());
    } else {
      auto memory = device_->allocate(bytes);
      if (!memory) throw comm::CommFault{memory.error().message};
      data = memories_.emplace_back(std::move(*memory))->data();
    }
    return {data, box, row_major_strides(box.shape())};
  }
  void release() {
    host_.clear();
    memories_.clear();
  }
  // Writes the first array.
  void write() {
    if (!host_.empty()) std::fill(host_.front().begin(), host_.front().end(), 1.0F);
  }

  // Issues a call by f(communicator), and waits for it.
  template <class F>
  void call(F&& f) {
    if (device_ == nullptr) return communicator_->wait(f(*communicator_));
    stream_->launch([&] { communicator_->wait(f(*communicator_)); });
    stream_->finish();
  }
  int group(const std::vector<int>& members) { return communicator_->group(members); }

 private:
  explicit Links(comm::Communicator& world) : communicator_(&world) {}
  std::unique_ptr<device::Device> device_;  // null: the processor
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<comm::Communicator> own_;
  comm::Communicator* communicator_;
  std::vector<std::vector<float>> host_;
  std::vector<std::unique_ptr<device::Memory>> memories_;
};

// Calls `transfer` `calls` times, each time after `prepare`. Returns the seconds of each call, from
// the moment when the last rank was ready to the moment when the last rank was done. With more
// ranks than cores (`crowded`) ranks have no common begin, because each rank begins when it gets a
// core. Then all calls are made one after the other, and their mean time is returned.
template <class Prepare, class Transfer>
std::vector<double> time_calls(comm::Communicator& world, bool crowded, int calls,
                               Prepare&& prepare, Transfer&& transfer) {
  std::vector<double> times;
  constexpr int kRow = 8;
  for (int call = 0; call < calls; ++call) {
    prepare();
    world.barrier();
    const double begin = now_s();
    for (int i = 0; i < (crowded ? kRow : 1); ++i) transfer();
    times.push_back(begin);
    times.push_back(now_s());
  }
  const auto all = comm::gather_lists(world, times);
  std::vector<double> result;
  for (size_t call = 0; call < static_cast<size_t>(calls); ++call) {
    double begin = -1e300, end = -1e300;
    for (const std::vector<double>& rank : all) {
      begin = std::max(begin, rank[2 * call]);
      end = std::max(end, rank[2 * call + 1]);
    }
    if (call > 0 && end > begin) result.push_back((end - begin) / (crowded ? kRow : 1));
  }
  return result;
}

}  // namespace

Status time_links(comm::Communicator& world, const std::string& transport, bool quick,
                  const std::string& device, Repeats& repeats) {
  const int n = world.size(), me = world.rank();
  TESSERA_TRY(const std::unique_ptr<Links> links, Links::open(world, device));
  std::vector<int> members(static_cast<size_t>(n));
  std::iota(members.begin(), members.end(), 0);
  const int group = links->group(members);
  const bool crowded = n > static_cast<int>(std::thread::hardware_concurrency());
  const comm::Label label{"profile", "array", "all ranks"};
  const auto calls_of = [&](int64_t bytes) {
    const int most = quick ? 12 : 30;
    return std::clamp(static_cast<int>((quick ? 16e6 : 64e6) / static_cast<double>(bytes)), 6,
                      most);
  };
  std::vector<int64_t> sizes{64, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  if (quick) sizes = {64, 32 << 10, 1 << 20, 8 << 20};
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast, CollectiveKind::kReduce,
        CollectiveKind::kPermute}) {
    for (const int64_t bytes : sizes) {
      const Redistribution what = make_collective(kind, n, bytes);
      const auto rank = static_cast<size_t>(me);
      const comm::ArrayView from = links->array(what.hold[rank]),
                            to = links->array(what.need[rank]);
      const auto times = time_calls(
          world, crowded, calls_of(bytes), [&] { links->write(); },
          [&] {
            links->call([&](comm::Communicator& by) {
              return by.issue(group, {{&what, from, to}}, label);
            });
          });
      links->release();
      for (const double seconds : times) {
        repeats.add(std::string(collective_name(kind)) + "." + transport, {"ranks", "bytes"},
                    {static_cast<double>(n), static_cast<double>(bytes)}, seconds);
      }
    }
  }
  for (const int64_t bytes : sizes) {
    const comm::ArrayView view = links->array(whole(bytes / 4));
    // Rank 0 sends and rank 1 receives. The other ranks only take part in the barriers.
    const auto times = time_calls(
        world, crowded, calls_of(bytes), [&] { links->write(); },
        [&] {
          if (me > 1) return;
          links->call([&](comm::Communicator& by) {
            return me == 0 ? by.issue_send(1, 1, DType::kFloat32, view, label)
                           : by.issue_recv(0, 1, DType::kFloat32, view, label);
          });
        });
    links->release();
    for (const double seconds : times)
      repeats.add("message." + transport, {"bytes"}, {static_cast<double>(bytes)}, seconds);
  }
  return {};
}

}  // namespace tessera
