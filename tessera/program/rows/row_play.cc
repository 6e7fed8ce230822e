#include "tessera/program/rows/row_play.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace tessera {
namespace {

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

class RowPlay {
 public:
  RowPlay(const std::vector<PlaceText>& texts, const RowOrders& orders, std::vector<Sent>& sent)
      : texts_(texts),
        orders_(orders),
        micro_batches_(static_cast<size_t>(orders.plan.plan.micro_batches)),
        sent_(sent) {}

  void run() {
    find_meetings();
    find_events();
    for (;;) {
      bool goes_on = false;
      for (size_t row = 0; row < rows_.size(); ++row) goes_on = advance(row) || goes_on;
      if (!goes_on && !relax()) return;
    }
  }

 private:
  struct Row {
    std::map<BlockRef, std::vector<Event>> events;
    std::map<BlockRef, std::vector<int64_t>> micro_batches;  // of the block's runs so far
    size_t run = 0, event = 0;
  };

  void find_meetings() {
    for (size_t p = 0; p < texts_.size(); ++p) {
      for (const auto& [ref, block] : texts_[p].blocks) {
        if (ref.once()) continue;
        for (const TextInstruction& instruction : block) {
          if (const auto* cross = std::get_if<TextCross>(&instruction.body)) {
            const auto [it, fresh] = by_tag_.try_emplace(cross->tag, meetings_.size());
            if (fresh)
              add_meeting(orders_.rows_of(cross->from_place), orders_.rows_of(cross->to_place));
            by_handle_[cross->handle] = it->second;
          } else if (const auto* issue = std::get_if<TextIssue>(&instruction.body);
                     issue != nullptr && crosses_rows(PlaceId(p), issue->axes)) {
            by_handle_[issue->handle] = meetings_.size();
            add_meeting(orders_.rows_of(PlaceId(p)), {});
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
    if (orders_.rows_of(place).size() == 1) return false;
    const auto [it, fresh] = crosses_.try_emplace({place, axes}, false);
    if (!fresh) return it->second;
    const Mesh& here = orders_.plan.places[place.index()].mesh;
    for (int64_t rank = 0; rank < orders_.plan.ranks && !it->second; ++rank) {
      if (!here.contains(rank)) continue;
      for (const int member : here.group(here.coordinates(rank), axes))
        it->second = it->second || orders_.plan.row_of(member) != orders_.plan.row_of(rank);
    }
    return it->second;
  }

  // Finds the communication events of each block of each row. The events of all places of a row are
  // merged in the order of writing.
  void find_events() {
    rows_.resize(orders_.plan.rows.size());
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (const BlockRef block : orders_.of(row)) {
        std::vector<std::pair<int64_t, Event>> found;
        for (const PlaceId place : orders_.plan.rows[row]) add_events(place, block, found);
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
    static const std::vector<TextInstruction> kNone;
    const auto it = texts_[place.index()].blocks.find(ref);
    const std::vector<TextInstruction>& block =
        it == texts_[place.index()].blocks.end() ? kNone : it->second;
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
        add_receipts(s, Way::kLastUse, kLastOrder, out);
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
    const std::vector<BlockRun>& schedule = orders_.plan.schedule[r];
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
    const BlockRun& run = orders_.plan.schedule[r][row.run];
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
        if (event.kind == Event::kReceipt &&
            add_slot(sent_[static_cast<size_t>(event.sent)], orders_))
          return true;
      }
    }
    return false;
  }
  bool ended(size_t row) const { return rows_[row].run == orders_.plan.schedule[row].size(); }
  const Event& current(size_t row) const {
    const BlockRef block = block_of(orders_.plan.schedule[row][rows_[row].run]);
    return rows_[row].events.at(block)[rows_[row].event];
  }

  const std::vector<PlaceText>& texts_;
  const RowOrders& orders_;
  size_t micro_batches_;
  std::vector<Sent>& sent_;
  std::vector<Meeting> meetings_;
  std::map<int64_t, size_t> by_tag_;  // meetings
  std::map<int, size_t> by_handle_;   // meetings
  std::map<std::pair<PlaceId, Axes>, bool> crosses_;
  std::vector<Row> rows_;
};

}  // namespace

void play_rows(const std::vector<PlaceText>& texts, const RowOrders& orders,
               std::vector<Sent>& sent) {
  RowPlay(texts, orders, sent).run();
}

}  // namespace tessera
