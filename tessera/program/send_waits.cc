// Decides, for each message that a block of a micro-batch sends, where the message is awaited and
// how many copies its buffer has. The waits are chosen such that no rank waits for a receive that
// another rank can post only after the waiting rank has gone on.
//
// There are four ways to await a message. With the first three, each micro-batch that is between
// the first and the last use of the buffer has a copy of the buffer. With a ring, the buffer has as
// many copies as the order of blocks needs:
//
//   next run   before the sending block writes the buffer again, one run later (lag 1); the last
//              message in the update
//   backward   where the backward block of the sending stage begins, for the same micro-batch
//   last use   after the last block of the micro-batch that reads the buffer
//   ring       as next run, but `lag` runs later. With a copy for each micro-batch, in the update
//
// A row is a row of the plan's schedule: the order of blocks for all ranks that are at the same
// places. Each buffer begins with the first way that its readers allow. Then the rows are played
// against each other, run by run, and a row waits for a send only where the way says. If no row can
// go on, the first send on the cycle of rows that wait for each other gets one more copy. The part
// that was played stays valid, because with more copies every wait comes later. If the plan's order
// can be carried out when every message leaves as soon as its value exists, the rows are played to
// their end. For any other plan the verifier reports why it cannot be carried out.
//
// A row may be played for all its ranks, because a cycle of ranks that wait for each other is also
// a cycle of their rows. A send counts as received when all rows of the receiving place have posted
// their receives, and a message as arrived when all rows of the sending place have sent it.
#include "tessera/program/send_waits.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/program/crossing.h"
#include "tessera/program/touches.h"

namespace tessera {
namespace {

constexpr size_t kNoPlace = static_cast<size_t>(-1);
// TextInstruction::order of a wait that comes after all other instructions.
constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

enum class Way : uint8_t { kNextRun, kBackward, kLastUse, kRing };

// A `Sent` is a buffer that a block of a micro-batch sends, perhaps to several places.
struct Sent {
  PlaceId place;
  BlockRef block;
  int buffer = -1;
  std::vector<int> handles;
  std::set<BlockRef> uses;  // blocks of micro-batches that touch the buffer
  // Position of the first instruction of `block` that writes the buffer; kNoPlace: only other
  // blocks write it.
  size_t first_write = kNoPlace;
  Way way = Way::kNextRun;
  BlockRef at;        // kBackward, kLastUse: the block that waits
  int64_t slots = 1;  // copies of the buffer
  int64_t lag = 1;    // kNextRun, kRing: how many runs of the block later the wait is
};

// A `Meeting` is a message or a collective that rows wait for. It notes which rows have taken part
// in each micro-batch. A collective's rows are both senders and receivers.
struct Meeting {
  std::vector<size_t> senders, receivers;  // rows
  std::vector<uint8_t> sent, received;     // by micro-batch and position among the rows
};

struct Event {
  enum Kind : uint8_t { kSend, kReceive, kArrival, kReceipt } kind = kSend;
  When when = When::kAlways;
  int meeting = -1;
  int sent = -1;            // kReceipt: the buffer whose message is awaited
  Way way = Way::kNextRun;  // kReceipt: the way of the buffer for which the message is awaited here
};

class SendWaits {
 public:
  SendWaits(std::vector<PlaceText>& texts, const ResolvedPlan& plan)
      : texts_(texts), plan_(plan), micro_batches_(static_cast<size_t>(plan.plan.micro_batches)) {}

  void run() {
    find_orders();
    find_sent();
    for (Sent& sent : sent_) begin_with(sent);
    play();
    write();
  }

 private:
  using Instructions = std::vector<TextInstruction>;

  // ---- rows and blocks
  // Finds for each row the blocks of micro-batches in the order of their first runs.
  void find_orders() {
    rows_of_.resize(texts_.size());
    for (size_t row = 0; row < plan_.rows.size(); ++row) {
      for (const PlaceId place : plan_.rows[row]) rows_of_[place.index()].push_back(row);
      std::vector<BlockRef>& order = orders_.emplace_back();
      std::set<BlockRef> seen;
      for (const BlockRun& run : plan_.schedule[row]) {
        if (seen.insert(block_of(run)).second) order.push_back(block_of(run));
      }
    }
  }
  size_t position(size_t row, BlockRef block) const {
    const std::vector<BlockRef>& order = orders_[row];
    return static_cast<size_t>(std::find(order.begin(), order.end(), block) - order.begin());
  }
  const std::vector<size_t>& rows_of(PlaceId place) const { return rows_of_[place.index()]; }
  bool runs_backward(PlaceId place, BlockRef backward) const {
    return texts_[place.index()].blocks.contains(backward);
  }

