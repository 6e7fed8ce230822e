#include "tessera/comm/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "tessera/base/check.h"
#include "tessera/base/doing.h"
#include "tessera/comm/region.h"
#include "tessera/comm/transfer.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kCacheLine = 64;
constexpr int64_t kBlockBytes =
    3 << 13;  // an all-reduce works in blocks that fit the L1 cache; 3 | size

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A rank sleeps on its `Wakeup`. Peers signal it after each step that the rank may wait for.
class Wakeup {
 public:
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  void signal() {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (!asleep_.load(std::memory_order_seq_cst)) return;
    {
      const std::lock_guard lock(mutex_);
    }  // the sleeper has not tested the epoch yet, or it waits
    condition_.notify_one();
  }
  // Returns when the epoch is no longer `seen` or the time has come.
  void sleep(uint32_t seen, Clock::time_point until) {
    asleep_.store(true, std::memory_order_seq_cst);
    {
      std::unique_lock lock(mutex_);
      condition_.wait_until(lock, until,
                            [&] { return epoch_.load(std::memory_order_seq_cst) != seen; });
    }
    asleep_.store(false, std::memory_order_relaxed);
  }

 private:
  alignas(kCacheLine) std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

class SendOp;
class MeetingOp;

struct RankState {
  Wakeup wakeup;
  alignas(kCacheLine) std::atomic<bool> moving{false};      // it touches others' memory
  alignas(kCacheLine) std::atomic<SendOp*> inbox{nullptr};  // a stack; last sent on top
};

// One call of a group: the place where the ops of its members meet. A slot may be read after its op
// is gone. When all members have left a meeting, it is used for a later call.
struct Meeting {
  struct alignas(kCacheLine) Slot {
    std::atomic<const MeetingOp*> op{nullptr};  // set when the member has issued the call
    std::atomic<bool> moved{false};  // chunked: whether the member has written its chunk to all
    std::atomic<int64_t> bytes{0};   // sent by this member; added by the member that moved them
    std::atomic<int64_t> messages{0};
  };
  explicit Meeting(size_t members) : slots(members), pulled(members * members) {}
  void clear() {
    left.store(0, std::memory_order_relaxed);
    for (Slot& slot : slots) {
      slot.op.store(nullptr, std::memory_order_relaxed);
      slot.moved.store(false, std::memory_order_relaxed);
      slot.bytes.store(0, std::memory_order_relaxed);
      slot.messages.store(0, std::memory_order_relaxed);
    }
    for (auto& flag : pulled) flag.store(false, std::memory_order_relaxed);
  }
  std::atomic<bool>& pulled_by(size_t receiver, size_t source) {
    return pulled[receiver * slots.size() + source];
  }

  std::vector<Slot> slots;
  std::vector<std::atomic<bool>> pulled;  // receiver x source
  std::atomic<size_t> left{0};
};

// Gives each call of a group (a sequence number) its meeting. The lock guards only the list of
// meetings, not the data that moves.
class Group {
 public:
  explicit Group(std::vector<int> member_ranks) : members(std::move(member_ranks)) {}
  Meeting* meeting(int64_t sequence) {
    const std::lock_guard lock(mutex_);
    while (first_ + static_cast<int64_t>(open_.size()) <= sequence) {
      if (spare_.empty()) spare_.push_back(std::make_unique<Meeting>(members.size()));
      open_.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
    return open_[static_cast<size_t>(sequence - first_)].get();
  }
  void leave(Meeting& meeting) {
    if (meeting.left.fetch_add(1, std::memory_order_acq_rel) + 1 < members.size()) return;
    const std::lock_guard lock(mutex_);
    while (!open_.empty() &&
           open_.front()->left.load(std::memory_order_acquire) == members.size()) {
      open_.front()->clear();
      spare_.push_back(std::move(open_.front()));
      open_.pop_front();
      ++first_;
    }
  }

  const std::vector<int> members;

 private:
  std::mutex mutex_;
  std::deque<std::unique_ptr<Meeting>> open_;
  std::vector<std::unique_ptr<Meeting>> spare_;
  int64_t first_ = 0;  // sequence number of open_.front()
};

class World {
 public:
  World(int size, const Options& options)
      : options_(options), patience_(default_patience(size)), ranks_(static_cast<size_t>(size)) {
    std::vector<int> all(ranks_.size());
    std::iota(all.begin(), all.end(), 0);
    barrier_ = std::make_unique<Group>(std::move(all));
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  const Options& options() const { return options_; }
  const Patience& patience() const { return patience_; }
  RankState& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  bool aborted() const { return aborted_.load(std::memory_order_seq_cst); }

  Group* group(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Group>& group = groups_[members];
    if (!group) group = std::make_unique<Group>(members);
    return group.get();
  }

  Group* barrier_group() { return barrier_.get(); }

  // Aborts the run: keeps the first reason, wakes all ranks, and waits until no other rank touches
  // foreign memory.
  void abort(const std::string& reason, int rank, ErrorCode code = ErrorCode::kFault) {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted()) reason_ = {code, reason};
      aborted_.store(true, std::memory_order_seq_cst);
    }
    for (RankState& state : ranks_) state.wakeup.signal();
    for (int other = 0; other < size(); ++other) {
      while (other != rank && at(other).moving.load(std::memory_order_seq_cst)) {
        std::this_thread::yield();
      }
    }
  }
  Error reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  const Options options_;
  const Patience patience_;
  std::vector<RankState> ranks_;
  std::unique_ptr<Group> barrier_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  // guards the members below
  Error reason_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_;
};

// While a `Moving` lives, its rank may touch other ranks' memory. If the world was aborted before,
// the Moving converts to false, and the rank may not touch their memory.
class Moving {
 public:
  Moving(World& world, int rank) : flag_(world.at(rank).moving) {
    flag_.store(true, std::memory_order_seq_cst);
    allowed_ = !world.aborted();
  }
  ~Moving() { flag_.store(false, std::memory_order_seq_cst); }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;
  explicit operator bool() const { return allowed_; }

