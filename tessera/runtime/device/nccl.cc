#include "tessera/runtime/device/nccl.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/comm/transfer.h"
#include "tessera/runtime/formulas/merge.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

using comm::ArrayView;
using comm::Handle;
using comm::Item;

// A call whose members get or give parts of different sizes is done by a collective of NCCL, which
// wants equal ones, if the largest part times the members is at most so many times all parts.
constexpr int64_t kMostPadding = 2;

constexpr int kNcclUint8 = 1;

// An NCCL communicator of a group or of a sender and a receiver, and its stream.
struct Link {
  NcclComm comm = nullptr;
  c10::Stream stream;
  std::vector<int> members;
  size_t me = 0;
};

class NcclCommunicator final : public comm::Communicator {
 public:
  NcclCommunicator(const Nccl& nccl, comm::Communicator& world, Place place, PlaceOf place_of)
      : nccl_(nccl), world_(world), place_(place), place_of_(std::move(place_of)) {}
  ~NcclCommunicator() override {
    for (const auto& [key, link] : links_) nccl_.comm_destroy(link.comm);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Makes the links of this rank. An id is made by the first member and given to the others. Errors:
  // see nccl_communicator().
  Status connect(const Connections& connections) {
    for (const std::vector<int>& members : connections.groups) add_link(members, members);
    TESSERA_TRY_VOID(connect_pairs(connections.messages));
    std::string mine;
    for (auto& [key, link] : links_) {
      if (link.me != 0) continue;
      NcclId id;
      check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
      made_ids_[key] = id;
      append(mine, key, id);
    }
    std::map<std::vector<int>, NcclId> ids;
    for (const std::string& text : comm::gather_bytes(world_, mine)) read_ids(text, ids);
    check(nccl_.group_start(), "ncclGroupStart");
    for (auto& [key, link] : links_) {
      check(nccl_.comm_init_rank(&link.comm, static_cast<int>(link.members.size()), ids.at(key),
                                 static_cast<int>(link.me)),
            "ncclCommInitRank");
    }
    check(nccl_.group_end(), "ncclGroupEnd");
    return {};
  }

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int group(const std::vector<int>& members) override {
    const int number = world_.group(members);
    groups_[number] = members;
    return number;
  }
  void barrier() override { world_.barrier(); }
  void abort(const std::string& reason) override { world_.abort(reason); }
  comm::Counters& counters() override { return world_.counters(); }

  Handle issue(int group, std::vector<Item> items, const comm::Label& label) override {
    Link& link = links_.at(groups_.at(group));
    comm::check_items(items, link.members.size(), link.me);
    std::vector<const Redistribution*> whats;
    for (const Item& item : items) whats.push_back(item.what);
    const Traffic sent = comm::bucket_traffic(whats, link.me);
    return begin(
        link, label, [&] { move(link, items); },
        [this, items, sent] { comm::add_traffic(items, sent, counters()); });
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                    const comm::Label& label) override {
    Link& link = links_.at(link_of_message_.at({rank(), to, tag}));
    const int64_t bytes = from.box.volume() * dtype_bytes(dtype);
    return begin(
        link, label,
        [&] {
          if (bytes > 0) send(link, 1, flat(dtype, {{&from, from.box}}));
        },
        [this, bytes] {
          counters().point_to_point.bytes += bytes;
          counters().point_to_point.messages += bytes > 0 ? 1 : 0;
        });
  }
  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const comm::Label& label) override {
    Link& link = links_.at(link_of_message_.at({from, rank(), tag}));
    return begin(
        link, label,
        [&] {
          if (into.box.empty()) return;
          const at::Tensor memory = room(dtype, {{&into, into.box}});
          receive(link, 0, memory);
          unpack(dtype, memory, {{&into, into.box}});
        },
        [] {});
  }
  void wait(Handle handle) override {
    const auto found = calls_.find(handle);
    TESSERA_CHECK(found != calls_.end(), "wait for handle {}, which was not issued", handle);
    found->second.done.block(current_stream());
    found->second.count();
    calls_.erase(found);
  }