  // ---- what is sent
  void find_sent() {
    std::vector<std::tuple<PlaceId, int, BlockRef>> copied;  // place, buffer, block that receives
    std::map<std::tuple<PlaceId, BlockRef, int>, size_t> known;
    for (size_t p = 0; p < texts_.size(); ++p) {
      const PlaceId place(p);
      for (const auto& [ref, block] : texts_[p].blocks) {
        if (ref.once()) {
          await_at_end(place, ref, block);
          continue;
        }
        for (const TextInstruction& instruction : block) {
          const auto* cross = std::get_if<TextCross>(&instruction.body);
          if (cross == nullptr) continue;
          // A rank at both places copies from the sender's buffer in the block that receives, so
          // that this block uses the buffer too.
          if (!cross->sends) {
            if (share_ranks(mesh(cross->from_place), mesh(cross->to_place)))
              copied.emplace_back(cross->from_place, cross->from.buffer, ref);
            continue;
          }
          const auto [it, fresh] =
              known.try_emplace({place, ref, cross->from.buffer}, sent_.size());
          if (fresh) sent_.emplace_back().place = place;
          Sent& sent = sent_[it->second];
          sent.block = ref;
          sent.buffer = cross->from.buffer;
          sent.handles.push_back(cross->handle);
        }
      }
    }
    find_uses();
    for (const auto& [place, buffer, ref] : copied) {
      for (Sent& sent : sent_) {
        if (sent.place == place && sent.buffer == buffer) sent.uses.insert(ref);
      }
    }
    for (Sent& sent : sent_) {
      const Instructions& block = texts_[sent.place.index()].blocks.at(sent.block);
      for (size_t i = 0; i < block.size() && sent.first_write == kNoPlace; ++i) {
        if (writes(block[i], sent.buffer)) sent.first_write = i;
      }
    }
  }
  // Finds the blocks of micro-batches that touch each sent buffer.
  void find_uses() {
    std::vector<std::vector<Sent*>> sent_of(texts_.size());  // by place
    for (Sent& sent : sent_) sent_of[sent.place.index()].push_back(&sent);
    for (size_t p = 0; p < texts_.size(); ++p) {
      if (sent_of[p].empty()) continue;
      std::vector<bool> is_sent(texts_[p].buffers.size(), false);
      for (const Sent* sent : sent_of[p]) is_sent[static_cast<size_t>(sent->buffer)] = true;
      for (const auto& [ref, block] : texts_[p].blocks) {
        if (ref.once()) continue;
        const auto use = [&, here = ref](int buffer) {
          if (!is_sent[static_cast<size_t>(buffer)]) return false;
          for (Sent* sent : sent_of[p]) {
            if (sent->buffer == buffer) sent->uses.insert(here);
          }
          return false;
        };
        for (const TextInstruction& instruction : block) touches(instruction, use, use);
      }
    }
  }
  // Notes the messages that the prologue or the update sends, which are awaited in the update: at
  // its end if the update itself sends them, else at its beginning.
  void await_at_end(PlaceId place, BlockRef ref, const Instructions& block) {
    for (const TextInstruction& instruction : block) {
      const auto* cross = std::get_if<TextCross>(&instruction.body);
      if (cross == nullptr || !cross->sends) continue;
      (ref == BlockKind::kUpdate ? at_end_ : at_begin_)[place].push_back(cross->handle);
    }
  }
  const Mesh& mesh(PlaceId place) const { return plan_.places[place.index()].mesh; }
  static bool writes(const TextInstruction& instruction, int buffer) {
    return touches(
        instruction, [](int) { return false; }, [&](int written) { return written == buffer; });
  }