 private:
  std::atomic<bool>& flag_;
  bool allowed_ = false;
};

// One issued call of one rank.
class Op {
 public:
  Op(World& world, int rank, Label label) : world_(world), rank_(rank), label_(std::move(label)) {}
  virtual ~Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  // Advances the op as far as it can; returns whether it moved. Throws CommFault on a mismatch.
  virtual bool progress() = 0;
  virtual std::vector<int> missing() const = 0;      // the ranks that the op waits for
  virtual void count(Counters& counters) const = 0;  // called when the op is done
  bool done() const { return done_; }
  const Label& label() const { return label_; }

 protected:
  World& world_;
  const int rank_;
  const Label label_;
  bool done_ = false;
};

// An op on a group: a collective or the barrier.
class MeetingOp : public Op {
 public:
  MeetingOp(World& world, int rank, Label label, Group& group, int64_t sequence,
            std::vector<Item> items)
      : Op(world, rank, std::move(label)),
        group_(group),
        meeting_(*group.meeting(sequence)),
        me_(static_cast<size_t>(std::ranges::find(group.members, rank) - group.members.begin())),
        items_(std::move(items)),
        signature_(signature(group.members, items_)) {}

  // Publishes the op to the other members. Called when the op is complete as an object.
  void publish() {
    meeting_.slots[me_].op.store(this, std::memory_order_release);
    signal_members();
  }
  const std::vector<Item>& items() const { return items_; }
  void count(Counters& counters) const override { add_traffic(items_, sent_, counters); }

 protected:
  const MeetingOp* peer(size_t member) const {
    return meeting_.slots[member].op.load(std::memory_order_acquire);
  }
  void check_match(const MeetingOp& other) const {
    if (other.signature_ == signature_) return;
    throw CommFault{mismatch_text(rank_, text(), other.rank_, other.text())};
  }
  void count_sent(size_t member, int64_t bytes) {
    if (bytes == 0) return;
    meeting_.slots[member].bytes.fetch_add(bytes, std::memory_order_relaxed);
    meeting_.slots[member].messages.fetch_add(1, std::memory_order_relaxed);
  }
  void signal_members() {
    for (int member : group_.members) {
      if (member != rank_) world_.at(member).wakeup.signal();
    }
  }
  void finish() {
    const Meeting::Slot& mine = meeting_.slots[me_];
    sent_ = {mine.bytes.load(std::memory_order_relaxed),
             mine.messages.load(std::memory_order_relaxed)};
    done_ = true;
    group_.leave(meeting_);
  }
  // Returns whether all members have issued the call. Each poll asks this, so it allocates nothing.
  bool all_arrived() const {
    for (size_t j = 0; j < group_.members.size(); ++j) {
      if (peer(j) == nullptr) return false;
    }
    return true;
  }
  std::vector<int> not_arrived() const {
    std::vector<int> ranks;
    for (size_t j = 0; j < group_.members.size(); ++j) {
      if (peer(j) == nullptr) ranks.push_back(group_.members[j]);
    }
    return ranks;
  }

