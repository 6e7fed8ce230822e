#include "tessera/network/probe_measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "tessera/base/text.h"

namespace tessera::network {
namespace {

using Clock = std::chrono::steady_clock;
using comm::ArrayView;
using comm::CollectiveKind;
using comm::Communicator;
using comm::Handle;
using comm::Item;
using comm::Label;

constexpr int64_t kEchoes = 16, kFewEchoes = 8;
constexpr double kLongWay = 5e-3;  // a round trip after which fewer echoes are sent
constexpr double kPercentile = 0.1;
constexpr double kLatencyShare = 0.25;  // of the budget of time
constexpr int64_t kLatencyBatch = 8;    // rounds between two looks at the clock
constexpr double kWarmUp = 0.25;        // part of a window that does not count
constexpr double kMostWindow = 0.5, kLeastWindow = 0.02, kPilotWindow = 0.15;  // seconds
// MPI sends messages below 64 KiB at once, and asks before larger ones. Just above, the question costs
// more than the message: chunks are small, or much larger where rates are high.
constexpr int64_t kPilotChunk = 16 << 10, kLeastChunk = 4 << 10;  // bytes
constexpr int64_t kMostSmallChunk = 32 << 10, kLeastLargeChunk = 1 << 20, kMostChunk = 4 << 20;
constexpr double kPilotShare = 0.1;  // of the budget of bytes, for the first pairs
constexpr double kHighRate = 1e9;    // bytes/s
// Bytes that arrive first do not count: they may have passed shaped links while their buckets were
// full. The warm-up of the fastest pair has so many bytes at least, unless that takes too long.
constexpr double kWarmUpBytes = 192 << 10;
constexpr double kMostForWarmUp = 2;  // seconds of a window
constexpr double kChunksAWindow = 100;
constexpr int64_t kDepth = 8, kMostDepth = 64;  // chunks on their way in each direction
constexpr int64_t kLeastRounds = 8, kUsualRounds = 16, kMostRounds = 64;
constexpr int64_t kCrossingRounds = 4;  // that are enough for the ways up
constexpr double kSureProbability = 0.99, kSureError = 0.03;
constexpr int64_t kEchoTag = 1, kBulkTag = 2, kExchangeTag = 3;
constexpr double kExchangeWindow = 0.3;  // seconds of an exchange by the rates that were found
constexpr int64_t kExchanges = 5;        // of which the fastest counts: other work only adds
constexpr double kMostExchangeBytes = 64 << 20;  // to each other host

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ArrayView bytes_view(void* data, int64_t bytes) {
  return {static_cast<std::byte*>(data), Box({{0, bytes}}), {1}};
}

struct HostRecord {
  std::array<char, 256> name{};
  std::array<char, 512> address{};
  std::array<char, 64> kernel{};
};
template <size_t N>
void put(const std::string& text, std::array<char, N>& into) {
  std::memcpy(into.data(), text.data(), std::min(text.size(), N - 1));
}

// A decision of rank 0 for all. For a round, the partner of each host, or -1, follows.
struct Step {
  enum Kind : int64_t { kEnd, kLatencies, kLatenciesDone, kRound, kExchange };
  int64_t kind = kEnd;
  int64_t first = 0, count = 0;  // of kLatencies: which rounds
  double window_s = 0;
  int64_t chunk = 0, depth = 0;  // of kExchange: `chunk` goes to each other host
  int64_t most_chunks = 0;       // that a host sends, beside those on their way at the end
};

struct RoundResult {
  double rate = 0;   // that arrived here
  double bytes = 0;  // that were sent from here
};

class Probe {
 public:
  Probe(Communicator& world, const ProbeOptions& options) : world_(world), options_(options) {
    everyone_.resize(static_cast<size_t>(world.size()));
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }

