#include "tessera/simulate/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr int64_t kChannels = 1000;  // tid = lane * kChannels + channel
constexpr double kNano = 1e9;

int64_t nanoseconds(double seconds) { return std::llround(seconds * kNano); }
// Returns the time in microseconds, as the format requires, without rounding.
std::string micros(int64_t nano) {
  return fmt::format("{}{}.{:03}", nano < 0 ? "-" : "", std::abs(nano) / 1000,
                     std::abs(nano) % 1000);
}
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t thread_of(const TraceEvent& event) {
  return static_cast<int64_t>(event.lane) * kChannels + event.channel;
}

class Writer {
 public:
  explicit Writer(const Simulation& simulation) : simulation_(simulation) {
    for (const std::string& label : simulation.labels) labels_.push_back(quoted(label));
  }

  std::string write() {
    fmt::format_to(out(), "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"writer\":\"tessera\",");
    fmt::format_to(out(), "\"format\":{},\"step_time_s\":{},\"ranks\":{},\"tokens\":{}}},", kFormat,
                   simulation_.step_time_s, simulation_.ranks, simulation_.tokens);
    text_ += "\"traceEvents\":[";
    names();
    for (const TraceEvent& event : simulation_.events) slice(event);
    arrows();
    counters();
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  void entry() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  const std::string& label(int32_t index) const {
    static const std::string none = "\"\"";
    const auto i = static_cast<size_t>(index);
    return index >= 0 && i < labels_.size() ? labels_[i] : none;
  }

  void names() {
    std::map<int32_t, int64_t> ranks;  // representative -> how many ranks it stands for
    for (const RankResult& role : simulation_.roles) ranks[role.representative] = role.ranks;
    std::set<std::pair<int32_t, int64_t>> threads;
    for (const TraceEvent& event : simulation_.events) {
      ranks.try_emplace(event.rank, 1);
      threads.insert({event.rank, thread_of(event)});
    }
    for (const auto& [rank, count] : ranks) {
      const std::string name = count == 1 ? fmt::format("rank {}", rank)
                                          : fmt::format("rank {} and {} like it", rank, count - 1);
      entry();
      fmt::format_to(out(),
                     "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"{}"
                     "\",\"ranks\":{}}}}}",
                     rank, name, count);
      entry();
      fmt::format_to(out(),
                     "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{},\"args\":{{\"sort_"
                     "index\":{}}}}}",
                     rank, rank);
    }
    for (const auto& [rank, thread] : threads) {
      const auto lane = static_cast<Lane>(thread / kChannels);
      const int64_t channel = thread % kChannels;
      entry();
      fmt::format_to(out(),
                     "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{"
                     "\"name\":\"{}{}\"}}}}",
                     rank, thread, lane_name(lane),
                     channel == 0 ? "" : fmt::format(" {}", channel));
    }
  }

  void slice(const TraceEvent& event) {
    const int64_t start = nanoseconds(event.start_s), end = nanoseconds(event.end_s);
    entry();
    fmt::format_to(out(),
                   "{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{"
                   "},\"args\":{{\"id\":\"{}\"",
                   label(event.label), label(event.what), event.rank, thread_of(event),
                   micros(start), micros(end - start), instruction_id(event));
    if (event.bytes != 0) fmt::format_to(out(), ",\"bytes\":{}", event.bytes);
    if (event.match >= 0) fmt::format_to(out(), ",\"match\":{}", event.match);
    text_ += "}}";
  }

  // Writes the arrows. An arrow of a message goes from its send (the event with bytes) to its
  // receive; an arrow of a collective goes from member to member. The points of an arrow must be
  // inside the slices that it connects.
  void arrows() {
    std::map<int32_t, std::vector<const TraceEvent*>> together;
    for (const TraceEvent& event : simulation_.events) {
      if (event.match >= 0) together[event.match].push_back(&event);
    }
    for (auto& [arrow, events] : together) {
      if (events.size() < 2) continue;
      std::stable_sort(events.begin(), events.end(), [](const auto* a, const auto* b) {
        if (a->lane == Lane::kMessage) return a->bytes > b->bytes;
        return a->rank < b->rank;
      });
      // The steps of one arrow must not go back in time.
      int64_t at = 0;
      for (size_t i = 0; i < events.size(); ++i) {
        const TraceEvent& event = *events[i];
        const int64_t start = nanoseconds(event.start_s), end = nanoseconds(event.end_s);
        const bool last = i + 1 == events.size(), arrives = last && event.lane == Lane::kMessage;
        at = std::max(at, arrives ? std::max(start, end - 1) : start);
        point(i == 0 ? 's' : (last ? 'f' : 't'), arrow, event, at);
      }
    }
  }
  void point(char phase, int64_t arrow, const TraceEvent& event, int64_t at) {
    entry();
    const std::string_view kind = lane_name(event.lane);
    fmt::format_to(
        out(),
        "{{\"ph\":\"{}\",{}\"name\":\"{}\",\"cat\":\"{}\",\"id\":{},\"pid\":{},\"tid\":{},"
        "\"ts\":{}}}",
        phase, phase == 'f' ? "\"bp\":\"e\"," : "", kind, kind, arrow, event.rank, thread_of(event),
        micros(at));
  }

  void counters() {
    for (const RankResult& role : simulation_.roles) {
      for (const MemorySample& sample : role.memory.timeline) {
        entry();
        fmt::format_to(
            out(),
            "{{\"ph\":\"C\",\"name\":\"memory\",\"pid\":{},\"ts\":{},\"args\":{{\"live\":{}}}}}",
            role.representative, micros(nanoseconds(sample.time_s)), sample.bytes);
      }
    }
  }

  const Simulation& simulation_;
  std::vector<std::string> labels_;
  std::string text_;
  bool first_ = true;
};

class Reader {
 public:
  Reader(const Json& json, std::string_view file) : json_(json), file_(file) {}