  Group& group_;
  Meeting& meeting_;
  const size_t me_;

 private:
  std::string text() const { return label_text(label_) + ": " + describe(items_); }

  const std::vector<Item> items_;
  const uint64_t signature_;
  Traffic sent_;
};

class BarrierOp final : public MeetingOp {
 public:
  using MeetingOp::MeetingOp;
  bool progress() override {
    if (!all_arrived()) return false;
    finish();
    return true;
  }
  std::vector<int> missing() const override { return not_arrived(); }
};

// Carries out any redistribution by boxes. Pulls from each source as it arrives (in member order if
// there is a combiner), then waits until the other members have pulled from this one.
class PullOp final : public MeetingOp {
 public:
  PullOp(World& world, int rank, Label label, Group& group, int64_t sequence,
         std::vector<Item> items)
      : MeetingOp(world, rank, std::move(label), group, sequence, std::move(items)) {
    for (const Item& item : MeetingOp::items()) assemblies_.emplace_back(item);
    for (size_t j = 0; j < group_.members.size(); ++j) {
      const auto needs = [&](size_t receiver, size_t source) {
        return std::ranges::any_of(MeetingOp::items(), [&](const Item& item) {
          return takes(*item.what, receiver, source);
        });
      };
      if (needs(me_, j)) sources_.push_back(j);
      if (j != me_ && needs(j, me_)) readers_.push_back(j);
    }
  }

  bool progress() override {
    bool any = pull_arrived();
    any |= std::erase_if(readers_, [&](size_t j) {
             return meeting_.pulled_by(j, me_).load(std::memory_order_acquire);
           }) > 0;
    if (!sources_.empty() || !readers_.empty()) return any;
    finish();
    return true;
  }

  std::vector<int> missing() const override {
    std::vector<int> ranks;
    for (size_t j : sources_) {
      if (peer(j) == nullptr) ranks.push_back(group_.members[j]);
    }
    if (!ranks.empty()) return ranks;
    for (size_t j : readers_) ranks.push_back(group_.members[j]);
    return ranks;
  }

 private:
  bool pull_arrived() {
    const bool in_order = items().front().what->combiner.has_value();
    size_t kept = 0;
    for (size_t i = 0; i < sources_.size(); ++i) {
      if ((in_order && kept > 0) || !pull(sources_[i])) sources_[kept++] = sources_[i];
    }
    const bool any = kept < sources_.size();
    sources_.resize(kept);
    return any;
  }

  bool pull(size_t source) {
    const MeetingOp* from = peer(source);
    if (from == nullptr) return false;
    const Moving moving(world_, rank_);
    if (!moving) return false;
    check_match(*from);
    int64_t bytes = 0;
    for (size_t i = 0; i < items().size(); ++i) {
      const std::vector<Box> boxes = taken(*items()[i].what, me_, source);
      assemblies_[i].take(from->items()[i].in, boxes);
      bytes += bytes_of(*items()[i].what, boxes);
    }
    if (source == me_) return true;
    count_sent(source, bytes);
    // After this store the source's op may be gone, because the source can now complete.
    meeting_.pulled_by(me_, source).store(true, std::memory_order_release);
    world_.at(group_.members[source]).wakeup.signal();
    return true;
  }

  std::vector<Assembly> assemblies_;
  std::vector<size_t> sources_;  // members from which this one has yet to pull, in member order
  std::vector<size_t> readers_;  // members that have yet to pull from this one
};

// Carries out an all-reduce of equal boxes: reduces the member's own chunk from all inputs and
// writes it to all outputs.
class ChunkedOp final : public MeetingOp {
 public:
  using MeetingOp::MeetingOp;

  bool progress() override {
    bool any = false;
    if (!moved_) {
      if (!all_arrived()) return false;
      const Moving moving(world_, rank_);
      if (!moving) return false;
      reduce_chunks();
      moved_ = any = true;
      meeting_.slots[me_].moved.store(true, std::memory_order_release);
      signal_members();
    }
    const bool all_moved = std::ranges::all_of(meeting_.slots, [](const Meeting::Slot& slot) {
      return slot.moved.load(std::memory_order_acquire);
    });
    if (!all_moved) return any;
    finish();
    return true;
  }