  Result<Probed> run(const ProbeHost& here) {
    find_hosts(here);
    if (out_.hosts.size() < 2) {
      return invalid_input(
          fmt::format("probe: expected ranks on at least two hosts, found {} on '{}' "
                      "(mpirun -n N --host ...)",
                      world_.size(), here.name));
    }
    out_.measured.machines = std::ssize(out_.hosts);
    row_.assign(out_.hosts.size(), 0);
    if (world_.rank() != 0) {
      follow();
      return out_;
    }
    // A wrong file must end the other ranks, too.
    const Status led = lead();
    std::vector<int32_t> none(out_.hosts.size(), -1);
    announce({}, none);
    if (!led) return tl::unexpected(led.error());
    out_.seconds = seconds_since(start_);
    return std::move(out_);
  }

  // Adds the names of the hosts to a message that names ranks.
  std::string with_hosts(const std::string& message) const {
    const size_t open = message.find("ranks {"), close = message.find('}', open);
    if (open == std::string::npos || close == std::string::npos || first_rank_.empty())
      return message;
    std::vector<std::string> names;
    for (const std::string& text : split_text(message.substr(open + 7, close - open - 7), ',')) {
      const auto rank = parse_int(trim(text));
      if (rank && *rank >= 0 && *rank < std::ssize(host_of_))
        names.push_back(out_.hosts[host_of_[static_cast<size_t>(*rank)]]);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return fmt::format("{} (host {})", message, fmt::join(names, ", "));
  }

 private:
  // ---- exchanges among all ranks

  // Gives the bytes of each rank, which are equally many, to rank 0, or to all.
  std::string gather(const void* mine, int64_t bytes, bool to_all, const char* what) {
    comm::Redistribution move;
    move.kind = to_all ? CollectiveKind::kAllGather : CollectiveKind::kExchange;
    move.dtype = DType::kUInt8;
    const int64_t total = bytes * world_.size();
    for (int rank = 0; rank < world_.size(); ++rank) {
      move.hold.push_back(Box({{bytes * rank, bytes}}));
      move.need.push_back(Box({{0, to_all || rank == 0 ? total : 0}}));
    }
    return exchange(move, mine, bytes, what);
  }
  // Gives bytes of rank 0 to all.
  void broadcast(void* data, int64_t bytes, const char* what) {
    comm::Redistribution move;
    move.kind = CollectiveKind::kBroadcast;
    move.dtype = DType::kUInt8;
    for (int rank = 0; rank < world_.size(); ++rank) {
      move.hold.push_back(Box({{0, rank == 0 ? bytes : 0}}));
      move.need.push_back(Box({{0, bytes}}));
    }
    const std::string got = exchange(move, data, world_.rank() == 0 ? bytes : 0, what);
    std::memcpy(data, got.data(), got.size());
  }
  std::string exchange(const comm::Redistribution& move, const void* mine, int64_t bytes,
                       const char* what) {
    const auto me = static_cast<size_t>(world_.rank());
    std::string in(static_cast<const char*>(mine), static_cast<size_t>(bytes));
    std::string got(static_cast<size_t>(move.need[me].volume()), '\0');
    const Item item{&move,
                    {reinterpret_cast<std::byte*>(in.data()), move.hold[me], {1}},
                    {reinterpret_cast<std::byte*>(got.data()), move.need[me], {1}}};
    world_.wait(world_.issue(world_.group(everyone_), {item}, {"probe", what, ""}));
    return got;
  }

  void find_hosts(const ProbeHost& here) {
    HostRecord mine;
    put(here.name, mine.name);
    put(here.address, mine.address);
    put(here.kernel, mine.kernel);
    out_.one_machine = !here.kernel.empty();
    const std::string all = gather(&mine, sizeof mine, true, "names of hosts");
    std::map<std::string, size_t> known;
    for (int rank = 0; rank < world_.size(); ++rank) {
      HostRecord record;
      std::memcpy(&record, all.data() + static_cast<size_t>(rank) * sizeof record, sizeof record);
      out_.one_machine = out_.one_machine && here.kernel == record.kernel.data();
      const auto [place, is_new] = known.try_emplace(record.name.data(), out_.hosts.size());
      if (is_new) {
        out_.hosts.emplace_back(record.name.data());
        out_.addresses.emplace_back(record.address.data());
        out_.ranks.push_back(0);
        first_rank_.push_back(rank);
      }
      host_of_.push_back(place->second);
      ++out_.ranks[place->second];
    }
    host_ = host_of_[static_cast<size_t>(world_.rank())];
    measures_ = first_rank_[host_] == world_.rank();
  }

  // ---- what all hosts do

  void announce(Step step, std::vector<int32_t>& partners) {
    broadcast(&step, sizeof step, "what comes next");
    if (step.kind == Step::kRound) {
      broadcast(partners.data(), static_cast<int64_t>(partners.size() * sizeof(int32_t)),
                "pairs of the next round");
    }
  }

  void follow() {
    std::vector<int32_t> partners(out_.hosts.size());
    while (true) {
      Step step;
      broadcast(&step, sizeof step, "what comes next");
      switch (static_cast<Step::Kind>(step.kind)) {
        case Step::kEnd: return;
        case Step::kLatencies: latencies(step); break;
        case Step::kLatenciesDone:
          gather(row_.data(), std::ssize(row_) * static_cast<int64_t>(sizeof(double)), false,
                 "latencies");
          break;
        case Step::kExchange: {
          const double mine = exchange(step);
          gather(&mine, sizeof mine, false, "times of the exchange");
          break;
        }
        case Step::kRound: {
          broadcast(partners.data(), static_cast<int64_t>(partners.size() * sizeof(int32_t)),
                    "pairs of the next round");
          const RoundResult mine = round(step, partners);
          gather(&mine, sizeof mine, false, "rates of the round");
          break;
        }
      }
    }
  }

  void latencies(const Step& step) {
    if (!measures_) return;
    for (int64_t r = step.first; r < step.first + step.count; ++r) {
      for (const auto& [a, b] : matching(out_.measured.machines, options_.seed, r)) {
        const auto me = static_cast<int64_t>(host_);
        if (a != me && b != me) continue;
        const int64_t peer = a == me ? b : a;
        const double seen[2] = {a == me ? send_echoes(peer) : return_echoes(peer),
                                a == me ? return_echoes(peer) : send_echoes(peer)};
        row_[static_cast<size_t>(peer)] = std::max(seen[0], seen[1]);  // that of the own echoes
      }
    }
  }

  // A message of two numbers: of the next echo, and whether it is the last one.
  using Echo = std::array<int64_t, 2>;
  void send_echo(int64_t peer, Echo& echo) {
    world_.wait(world_.issue_send(first_rank_[static_cast<size_t>(peer)], kEchoTag, DType::kInt64,
                                  {reinterpret_cast<std::byte*>(echo.data()), Box({{0, 2}}), {1}},
                                  label(peer)));
  }
  void take_echo(int64_t peer, Echo& echo) {
    world_.wait(world_.issue_recv(first_rank_[static_cast<size_t>(peer)], kEchoTag, DType::kInt64,
                                  {reinterpret_cast<std::byte*>(echo.data()), Box({{0, 2}}), {1}},
                                  label(peer)));
  }

  // Returns half of a low percentile of the round trips: other work only ever adds to a time.
  double send_echoes(int64_t peer) {
    std::vector<double> trips;
    int64_t most = kEchoes + 1;  // the first one is not counted: a connection may be made for it
    for (int64_t i = 0; i < most; ++i) {
      Echo echo{i, i + 1 == most ? 1 : 0};
      const Clock::time_point sent = Clock::now();
      send_echo(peer, echo);
      take_echo(peer, echo);
      const double trip = seconds_since(sent);
      if (i == 0 && trip <= kLongWay) continue;
      if (i == 1 && trip > kLongWay) most = kFewEchoes + 1;
      if (i > 0) trips.push_back(trip);
    }
    std::sort(trips.begin(), trips.end());
    return trips[static_cast<size_t>(kPercentile * static_cast<double>(trips.size()))] / 2;
  }
  double return_echoes(int64_t peer) {
    for (Echo echo{}; echo[1] == 0;) {
      take_echo(peer, echo);
      send_echo(peer, echo);
    }
    return 0;
  }

  // Waits until all ranks are here, so that their windows are at the same time. A busy rank 0, which
  // has just decided, would else begin after the others.
  void start_together() {
    char ready = 0;
    gather(&ready, 1, false, "ranks that are ready");
    broadcast(&ready, 1, "start of the round");
  }

  // Sends chunks to the partner and takes as many from it, until the window is over. The one with the
  // lower number then says in a chunk which one is the last; both have sent at most `depth` chunks
  // more than they have taken, so that the last is at most 2 * depth ahead.
  RoundResult round(const Step& step, const std::vector<int32_t>& partners) {
    RoundResult out;
    start_together();
    const int32_t peer = partners[host_];
    if (!measures_ || peer < 0) return out;
    const int rank = first_rank_[static_cast<size_t>(peer)];
    const bool leads = static_cast<int64_t>(host_) < peer;
    const auto depth = static_cast<size_t>(step.depth);
    std::vector<std::vector<std::byte>> sent(depth), taken(depth);
    for (size_t i = 0; i < depth; ++i) {
      sent[i].resize(static_cast<size_t>(step.chunk));
      taken[i].resize(static_cast<size_t>(step.chunk));
    }
    std::vector<Handle> sends(depth), receives(depth);
    const Label what = label(peer);
    int64_t last = std::numeric_limits<int64_t>::max();
    const auto post = [&](int64_t number) {
      const size_t slot = static_cast<size_t>(number) % depth;
      std::memcpy(sent[slot].data(), &last, sizeof last);
      sends[slot] = world_.issue_send(rank, kBulkTag, DType::kUInt8,
                                      bytes_view(sent[slot].data(), step.chunk), what);
      receives[slot] = world_.issue_recv(rank, kBulkTag, DType::kUInt8,
                                         bytes_view(taken[slot].data(), step.chunk), what);
      out.bytes += static_cast<double>(step.chunk);
    };
    // The time begins with the first arrival: the partner may have been late.
    Clock::time_point start;
    std::vector<double> arrivals;
    for (int64_t i = 0; i < step.depth; ++i) post(i);
    for (int64_t done = 0; done <= last; ++done) {
      const size_t slot = static_cast<size_t>(done) % depth;
      world_.wait(receives[slot]);
      if (done == 0) start = Clock::now();
      arrivals.push_back(seconds_since(start));
      world_.wait(sends[slot]);
      if (leads) {
        if (last == std::numeric_limits<int64_t>::max() &&
            (arrivals.back() >= step.window_s || done >= step.most_chunks))
          last = done + 2 * step.depth;
      } else {
        int64_t said = 0;
        std::memcpy(&said, taken[slot].data(), sizeof said);
        last = std::min(last, said);
      }
      if (done + step.depth <= last) post(done + step.depth);
    }
    out.rate = rate_of(arrivals, step);
    return out;
  }

  // Sends a chunk to each other host and takes one from each, all at once. Returns the seconds.
  double exchange(const Step& step) {
    start_together();
    if (!measures_) return 0;
    const auto bytes = static_cast<size_t>(step.chunk);
    std::vector<std::byte> sent(bytes);  // all peers get the same
    std::vector<std::vector<std::byte>> taken(out_.hosts.size(), std::vector<std::byte>(bytes));
    const Clock::time_point start = Clock::now();
    std::vector<Handle> handles;
    for (size_t step_to = 1; step_to < out_.hosts.size(); ++step_to) {
      const size_t peer = (host_ + step_to) % out_.hosts.size();
      const Label what = label(static_cast<int64_t>(peer));
      handles.push_back(world_.issue_recv(first_rank_[peer], kExchangeTag, DType::kUInt8,
                                          bytes_view(taken[peer].data(), step.chunk), what));
      handles.push_back(world_.issue_send(first_rank_[peer], kExchangeTag, DType::kUInt8,
                                          bytes_view(sent.data(), step.chunk), what));
    }
    for (const Handle handle : handles) world_.wait(handle);
    return seconds_since(start);
  }

  // Returns the rate at which chunks arrived in the window after the warm-up. All hosts measure the same
  // time, so that the rates of pairs that share a link add up to no more than it carries.
  static double rate_of(const std::vector<double>& arrivals, const Step& step) {
    // Returns how many chunks, and parts of the next one, had arrived at a time.
    const auto arrived = [&](double time) {
      const auto next = std::ranges::lower_bound(arrivals, time);
      const auto whole = static_cast<double>(next - arrivals.begin());
      if (next == arrivals.end()) return whole;
      const double before = next == arrivals.begin() ? 0 : *(next - 1);
      return whole + (*next > before ? (time - before) / (*next - before) : 0);
    };
    const double end = std::min(step.window_s, arrivals.back()), begin = kWarmUp * end;
    return (arrived(end) - arrived(begin)) * static_cast<double>(step.chunk) / (end - begin);
  }

  Label label(int64_t peer) const {
    return {"probe",
            fmt::format("messages between {} and {}", out_.hosts[host_],
                        out_.hosts[static_cast<size_t>(peer)]),
            ""};
  }

  // ---- what rank 0 decides

  Status lead() {
    std::vector<ProbeHost> hosts;
    for (size_t i = 0; i < out_.hosts.size(); ++i)
      hosts.push_back({out_.hosts[i], out_.addresses[i]});
    if (options_.known_racks) {
      TESSERA_TRY(known_, options_.known_racks(hosts));
    }
    start_ = Clock::now();
    lead_latencies();
    lead_rounds();
    lead_exchanges();
    return {};
  }

  void say(const std::string& what) const {
    if (options_.progress) options_.progress(what, used());
  }
  double used() const {
    return std::max(seconds_since(start_) / options_.seconds, out_.bytes / options_.bytes);
  }

  void lead_latencies() {
    const int64_t n = out_.measured.machines;
    const int64_t rounds = n + n % 2 - 1;
    std::vector<int32_t> none;
    for (int64_t r = 0; r < rounds && used() < kLatencyShare; r += kLatencyBatch) {
      say(fmt::format("latencies, round {} of {}", r + 1, rounds));
      Step step;
      step.kind = Step::kLatencies;
      step.first = r;
      step.count = std::min(kLatencyBatch, rounds - r);
      announce(step, none);
      latencies(step);
    }
    Step step;
    step.kind = Step::kLatenciesDone;
    announce(step, none);
    const std::string all =
        gather(row_.data(), n * static_cast<int64_t>(sizeof(double)), false, "latencies");
    std::vector<double>& latency = out_.measured.latency_s;
    latency.assign(static_cast<size_t>(n * n), 0);
    for (int64_t i = 0; i < n; ++i) {
      const size_t from = static_cast<size_t>(first_rank_[static_cast<size_t>(i)]) *
                          static_cast<size_t>(n) * sizeof(double);
      std::memcpy(&latency[static_cast<size_t>(i * n)], all.data() + from,
                  static_cast<size_t>(n) * sizeof(double));
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        double& there = latency[static_cast<size_t>(i * n + j)];
        double& back = latency[static_cast<size_t>(j * n + i)];
        there = back = (there + back) / 2;
      }
    }
  }