  Result<Simulation> read() {
    const Json* about = member(json_, "otherData");
    const Json* events = member(json_, "traceEvents");
    if (about == nullptr || !about->is_object() || about->value("writer", Json()) != "tessera" ||
        events == nullptr || !events->is_array()) {
      return invalid_input(fmt::format(
          "{}: expected a trace that tessera wrote, found other JSON (no otherData.writer)",
          file_));
    }
    if (about->value("format", Json()) != kFormat) {
      return invalid_input(fmt::format("{}: expected trace format {}, found {}", file_, kFormat,
                                       about->value("format", Json()).dump()));
    }
    const Json* step = member(*about, "step_time_s");
    const Json* ranks = member(*about, "ranks");
    const Json* tokens = member(*about, "tokens");
    if (step == nullptr || !step->is_number() || !is_integer(ranks) || !is_integer(tokens)) {
      return invalid_input(
          fmt::format("{}: otherData: expected numbers step_time_s, ranks and tokens", file_));
    }
    out_.step_time_s = step->get<double>();
    out_.ranks = ranks->get<int64_t>();
    out_.tokens = tokens->get<int64_t>();
    for (size_t i = 0; i < events->size(); ++i) {
      const Json& item = (*events)[i];
      if (!item.is_object() || !one(item)) {
        return invalid_input(fmt::format(
            "{}: traceEvents[{}]: expected an entry as tessera writes it, found {}", file_, i,
            item.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80)));
      }
    }
    for (auto& [rank, role] : roles_) out_.roles.push_back(std::move(role));
    std::stable_sort(out_.events.begin(), out_.events.end(),
                     [](const TraceEvent& a, const TraceEvent& b) {
                       return std::tie(a.rank, a.start_s) < std::tie(b.rank, b.start_s);
                     });
    return std::move(out_);
  }

 private:
  static const Json* member(const Json& json, const char* key) {
    if (!json.is_object()) return nullptr;
    const auto it = json.find(key);
    return it == json.end() ? nullptr : &*it;
  }
  static bool is_integer(const Json* json) { return json != nullptr && json->is_number_integer(); }
  static bool integer(const Json& json, const char* key, int64_t most, int64_t& value) {
    const Json* found = member(json, key);
    if (!is_integer(found)) return false;
    value = found->get<int64_t>();
    return value >= 0 && value <= most;
  }
  static bool time(const Json& json, const char* key, int64_t& nano) {
    const Json* found = member(json, key);
    if (found == nullptr || !found->is_number()) return false;
    const double value = found->get<double>() * 1000;
    if (!(std::abs(value) < 9e18)) return false;
    nano = std::llround(value);
    return true;
  }
  int32_t label(const std::string& text) {
    const auto [it, fresh] = labels_.try_emplace(text, static_cast<int32_t>(out_.labels.size()));
    if (fresh) out_.labels.push_back(text);
    return it->second;
  }
  RankResult& role(int64_t rank) {
    RankResult& out = roles_[rank];
    out.representative = static_cast<int>(rank);
    return out;
  }