  std::vector<int> missing() const override {
    std::vector<int> ranks = not_arrived();
    if (!ranks.empty()) return ranks;
    for (size_t j = 0; j < group_.members.size(); ++j) {
      if (!meeting_.slots[j].moved.load(std::memory_order_acquire))
        ranks.push_back(group_.members[j]);
    }
    return ranks;
  }

 private:
  void reduce_chunks() {
    const size_t members = group_.members.size();
    std::vector<const MeetingOp*> ops(members);
    for (size_t j = 0; j < members; ++j) {
      ops[j] = peer(j);
      check_match(*ops[j]);
    }
    std::vector<int64_t> pulled(members, 0);  // bytes from each input
    std::vector<int64_t> pushed(members, 0);  // bytes to each output
    for (size_t i = 0; i < items().size(); ++i) {
      const Redistribution& what = *items()[i].what;
      const Interval whole = chunk(what, me_);
      const int64_t block = kBlockBytes / dtype_bytes(what.dtype);
      for (int64_t begin = whole.begin; begin < whole.end(); begin += block) {
        const Interval range = {begin, std::min(block, whole.end() - begin)};
        reduce_block(ops, i, range);
        const int64_t bytes = range.size * dtype_bytes(what.dtype);
        for (size_t j = 0; j < members; ++j) {
          pulled[j] += bytes;
          pushed[j] += bytes;
        }
      }
    }
    for (size_t j = 0; j < members; ++j) {
      if (j == me_) continue;
      count_sent(j, pulled[j]);
      count_sent(me_, pushed[j]);
    }
  }

  void reduce_block(const std::vector<const MeetingOp*>& ops, size_t item, Interval range) {
    const Redistribution& what = *items()[item].what;
    alignas(kCacheLine) std::array<std::byte, kBlockBytes> sum;
    pack_flat(what.dtype, ops[0]->items()[item].in, range, sum.data());
    for (size_t j = 1; j < ops.size(); ++j) {
      combine_flat(what.dtype, *what.combiner, ops[j]->items()[item].in, range, sum.data());
    }
    for (const MeetingOp* op : ops) {
      unpack_flat(what.dtype, sum.data(), op->items()[item].out, range);
    }
  }

  bool moved_ = false;
};

class SendOp final : public Op {
 public:
  SendOp(World& world, int rank, Label label, int to, int64_t tag, DType dtype, ArrayView from)
      : Op(world, rank, std::move(label)),
        to_(to),
        tag_(tag),
        dtype_(dtype),
        from_(std::move(from)) {}

  void publish() {
    RankState& receiver = world_.at(to_);
    next_ = receiver.inbox.load(std::memory_order_relaxed);
    while (!receiver.inbox.compare_exchange_weak(next_, this, std::memory_order_release,
                                                 std::memory_order_relaxed)) {
    }
    receiver.wakeup.signal();
  }
  bool progress() override {
    done_ = taken_.load(std::memory_order_acquire);
    return done_;
  }
  std::vector<int> missing() const override { return {to_}; }
  void count(Counters& counters) const override {
    counters.point_to_point.bytes += bytes_;
    counters.point_to_point.messages += bytes_ > 0 ? 1 : 0;
  }

  // These functions are for the receiver. After release(), the op may be gone.
  std::pair<int, int64_t> key() const { return {rank_, tag_}; }
  SendOp* next() const { return next_; }
  DType dtype() const { return dtype_; }
  const ArrayView& from() const { return from_; }
  std::string text() const {
    return fmt::format("{}: send of {} {}", label_text(label_), dtype_name(dtype_),
                       from_.box.to_string());
  }
  void release(int64_t bytes) {
    RankState& sender = world_.at(rank_);
    bytes_ = bytes;
    taken_.store(true, std::memory_order_release);
    sender.wakeup.signal();
  }

 private:
  const int to_;
  const int64_t tag_;
  const DType dtype_;
  const ArrayView from_;
  SendOp* next_ = nullptr;
  int64_t bytes_ = 0;
  std::atomic<bool> taken_{false};
};

// Messages that were sent to this rank and that it has not received yet, by sender and tag.
using Mail = std::map<std::pair<int, int64_t>, std::deque<SendOp*>>;

class ReceiveOp final : public Op {
 public:
  ReceiveOp(World& world, int rank, Label label, Mail& mail, int from, int64_t tag, DType dtype,
            ArrayView into)
      : Op(world, rank, std::move(label)),
        mail_(mail),
        from_(from),
        tag_(tag),
        dtype_(dtype),
        into_(std::move(into)) {}