  // Sets the way with which the buffer begins: the first of the ways that the readers of the buffer
  // allow in all rows that have the place.
  void begin_with(Sent& sent) const {
    const BlockRef backward{BlockKind::kBackward, sent.block.chunk};
    const bool turns = sent.block != backward && runs_backward(sent.place, backward);
    if (turns && sent.block.kind == BlockKind::kForward) {
      sent.way = Way::kBackward;
      sent.at = backward;
      return;
    }
    bool alone = true, behind = turns, in_turn = true, same = true;
    sent.at = last_use(sent, rows_of(sent.place)[0]);
    for (const size_t row : rows_of(sent.place)) {
      const BlockRef last = last_use(sent, row);
      alone = alone && last == sent.block;
      behind = behind && runs(row, backward) && position(row, backward) > position(row, last);
      in_turn = in_turn && run_in_turn(sent, row);
      same = same && last == sent.at && runs_last(sent, row);
    }
    if (alone || (in_turn && !behind)) return;
    sent.way = behind ? Way::kBackward : Way::kLastUse;
    if (behind) {
      sent.at = backward;
    } else if (!same) {
      add_slot(sent);
    }
  }
  bool runs(size_t row, BlockRef block) const { return position(row, block) < orders_[row].size(); }
  // Returns whether the block that waits (sent.at) runs after all other blocks that use the buffer,
  // in every micro-batch of the row.
  bool runs_last(const Sent& sent, size_t row) const {
    std::set<int64_t> over;
    for (const BlockRun& run : plan_.schedule[row]) {
      if (sent.uses.contains(block_of(run)) && over.contains(run.micro_batch)) return false;
      if (block_of(run) == sent.at) over.insert(run.micro_batch);
    }
    return true;
  }
  BlockRef last_use(const Sent& sent, size_t row) const {
    BlockRef last = sent.block;
    for (const BlockRef use : sent.uses) {
      if (runs(row, use) && position(row, use) > position(row, last)) last = use;
    }
    return last;
  }

  // Returns whether each micro-batch runs all blocks that use the buffer, the sending block first,
  // before the next micro-batch runs any of them.
  bool run_in_turn(const Sent& sent, size_t row) const {
    for (const BlockRef use : sent.uses) {
      if (position(row, use) < position(row, sent.block)) return false;
    }
    int64_t open = -1;
    size_t left = 0, users = 0;
    for (const BlockRef use : sent.uses) users += runs(row, use) ? 1 : 0;
    for (const BlockRun& run : plan_.schedule[row]) {
      const BlockRef block = block_of(run);
      if (!sent.uses.contains(block)) continue;
      if (block == sent.block) {
        if (left > 0) return false;
        open = run.micro_batch;
        left = users;
      } else if (open != run.micro_batch) {
        return false;
      }
      --left;
    }
    return true;
  }

  // ---- more copies of a buffer
  // Adds copies of the buffer until its messages are awaited later than before. Returns false if
  // the sending block does not write the buffer, or if the buffer has a copy for each micro-batch
  // already.
  bool add_slot(Sent& sent) const {
    const auto most = static_cast<int64_t>(micro_batches_);
    if (sent.first_write == kNoPlace || (sent.way == Way::kRing && sent.slots >= most))
      return false;
    const bool ran_on = sent.way == Way::kNextRun || sent.way == Way::kRing;
    const int64_t before = ran_on ? sent.lag : 0;
    if (!ran_on) sent.uses.insert(sent.at);
    sent.way = Way::kRing;
    do {
      sent.slots = std::min(sent.slots + 1, most);
      sent.lag = most;
      for (const size_t row : rows_of(sent.place)) sent.lag = std::min(sent.lag, reuse(sent, row));
    } while (sent.slots < most &&
             (sent.lag <= before || in_use_twice(sent) || (!ran_on && !waits_behind(sent))));
    return true;
  }
  // Returns whether each message is awaited later than before: `lag` runs after its send, instead
  // of in the run of sent.at for the same micro-batch.
  bool waits_behind(const Sent& sent) const {
    for (const size_t row : rows_of(sent.place)) {
      std::vector<int64_t> sending;  // micro-batches of the block's runs so far
      std::set<int64_t> over;        // micro-batches for which `at` has run
      for (const BlockRun& run : plan_.schedule[row]) {
        if (block_of(run) == sent.at) over.insert(run.micro_batch);
        if (block_of(run) != sent.block) continue;
        const auto lag = static_cast<size_t>(sent.lag);
        if (sending.size() >= lag && !over.contains(sending[sending.size() - lag])) return false;
        sending.push_back(run.micro_batch);
      }
    }
    return true;
  }
  // Returns whether two micro-batches would use a slot at the same time.
  bool in_use_twice(const Sent& sent) const {
    for (const size_t row : rows_of(sent.place)) {
      std::map<int64_t, size_t> left;  // slot -> runs that still use it
      size_t users = 0;
      for (const BlockRef use : sent.uses) users += runs(row, use) ? 1 : 0;
      for (const BlockRun& run : plan_.schedule[row]) {
        if (!sent.uses.contains(block_of(run))) continue;
        size_t& slot = left[run.micro_batch % sent.slots];
        if (block_of(run) == sent.block) {
          if (slot > 0) return true;
          slot = users;
        }
        if (slot > 0) --slot;
      }
    }
    return false;
  }
  // Returns the smallest number of runs of the sending block from one use of a slot to the next use
  // of the same slot.
  int64_t reuse(const Sent& sent, size_t row) const {
    auto fewest = static_cast<int64_t>(micro_batches_);
    std::map<int64_t, int64_t> before;  // slot -> run of the block
    int64_t index = 0;
    for (const BlockRun& run : plan_.schedule[row]) {
      if (block_of(run) != sent.block) continue;
      const auto [it, fresh] = before.try_emplace(run.micro_batch % sent.slots, index);
      if (!fresh) fewest = std::min(fewest, index - std::exchange(it->second, index));
      ++index;
    }
    return fewest;
  }