  // Carries out one round, in which hosts that rest have no partner.
  void lead_round(const std::vector<std::pair<int64_t, int64_t>>& pairs, double window_s) {
    std::vector<int32_t> partners(out_.hosts.size(), -1);
    for (const auto& [a, b] : pairs) {
      partners[static_cast<size_t>(a)] = static_cast<int32_t>(b);
      partners[static_cast<size_t>(b)] = static_cast<int32_t>(a);
    }
    Step step;
    step.kind = Step::kRound;
    step.window_s = window_s;
    step.chunk = chunk_;
    step.depth = depth_;
    const double share = (options_.bytes - out_.bytes) * (window_ == 0 ? kPilotShare : 1);
    step.most_chunks = std::max<int64_t>(
        0,
        static_cast<int64_t>(share / static_cast<double>(out_.hosts.size() * chunk_)) - 3 * depth_);
    announce(step, partners);
    const RoundResult mine = round(step, partners);
    const std::string all = gather(&mine, sizeof mine, false, "rates of the round");
    std::vector<RoundResult> results(out_.hosts.size());
    for (size_t i = 0; i < results.size(); ++i) {
      std::memcpy(&results[i], all.data() + static_cast<size_t>(first_rank_[i]) * sizeof mine,
                  sizeof mine);
    }
    last_.clear();
    for (const auto& [a, b] : pairs) {
      const double rate =
          (results[static_cast<size_t>(a)].rate + results[static_cast<size_t>(b)].rate) / 2;
      if (rate > 0) last_.push_back({a, b, rate});
    }
    for (const RoundResult& result : results) out_.bytes += result.bytes;
  }