  bool progress() override {
    const auto found = mail_.find({from_, tag_});
    if (found == mail_.end()) return false;
    const Moving moving(world_, rank_);
    if (!moving) return false;
    SendOp* send = found->second.front();
    if (send->dtype() != dtype_ || send->from().box.shape() != into_.box.shape()) {
      throw CommFault{mismatch_text(rank_,
                                    fmt::format("{}: receive of {} {}", label_text(label_),
                                                dtype_name(dtype_), into_.box.to_string()),
                                    from_, send->text())};
    }
    ArrayView from = send->from();
    from.box = into_.box;  // the shapes are equal; only the origin differs
    copy_region(dtype_, from, into_, into_.box);
    found->second.pop_front();
    if (found->second.empty()) mail_.erase(found);
    send->release(into_.box.volume() * dtype_bytes(dtype_));
    done_ = true;
    return true;
  }
  std::vector<int> missing() const override { return {from_}; }
  void count(Counters&) const override {}

 private:
  Mail& mail_;
  const int from_;
  const int64_t tag_;
  const DType dtype_;
  const ArrayView into_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(World& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  Counters& counters() override { return counters_; }
  void abort(const std::string& reason) override { world_.abort(reason, rank_); }

  int group(const std::vector<int>& members) override {
    const auto [entry, fresh] = group_ids_.try_emplace(members, static_cast<int>(groups_.size()));
    if (!fresh) return entry->second;
    TESSERA_CHECK(std::ranges::count(members, rank_) == 1, "rank {} in the group {}", rank_,
                  rank_list(members));
    groups_.push_back({world_.group(members), 0});
    return entry->second;
  }

  Handle issue(int group, std::vector<Item> items, const Label& label) override {
    LocalGroup& local = groups_.at(static_cast<size_t>(group));
    const std::vector<int>& members = local.shared->members;
    check_items(items, members.size(),
                static_cast<size_t>(std::ranges::find(members, rank_) - members.begin()));
    if (is_chunked(items)) return meet<ChunkedOp>(local, std::move(items), label);
    return meet<PullOp>(local, std::move(items), label);
  }

  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from, const Label& label) override {
    TESSERA_CHECK(to >= 0 && to < size(), "send to rank {} of {}", to, size());
    auto op = std::make_unique<SendOp>(world_, rank_, label, to, tag, dtype, std::move(from));
    op->publish();
    return add(std::move(op));
  }

  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const Label& label) override {
    TESSERA_CHECK(from >= 0 && from < size(), "receive from rank {} of {}", from, size());
    return add(std::make_unique<ReceiveOp>(world_, rank_, label, mail_, from, tag, dtype,
                                           std::move(into)));
  }

  void wait(Handle handle) override {
    const auto found = ops_.find(handle);
    TESSERA_CHECK(found != ops_.end(), "wait for handle {}, which is not in flight", handle);
    try {
      wait_for(*found->second);
    } catch (const CommFault& fault) {
      world_.abort(fault.message, rank_, fault.code);
      throw;
    }
    found->second->count(counters_);
    ops_.erase(found);
  }

  void barrier() override { wait(meet<BarrierOp>(barrier_, {}, {"barrier", "", ""})); }

  // Returns the labels of the calls that were issued and for which wait() has not returned.
  std::vector<std::string> in_flight() const {
    std::vector<std::string> labels;
    for (const auto& [handle, op] : ops_) labels.push_back(label_text(op->label()));
    return labels;
  }

 private:
  struct LocalGroup {
    Group* shared;
    int64_t next_sequence;
  };

  template <class Kind>
  Handle meet(LocalGroup& group, std::vector<Item> items, const Label& label) {
    auto op = std::make_unique<Kind>(world_, rank_, label, *group.shared, group.next_sequence++,
                                     std::move(items));
    op->publish();
    return add(std::move(op));
  }

  Handle add(std::unique_ptr<Op> op) {
    active_.push_back(op.get());
    ops_.emplace(next_handle_, std::move(op));
    return next_handle_++;
  }