  // ---- the play
  struct Row {
    std::map<BlockRef, std::vector<Event>> events;
    std::map<BlockRef, std::vector<int64_t>> micro_batches;  // of the block's runs so far
    size_t run = 0, event = 0;
  };

  void play() {
    find_meetings();
    find_events();
    for (;;) {
      bool goes_on = false;
      for (size_t row = 0; row < rows_.size(); ++row) goes_on = advance(row) || goes_on;
      if (!goes_on && !relax()) return;
    }
  }

  void find_meetings() {
    for (size_t p = 0; p < texts_.size(); ++p) {
      for (const auto& [ref, block] : texts_[p].blocks) {
        if (ref.once()) continue;
        for (const TextInstruction& instruction : block) {
          if (const auto* cross = std::get_if<TextCross>(&instruction.body)) {
            const auto [it, fresh] = by_tag_.try_emplace(cross->tag, meetings_.size());
            if (fresh) add_meeting(rows_of(cross->from_place), rows_of(cross->to_place));
            by_handle_[cross->handle] = it->second;
          } else if (const auto* issue = std::get_if<TextIssue>(&instruction.body);
                     issue != nullptr && crosses_rows(PlaceId(p), issue->axes)) {
            by_handle_[issue->handle] = meetings_.size();
            add_meeting(rows_of(PlaceId(p)), {});
          }
        }
      }
    }
  }
  void add_meeting(std::vector<size_t> senders, std::vector<size_t> receivers) {
    Meeting meeting{std::move(senders), std::move(receivers), {}, {}};
    meeting.sent.resize(meeting.senders.size() * micro_batches_);
    meeting.received.resize(meeting.receivers.size() * micro_batches_);
    meetings_.push_back(std::move(meeting));
  }
  // Returns whether a group along these axes has ranks of several rows.
  bool crosses_rows(PlaceId place, const Axes& axes) {
    if (rows_of(place).size() == 1) return false;
    const auto [it, fresh] = crosses_.try_emplace({place, axes}, false);
    if (!fresh) return it->second;
    const Mesh& here = mesh(place);
    for (int64_t rank = 0; rank < plan_.ranks && !it->second; ++rank) {
      if (!here.contains(rank)) continue;
      for (const int member : here.group(here.coordinates(rank), axes))
        it->second = it->second || plan_.row_of(member) != plan_.row_of(rank);
    }
    return it->second;
  }