  // Returns the window of the next round, 0 if the budget has none left.
  double next_window(int64_t rounds_left) const {
    const double time_left = options_.seconds - seconds_since(start_);
    double window = std::min(
        kMostWindow, 0.6 * time_left / static_cast<double>(std::max<int64_t>(1, rounds_left)));
    double rate = 0, highest = 0;  // of all hosts together, of the fastest pair
    for (const ProbeFlow& flow : last_) {
      rate += 2 * flow.rate;
      highest = std::max(highest, flow.rate);
    }
    const double bytes_left = options_.bytes - out_.bytes;
    window = std::max(window, kLeastWindow);
    if (highest > 0)
      window = std::max(window, std::min(kMostForWarmUp, kWarmUpBytes / kWarmUp / highest));
    if (rate > 0) {
      window = std::min(
          window, 0.8 * bytes_left / rate / static_cast<double>(std::max<int64_t>(1, rounds_left)));
    }
    if (window < 0.5 * kLeastWindow || 2 * window > time_left) return 0;
    return window;
  }

  // Chooses the size of chunks so that a window has many, and so many on their way that the longest
  // way stays full.
  void choose_chunks(double window_s) {
    double highest = 0, longest = 0;
    for (const ProbeFlow& flow : last_) highest = std::max(highest, flow.rate);
    for (const double latency : out_.measured.latency_s) longest = std::max(longest, latency);
    const auto share = static_cast<int64_t>(highest * window_s / kChunksAWindow);
    int64_t chunk = kLeastChunk;
    while (2 * chunk <= std::min(share, kMostSmallChunk)) chunk *= 2;
    if (highest > kHighRate) {
      chunk = kLeastLargeChunk;
      while (2 * chunk <= std::min(share, kMostChunk)) chunk *= 2;
    }
    chunk_ = chunk;
    const double on_the_way = 4 * longest * highest / static_cast<double>(chunk);
    depth_ = std::clamp(kDepth + static_cast<int64_t>(on_the_way), kDepth, kMostDepth);
  }

