// The communicator over MPI. Each rank is a process, in which only the thread that called mpi_world
// uses the communicator (MPI is initialised with MPI_THREAD_FUNNELED). The algorithm, the order of
// combination and the accounting are those of the threads (transfer.h): members send each other
// packed pieces directly.
//
// When a rank is lost, under Open MPI 4: mpirun sees its child die of a signal or exit with a code
// other than 0. It prints a notice, sends SIGTERM to all other ranks and, about a second later,
// SIGKILL. Its own exit code is that of the first rank that failed (128 + signal if a signal ended
// that rank). The other ranks get no MPI error; they only stop hearing from the lost rank. The
// SIGTERM usually comes before any time limit. So mpi_install_fault_handler() makes the SIGTERM
// handler print the one line and exit with code 3. If a launcher does not end the other ranks, or
// if a rank hangs, the time limit of wait() ends them. A rank that ends in a fault skips
// MPI_Finalize, which would wait for the lost rank.
#include <fmt/format.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "tessera/base/check.h"
#include "tessera/base/philox.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/mpi/post.h"
#include "tessera/comm/process_hosts.h"
#include "tessera/comm/region.h"
#include "tessera/comm/transfer.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPointToPoint = 1;
constexpr uint64_t kBarrier = 2;
constexpr int kPollsBeforeYield = 200;
constexpr int kPollsBeforeNap = 2000;
constexpr std::chrono::microseconds kNap{50};
// How long a rank that timed out waits for the answers of ranks that are late themselves.
constexpr std::chrono::milliseconds kAnswerTime{1000};

// The text that the SIGTERM handler prints. It is a global, because a signal handler can reach only
// globals. There are two texts, and `current` is the index of the valid one, so that the handler
// never sees a text that is half written.
struct FaultNote {
  std::array<std::array<char, 512>, 2> texts{};
  std::atomic<int> current{0};
  void set(const std::string& text) {
    const int next = 1 - current.load(std::memory_order_relaxed);
    std::array<char, 512>& target = texts[static_cast<size_t>(next)];
    const size_t size = std::min(text.size(), target.size() - 1);
    std::memcpy(target.data(), text.data(), size);
    target[size] = '\0';
    current.store(next, std::memory_order_release);
  }
};
FaultNote fault_note;

extern "C" void tessera_on_sigterm(int) {
  const auto& text = fault_note.texts[static_cast<size_t>(fault_note.current.load())];
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), strlen(text.data()));
  _exit(3);
}

void ignore_sigterm() {
  struct sigaction action = {};
  sigaction(SIGTERM, nullptr, &action);
  if (action.sa_handler == tessera_on_sigterm) signal(SIGTERM, SIG_IGN);
}

bool faulted = false;  // whether this process had a fault; read when it exits
void finalize_at_exit() {
  int done = 0;
  MPI_Finalized(&done);
  if (!done && !faulted) MPI_Finalize();
}

Header make_header(const Address& address, uint64_t call_signature, const std::string& text) {
  Header header;
  header.address = address;
  header.signature = call_signature;
  std::memcpy(header.text.data(), text.data(), std::min(text.size(), header.text.size() - 1));
  return header;
}