  // Finds the communication events of each block of each row. The events of all places of a row are
  // merged in the order of writing.
  void find_events() {
    rows_.resize(plan_.rows.size());
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (const BlockRef block : orders_[row]) {
        std::vector<std::pair<int64_t, Event>> found;
        for (const PlaceId place : plan_.rows[row]) add_events(place, block, found);
        std::stable_sort(found.begin(), found.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<Event>& events = rows_[row].events[block];
        for (const auto& [order, event] : found) events.push_back(event);
      }
    }
  }
  // Adds the events of a place's block to `out`, each with its order of writing. The waits for
  // sends that this class decides are not in the text yet; their events are added here too.
  void add_events(PlaceId place, BlockRef ref, std::vector<std::pair<int64_t, Event>>& out) const {
    static const Instructions kNone;
    const auto it = texts_[place.index()].blocks.find(ref);
    const Instructions& block = it == texts_[place.index()].blocks.end() ? kNone : it->second;
    int64_t order = -1;
    std::map<size_t, std::vector<size_t>> written;  // position -> sent
    for (size_t s = 0; s < sent_.size(); ++s) {
      if (sent_[s].place != place) continue;
      if (sent_[s].way == Way::kBackward && sent_[s].at == ref)
        add_receipts(s, Way::kBackward, order, out);
      if (sent_[s].block == ref) written[sent_[s].first_write].push_back(s);
    }
    for (size_t i = 0; i < block.size(); ++i) {
      const TextInstruction& instruction = block[i];
      order = std::max(order, instruction.order);
      if (const auto here = written.find(i); here != written.end()) {
        for (const size_t s : here->second) {
          add_receipts(s, Way::kNextRun, order, out);
          add_receipts(s, Way::kRing, order, out);
        }
      }
      Event event;
      event.when = instruction.when;
      if (const auto* cross = std::get_if<TextCross>(&instruction.body)) {
        event.kind = cross->sends ? Event::kSend : Event::kReceive;
        event.meeting = static_cast<int>(by_handle_.at(cross->handle));
      } else if (const auto* issue = std::get_if<TextIssue>(&instruction.body)) {
        const auto known = by_handle_.find(issue->handle);
        if (known == by_handle_.end()) continue;
        event.meeting = static_cast<int>(known->second);
      } else if (const auto* wait = std::get_if<TextWait>(&instruction.body)) {
        const auto known = by_handle_.find(wait->handle);
        if (known == by_handle_.end()) continue;
        event.kind = Event::kArrival;
        event.meeting = static_cast<int>(known->second);
      } else {
        continue;
      }
      out.emplace_back(order, event);
    }
    for (size_t s = 0; s < sent_.size(); ++s) {
      if (sent_[s].place == place && sent_[s].way == Way::kLastUse && sent_[s].at == ref)
        add_receipts(s, Way::kLastUse, kEnd, out);
    }
  }
  void add_receipts(size_t s, Way way, int64_t order,
                    std::vector<std::pair<int64_t, Event>>& out) const {
    for (const int handle : sent_[s].handles) {
      Event event;
      event.kind = Event::kReceipt;
      event.meeting = static_cast<int>(by_handle_.at(handle));
      event.sent = static_cast<int>(s);
      event.way = way;
      out.emplace_back(order, event);
    }
  }

  // Plays the row until it must wait or ends. Returns whether the row has advanced.
  bool advance(size_t r) {
    Row& row = rows_[r];
    bool moved = false;
    const std::vector<BlockRun>& schedule = plan_.schedule[r];
    while (row.run < schedule.size()) {
      const BlockRun& run = schedule[row.run];
      const std::vector<Event>& events = row.events.at(block_of(run));
      for (; row.event < events.size(); ++row.event) {
        const Event& event = events[row.event];
        if (awaited(r, event)) return moved;
        take_part(r, event, run.micro_batch);
        moved = true;
      }
      row.micro_batches[block_of(run)].push_back(run.micro_batch);
      ++row.run;
      row.event = 0;
      moved = true;
    }
    return moved;
  }

  // Returns a row that the event waits for, if there is one.
  std::optional<size_t> awaited(size_t r, const Event& event) const {
    const Row& row = rows_[r];
    const BlockRun& run = plan_.schedule[r][row.run];
    if (event.kind == Event::kArrival) {
      const Meeting& meeting = meetings_[static_cast<size_t>(event.meeting)];
      return absent(meeting.senders, meeting.sent, run.micro_batch);
    }
    if (event.kind != Event::kReceipt) return {};
    const Sent& sent = sent_[static_cast<size_t>(event.sent)];
    if (sent.way != event.way) return {};
    int64_t micro_batch = run.micro_batch;
    if (event.way == Way::kNextRun || event.way == Way::kRing) {
      const auto before = row.micro_batches.find(sent.block);
      const auto runs = before == row.micro_batches.end()
                            ? int64_t{0}
                            : static_cast<int64_t>(before->second.size());
      const bool all = sent.way == Way::kRing && sent.slots >= static_cast<int64_t>(micro_batches_);
      if (all || runs < sent.lag) return {};
      micro_batch = before->second[static_cast<size_t>(runs - sent.lag)];
    }
    const Meeting& meeting = meetings_[static_cast<size_t>(event.meeting)];
    return absent(meeting.receivers, meeting.received, micro_batch);
  }
  static std::optional<size_t> absent(const std::vector<size_t>& rows,
                                      const std::vector<uint8_t>& here, int64_t micro_batch) {
    const size_t first = static_cast<size_t>(micro_batch) * rows.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (here[first + i] == 0) return rows[i];
    }
    return {};
  }
  void take_part(size_t r, const Event& event, int64_t micro_batch) {
    if (event.kind != Event::kSend && event.kind != Event::kReceive) return;
    Meeting& meeting = meetings_[static_cast<size_t>(event.meeting)];
    const bool sends = event.kind == Event::kSend;
    const std::vector<size_t>& rows = sends ? meeting.senders : meeting.receivers;
    const auto me = static_cast<size_t>(std::find(rows.begin(), rows.end(), r) - rows.begin());
    (sends ? meeting.sent : meeting.received)[static_cast<size_t>(micro_batch) * rows.size() + me] =
        1;
  }

