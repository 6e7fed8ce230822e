#include "tessera/runtime/device/nccl.h"

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
#include "tessera/runtime/device/nccl_moves.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::device {
namespace {

using comm::Handle;

class NcclCommunicator final : public comm::Communicator {
 public:
  NcclCommunicator(const Nccl& nccl, comm::Communicator& world, Place place, PlaceOf place_of)
      : nccl_(nccl), world_(world), moves_(nccl, world.rank(), place, std::move(place_of)) {}
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
      moves_.check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
      made_ids_[key] = id;
      append(mine, key, id);
    }
    std::map<std::vector<int>, NcclId> ids;
    for (const std::string& text : comm::gather_bytes(world_, mine)) read_ids(text, ids);
    moves_.check(nccl_.group_start(), "ncclGroupStart");
    for (auto& [key, link] : links_) {
      moves_.check(nccl_.comm_init_rank(&link.comm, static_cast<int>(link.members.size()),
                                        ids.at(key), static_cast<int>(link.me)),
                   "ncclCommInitRank");
    }
    moves_.check(nccl_.group_end(), "ncclGroupEnd");
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
        link, label, [&] { moves_.move(link, items); },
        [this, items, sent] { comm::add_traffic(items, sent, counters()); });
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from,
                    const comm::Label& label) override {
    Link& link = links_.at(link_of_message_.at({rank(), to, tag}));
    const int64_t bytes = from.box.volume() * dtype_bytes(dtype);
    return begin(
        link, label,
        [&] {
          if (bytes > 0) moves_.send(link, 1, moves_.flat(dtype, {{&from, from.box}}));
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
          const at::Tensor memory = moves_.room(dtype, {{&into, into.box}});
          moves_.receive(link, 0, memory);
          moves_.unpack(dtype, memory, {{&into, into.box}});
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
  c10::Stream current_stream() const {
    return c10::impl::VirtualGuardImpl(moves_.device().type()).getStream(moves_.device());
  }

  void add_link(const std::vector<int>& key, const std::vector<int>& members) {
    if (links_.contains(key)) return;  // a stream of the pool is for one link
    const auto me = std::ranges::find(members, rank());
    TESSERA_CHECK(me != members.end(), "rank {} is no member of a group that it names", rank());
    const c10::impl::VirtualGuardImpl guard(moves_.device().type());
    // The rank's own work takes its streams from the other pool, so that they do not meet.
    const c10::Stream stream =
        guard.getStreamFromGlobalPool(moves_.device(), /*isHighPriority=*/true);
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

  // Does work on the link's stream, behind what the current stream was given until now.
  Handle begin(Link& link, const comm::Label& label, const std::function<void()>& work,
               std::function<void()> count) {
    c10::Event before(moves_.device().type());
    before.record(current_stream());
    before.block(link.stream);
    Call call{c10::Event(moves_.device().type()), std::move(count)};
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

  const Nccl& nccl_;
  comm::Communicator& world_;
  const NcclMoves moves_;
  // By members, or by sender, receiver, kPair and a number.
  std::map<std::vector<int>, Link> links_;
  std::map<std::tuple<int, int, int64_t>, std::vector<int>> link_of_message_;  // keys of `links_`
  std::map<std::vector<int>, NcclId> made_ids_;
  std::map<int, std::vector<int>> groups_;  // members by the number that group() returned
  std::map<Handle, Call> calls_;            // under way
  Handle next_ = 0;
};

}  // namespace

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