class Op {
 public:
  Op(Post& post, Label label) : post_(post), label_(std::move(label)) {}
  virtual ~Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  // Advances the op as far as possible; returns whether it moved. Throws CommFault on a mismatch.
  bool progress() {
    const bool received = receive();
    const bool sent =
        std::erase_if(sends_, [&](const auto& send) { return post_.sent(send.second); }) > 0;
    done_ = complete() && sends_.empty();
    return received || sent || done_;
  }
  bool done() const { return done_; }
  const Label& label() const { return label_; }
  std::vector<int> missing() const {
    std::vector<int> ranks = waiting_for();
    if (ranks.empty()) {
      for (const auto& [rank, ticket] : sends_) ranks.push_back(rank);
    }
    std::ranges::sort(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }
  virtual void count(Counters& counters) const = 0;

 protected:
  virtual bool receive() = 0;         // takes what has arrived
  virtual bool complete() const = 0;  // whether all has been received
  virtual std::vector<int> waiting_for() const = 0;

  void send(int to, ParcelPtr parcel) {
    if (const int64_t bytes = parcel->header().payload_bytes; bytes > 0) {
      sent_.bytes += bytes;
      sent_.messages += 1;
    }
    sends_.emplace_back(to, post_.send(to, std::move(parcel)));
  }
  ParcelPtr take(int from, const Header& mine) {
    ParcelPtr parcel = post_.receive(from, mine.address);
    if (!parcel) return nullptr;
    const Header theirs = parcel->header();
    if (theirs.signature != mine.signature) {
      throw CommFault{mismatch_text(post_.rank(), mine.text.data(), from, theirs.text.data())};
    }
    return parcel;
  }

  Post& post_;
  const Label label_;
  Traffic sent_;
  bool done_ = false;

 private:
  std::vector<std::pair<int, Post::Ticket>> sends_;  // receiver and ticket, for messages under way
};

struct GroupState {
  std::vector<int> members;
  size_t me = 0;
  uint64_t key = 0;
  int64_t next_sequence = 0;
};

class GroupOp : public Op {
 public:
  GroupOp(Post& post, Label label, GroupState& group, std::vector<Item> items)
      : Op(post, std::move(label)),
        members_(group.members),
        me_(group.me),
        items_(std::move(items)),
        header_(make_header({group.key, 0, group.next_sequence++, 0}, signature(members_, items_),
                            label_text(label_) + ": " + describe(items_))) {}
  void count(Counters& counters) const override { add_traffic(items_, sent_, counters); }

 protected:
  Header header(int64_t phase, int64_t payload_bytes) const {
    Header out = header_;
    out.address.phase = phase;
    out.payload_bytes = payload_bytes;
    return out;
  }
  std::vector<int> ranks_of(const std::vector<size_t>& members) const {
    std::vector<int> ranks;
    for (size_t j : members) ranks.push_back(members_[j]);
    return ranks;
  }

  const std::vector<int> members_;
  const size_t me_;
  const std::vector<Item> items_;

 private:
  const Header header_;
};

// The barrier. Each rank sends an empty message to every other rank and waits for one from each, so
// that it can name a rank that is lost.
class BarrierOp final : public GroupOp {
 public:
  BarrierOp(Post& post, Label label, GroupState& group)
      : GroupOp(post, std::move(label), group, {}) {
    for (size_t j = 0; j < members_.size(); ++j) {
      if (j == me_) continue;
      send(members_[j], post_.parcel(header(0, 0)));
      sources_.push_back(j);
    }
  }

 protected:
  bool receive() override {
    return std::erase_if(sources_,
                         [&](size_t j) { return take(members_[j], header(0, 0)) != nullptr; }) > 0;
  }
  bool complete() const override { return sources_.empty(); }
  std::vector<int> waiting_for() const override { return ranks_of(sources_); }

 private:
  std::vector<size_t> sources_;
};

// Carries out any redistribution by boxes.
class PieceOp final : public GroupOp {
 public:
  PieceOp(Post& post, Label label, GroupState& group, std::vector<Item> items)
      : GroupOp(post, std::move(label), group, std::move(items)) {
    for (const Item& item : items_) assemblies_.emplace_back(item);
    for (size_t step = 1; step < members_.size(); ++step)
      send_pieces((me_ + step) % members_.size());
    for (size_t j = 0; j < members_.size(); ++j) {
      if (std::ranges::any_of(items_, [&](const Item& i) { return takes(*i.what, me_, j); })) {
        sources_.push_back(j);
      }
    }
  }

 protected:
  bool receive() override {
    const bool in_order = items_.front().what->combiner.has_value();
    size_t kept = 0;
    for (size_t i = 0; i < sources_.size(); ++i) {
      if ((in_order && kept > 0) || !assemble(sources_[i])) sources_[kept++] = sources_[i];
    }
    const bool any = kept < sources_.size();
    sources_.resize(kept);
    return any;
  }
  bool complete() const override { return sources_.empty(); }
  std::vector<int> waiting_for() const override { return ranks_of(sources_); }

