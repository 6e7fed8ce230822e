#include "tessera/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "tessera/base/json_text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Step = RunRecord::Step;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Reads members of the JSON object of one line. The first error is kept.
class Line {
 public:
  Line(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  double number(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return kNone;
    if (value->is_null()) return kNone;  // a loss that was not finite
    if (value->is_number()) return value->get<double>();
    fail(fmt::format("{}: expected a number, found {}", key, value->type_name()));
    return kNone;
  }
  int64_t integer(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    if (value->is_number_integer() && value->get<int64_t>() >= 0) return value->get<int64_t>();
    fail(fmt::format("{}: expected an integer of at least 0, found {}", key, shown(*value)));
    return 0;
  }
  std::string text(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (value->is_string()) return value->get<std::string>();
    fail(fmt::format("{}: expected a text, found {}", key, value->type_name()));
    return "";
  }
  Status status() const {
    if (error_.empty()) return {};
    return invalid_input(fmt::format("{}: {}", place_, error_));
  }

 private:
  const Json* find(const char* key) {
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    fail(fmt::format("expected the key '{}', found none", key));
    return nullptr;
  }
  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }

  const Json& object_;
  std::string place_, error_;
};

Result<RunRecord::Start> read_start(const Json& object, const std::string& place) {
  if (!object.is_object()) return invalid_input(place + ": start: expected an object");
  Line line(object, place);
  RunRecord::Start start{line.text("model"), line.text("plan"), line.integer("ranks"),
                         line.number("time"), 0};
  if (object.contains("parameters")) start.parameters = line.integer("parameters");
  TESSERA_TRY_VOID(line.status());
  const auto tables = object.find("tables");
  if (tables == object.end()) return start;
  if (!tables->is_array()) return invalid_input(place + ": tables: expected a list");
  for (const Json& one : *tables) {
    if (!one.is_object()) return invalid_input(place + ": tables: expected a list of objects");
    Line share(one, place + ": tables");
    start.tables.push_back({share.text("table"), share.integer("rank"), share.integer("first_row"),
                            share.integer("rows"), share.integer("first_column"),
                            share.integer("columns"), share.text("tier"), share.integer("bytes"),
                            share.integer("state_bytes")});
    TESSERA_TRY_VOID(share.status());
  }
  return start;
}

Result<Step> read_step(const Json& object, const std::string& place) {
  Line line(object, place);
  Step step{line.integer("step"),
            line.number("loss"),
            line.number("tokens_per_s"),
            line.number("step_time_s"),
            line.integer("memory_bytes"),
            line.integer("resident_bytes"),
            {},
            {},
            {},
            {}};
  if (object.contains("eval_loss")) step.eval_loss = line.number("eval_loss");
  if (object.contains("eval_normalized_entropy")) {
    step.normalized_entropy = line.number("eval_normalized_entropy");
    step.auc = line.number("eval_auc");
  }
  if (object.contains("eval_accuracy")) step.accuracy = line.number("eval_accuracy");
  TESSERA_TRY_VOID(line.status());
  return step;
}