 private:
  using Messages = std::vector<Connections::Message>;
  // Stands in the key of a link from a sender to a receiver, before its number.
  static constexpr int kPair = -1;

  struct Call {
    c10::Event done;
    std::function<void()> count;
  };
  // A region of an array.
  struct Region {
    const ArrayView* view;
    Box box;
  };
  using Regions = std::vector<Region>;

  c10::Device device() const { return kernels::device_of(place_); }
  c10::Stream current_stream() const {
    return c10::impl::VirtualGuardImpl(device().type()).getStream(device());
  }

  void add_link(const std::vector<int>& key, const std::vector<int>& members) {
    if (links_.contains(key)) return;  // a stream of the pool is for one link
    const auto me = std::ranges::find(members, rank());
    TESSERA_CHECK(me != members.end(), "rank {} is no member of a group that it names", rank());
    const c10::impl::VirtualGuardImpl guard(device().type());
    // The rank's own work takes its streams from the other pool, so that they do not meet.
    const c10::Stream stream = guard.getStreamFromGlobalPool(device(), /*isHighPriority=*/true);
    links_.try_emplace(key,
                       Link{nullptr, stream, members, static_cast<size_t>(me - members.begin())});
  }

  // Makes as few links from each sender to each receiver as let the messages of a link be received in
  // the order in which they are sent, since NCCL knows no tags. Both ends find the same links.
  Status connect_pairs(const Messages& mine) {
    const auto of_ranks = comm::gather_lists(world_, mine);
    std::set<std::pair<int, int>> pairs;
    for (const Connections::Message& one : mine) pairs.insert({one.from, one.to});
    for (const auto& [from, to] : pairs) {
      const auto between = [pair = std::pair(from, to)](const Messages& all) {
        Messages found;
        std::ranges::copy_if(all, std::back_inserter(found), [&](const Connections::Message& one) {
          return std::pair(one.from, one.to) == pair;
        });
        return found;
      };
      const Messages sent = between(of_ranks[static_cast<size_t>(from)]),
                     received = between(of_ranks[static_cast<size_t>(to)]);
      const auto links = lines_by_link(sent, received);
      if (!links) {
        return invalid_input(fmt::format(
            "messages from rank {} to rank {}: expected those of a transfer to be received in the "
            "order in which they are sent, found another; messages=host allows it",
            from, to));
      }
      for (const Connections::Message& one : sent) {
        const std::vector<int> key{from, to, kPair, links->at(one.line)};
        link_of_message_[{from, to, one.tag}] = key;
        add_link(key, {from, to});
      }
    }
    return {};
  }

  // Returns the number of the link for each line; nothing if one line alone has two orders.
  static std::optional<std::map<int64_t, int>> lines_by_link(const Messages& sent,
                                                             const Messages& received) {
    std::map<int64_t, int> link_of;
    std::vector<std::set<int64_t>> links;
    const auto agree = [&](const std::set<int64_t>& lines) {
      const auto tags = [&](const Messages& all) {
        std::vector<int64_t> found;
        for (const Connections::Message& one : all) {
          if (lines.contains(one.line)) found.push_back(one.tag);
        }
        return found;
      };
      return tags(sent) == tags(received);
    };
    for (const Connections::Message& one : sent) {
      if (link_of.contains(one.line)) continue;
      if (!agree({one.line})) return std::nullopt;
      size_t number = 0;
      for (; number < links.size(); ++number) {
        std::set<int64_t> lines = links[number];
        lines.insert(one.line);
        if (agree(lines)) break;
      }
      if (number == links.size()) links.emplace_back();
      links[number].insert(one.line);
      link_of[one.line] = static_cast<int>(number);
    }
    return link_of;
  }