 private:
  using Pieces = std::vector<std::vector<Box>>;  // by item
  Pieces pieces(size_t receiver, size_t source) const {
    Pieces out;
    for (const Item& item : items_) out.push_back(taken(*item.what, receiver, source));
    return out;
  }
  int64_t total_bytes(const Pieces& pieces) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < pieces.size(); ++i) bytes += bytes_of(*items_[i].what, pieces[i]);
    return bytes;
  }

  void send_pieces(size_t receiver) {
    Pieces outgoing = pieces(receiver, me_);
    const int64_t bytes = total_bytes(outgoing);
    if (bytes == 0) return;
    if (outgoing != packed_pieces_ || !packed_) {  // several receivers often take the same boxes
      packed_ = post_.parcel(header(0, bytes));
      std::byte* at = packed_->payload();
      for (size_t i = 0; i < outgoing.size(); ++i) {
        for (const Box& box : outgoing[i]) {
          const DType dtype = items_[i].what->dtype;
          copy_region(dtype, items_[i].in, packed_view(at, box), box);
          at += box.volume() * dtype_bytes(dtype);
        }
      }
      packed_pieces_ = std::move(outgoing);
    }
    send(members_[receiver], packed_);
  }

  bool assemble(size_t source) {
    ParcelPtr parcel;
    if (source != me_) {
      parcel = take(members_[source], header(0, 0));
      if (!parcel) return false;
    }
    const Pieces incoming = pieces(me_, source);
    std::byte* at = parcel ? parcel->payload() : nullptr;
    for (size_t i = 0; i < incoming.size(); ++i) {
      if (source == me_) {
        assemblies_[i].take(items_[i].in, incoming[i]);
        continue;
      }
      for (const Box& box : incoming[i]) {
        assemblies_[i].take(packed_view(at, box), {box});
        at += box.volume() * dtype_bytes(items_[i].what->dtype);
      }
    }
    return true;
  }

  std::vector<Assembly> assemblies_;
  std::vector<size_t> sources_;  // members that have yet to send, in member order
  Pieces packed_pieces_;         // the boxes that are in packed_
  ParcelPtr packed_;
};

// Carries out an all-reduce of equal boxes. In phase 0 every member sends its part of each chunk to
// the chunk's owner; in phase 1 each owner sends the reduced chunk to all others.
class ChunkedOp final : public GroupOp {
 public:
  ChunkedOp(Post& post, Label label, GroupState& group, std::vector<Item> items)
      : GroupOp(post, std::move(label), group, std::move(items)), parts_(members_.size()) {
    for (size_t step = 1; step < members_.size(); ++step) {
      const size_t owner = (me_ + step) % members_.size();
      if (chunk_bytes(owner) == 0) continue;
      send(members_[owner], pack(owner, 0));
      results_.push_back(owner);
    }
    if (chunk_bytes(me_) == 0) return;
    parts_[me_] = pack(me_, 1);
    for (size_t j = 0; j < members_.size(); ++j) {
      if (j != me_) sources_.push_back(j);
    }
    if (sources_.empty()) reduce();
  }

 protected:
  bool receive() override {
    bool any = std::erase_if(sources_, [&](size_t j) {
                 parts_[j] = take(members_[j], header(0, 0));
                 return parts_[j] != nullptr;
               }) > 0;
    if (any && sources_.empty()) reduce();
    any |= std::erase_if(results_, [&](size_t owner) {
             const ParcelPtr parcel = take(members_[owner], header(1, 0));
             if (parcel) unpack(owner, *parcel);
             return parcel != nullptr;
           }) > 0;
    return any;
  }
  bool complete() const override { return sources_.empty() && results_.empty(); }
  std::vector<int> waiting_for() const override {
    return ranks_of(sources_.empty() ? results_ : sources_);
  }