Result<std::vector<RunRecord::RowCache>> read_caches(const Json& list, const std::string& place) {
  std::vector<RunRecord::RowCache> caches;
  const bool objects =
      list.is_array() &&
      std::all_of(list.begin(), list.end(), [](const Json& one) { return one.is_object(); });
  if (!objects) return invalid_input(place + ": row_caches: expected a list of objects");
  for (const Json& one : list) {
    Line line(one, place + ": row_caches");
    caches.push_back({line.text("table"), line.text("policy"), line.integer("rows"),
                      line.integer("slots"), line.number("hit_rate"), line.integer("rows_in"),
                      line.integer("rows_out"), line.integer("overflow_rows")});
    TESSERA_TRY_VOID(line.status());
  }
  return caches;
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

// One drawing. Each column shows the mean of the steps that fall into it.
class Drawing {
 public:
  using Value = std::function<double(const Step&)>;  // not a number: draws nothing
  Drawing(const RunRecord& record, int64_t width, int64_t height)
      : record_(record), width_(width), height_(height) {}

  void add(char mark, const Value& value) {
    std::vector<double> sums(static_cast<size_t>(width_), 0), counts = sums;
    for (const Step& step : record_.steps) {
      const double one = value(step);
      if (!std::isfinite(one)) continue;
      const size_t column = column_of(step.step);
      sums[column] += one;
      ++counts[column];
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = counts[i] > 0 ? sums[i] / counts[i] : kNone;
    curves_.emplace_back(mark, std::move(sums));
  }

  std::string text(const std::string& title,
                   const std::function<std::string(double)>& label) const {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const auto& [mark, values] : curves_) {
      for (const double value : values) {
        if (!std::isfinite(value)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
    if (low > high) return fmt::format("{}\n  nothing to draw\n", title);
    std::vector<std::string> rows(static_cast<size_t>(height_),
                                  std::string(static_cast<size_t>(width_), ' '));
    for (const auto& [mark, values] : curves_) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) continue;
        const double share = high > low ? (high - values[i]) / (high - low) : 0;
        rows[static_cast<size_t>(std::lround(share * static_cast<double>(height_ - 1)))][i] = mark;
      }
    }
    std::string out = title + "\n";
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::string scale = row == 0                 ? label(high)
                                : row + 1 == rows.size() ? label(low)
                                                         : std::string();
      out += fmt::format("{:>12} |{}\n", scale, trimmed(rows[row]));
    }
    return out + axis();
  }

 private:
  size_t column_of(int64_t step) const {
    const int64_t first = record_.steps.front().step, last = record_.steps.back().step;
    if (last == first) return 0;
    const double share = static_cast<double>(step - first) / static_cast<double>(last - first);
    return static_cast<size_t>(std::lround(share * static_cast<double>(width_ - 1)));
  }

  static std::string trimmed(std::string row) {
    row.erase(row.find_last_not_of(' ') + 1);
    return row;
  }

  // Returns the scale of steps below the drawing; an R marks where the run was restarted.
  std::string axis() const {
    std::string line(static_cast<size_t>(width_), '-');
    for (size_t i = 1; i < record_.starts.size(); ++i) {
      const int64_t first = record_.starts[i].first_step;
      if (first > 0) line[column_of(first)] = 'R';
    }
    const std::string first = std::to_string(record_.steps.front().step),
                      last = std::to_string(record_.steps.back().step);
    return fmt::format("{:>12} +{}\n{:>12}  {}{:>{}}\n", "", line, "step", first, last,
                       std::max<int64_t>(1, width_ - static_cast<int64_t>(first.size())));
  }

  const RunRecord& record_;
  int64_t width_, height_;
  std::vector<std::pair<char, std::vector<double>>> curves_;
};

std::string head(const RunRecord& record) {
  std::string out;
  if (!record.starts.empty()) {
    const RunRecord::Start& start = record.starts.back();
    out += fmt::format("{}, plan {}, {} rank{}\n", start.model, start.plan, start.ranks,
                       start.ranks == 1 ? "" : "s");
  }
  out += fmt::format("steps {} to {}", record.steps.front().step, record.steps.back().step);
  const auto restarts = std::max<int64_t>(0, static_cast<int64_t>(record.starts.size()) - 1);
  out += fmt::format(", {} restart{}", restarts, restarts == 1 ? "" : "s");
  std::string where;
  for (size_t i = 1; i < record.starts.size(); ++i) {
    if (record.starts[i].first_step == 0) continue;
    where += fmt::format("{}{} (plan {})", where.empty() ? " (R): at step " : ", ",
                         record.starts[i].first_step, record.starts[i].plan);
  }
  return out + where + "\n\n";
}

}  // namespace