  static void append(std::string& text, const std::vector<int>& key, const NcclId& id) {
    const auto size = static_cast<int>(key.size());
    text += comm::bytes_of(&size, 1);
    text += comm::bytes_of(key.data(), key.size());
    text += comm::bytes_of(&id, 1);
  }
  static void read_ids(std::string_view text, std::map<std::vector<int>, NcclId>& ids) {
    while (!text.empty()) {
      const auto take = [&](size_t bytes) {
        const std::string_view head = text.substr(0, bytes);
        text.remove_prefix(bytes);
        return head;
      };
      const auto size = static_cast<size_t>(comm::list_of<int>(take(sizeof(int))).front());
      const std::vector<int> key = comm::list_of<int>(take(size * sizeof(int)));
      ids[key] = comm::list_of<NcclId>(take(sizeof(NcclId))).front();
    }
  }

  void check(int code, std::string_view function) const {
    if (code == 0) return;
    throw comm::CommFault{
        fmt::format("rank {}: {}: {}", rank(), function,
                    nccl_.error_string == nullptr ? "" : nccl_.error_string(code))};
  }

  // Does work on the link's stream, behind what the current stream was given until now.
  Handle begin(Link& link, const comm::Label& label, const std::function<void()>& work,
               std::function<void()> count) {
    c10::Event before(device().type());
    before.record(current_stream());
    before.block(link.stream);
    Call call{c10::Event(device().type()), std::move(count)};
    try {
      const c10::StreamGuard on(link.stream);
      work();
    } catch (const comm::CommFault& failed) {
      throw comm::CommFault{fmt::format("{}: {}", failed.message, comm::label_text(label))};
    }
    call.done.record(link.stream);
    calls_.emplace(next_, std::move(call));
    return next_++;
  }

  // ---- packing
  at::Tensor tensor(DType dtype, const Region& region) const {
    const ArrayView& view = *region.view;
    std::byte* data = view.data;
    for (size_t d = 0; d < region.box.rank(); ++d) {
      data += (region.box.dims[d].begin - view.box.dims[d].begin) * view.strides[d] *
              dtype_bytes(dtype);
    }
    return kernels::tensor_of(data, dtype, region.box.shape(), view.strides, place_of_(view.data));
  }
  static int64_t volume(const Regions& regions) {
    int64_t sum = 0;
    for (const Region& one : regions) sum += one.box.volume();
    return sum;
  }
  at::Tensor empty(DType dtype, int64_t elements) const {
    return at::empty({elements}, at::TensorOptions(kernels::scalar_type(dtype)).device(device()));
  }
  // Returns the elements of the regions one after the other, where they are if they lie so.
  at::Tensor flat(DType dtype, const Regions& regions) const {
    at::Tensor packed = room(dtype, regions);
    int64_t at = 0;
    for (const Region& one : regions) {
      const at::Tensor from = tensor(dtype, one);
      if (from.data_ptr() == packed.data_ptr()) break;  // they are the memory itself
      packed.narrow(0, at, one.box.volume()).view(from.sizes()).copy_(from, /*non_blocking=*/true);
      at += one.box.volume();
    }
    return packed;
  }
  // Returns memory for the elements of the regions: their own if it lies so.
  at::Tensor room(DType dtype, const Regions& regions) const {
    if (regions.size() == 1) {
      const at::Tensor own = tensor(dtype, regions.front());
      if (own.device() == device() && own.is_contiguous()) return own.view({-1});
    }
    return empty(dtype, volume(regions));
  }
  // Copies elements, one region after the other, to their places, unless they are there.
  void unpack(DType dtype, const at::Tensor& packed, const Regions& regions) const {
    int64_t at = 0;
    for (const Region& one : regions) {
      const at::Tensor to = tensor(dtype, one);
      if (to.data_ptr() != packed.data_ptr() || regions.size() > 1) {
        to.copy_(packed.narrow(0, at, one.box.volume()).view(to.sizes()), /*non_blocking=*/true);
      }
      at += one.box.volume();
    }
  }

