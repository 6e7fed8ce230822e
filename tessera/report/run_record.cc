#include "tessera/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Step = RunRecord::Step;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Reads members of one line's object. The first error stays.
class Line {
 public:
  Line(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  double number(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) return kNone;
    if (value->is_null()) return kNone;  // a loss that is none
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
  TESSERA_TRY_VOID(line.status());
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
            {}};
  if (object.contains("eval_loss")) step.eval_loss = line.number("eval_loss");
  if (object.contains("eval_normalized_entropy")) {
    step.normalized_entropy = line.number("eval_normalized_entropy");
    step.auc = line.number("eval_auc");
  }
  TESSERA_TRY_VOID(line.status());
  return step;
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

// One drawing: each column is the mean of the steps that fall into it.
class Drawing {
 public:
  using Value = std::function<double(const Step&)>;  // not a number: nothing to draw
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

  // Steps below the drawing; where the run began again stands an R.
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
    // What happened between two steps is not drawn.
    if (json.contains("saved") || json.contains("loaded") || json.contains("change")) continue;
    if (const auto start = json.find("start"); start != json.end()) {
      TESSERA_TRY(RunRecord::Start read, read_start(*start, place));
      record.starts.push_back(std::move(read));
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

// How good predictions of clicks are, if evaluations say it.
std::string clicks_text(const RunRecord& record, int64_t width, int64_t height) {
  const auto last = std::find_if(record.steps.rbegin(), record.steps.rend(),
                                 [](const Step& step) { return step.normalized_entropy; });
  if (last == record.steps.rend()) return "";
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  Drawing entropy(record, width, height), auc(record, width, height);
  entropy.add('o', [](const Step& step) { return step.normalized_entropy.value_or(kNone); });
  auc.add('o', [](const Step& step) { return step.auc.value_or(kNone); });
  const auto title = [&](const char* what, const std::optional<double>& value) {
    return fmt::format("{} of the evaluation (last: {:.4f})", what, value.value_or(kNone));
  };
  return entropy.text(title("normalised entropy", last->normalized_entropy), number) + "\n" +
         auc.text(title("area under the ROC curve", last->auc), number) + "\n";
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
  return head(record) +
         loss.text(
             evaluates ? "loss, nats a token (*), and of the evaluation (o)" : "loss, nats a token",
             number) +
         "\n" + clicks_text(record, width, height) + rate.text("tokens/s", number) + "\n" +
         memory.text(fmt::format("resident memory of the process (planned for a rank: {})",
                                 bytes_text(static_cast<double>(last.memory_bytes))),
                     bytes_text);
}

}  // namespace tessera
