#include "tessera/runtime/measure/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/program/communication.h"

namespace tessera {
namespace {

class Labels {
 public:
  explicit Labels(std::vector<std::string>& all) : all_(all) {}
  int32_t operator[](const std::string& text) {
    const auto [it, fresh] = known_.try_emplace(text, static_cast<int32_t>(all_.size()));
    if (fresh) all_.push_back(text);
    return it->second;
  }

 private:
  std::vector<std::string>& all_;
  std::map<std::string, int32_t> known_;
};

// A collective or message, in which several ranks take part. All of these ranks compute the same
// key for it.
using MeetingKey = std::vector<int64_t>;
struct Meeting {
  int32_t number = 0;
  int64_t ready_ns = 0;  // when the last member was ready
  int32_t last = 0;      // that member
  int64_t bytes = 0;     // the most that a member sends
};
struct Meetings {
  std::map<MeetingKey, Meeting> all;
  void arrive(const MeetingKey& key, int32_t rank, int64_t at, int64_t bytes) {
    const Meeting first{static_cast<int32_t>(all.size()), at, rank, bytes};
    const auto [it, fresh] = all.try_emplace(key, first);
    Meeting& meeting = it->second;
    meeting.bytes = std::max(meeting.bytes, bytes);
    if (fresh || at <= meeting.ready_ns) return;
    meeting.ready_ns = at;
    meeting.last = rank;
  }
};

// Keys begin with the kind of the meeting. That of a collective goes on with the members of its
// group, that of a message with sender and receiver.
constexpr int64_t kOfCollective = 0, kOfMessage = 1;
std::vector<int32_t> members_of(const MeetingKey& key) {
  if (key.empty()) return {};
  const auto end = key[0] == kOfMessage ? key.begin() + 3 : key.end() - 1;
  return {key.begin() + 1, end};
}

struct Open {  // communication that was issued and not yet waited for
  size_t event = 0;
  MeetingKey meeting;  // empty: concerns only this rank
  bool ready = false;  // whether this rank is ready at the meeting
};

// Turns one rank's recorded instructions into events.
class RankTrace {
 public:
  RankTrace(const Lowering& lowering, const Program& program, Labels& labels, Meetings& meetings,
            int64_t origin)
      : lowering_(lowering),
        graph_(lowering.graph()),
        program_(program),
        channels_(message_channels(program)),
        labels_(labels),
        meetings_(meetings),
        origin_(origin) {}

  void read(const std::vector<Executed>& recorded) {
    for (const BlockRunStep& step : program_.schedule) {
      std::vector<int64_t>& runs = runs_[program_.family(step.block)];
      run_of_[{step.block, step.micro_batch}] = runs.size();
      runs.push_back(step.micro_batch);
    }
    for (const Executed& one : recorded) {
      const Instruction& instruction =
          program_.block(one.block)[static_cast<size_t>(one.instruction)];
      std::visit([&](const auto& body) { add(one, instruction, body); }, instruction.body);
    }
  }

  // Returns the waits; as events(), only when the records of all ranks have been read, and before
  // events().
  std::vector<RecordedWait> waits() const {
    std::vector<RecordedWait> out;
    for (const Waited& one : waited_) {
      RecordedWait& wait = out.emplace_back();
      wait.start_s = wait.ready_s = seconds(one.start_ns);
      wait.end_s = seconds(one.end_ns);
      for (size_t i = one.first; i < one.first + one.count; ++i) {
        const auto& [event, key] = closed_[i];
        const Meeting* meeting = key.empty() ? nullptr : &meetings_.all.at(key);
        const double ready = meeting == nullptr ? wait.start_s : seconds(meeting->ready_ns);
        if (wait.what >= 0 && ready <= wait.ready_s) continue;
        wait.ready_s = std::clamp(ready, wait.start_s, wait.end_s);
        wait.label = events_[event].label;
        wait.what = events_[event].what;
        wait.bytes = meeting == nullptr ? 0 : meeting->bytes;
        wait.members = members_of(key);
        wait.last = meeting == nullptr ? program_.rank : meeting->last;
      }
    }
    return out;
  }

  // Returns the events. Sets the begin of each communication to the time when all members were
  // ready, so the records of all ranks must have been read.
  std::vector<TraceEvent> events() {
    for (const auto& [event, key] : closed_) {
      if (key.empty()) continue;
      const Meeting& meeting = meetings_.all.at(key);
      const double ready = seconds(meeting.ready_ns);
      TraceEvent& one = events_[event];
      one.match = meeting.number;
      one.start_s = std::clamp(ready, one.start_s, one.end_s);
    }
    return std::move(events_);
  }