 private:
  // Calls f(item, range, offset in the packed chunk) for the part that each item has in a chunk.
  template <class F>
  int64_t for_each_part(size_t owner, const F& f) const {
    int64_t offset = 0;
    for (const Item& item : items_) {
      const Interval range = chunk(*item.what, owner);
      f(item, range, offset);
      offset += range.size * dtype_bytes(item.what->dtype);
    }
    return offset;
  }
  int64_t chunk_bytes(size_t owner) const {
    return for_each_part(owner, [](const Item&, Interval, int64_t) {});
  }
  ParcelPtr pack(size_t owner, int64_t phase) {
    ParcelPtr parcel = post_.parcel(header(phase, chunk_bytes(owner)));
    for_each_part(owner, [&](const Item& item, Interval range, int64_t offset) {
      pack_flat(item.what->dtype, item.in, range, parcel->payload() + offset);
    });
    return parcel;
  }
  void unpack(size_t owner, Parcel& parcel) {
    for_each_part(owner, [&](const Item& item, Interval range, int64_t offset) {
      unpack_flat(item.what->dtype, parcel.payload() + offset, item.out, range);
    });
  }
  // Reduces the parts in member order. The result replaces the part of member 0 and gets a header
  // of its own.
  void reduce() {
    const ParcelPtr result = parts_.front();
    result->set_header(header(1, chunk_bytes(me_)));
    for (size_t j = 1; j < parts_.size(); ++j) {
      for_each_part(me_, [&](const Item& item, Interval range, int64_t offset) {
        combine_run(item.what->dtype, *item.what->combiner, parts_[j]->payload() + offset,
                    result->payload() + offset, range.size);
      });
    }
    parts_.clear();
    for (size_t step = 1; step < members_.size(); ++step) {
      send(members_[(me_ + step) % members_.size()], result);
    }
    unpack(me_, *result);
  }

  std::vector<ParcelPtr> parts_;  // parts of this member's own chunk, by member
  std::vector<size_t> sources_;   // members whose parts are yet to come
  std::vector<size_t> results_;   // members whose reduced chunks are yet to come
};

class SendOp final : public Op {
 public:
  SendOp(Post& post, Label label, int to, Address address, DType dtype, const ArrayView& from,
         uint64_t call_signature)
      : Op(post, std::move(label)) {
    Header header = make_header(address, call_signature,
                                fmt::format("{}: send of {} {}", label_text(label_),
                                            dtype_name(dtype), from.box.to_string()));
    header.payload_bytes = from.box.volume() * dtype_bytes(dtype);
    ParcelPtr parcel = post.parcel(header);
    copy_region(dtype, from, packed_view(parcel->payload(), from.box), from.box);
    send(to, std::move(parcel));
  }
  void count(Counters& counters) const override {
    counters.point_to_point.bytes += sent_.bytes;
    counters.point_to_point.messages += sent_.messages;
  }

 protected:
  bool receive() override { return false; }
  bool complete() const override { return true; }
  std::vector<int> waiting_for() const override { return {}; }
};

class ReceiveOp final : public Op {
 public:
  ReceiveOp(Post& post, Label label, int from, Address address, DType dtype, ArrayView into,
            uint64_t call_signature)
      : Op(post, std::move(label)),
        from_(from),
        dtype_(dtype),
        into_(std::move(into)),
        header_(make_header(address, call_signature,
                            fmt::format("{}: receive of {} {}", label_text(label_),
                                        dtype_name(dtype), into_.box.to_string()))) {}
  void count(Counters&) const override {}

 protected:
  bool receive() override {
    if (received_) return false;
    const ParcelPtr parcel = take(from_, header_);
    if (!parcel) return false;
    copy_region(dtype_, packed_view(parcel->payload(), into_.box), into_, into_.box);
    received_ = true;
    return true;
  }
  bool complete() const override { return received_; }
  std::vector<int> waiting_for() const override { return {from_}; }

 private:
  const int from_;
  const DType dtype_;
  const ArrayView into_;
  const Header header_;
  bool received_ = false;
};