  void wait_for(const Op& op) {
    const Patience patience = world_.patience();
    Wakeup& wakeup = world_.at(rank_).wakeup;
    std::optional<Clock::time_point> deadline;
    for (int idle = 0;; ++idle) {
      const uint32_t seen = wakeup.epoch();
      const bool any = progress();
      if (op.done()) return;
      if (world_.aborted()) {
        throw CommFault{fmt::format("rank {}: {}: stopped: {}", rank_, label_text(op.label()),
                                    world_.reason().message)};
      }
      if (any) {
        idle = -1;
      } else if (idle < patience.spins) {
        pause_cpu();
      } else if (idle < patience.spins + patience.yields) {
        std::this_thread::yield();
      } else {
        const Clock::time_point now = Clock::now();
        if (!deadline) deadline = now + world_.options().timeout;
        if (now >= *deadline) {
          throw CommFault{timeout_text(rank_, op.label(), op.missing(), world_.options().timeout)};
        }
        wakeup.sleep(seen, *deadline);
        --idle;
      }
    }
  }

  // Makes one round over all calls in flight; returns whether any of them advanced.
  bool progress() {
    sort_mail();
    bool any = false;
    for (Op* op : active_) any |= op->progress();
    if (any) std::erase_if(active_, [](const Op* op) { return op->done(); });
    return any;
  }

  void sort_mail() {
    std::atomic<SendOp*>& inbox = world_.at(rank_).inbox;
    if (inbox.load(std::memory_order_relaxed) == nullptr) return;
    std::vector<SendOp*> sent;
    for (SendOp* op = inbox.exchange(nullptr, std::memory_order_acquire); op; op = op->next()) {
      sent.push_back(op);
    }
    for (size_t i = sent.size(); i-- > 0;) mail_[sent[i]->key()].push_back(sent[i]);
  }

  World& world_;
  const int rank_;
  Counters counters_;
  std::map<std::vector<int>, int> group_ids_;
  std::vector<LocalGroup> groups_;
  LocalGroup barrier_{world_.barrier_group(), 0};
  Mail mail_;
  Handle next_handle_ = 0;
  std::map<Handle, std::unique_ptr<Op>> ops_;  // issued and not waited for
  std::vector<Op*> active_;                    // ops that are not done, in order of issue
};

void run_rank(World& world, ThreadCommunicator& communicator,
              const std::function<void(Communicator&)>& body) {
  const int rank = communicator.rank();
  try {
    body(communicator);
    const std::vector<std::string> left = communicator.in_flight();
    if (left.empty()) return;
    world.abort(fmt::format("rank {}: {}: issued and not waited for", rank, left.front()), rank);
  } catch (const CommFault& fault) {
    world.abort(fault.message, rank, fault.code);
  } catch (const std::exception& error) {
    if (is_memory_exhausted(error)) {
      const Error memory = memory_exhausted();
      world.abort(fmt::format("rank {}: {}", rank, memory.message), rank, memory.code);
    } else {
      world.abort(fmt::format("rank {}: {}", rank, error.what()), rank);
    }
  } catch (...) {
    world.abort(fmt::format("rank {}: unknown exception", rank), rank);
  }
}

}  // namespace

Patience default_patience(int ranks) {
  const unsigned cores = std::thread::hardware_concurrency();
  if (static_cast<unsigned>(ranks) <= cores) return {.spins = 4000, .yields = 32};
  return {.spins = 0, .yields = 4};
}

Status run_threads(int ranks, const Options& options,
                   const std::function<void(Communicator&)>& body) {
  if (ranks < 1) return invalid_input(fmt::format("expected at least 1 rank, found {}", ranks));
  World world(ranks, options);
  std::vector<std::unique_ptr<ThreadCommunicator>> endpoints;
  for (int rank = 0; rank < ranks; ++rank) {
    endpoints.push_back(std::make_unique<ThreadCommunicator>(world, rank));
  }
  std::vector<std::thread> threads;
  try {
    for (auto& endpoint : endpoints) {
      threads.emplace_back(
          [&world, &body, &endpoint = *endpoint] { run_rank(world, endpoint, body); });
    }
  } catch (const std::system_error& error) {
    world.abort(fmt::format("rank {}: no thread: {}", threads.size(), error.what()), -1);
  }
  for (std::thread& thread : threads) thread.join();
  if (world.aborted()) return tl::unexpected(world.reason());
  return {};
}

}  // namespace tessera::comm