  // ---- calls of NCCL, on the current stream, which is the link's
  void* native(const Link& link) const { return link.stream.native_handle(); }
  void send(const Link& link, size_t to, const at::Tensor& from) const {
    check(nccl_.send(from.data_ptr(), from.nbytes(), kNcclUint8, static_cast<int>(to), link.comm,
                     native(link)),
          "ncclSend");
  }
  void receive(const Link& link, size_t from, const at::Tensor& to) const {
    check(nccl_.recv(to.data_ptr(), to.nbytes(), kNcclUint8, static_cast<int>(from), link.comm,
                     native(link)),
          "ncclRecv");
  }

  // ---- collectives
  // Returns what `receiver` takes from `source`, over all items.
  static Regions taken(const std::vector<Item>& items, size_t receiver, size_t source,
                       const ArrayView Item::*view) {
    Regions regions;
    for (const Item& item : items) {
      for (const Box& box : comm::taken(*item.what, receiver, source)) {
        if (!box.empty()) regions.push_back({&(item.*view), box});
      }
    }
    return regions;
  }

  void move(const Link& link, const std::vector<Item>& items) {
    const Redistribution& first = *items.front().what;
    const bool reducible = first.combiner == Combiner::kSum || first.combiner == Combiner::kMax;
    if (link.members.size() == 1) return exchange(link, items);
    if (reducible && comm::is_chunked(items)) return all_reduce(link, items);
    if (reducible && holds_are_equal(items) && padding_is_small(link, items, true))
      return reduce_scatter(link, items);
    if (!first.combiner && all_take_the_same(link, items) && padding_is_small(link, items, false))
      return all_gather(link, items);
    exchange(link, items);
  }

  static int operation(const std::vector<Item>& items) {
    return items.front().what->combiner == Combiner::kMax ? kNcclMax : kNcclSum;
  }

  void all_reduce(const Link& link, const std::vector<Item>& items) const {
    const DType dtype = items.front().what->dtype;
    Regions in, out;
    for (const Item& item : items) {
      if (item.in.box.empty()) continue;
      in.push_back({&item.in, item.in.box});
      out.push_back({&item.out, item.out.box});
    }
    const at::Tensor given = flat(dtype, in), made = room(dtype, out);
    check(nccl_.all_reduce(given.data_ptr(), made.data_ptr(), static_cast<size_t>(given.numel()),
                           nccl_type(dtype), operation(items), link.comm, native(link)),
          "ncclAllReduce");
    unpack(dtype, made, out);
  }

  static bool holds_are_equal(const std::vector<Item>& items) {
    return std::ranges::all_of(items, [](const Item& item) {
      const SharedBoxes& hold = item.what->hold;
      return std::ranges::all_of(hold, [&](const Box& box) { return box == hold.front(); });
    });
  }
  bool all_take_the_same(const Link& link, const std::vector<Item>& items) const {
    const size_t n = link.members.size();
    for (const Item& item : items) {
      for (size_t source = 0; source < n; ++source) {
        for (size_t receiver = 0; receiver < n; ++receiver) {
          if (comm::taken(*item.what, receiver, source) != comm::taken(*item.what, 0, source))
            return false;
        }
      }
    }
    return true;
  }
  // Returns the number of elements of the largest part: of what each member receives, if `reduced`,
  // else of what each gives.
  static int64_t largest_part(const Link& link, const std::vector<Item>& items, bool reduced,
                              int64_t* sum) {
    int64_t largest = 0;
    for (size_t member = 0; member < link.members.size(); ++member) {
      const int64_t part = volume(reduced ? taken(items, member, 0, &Item::out)
                                          : taken(items, 0, member, &Item::out));
      largest = std::max(largest, part);
      if (sum != nullptr) *sum += part;
    }
    return largest;
  }
  static bool padding_is_small(const Link& link, const std::vector<Item>& items, bool reduced) {
    int64_t sum = 0, held = 0;
    const int64_t largest = largest_part(link, items, reduced, &sum);
    for (const Item& item : items) held += item.in.box.volume();
    const int64_t least = reduced ? std::min(sum, held) : sum;
    return largest > 0 &&
           largest * static_cast<int64_t>(link.members.size()) <= kMostPadding * least;
  }