  // Resolves a state in which no row can go on. Follows from a row to the row that it waits for,
  // until there is a cycle, and gives the first send on the cycle one more copy. Returns false if
  // all rows have ended, or if no send is on a cycle.
  bool relax() {
    for (size_t start = 0; start < rows_.size(); ++start) {
      std::vector<size_t> path;
      size_t at = start;
      while (!ended(at) && std::find(path.begin(), path.end(), at) == path.end()) {
        path.push_back(at);
        at = *awaited(at, current(at));
      }
      if (ended(at)) continue;
      for (auto r = std::find(path.begin(), path.end(), at); r != path.end(); ++r) {
        const Event& event = current(*r);
        if (event.kind == Event::kReceipt && add_slot(sent_[static_cast<size_t>(event.sent)]))
          return true;
      }
    }
    return false;
  }
  bool ended(size_t row) const { return rows_[row].run == plan_.schedule[row].size(); }
  const Event& current(size_t row) const {
    const BlockRef block = block_of(plan_.schedule[row][rows_[row].run]);
    return rows_[row].events.at(block)[rows_[row].event];
  }

  // ---- writing the decided waits
  void write() {
    for (auto sent = sent_.rbegin(); sent != sent_.rend(); ++sent) {
      texts_[sent->place.index()].buffers[static_cast<size_t>(sent->buffer)].slots = sent->slots;
      for (auto handle = sent->handles.rbegin(); handle != sent->handles.rend(); ++handle)
        write(*sent, *handle, texts_[sent->place.index()].blocks);
    }
    for (const auto& [place, handles] : at_begin_) {
      Instructions& update = texts_[place.index()].blocks[BlockKind::kUpdate];
      for (const int handle : handles) update.insert(update.begin(), wait_for(handle, 0));
    }
    for (const auto& [place, handles] : at_end_) {
      Instructions& update = texts_[place.index()].blocks[BlockKind::kUpdate];
      for (const int handle : handles) {
        update.push_back(wait_for(handle, 0));
        update.back().order = kEnd;
      }
    }
  }
  static TextInstruction wait_for(int handle, int64_t lag) {
    return {TextWait{handle, static_cast<int>(lag)}, When::kAlways, {}, -1};
  }
  void write(const Sent& sent, int handle, ByBlock<Instructions>& blocks) const {
    if (sent.way == Way::kBackward) {
      blocks[sent.at].insert(blocks[sent.at].begin(), wait_for(handle, 0));
      return;
    }
    if (sent.way == Way::kLastUse) {
      blocks[sent.at].push_back(wait_for(handle, 0));
      blocks[sent.at].back().order = kEnd;
      return;
    }
    Instructions& update = blocks[BlockKind::kUpdate];
    update.insert(update.begin(), wait_for(handle, 0));
    if (sent.way == Way::kRing && sent.slots >= static_cast<int64_t>(micro_batches_)) return;
    Instructions& block = blocks[sent.block];
    const auto first = std::find_if(block.begin(), block.end(), [&](const auto& instruction) {
      return writes(instruction, sent.buffer);
    });
    block.insert(first, wait_for(handle, sent.lag));
  }

  std::vector<PlaceText>& texts_;
  const ResolvedPlan& plan_;
  size_t micro_batches_;
  std::vector<std::vector<size_t>> rows_of_;   // by place
  std::vector<std::vector<BlockRef>> orders_;  // by row
  std::vector<Sent> sent_;
  std::vector<Meeting> meetings_;
  std::map<int64_t, size_t> by_tag_;                       // meetings
  std::map<int, size_t> by_handle_;                        // meetings
  std::map<PlaceId, std::vector<int>> at_begin_, at_end_;  // in the update: handles to await
  std::map<std::pair<PlaceId, Axes>, bool> crosses_;
  std::vector<Row> rows_;
};

}  // namespace

void place_send_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan) {
  SendWaits(texts, plan).run();
}

}  // namespace tessera