  void lead_rounds() {
    const int64_t n = out_.measured.machines;
    say("first pairs");
    lead_round(matching(n, options_.seed, 0), kPilotWindow);
    window_ = kPilotWindow;
    const int64_t most = std::max(kMostRounds, 4 * n);
    int64_t random = 0, crossing = 0;
    for (int64_t r = 0; r < most; ++r) {
      const double window = next_window(std::max(kLeastRounds, kUsualRounds - r));
      if (window == 0) break;
      window_ = window;
      choose_chunks(window);
      const bool crosses =
          r >= kLeastRounds && crossing < kCrossingRounds && !out_.found.uplinks.empty();
      say(fmt::format("pairs at once, round {}{}", r + 1, crosses ? ", across racks" : ""));
      lead_round(crosses ? crossing_matching(out_.found.rack, options_.seed, crossing)
                         : matching(n, options_.seed, random),
                 window);
      ++(crosses ? crossing : random);
      out_.measured.rounds.push_back(last_);
      if (r + 1 < kLeastRounds || (r % 2 == 0 && crossing < kCrossingRounds)) continue;
      out_.found = infer(out_.measured, known_);
      if (is_sure(random, crossing)) {
        out_.sure = true;
        return;
      }
    }
    // Better than nothing, if the latencies used up the budget.
    if (out_.measured.rounds.empty()) out_.measured.rounds.push_back(last_);
    out_.found = infer(out_.measured, known_);
  }