  void reduce_scatter(const Link& link, const std::vector<Item>& items) const {
    const DType dtype = items.front().what->dtype;
    const int64_t part = largest_part(link, items, true, nullptr);
    const at::Tensor given = empty(dtype, part * static_cast<int64_t>(link.members.size()));
    given.zero_();
    for (size_t member = 0; member < link.members.size(); ++member) {
      const Regions regions = taken(items, member, link.me, &Item::in);
      if (regions.empty()) continue;
      const at::Tensor packed = flat(dtype, regions);
      given.narrow(0, static_cast<int64_t>(member) * part, packed.numel()).copy_(packed);
    }
    const at::Tensor made = empty(dtype, part);
    check(nccl_.reduce_scatter(given.data_ptr(), made.data_ptr(), static_cast<size_t>(part),
                               nccl_type(dtype), operation(items), link.comm, native(link)),
          "ncclReduceScatter");
    unpack(dtype, made, taken(items, link.me, link.me, &Item::out));
  }

  void all_gather(const Link& link, const std::vector<Item>& items) const {
    const DType dtype = items.front().what->dtype;
    const int64_t part = largest_part(link, items, false, nullptr);
    const Regions mine = taken(items, link.me, link.me, &Item::in);
    at::Tensor given = flat(dtype, mine);
    if (given.numel() < part) {
      const at::Tensor padded = empty(dtype, part);
      padded.zero_();
      padded.narrow(0, 0, given.numel()).copy_(given);
      given = padded;
    }
    const at::Tensor made = empty(dtype, part * static_cast<int64_t>(link.members.size()));
    check(nccl_.all_gather(given.data_ptr(), made.data_ptr(), static_cast<size_t>(part),
                           nccl_type(dtype), link.comm, native(link)),
          "ncclAllGather");
    for (size_t member = 0; member < link.members.size(); ++member) {
      unpack(dtype, made.narrow(0, static_cast<int64_t>(member) * part, part),
             taken(items, link.me, member, &Item::out));
    }
  }

  // Does a call by messages. All parts are packed before any output is written, since an output may
  // be the memory of an input.
  void exchange(const Link& link, const std::vector<Item>& items) const {
    const DType dtype = items.front().what->dtype;
    const size_t n = link.members.size();
    std::vector<at::Tensor> outgoing(n), parts(n);
    for (size_t member = 0; member < n; ++member) {
      const Regions regions = taken(items, member, link.me, &Item::in);
      if (regions.empty()) continue;
      outgoing[member] = flat(dtype, regions);
      if (member == link.me) parts[member] = outgoing[member].clone();
    }
    check(nccl_.group_start(), "ncclGroupStart");
    for (size_t member = 0; member < n; ++member) {
      if (member == link.me) continue;
      if (outgoing[member].defined()) send(link, member, outgoing[member]);
      const int64_t arriving = volume(taken(items, link.me, member, &Item::out));
      if (arriving == 0) continue;
      parts[member] = empty(dtype, arriving);
      receive(link, member, parts[member]);
    }
    check(nccl_.group_end(), "ncclGroupEnd");
    std::vector<std::vector<Box>> covered(items.size());
    for (size_t member = 0; member < n; ++member) {
      if (parts[member].defined()) assemble(link, items, member, parts[member], covered);
    }
  }

