#include "tessera/simulate/rank_times.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/json_text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Reads the values of one line. The first error is kept.
class LineReader {
 public:
  explicit LineReader(std::string place) : place_(std::move(place)) {}

  const Json& member(const Json& object, const char* key) {
    static const Json none;
    if (const auto found = object.find(key); found != object.end()) return *found;
    fail(fmt::format("expected the key '{}', found none", key));
    return none;
  }
  std::string text(const Json& value, const char* name) {
    if (value.is_string()) return value.get<std::string>();
    fail(fmt::format("expected {} to be a text, found {}", name, shown(value)));
    return "";
  }
  int64_t integer(const Json& value, const char* name) {
    if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
    fail(fmt::format("expected {} to be an integer of at least 0, found {}", name, shown(value)));
    return 0;
  }
  int32_t rank(const Json& value) {
    const int64_t number = integer(value, "a rank");
    if (number <= INT32_MAX) return static_cast<int32_t>(number);
    fail(fmt::format("expected a rank, found {}", number));
    return 0;
  }
  double seconds(const Json& value) {
    constexpr double kMost = 1e12;  // so that sums stay finite
    if (value.is_number() && value.get<double>() >= 0 && value.get<double>() <= kMost)
      return value.get<double>();
    fail(fmt::format("expected seconds from 0 to {:g}, found {}", kMost, shown(value)));
    return 0;
  }
  // Calls `read` with each row of a list of rows of `columns` values.
  template <class Read>
  void rows(const Json& object, const char* key, size_t columns, const Read& read) {
    const Json& list = member(object, key);
    if (!list.is_array()) return fail(fmt::format("expected {} to be a list", key));
    for (const Json& row : list) {
      if (!row.is_array() || row.size() != columns)
        return fail(fmt::format("expected {} to be a list of lists of {} values", key, columns));
      read(row);
    }
  }
  template <class Value>
  Result<std::variant<WatchStart, RankTimes>> result(Value value) const {
    if (!error_.empty()) return invalid_input(fmt::format("{}: {}", place_, error_));
    return std::variant<WatchStart, RankTimes>(std::move(value));
  }
  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }

 private:
  std::string place_, error_;
};

}  // namespace

std::string to_text(const WatchStart& start) {
  return dumped(Json{{"watch",
                      {{"model", start.model},
                       {"plan", start.plan},
                       {"batch", start.batch},
                       {"precision", start.precision},
                       {"optimizer", start.optimizer},
                       {"transport", start.transport},
                       {"ranks", start.ranks}}}});
}

std::string to_text(const RankTimes& times) {
  Json work = Json::array(), transfers = Json::array(), waits = Json::array();
  for (const RankWork& one : times.work)
    work.push_back({one.what, one.size, one.count, one.seconds});
  for (const RankTransfer& one : times.transfers)
    transfers.push_back({one.what, one.ranks, one.bytes, one.count, one.seconds});
  for (const RankWait& one : times.waits)
    waits.push_back({one.what, one.tensor, one.rank, one.count, one.seconds});
  return dumped(Json{{"step", times.step},
                     {"rank", times.rank},
                     {"seconds", times.seconds},
                     {"work", std::move(work)},
                     {"transfers", std::move(transfers)},
                     {"waits", std::move(waits)}});
}

Result<std::variant<WatchStart, RankTimes>> parse_rank_times(std::string_view line,
                                                             const std::string& place) {
  LineReader reader(place);
  const std::optional<Json> json = parse_ordered_json(line);
  if (!json || !json->is_object()) {
    return invalid_input(fmt::format("{}: expected a JSON object, found another text", place));
  }
  if (const auto watch = json->find("watch"); watch != json->end()) {
    if (!watch->is_object()) return invalid_input(place + ": expected watch to be an object");
    const auto text = [&](const char* key) { return reader.text(reader.member(*watch, key), key); };
    const auto integer = [&](const char* key) {
      return reader.integer(reader.member(*watch, key), key);
    };
    WatchStart start;
    start.model = text("model");
    start.plan = text("plan");
    start.batch = integer("batch");
    start.precision = text("precision");
    start.optimizer = text("optimizer");
    start.transport = text("transport");
    start.ranks = integer("ranks");
    return reader.result(std::move(start));
  }
  RankTimes times;
  times.step = reader.integer(reader.member(*json, "step"), "step");
  times.rank = reader.rank(reader.member(*json, "rank"));
  times.seconds = reader.seconds(reader.member(*json, "seconds"));
  reader.rows(*json, "work", 4, [&](const Json& row) {
    times.work.push_back({reader.text(row[0], "the kind of work"),
                          reader.text(row[1], "the size of work"),
                          reader.integer(row[2], "a count"), reader.seconds(row[3])});
  });
  reader.rows(*json, "transfers", 5, [&](const Json& row) {
    RankTransfer& one = times.transfers.emplace_back();
    one.what = reader.text(row[0], "the kind of a transfer");
    if (!row[1].is_array()) reader.fail("expected the ranks of a transfer to be a list");
    for (const Json& rank : row[1]) one.ranks.push_back(reader.rank(rank));
    one.bytes = reader.integer(row[2], "the bytes of a transfer");
    one.count = reader.integer(row[3], "a count");
    one.seconds = reader.seconds(row[4]);
  });
  reader.rows(*json, "waits", 5, [&](const Json& row) {
    times.waits.push_back({reader.text(row[0], "the kind of a wait"),
                           reader.text(row[1], "the tensor of a wait"), reader.rank(row[2]),
                           reader.integer(row[3], "a count"), reader.seconds(row[4])});
  });
  return reader.result(std::move(times));
}

}  // namespace tessera