uint64_t point_to_point_signature(DType dtype, const Box& box) {
  std::vector<int64_t> words = box.shape();
  words.push_back(static_cast<int64_t>(dtype));
  return stable_hash(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t),
                     1);
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const Options& options)
      : options_(options), post_(options.rank_of_process) {
    barrier_.members.resize(static_cast<size_t>(size()));
    for (int i = 0; i < size(); ++i) barrier_.members[static_cast<size_t>(i)] = i;
    barrier_.me = static_cast<size_t>(rank());
    barrier_.key = kBarrier;
    note("between collectives");
  }

  int rank() const override { return post_.rank(); }
  int size() const override { return post_.size(); }
  Counters& counters() override { return counters_; }

  int group(const std::vector<int>& members) override {
    const auto [entry, fresh] = group_ids_.try_emplace(members, static_cast<int>(groups_.size()));
    if (!fresh) return entry->second;
    TESSERA_CHECK(std::ranges::count(members, rank()) == 1, "rank {} in the group {}", rank(),
                  rank_list(members));
    GroupState state;
    state.members = members;
    state.me = static_cast<size_t>(std::ranges::find(members, rank()) - members.begin());
    state.key =
        stable_hash(reinterpret_cast<const char*>(members.data()), members.size() * sizeof(int), 0);
    for (const GroupState& other : groups_) {
      TESSERA_CHECK(other.key != state.key, "groups {} and {} have the same key",
                    rank_list(other.members), rank_list(members));
    }
    groups_.push_back(std::move(state));
    return entry->second;
  }

  Handle issue(int group, std::vector<Item> items, const Label& label) override {
    GroupState& state = groups_.at(static_cast<size_t>(group));
    check_items(items, state.members.size(), state.me);
    if (is_chunked(items))
      return add(std::make_unique<ChunkedOp>(post_, label, state, std::move(items)));
    return add(std::make_unique<PieceOp>(post_, label, state, std::move(items)));
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from, const Label& label) override {
    TESSERA_CHECK(to >= 0 && to < size(), "send to rank {} of {}", to, size());
    const Address address = {kPointToPoint, tag, next_sent_[{to, tag}]++, 0};
    return add(std::make_unique<SendOp>(post_, label, to, address, dtype, from,
                                        point_to_point_signature(dtype, from.box)));
  }
  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const Label& label) override {
    TESSERA_CHECK(from >= 0 && from < size(), "receive from rank {} of {}", from, size());
    const Address address = {kPointToPoint, tag, next_received_[{from, tag}]++, 0};
    const uint64_t call_signature = point_to_point_signature(dtype, into.box);
    return add(std::make_unique<ReceiveOp>(post_, label, from, address, dtype, std::move(into),
                                           call_signature));
  }

  void wait(Handle handle) override {
    const auto found = ops_.find(handle);
    TESSERA_CHECK(found != ops_.end(), "wait for handle {}, which is not in flight", handle);
    try {
      wait_for(*found->second);
    } catch (const CommFault& fault) {
      abort(fault.message);
      throw;
    }
    found->second->count(counters_);
    ops_.erase(found);
  }

  void barrier() override {
    wait(add(std::make_unique<BarrierOp>(post_, Label{"barrier", "", ""}, barrier_)));
  }

  void abort(const std::string& reason) override {
    faulted = true;
    ignore_sigterm();  // this process prints its own line; mpirun's SIGKILL comes a second later
    post_.broadcast_abort(reason);
  }

 private:
  Handle add(std::unique_ptr<Op> op) {
    active_.push_back(op.get());
    ops_.emplace(next_handle_, std::move(op));
    return next_handle_++;
  }

  void note(const std::string& where) {
    fault_note.set(fmt::format(
        "tessera: rank {}: {}: stopped by SIGTERM: another rank was lost, or the job cancelled\n",
        rank(), where));
  }

  void wait_for(const Op& op) {
    if (op.done()) return;
    note(label_text(op.label()));
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    for (int idle = 0;; ++idle) {
      const bool any = progress();
      if (op.done()) break;
      if (post_.abort_reason()) {
        throw CommFault{fmt::format("rank {}: {}: stopped: {}", rank(), label_text(op.label()),
                                    *post_.abort_reason())};
      }
      if (any) idle = 0;
      if (idle < kPollsBeforeYield) continue;
      answer_questions(op);
      if (Clock::now() >= deadline) {
        const std::vector<int> silent = silent_ranks(op);
        if (op.done() || post_.abort_reason()) continue;
        throw CommFault{timeout_text(rank(), op.label(), silent, options_.timeout)};
      }
      // There are more processes than cores. A process that only yields still uses its share of a
      // core, so this process sleeps briefly, and the process that has the data can run.
      if (idle < kPollsBeforeNap) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
    note(fmt::format("after {}", label_text(op.label())));
  }

  void answer_questions(const Op& op) {
    for (const int whom : post_.take_questions()) post_.answer(whom, op.missing());
  }

  // Returns the ranks that keep an operation waiting too long. A rank that the operation waits for
  // may itself be waiting. So this rank asks each of them which ranks it waits for, then asks
  // those, and so on. Returns the ranks that do not answer; if all answer, returns the ranks that
  // the operation waits for.
  std::vector<int> silent_ranks(const Op& op) {
    post_.forget_answers();
    std::set<int> asked = {rank()};
    const auto ask = [&](const std::vector<int>& ranks) {
      for (const int whom : ranks) {
        if (asked.insert(whom).second) post_.ask(whom);
      }
    };
    const auto silent = [&] {
      std::vector<int> ranks;
      for (const int one : asked) {
        if (one != rank() && !post_.answers().contains(one)) ranks.push_back(one);
      }
      return ranks;
    };
    ask(op.missing());
    const Clock::time_point end = Clock::now() + std::min(kAnswerTime, options_.timeout / 4);
    while (Clock::now() < end && !silent().empty() && !op.done()) {
      progress();
      if (post_.abort_reason()) break;
      answer_questions(op);
      for (const auto& [whom, ranks] : post_.answers()) {
        if (asked.contains(whom)) ask(ranks);
      }
      std::this_thread::sleep_for(kNap);
    }
    const std::vector<int> found = silent();
    return found.empty() ? op.missing() : found;
  }

  bool progress() {
    bool any = post_.progress();
    for (Op* op : active_) any |= op->progress();
    if (any) std::erase_if(active_, [](const Op* op) { return op->done(); });
    return any;
  }

  const Options options_;
  Post post_;
  Counters counters_;
  std::map<std::vector<int>, int> group_ids_;
  std::vector<GroupState> groups_;
  GroupState barrier_;
  std::map<std::pair<int, int64_t>, int64_t> next_sent_;      // by receiver and tag
  std::map<std::pair<int, int64_t>, int64_t> next_received_;  // by sender and tag
  Handle next_handle_ = 0;
  std::map<Handle, std::unique_ptr<Op>> ops_;  // issued and not waited for
  std::vector<Op*> active_;                    // ops that are not done, in order of issue
};

int processes_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 1;
}

}  // namespace

bool mpi_available() { return true; }
bool mpi_launched() { return processes_launched() > 1; }

namespace {

// Initialises MPI once.
Status initialise() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) return {};
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    return fault("MPI could not be initialised");
  }
  std::atexit(finalize_at_exit);
  return {};
}

}  // namespace

Result<std::unique_ptr<Communicator>> mpi_world(const Options& options) {
  TESSERA_TRY_VOID(initialise());
  return std::make_unique<MpiCommunicator>(options);
}

Result<std::vector<std::string>> mpi_process_hosts() {
  TESSERA_TRY_VOID(initialise());
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> mine{};
  int length = 0, processes = 1;
  MPI_Get_processor_name(mine.data(), &length);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  std::vector<char> all(static_cast<size_t>(processes) * mine.size());
  const int size = static_cast<int>(mine.size());
  MPI_Allgather(mine.data(), size, MPI_CHAR, all.data(), size, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> out;
  for (size_t p = 0; p < static_cast<size_t>(processes); ++p)
    out.emplace_back(all.data() + p * mine.size());
  return out;
}

void mpi_install_fault_handler() {
  struct sigaction action = {};
  action.sa_handler = tessera_on_sigterm;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace tessera::comm