Result<RunRecord> parse_run_record(std::string_view text, const std::string& file) {
  RunRecord record;
  std::map<int64_t, Step> steps;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;
    const std::string place = fmt::format("{}:{}", file, ++number);
    const Json json = Json::parse(text.substr(at, end - at), nullptr, false);
    at = end + 1;
    if (!json.is_object()) {
      return invalid_input(fmt::format("{}: expected a JSON object, found another text", place));
    }
    // Events between two steps (saved, loaded, change) are not drawn.
    if (json.contains("saved") || json.contains("loaded") || json.contains("change")) continue;
    if (const auto start = json.find("start"); start != json.end()) {
      TESSERA_TRY(RunRecord::Start read, read_start(*start, place));
      record.starts.push_back(std::move(read));
      continue;
    }
    if (const auto caches = json.find("row_caches"); caches != json.end()) {
      TESSERA_TRY(record.row_caches, read_caches(*caches, place));
      continue;
    }
    TESSERA_TRY(const Step step, read_step(json, place));
    if (!record.starts.empty() && record.starts.back().first_step == 0)
      record.starts.back().first_step = step.step;
    steps[step.step] = step;
  }
  if (steps.empty()) return invalid_input(fmt::format("{}: expected steps, found none", file));
  for (const auto& [step, one] : steps) record.steps.push_back(one);
  return record;
}

namespace {

// Draws each figure of quality that evaluations have, for predictions of clicks or classes.
std::string quality_text(const RunRecord& record, int64_t width, int64_t height) {
  struct Figure {
    const char* name;
    std::optional<double> Step::*value;
  };
  std::string out;
  for (const Figure& figure : {Figure{"normalised entropy", &Step::normalized_entropy},
                               {"area under the ROC curve", &Step::auc},
                               {"accuracy", &Step::accuracy}}) {
    const auto last = std::find_if(record.steps.rbegin(), record.steps.rend(),
                                   [&](const Step& step) { return step.*figure.value; });
    if (last == record.steps.rend()) continue;
    Drawing drawing(record, width, height);
    drawing.add('o', [&](const Step& step) { return (step.*figure.value).value_or(kNone); });
    out += drawing.text(fmt::format("{} of the evaluation (last: {:.4f})", figure.name,
                                    (*last.*figure.value).value_or(kNone)),
                        [](double value) { return fmt::format("{:.4g}", value); }) +
           "\n";
  }
  return out;
}

// Returns a list of ranks as text: "0", "0 and 2", "0 to 63".
std::string ranks_text(const std::vector<int64_t>& ranks) {
  const bool run = ranks.back() - ranks.front() + 1 == std::ssize(ranks);
  if (ranks.size() > 2 && run) return fmt::format("{} to {}", ranks.front(), ranks.back());
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const char* between = i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ";
    out += fmt::format("{}{}", between, ranks[i]);
  }
  return out;
}

using Share = RunRecord::TableShare;

// Returns which ranks keep which part of the table: "rank 1", "rows 0-4999 on 0, rows 5000-9999 on
// 1". Also names the tier if it is not the device.
std::string holders_text(const std::vector<Share>& shares, int64_t rows, int64_t columns) {
  // Ranks that keep equal boxes are replicas and are listed together.
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, std::string>, std::vector<int64_t>> boxes;
  for (const Share& one : shares) {
    if (one.bytes > 0)
      boxes[{one.first_row, one.rows, one.first_column, one.columns, one.tier}].push_back(one.rank);
  }
  constexpr size_t kMost = 8;
  std::string out;
  size_t shown = 0;
  for (const auto& [box, ranks] : boxes) {
    if (shown++ == kMost) return out + fmt::format(", {} more pieces", boxes.size() - kMost);
    const auto& [first_row, some_rows, first_column, some_columns, tier] = box;
    std::string piece;
    if (some_rows != rows)
      piece += fmt::format("rows {}-{} ", first_row, first_row + some_rows - 1);
    if (some_columns != columns)
      piece += fmt::format("columns {}-{} ", first_column, first_column + some_columns - 1);
    out += fmt::format("{}{}on {}{}", out.empty() ? "" : ", ", piece, ranks_text(ranks),
                       tier == "device" ? std::string() : fmt::format(" ({})", tier));
  }
  return out;
}