  // Returns the seconds in which each host sends one byte to each other one, by the rates found.
  double exchange_seconds_a_byte() const {
    const Inference& found = out_.found;
    const auto hosts = static_cast<double>(out_.hosts.size());
    double seconds = 0;
    std::vector<double> below(found.uplinks.size(), 0);
    for (size_t i = 0; i < out_.hosts.size(); ++i) {
      seconds = std::max(seconds, (hosts - 1) / found.cards[i].rate);
      if (!below.empty()) ++below[static_cast<size_t>(found.rack[i])];
    }
    for (size_t g = 0; g < below.size(); ++g) {
      if (found.uplinks[g].reached)
        seconds = std::max(seconds, below[g] * (hosts - below[g]) / found.uplinks[g].rate);
    }
    return seconds;
  }

  // Measures exchanges among all hosts, as far as the budget allows.
  void lead_exchanges() {
    const auto hosts = static_cast<double>(out_.hosts.size());
    const double time_left = options_.seconds - seconds_since(start_);
    const double a_byte = exchange_seconds_a_byte();
    const double bytes_left = (options_.bytes - out_.bytes) / (hosts * (hosts - 1) * kExchanges);
    const double bytes = std::min({kExchangeWindow / a_byte, bytes_left, kMostExchangeBytes});
    if (bytes < kLeastChunk || time_left < 4 * kExchanges * kExchangeWindow) return;
    double fastest = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < kExchanges; ++i) {
      say(fmt::format("exchange {} of {} among all hosts", i + 1, kExchanges));
      Step step;
      step.kind = Step::kExchange;
      step.chunk = static_cast<int64_t>(bytes);
      std::vector<int32_t> none;
      announce(step, none);
      const double mine = exchange(step);
      const std::string all = gather(&mine, sizeof mine, false, "times of the exchange");
      double slowest = 0;
      for (const int rank : first_rank_) {
        double one = 0;
        std::memcpy(&one, all.data() + static_cast<size_t>(rank) * sizeof one, sizeof one);
        slowest = std::max(slowest, one);
      }
      fastest = std::min(fastest, slowest);
      out_.bytes += hosts * (hosts - 1) * bytes;
    }
    out_.exchange_share = std::min(1.0, std::floor(bytes) * a_byte / fastest);
  }