  bool one(const Json& item) {
    const Json* phase = member(item, "ph");
    if (phase == nullptr || !phase->is_string()) return false;
    const std::string kind = phase->get<std::string>();
    int64_t rank = 0;
    if (!integer(item, "pid", INT32_MAX, rank)) return false;
    if (kind == "M") return name(item, rank);
    if (kind == "X") return slice(item, rank);
    if (kind == "C") return counter(item, rank);
    return kind == "s" || kind == "t" || kind == "f";  // arrows follow from the slices
  }
  bool name(const Json& item, int64_t rank) {
    const Json* arguments = member(item, "args");
    if (arguments == nullptr) return false;
    if (item.value("name", Json()) != "process_name") return true;
    return integer(*arguments, "ranks", INT32_MAX, role(rank).ranks);
  }
  bool counter(const Json& item, int64_t rank) {
    const Json* arguments = member(item, "args");
    int64_t at = 0, bytes = 0;
    if (arguments == nullptr || !time(item, "ts", at) ||
        !integer(*arguments, "live", INT64_MAX, bytes)) {
      return false;
    }
    role(rank).memory.timeline.push_back({static_cast<double>(at) / kNano, bytes});
    return true;
  }
  bool slice(const Json& item, int64_t rank) {
    const Json* arguments = member(item, "args");
    const Json *name = member(item, "name"), *category = member(item, "cat");
    const Json* id = arguments == nullptr ? nullptr : member(*arguments, "id");
    int64_t thread = 0, start = 0, length = 0;
    constexpr int64_t kThreads = static_cast<int64_t>(kLanes) * kChannels - 1;
    if (name == nullptr || !name->is_string() || category == nullptr || !category->is_string() ||
        id == nullptr || !id->is_string() || !integer(item, "tid", kThreads, thread) ||
        !time(item, "ts", start) || !time(item, "dur", length) || length < 0) {
      return false;
    }
    TraceEvent event;
    event.rank = static_cast<int32_t>(rank);
    event.lane = static_cast<Lane>(thread / kChannels);
    event.channel = static_cast<int32_t>(thread % kChannels);
    event.start_s = static_cast<double>(start) / kNano;
    event.end_s = static_cast<double>(start + length) / kNano;
    event.label = label(name->get<std::string>());
    event.what = label(category->get<std::string>());
    if (!parse_instruction_id(id->get<std::string>(), event)) return false;
    if (arguments->contains("bytes") && !integer(*arguments, "bytes", INT64_MAX, event.bytes)) {
      return false;
    }
    int64_t match = -1;
    if (arguments->contains("match") && !integer(*arguments, "match", INT32_MAX, match)) {
      return false;
    }
    event.match = static_cast<int32_t>(match);
    out_.events.push_back(event);
    return true;
  }

  const Json& json_;
  std::string_view file_;
  Simulation out_;
  std::map<std::string, int32_t> labels_;
  std::map<int64_t, RankResult> roles_;
};

}  // namespace

std::string instruction_id(const TraceEvent& event) {
  return fmt::format("{}:{}:{}", block_name(event.block), event.micro_batch, event.instruction);
}

bool parse_instruction_id(std::string_view id, TraceEvent& event) {
  const std::vector<std::string> parts = split_text(id, ':');
  if (parts.size() != 3) return false;
  const size_t at = parts[0].find('@');
  const std::string_view kind = std::string_view(parts[0]).substr(0, at);
  Result<int64_t> chunk = 0;
  if (at != std::string::npos) chunk = parse_int(std::string_view(parts[0]).substr(at + 1));
  const auto micro_batch = parse_int(parts[1]), instruction = parse_int(parts[2]);
  const auto fits = [](const Result<int64_t>& value) {
    return value && *value >= 0 && *value <= INT32_MAX;
  };
  if (!fits(chunk) || !fits(micro_batch) || !fits(instruction)) return false;
  for (size_t k = 0; k < kBlockKinds; ++k) {
    const auto block = static_cast<BlockKind>(k);
    if (block_name(block) != kind) continue;
    event.block = BlockRef(block, static_cast<int32_t>(*chunk));
    event.micro_batch = *micro_batch;
    event.instruction = static_cast<int32_t>(*instruction);
    return true;
  }
  return false;
}

std::string to_chrome_trace(const Simulation& simulation) { return Writer(simulation).write(); }

Result<Simulation> parse_chrome_trace(std::string_view json, std::string_view file) {
  const Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_discarded()) {
    return invalid_input(
        fmt::format("{}: expected a trace that tessera wrote, found no JSON", file));
  }
  return Reader(parsed, file).read();
}

}  // namespace tessera