// Returns where the tables are under the plan of the run's last start.
std::string tables_text(const RunRecord& record) {
  if (record.starts.empty() || record.starts.back().tables.empty()) return "";
  const RunRecord::Start& start = record.starts.back();
  std::vector<std::string> names;
  std::map<std::string, std::vector<Share>> shares;
  struct LoadedRun {
    int64_t pieces = 0, bytes = 0, state_bytes = 0;
    double rows = 0;
  };
  std::map<int64_t, LoadedRun> loads;
  size_t widest = 5;
  for (const Share& one : start.tables) {
    if (!shares.contains(one.table)) names.push_back(one.table);
    shares[one.table].push_back(one);
    widest = std::max(widest, one.table.size());
    LoadedRun& load = loads[one.rank];
    load.pieces += one.bytes > 0 ? 1 : 0;
    load.rows += static_cast<double>(one.rows);
    load.bytes += one.bytes;
    load.state_bytes += one.state_bytes;
  }
  std::string out = fmt::format("tables under plan {}\n{:<{}} {:>11} {:>7}  on ranks\n", start.plan,
                                "table", widest, "rows", "columns");
  for (const std::string& name : names) {
    int64_t rows = 0, columns = 0;
    for (const Share& one : shares[name]) {
      rows = std::max(rows, one.first_row + one.rows);
      columns = std::max(columns, one.first_column + one.columns);
    }
    out += fmt::format("{:<{}} {:>11} {:>7}  {}\n", name, widest, rows, columns,
                       holders_text(shares[name], rows, columns));
  }
  out += fmt::format("\n{:>5} {:>7} {:>12} {:>12} {:>12}\n", "rank", "pieces", "rows", "tables",
                     "their states");
  constexpr int64_t kMost = 64;
  int64_t shown = 0;
  for (const auto& [rank, load] : loads) {
    if (shown++ == kMost) break;
    out += fmt::format("{:>5} {:>7} {:>12.0f} {:>12} {:>12}\n", rank, load.pieces, load.rows,
                       bytes_text(static_cast<double>(load.bytes)),
                       bytes_text(static_cast<double>(load.state_bytes)));
  }
  if (std::ssize(loads) > kMost) out += fmt::format("and {} more ranks\n", loads.size() - kMost);
  return out;
}

std::string caches_text(const RunRecord& record) {
  if (record.row_caches.empty()) return "";
  size_t widest = 5;
  for (const RunRecord::RowCache& one : record.row_caches)
    widest = std::max(widest, one.table.size());
  std::string out = fmt::format(
      "\ncaches of rows\n{:<{}} {:<9} {:>11} {:>11} {:>9} {:>12} {:>12} {:>12}\n", "table", widest,
      "policy", "rows", "slots", "hit rate", "rows in", "rows out", "without slot");
  for (const RunRecord::RowCache& one : record.row_caches) {
    out += fmt::format("{:<{}} {:<9} {:>11} {:>11} {:>7.2f} % {:>12} {:>12} {:>12}\n", one.table,
                       widest, one.policy, one.rows, one.slots, 100 * one.hit_rate, one.rows_in,
                       one.rows_out, one.overflow_rows);
  }
  return out;
}

}  // namespace

std::string draw(const RunRecord& record, int64_t width, int64_t height) {
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  const bool evaluates = std::any_of(record.steps.begin(), record.steps.end(),
                                     [](const Step& step) { return step.eval_loss.has_value(); });
  Drawing loss(record, width, height), rate(record, width, height), memory(record, width, height);
  loss.add('*', [](const Step& step) { return step.loss; });
  if (evaluates) loss.add('o', [](const Step& step) { return step.eval_loss.value_or(kNone); });
  rate.add('*', [](const Step& step) { return step.tokens_per_s; });
  memory.add('*', [](const Step& step) { return static_cast<double>(step.resident_bytes); });
  const Step& last = record.steps.back();
  const std::string tables = tables_text(record);
  return head(record) +
         loss.text(
             evaluates ? "loss, nats a token (*), and of the evaluation (o)" : "loss, nats a token",
             number) +
         "\n" + quality_text(record, width, height) + rate.text("tokens/s", number) + "\n" +
         memory.text(fmt::format("resident memory of the process (planned for a rank: {})",
                                 bytes_text(static_cast<double>(last.memory_bytes))),
                     bytes_text) +
         (tables.empty() ? "" : "\n" + tables) + caches_text(record);
}

}  // namespace tessera