 private:
  double seconds(int64_t ns) const { return static_cast<double>(ns - origin_) * 1e-9; }

  TraceEvent& push(const Executed& one, Lane lane, const std::string& label,
                   const std::string& what) {
    TraceEvent event;
    event.rank = program_.rank;
    event.lane = lane;
    event.block = one.block;
    event.instruction = one.instruction;
    event.micro_batch = one.micro_batch;
    event.start_s = seconds(one.start_ns);
    event.end_s = seconds(one.end_ns);
    event.label = labels_[label];
    event.what = labels_[what];
    events_.push_back(event);
    return events_.back();
  }

  // Returns the key by which open communication is kept: the micro-batch, or -1 if the instruction
  // runs once a step.
  int64_t slot(const Executed& one, const Instruction& instruction) const {
    return one.block.once() || instruction.when != When::kAlways ? -1 : one.micro_batch;
  }
  void open(const Executed& one, const Instruction& instruction, int handle, MeetingKey meeting) {
    // A sender is ready as soon as it has issued the message.
    const TraceEvent& event = events_.back();
    const bool sends = event.lane == Lane::kMessage && event.bytes > 0;
    if (sends) meetings_.arrive(meeting, program_.rank, one.start_ns, event.bytes);
    open_[handle][slot(one, instruction)] = {events_.size() - 1, std::move(meeting), sends};
  }

  void add(const Executed& one, const Instruction&, const Compute& compute) {
    const Op& op = graph_.op(compute.op);
    push(one, Lane::kCompute, op.path, op.kind);
  }

  void add(const Executed& one, const Instruction& instruction, const Issue& issue) {
    const Group& group = program_.groups[static_cast<size_t>(issue.group)];
    TraceEvent& event =
        push(one, Lane::kCollective, moved_tensors(issue, graph_),
             fmt::format("{} {}", collective_name(issue.kind), join(group.axes, " ")));
    event.channel = issue.group;
    event.bytes = sent_traffic(issue, static_cast<size_t>(group.index)).bytes;
    MeetingKey meeting{kOfCollective};
    meeting.insert(meeting.end(), group.members.begin(), group.members.end());
    meeting.push_back(calls_[meeting]++);
    open(one, instruction, issue.handle, std::move(meeting));
  }

  MeetingKey message_key(int from, int to, int64_t tag, int64_t micro_batch) {
    MeetingKey key{kOfMessage, from, to, tag, micro_batch};
    key.push_back(calls_[key]++);
    return key;
  }

  void add(const Executed& one, const Instruction& instruction, const Send& send) {
    TraceEvent& event = push(one, Lane::kMessage, graph_.tensor(send.tensor).name, "send");
    event.channel = channels_.to.at(send.peer);
    const DType dtype = program_.buffer(send.view.buffer).dtype;
    const int64_t elements = send.region.volume();
    event.bytes = elements > 0 ? message_bytes(send.codec, dtype, elements) : 0;
    MeetingKey key = message_key(program_.rank, send.peer, send.tag, one.micro_batch);
    open(one, instruction, send.handle, std::move(key));
  }

  void add(const Executed& one, const Instruction& instruction, const Recv& receive) {
    push(one, Lane::kMessage, graph_.tensor(receive.tensor).name, "receive").channel =
        channels_.from.at(receive.peer);
    open(one, instruction, receive.handle,
         message_key(receive.peer, program_.rank, receive.tag, one.micro_batch));
  }

  void add(const Executed& one, const Instruction& instruction, const Copy& copy) {
    const Tier from = program_.buffer(copy.from.buffer).tier,
               to = program_.buffer(copy.to.buffer).tier;
    const std::string& name = graph_.tensor(copy.tensor).name;
    if (from == to && copy.handle < 0) {
      push(one, Lane::kCompute, name, "copy");
      return;
    }
    push(one, Lane::kCopy, name, fmt::format("copy {} to {}", tier_name(from), tier_name(to)))
        .channel = static_cast<int32_t>(program_.groups.size());
    if (copy.handle >= 0) open(one, instruction, copy.handle, {});
  }

