#include "support/brute.h"

#include <map>
#include <set>
#include <tuple>

#include "tessera/program/instructions.h"

namespace tessera {
namespace {

// The effect of running an instruction: it takes part in the communication `issues` (an index, or
// -1), or it needs the communication `waits_for` to be issued by all.
struct Event {
  int issues = -1;
  int waits_for = -1;
};

struct Expanded {
  std::vector<std::vector<Event>> events;  // by rank
  std::vector<std::vector<int>> members;   // by communication: ranks that must issue it
};

class Expander {
 public:
  explicit Expander(const std::vector<Program>& programs) : programs_(programs) {}

  Expanded run() {
    out_.events.resize(programs_.size());
    for (size_t r = 0; r < programs_.size(); ++r) {
      std::map<std::pair<int, int64_t>, int> handles;  // handle, micro-batch
      for (const BlockRunStep& step : programs_[r].schedule) {
        for (const Instruction& instruction : programs_[r].block(step.block)) {
          add(r, step, instruction, handles);
        }
      }
    }
    return std::move(out_);
  }

 private:
  void add(size_t r, const BlockRunStep& step, const Instruction& instruction,
           std::map<std::pair<int, int64_t>, int>& handles) {
    const auto issue = [&](int handle, int communication) {
      handles[{handle, step.micro_batch}] = communication;
      out_.events[r].push_back({communication, -1});
    };
    const int rank = static_cast<int>(r);
    match(
        instruction,
        [&](const Issue& body) {
          const auto& members = programs_[r].groups[static_cast<size_t>(body.group)].members;
          const int position = issued_[{rank, members}]++;
          issue(body.handle, collective({members, position}));
        },
        [&](const Send& send) {
          issue(send.handle, message(0, {rank, send.peer, send.tag, step.micro_batch}));
        },
        [&](const Recv& recv) {
          issue(recv.handle, message(1, {recv.peer, rank, recv.tag, step.micro_batch}));
        },
        [&](const Wait& wait) {
          const auto found = handles.find({wait.handle, step.micro_batch});
          // A copy's wait ends by itself: no partner is needed.
          if (found != handles.end()) out_.events[r].push_back({-1, found->second});
        },
        [](const OneOf<Compute, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
  }
  int create(const std::vector<int>& members) {
    out_.members.push_back(members);
    return static_cast<int>(out_.members.size()) - 1;
  }
  int collective(const std::pair<std::vector<int>, int>& key) {
    const auto found = collectives_.find(key);
    if (found != collectives_.end()) return found->second;
    return collectives_[key] = create(key.first);
  }
  using Channel = std::tuple<int, int, int64_t, int64_t>;
  int message(int end, const Channel& channel) {
    const auto key = std::make_pair(channel, ends_[{channel, end}]++);
    const auto found = messages_.find(key);
    if (found != messages_.end()) return found->second;
    return messages_[key] = create({std::get<0>(channel), std::get<1>(channel)});
  }

  const std::vector<Program>& programs_;
  Expanded out_;
  std::map<std::pair<int, std::vector<int>>, int> issued_;
  std::map<std::pair<std::vector<int>, int>, int> collectives_;
  std::map<std::pair<Channel, int>, int> ends_;
  std::map<std::pair<Channel, int>, int> messages_;
};

// A rank's state: 2 * position, + 1 while it is blocked in an issue.
using State = std::vector<size_t>;

class Explorer {
 public:
  Explorer(const Expanded& expanded, bool blocking) : expanded_(expanded), blocking_(blocking) {}

  void explore(const State& state) {
    if (!seen_.insert(state).second) return;
    bool moved = false, ended = true;
    for (size_t r = 0; r < state.size(); ++r) {
      if (state[r] / 2 == expanded_.events[r].size()) continue;
      ended = false;
      State next = state;
      if (!advance(state, r, next[r])) continue;
      moved = true;
      explore(next);
    }
    finishes = finishes || ended;
    deadlocks = deadlocks || (!ended && !moved);
  }
  bool finishes = false, deadlocks = false;

 private:
  bool issued_by_all(const State& state, int communication) const {
    for (int member : expanded_.members[static_cast<size_t>(communication)]) {
      const size_t r = static_cast<size_t>(member);
      bool issued = false;
      for (size_t i = 0; i < (state[r] + 1) / 2; ++i) {
        issued = issued || expanded_.events[r][i].issues == communication;
      }
      if (!issued) return false;
    }
    return true;
  }
  bool advance(const State& state, size_t r, size_t& position) const {
    const Event& event = expanded_.events[r][position / 2];
    if (event.waits_for >= 0) {
      if (!issued_by_all(state, event.waits_for)) return false;
      position += 2;
    } else if (position % 2 == 1) {
      if (!issued_by_all(state, event.issues)) return false;
      position += 1;
    } else {
      position += blocking_ ? 1 : 2;
    }
    return true;
  }

  const Expanded& expanded_;
  bool blocking_;
  std::set<State> seen_;
};

}  // namespace

Outcome try_all_interleavings(const std::vector<Program>& programs, bool blocking) {
  const Expanded expanded = Expander(programs).run();
  Explorer explorer(expanded, blocking);
  explorer.explore(State(programs.size(), 0));
  if (explorer.finishes && explorer.deadlocks) return Outcome::kDependsOnInterleaving;
  return explorer.deadlocks ? Outcome::kDeadlocks : Outcome::kFinishes;
}

}  // namespace tessera