  // Writes what has arrived from a member; with a combiner, combines it with earlier parts.
  void assemble(const Link& link, const std::vector<Item>& items, size_t member,
                const at::Tensor& packed, std::vector<std::vector<Box>>& covered) const {
    int64_t at = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const Redistribution& what = *items[i].what;
      for (const Box& box : comm::taken(what, link.me, member)) {
        if (box.empty()) continue;
        const at::Tensor part = packed.narrow(0, at, box.volume()).view(box.shape());
        at += box.volume();
        const auto place = [&](const Box& region) {
          return tensor(what.dtype, {&items[i].out, region});
        };
        if (!what.combiner) {
          place(box).copy_(part, /*non_blocking=*/true);
          continue;
        }
        const ArrayView arrived{static_cast<std::byte*>(part.data_ptr()), box,
                                row_major_strides(box.shape())};
        const auto values = [&](const Box& region) {
          return kernels::tensor_of(
              arrived.data + offset_of(arrived, region) * dtype_bytes(what.dtype), what.dtype,
              region.shape(), arrived.strides, place_);
        };
        comm::add_part(
            covered[i], box,
            [&](const Box& region) { place(region).copy_(values(region), /*non_blocking=*/true); },
            [&](const Box& region) {
              kernels::merge_into(place(region), values(region), *what.combiner);
            });
      }
    }
  }
  static int64_t offset_of(const ArrayView& view, const Box& region) {
    int64_t offset = 0;
    for (size_t d = 0; d < region.rank(); ++d)
      offset += (region.dims[d].begin - view.box.dims[d].begin) * view.strides[d];
    return offset;
  }

  const Nccl& nccl_;
  comm::Communicator& world_;
  const Place place_;
  const PlaceOf place_of_;
  // By members, or by sender, receiver, kPair and a number.
  std::map<std::vector<int>, Link> links_;
  std::map<std::tuple<int, int, int64_t>, std::vector<int>> link_of_message_;  // keys of `links_`
  std::map<std::vector<int>, NcclId> made_ids_;
  std::map<int, std::vector<int>> groups_;  // members by the number that group() returned
  std::map<Handle, Call> calls_;            // under way
  Handle next_ = 0;
};

}  // namespace

int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool: return kNcclUint8;
    case DType::kInt32: return 2;
    case DType::kInt64: return 4;
    case DType::kFloat16: return 6;
    case DType::kFloat32: return 7;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 9;
  }
  return kNcclUint8;
}

Result<const Nccl*> nccl_library() {
  static const Result<const Nccl*> loaded = []() -> Result<const Nccl*> {
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return invalid_input(fmt::format("expected NCCL (libnccl.so.2), found none: {}", dlerror()));
    static Nccl nccl;
    std::string missing;
    const auto find = [&](auto& function, const char* name) {
      void* found = dlsym(library, name);
      if (found == nullptr) missing = name;
      std::memcpy(&function, &found, sizeof(found));
    };
    find(nccl.error_string, "ncclGetErrorString");
    find(nccl.get_version, "ncclGetVersion");
    find(nccl.get_unique_id, "ncclGetUniqueId");
    find(nccl.comm_init_rank, "ncclCommInitRank");
    find(nccl.comm_destroy, "ncclCommDestroy");
    find(nccl.group_start, "ncclGroupStart");
    find(nccl.group_end, "ncclGroupEnd");
    find(nccl.send, "ncclSend");
    find(nccl.recv, "ncclRecv");
    find(nccl.all_reduce, "ncclAllReduce");
    find(nccl.all_gather, "ncclAllGather");
    find(nccl.reduce_scatter, "ncclReduceScatter");
    if (!missing.empty())
      return invalid_input(fmt::format("expected {} in libnccl.so.2, found none", missing));
    return &nccl;
  }();
  return loaded;
}

Result<std::unique_ptr<comm::Communicator>> nccl_communicator(const Nccl& nccl,
                                                              comm::Communicator& world,
                                                              const Connections& connections,
                                                              Place place, PlaceOf place_of) {
  auto made = std::make_unique<NcclCommunicator>(nccl, world, place, std::move(place_of));
  TESSERA_TRY_VOID(made->connect(connections));
  return made;
}

}  // namespace tessera::device