  // Ends the events of the communications that this wait completes in the interpreter.
  void add(const Executed& one, const Instruction&, const Wait& wait) {
    arrive(one.start_ns);
    waited_.push_back({one.start_ns, one.end_ns, closed_.size(), 0});
    std::map<int64_t, Open>& flights = open_[wait.handle];
    if (one.block.once() || flights.contains(-1)) {
      for (const auto& [slot, flight] : flights) close(one, flight);
      flights.clear();
      return;
    }
    const size_t run = run_of_.at({one.block, one.micro_batch});
    const auto lag = static_cast<size_t>(wait.lag);
    if (lag > run) return;
    const int64_t slot = runs_.at(program_.family(one.block))[run - lag];
    const auto found = flights.find(slot);
    if (found == flights.end()) return;
    close(one, found->second);
    flights.erase(found);
  }
  // Marks this rank as ready at `at` in all communication that it has issued, because a rank that
  // waits for anything makes progress in all of it.
  void arrive(int64_t at) {
    for (auto& [handle, flights] : open_) {
      for (auto& [slot, flight] : flights) {
        if (flight.ready || flight.meeting.empty()) continue;
        meetings_.arrive(flight.meeting, program_.rank, at, events_[flight.event].bytes);
        flight.ready = true;
      }
    }
  }
  void close(const Executed& one, const Open& flight) {
    TraceEvent& event = events_[flight.event];
    event.end_s = std::max(event.end_s, seconds(one.end_ns));
    closed_.emplace_back(flight.event, flight.meeting);
    ++waited_.back().count;
  }

  void add(const Executed& one, const Instruction& instruction, const FetchRows& fetch) {
    const RowCache& cache = program_.caches[static_cast<size_t>(fetch.cache)];
    const Tier rests = program_.buffer(cache.rests.front()).tier;
    push(one, Lane::kCopy, graph_.tensor(program_.buffer(cache.held.front()).tensor).name,
         fmt::format("rows from {}", tier_name(rests)))
        .channel = static_cast<int32_t>(program_.groups.size());
    open(one, instruction, fetch.handle, {});
  }

  void add(const Executed&, const Instruction&, const Load&) {}
  void add(const Executed&, const Instruction&, const Free&) {}
  void add(const Executed&, const Instruction&, const ReleaseRows&) {}

  const Lowering& lowering_;
  const Graph& graph_;
  const Program& program_;
  const MessageChannels channels_;
  Labels& labels_;
  Meetings& meetings_;
  const int64_t origin_;
  std::vector<TraceEvent> events_;
  ByBlock<std::vector<int64_t>> runs_;  // micro-batches of a family's runs, in order
  std::map<std::pair<BlockRef, int64_t>, size_t> run_of_;  // by block and micro-batch
  std::map<int, std::map<int64_t, Open>> open_;            // by handle and micro-batch
  std::map<MeetingKey, int64_t> calls_;
  // The communication that waits completed, in the order of the waits, with its event.
  std::vector<std::pair<size_t, MeetingKey>> closed_;
  struct Waited {
    int64_t start_ns = 0, end_ns = 0;
    size_t first = 0, count = 0;  // the part of closed_ that this wait completed
  };
  std::vector<Waited> waited_;
};

}  // namespace

RecordedStep recorded_step(const Lowering& lowering, const std::vector<Program>& programs,
                           const std::vector<std::vector<Executed>>& recorded) {
  RecordedStep result;
  Simulation& out = result.trace;
  out.ranks = static_cast<int64_t>(programs.size());
  int64_t origin = INT64_MAX, end = INT64_MIN;
  for (const std::vector<Executed>& rank : recorded) {
    if (rank.empty()) continue;
    origin = std::min(origin, rank.front().start_ns);
    end = std::max(end, rank.back().end_ns);
  }
  if (origin > end) return result;
  out.step_time_s = static_cast<double>(end - origin) * 1e-9;
  Labels labels(out.labels);
  Meetings meetings;
  std::vector<RankTrace> ranks;
  for (size_t r = 0; r < programs.size(); ++r) {
    ranks.emplace_back(lowering, programs[r], labels, meetings, origin);
    ranks.back().read(recorded[r]);
  }
  for (size_t r = 0; r < programs.size(); ++r) {
    result.waits.push_back(ranks[r].waits());
    std::vector<TraceEvent> events = ranks[r].events();
    RankResult role;
    role.representative = programs[r].rank;
    for (const StageId stage : programs[r].stages) role.stages.push_back(stage.value);
    role.memory.peak_bytes = role.memory.reserved_bytes = programs[r].arena_bytes[0];
    role.memory.arena_bytes = programs[r].arena_bytes;
    for (const TraceEvent& event : events)
      role.busy_s[static_cast<size_t>(event.lane)] += event.end_s - event.start_s;
    out.roles.push_back(std::move(role));
    std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return a.start_s < b.start_s;
    });
    out.events.insert(out.events.end(), events.begin(), events.end());
  }
  number_matches(out.events);
  return result;
}

Simulation trace_of(const Lowering& lowering, const std::vector<Program>& programs,
                    const std::vector<std::vector<Executed>>& recorded) {
  return recorded_step(lowering, programs, recorded).trace;
}

}  // namespace tessera