  bool is_sure(int64_t random, int64_t crossing) const {
    const Inference& found = out_.found;
    if (found.probability < kSureProbability) return false;
    if (found.uplinks.empty()) return random >= std::min(kUsualRounds, out_.measured.machines);
    if (crossing < kCrossingRounds) return false;
    return std::ranges::all_of(
        found.uplinks, [](const Estimate& one) { return !one.reached || one.error <= kSureError; });
  }

  Communicator& world_;
  const ProbeOptions& options_;
  std::vector<int> everyone_;
  Probed out_;
  std::vector<int> first_rank_;  // of each host
  std::vector<size_t> host_of_;  // by rank
  size_t host_ = 0;              // of this rank
  bool measures_ = false;
  std::vector<double> row_;  // latencies that this host measured, by peer
  // Only rank 0 uses these:
  Clock::time_point start_ = Clock::now();
  std::vector<int64_t> known_;
  int64_t chunk_ = kPilotChunk, depth_ = kDepth;
  double window_ = 0;
  ProbeRound last_;
};

}  // namespace

Result<Probed> probe_network(Communicator& world, const ProbeHost& here,
                             const ProbeOptions& options) {
  Probe probe(world, options);
  try {
    return probe.run(here);
  } catch (const comm::CommFault& lost) {
    return tl::unexpected(Error{lost.code, probe.with_hosts(lost.message)});
  }
}

}  // namespace tessera::network
