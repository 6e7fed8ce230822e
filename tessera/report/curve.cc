#include "tessera/report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::json;

// Reads members of JSON objects. The first error is kept; the values that are read after an error
// must not be used.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  std::string text(const Json& object, const char* key, const std::string& where) {
    const Json* value = find(object, key, where, "a text", &Json::is_string);
    return value != nullptr ? value->get<std::string>() : "";
  }
  bool flag(const Json& object, const char* key, const std::string& where) {
    const Json* value = find(object, key, where, "true or false", &Json::is_boolean);
    return value != nullptr && value->get<bool>();
  }
  const Json& list(const Json& object, const char* key) {
    static const Json kEmpty = Json::array();
    const Json* value = find(object, key, "", "a list", &Json::is_array);
    return value != nullptr ? *value : kEmpty;
  }
  // Reads a number. `what` says in messages which value is expected, as "a time above 0".
  double number(const Json& object, const char* key, const std::string& where, const char* what,
                double least) {
    const Json* value = find(object, key, where, what, &Json::is_number);
    if (value == nullptr) return least;
    const double number = value->get<double>();
    if (!std::isfinite(number) || number < least) wrong(where, key, what, *value);
    return number;
  }
  void fail(const std::string& message) {
    if (error_.empty()) error_ = fmt::format("{}: {}", file_, message);
  }
  const std::string& error() const { return error_; }

 private:
  using Is = bool (Json::*)() const noexcept;
  const Json* find(const Json& object, const char* key, const std::string& where, const char* what,
                   Is is) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) {
      fail(fmt::format("{}{}: expected {}, found nothing", where, key, what));
      return nullptr;
    }
    if ((*found.*is)()) return &*found;
    wrong(where, key, what, *found);
    return nullptr;
  }
  void wrong(const std::string& where, const char* key, const char* what, const Json& value) {
    const std::string found = value.is_structured() ? value.type_name() : value.dump();
    fail(fmt::format("{}{}: expected {}, found {}", where, key, what, found));
  }

  std::string file_, error_;
};

constexpr double kLeastTime = std::numeric_limits<double>::min();

PlanCurve::Point estimated_point(Reader& in, const Json& item, const std::string& where) {
  return {in.text(item, "choice", where),
          in.number(item, "estimated_step_s", where, "a time above 0", kLeastTime),
          in.number(item, "estimated_memory_bytes", where, "a size", 0), true};
}

// Reads the simulated programs. `best` is compared with whole elements of the list, because two
// choices may have the same text.
void read_programs(Reader& in, const Json& list, const Json& best, PlanCurve& curve) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("simulated[{}].", i);
    if (list[i].is_object() && list[i].contains("refused")) {
      ++curve.refused;
      continue;
    }
    PlanCurve::Program program;
    program.estimate = estimated_point(in, list[i], where);
    program.choice = program.estimate.choice;
    program.step_s = in.number(list[i], "step_time_s", where, "a time above 0", kLeastTime);
    program.memory_bytes = in.number(list[i], "memory_bytes", where, "a size", 0);
    program.fits = in.flag(list[i], "fits", where);
    if (!curve.best && list[i] == best) curve.best = curve.simulated.size();
    curve.simulated.push_back(std::move(program));
  }
}

}  // namespace

Result<PlanCurve> parse_plan_curve(std::string_view json, const std::string& file) {
  constexpr std::string_view kExpected = "expected what tessera plan MODEL --json prints";
  const Json answer = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (answer.is_discarded()) {
    return invalid_input(fmt::format("{}: {}, found no JSON, or a part of one", file, kExpected));
  }
  if (!answer.is_object() || !answer.contains("curve")) {
    return invalid_input(fmt::format("{}: {}, found no 'curve' in it", file, kExpected));
  }
  Reader in(file);
  PlanCurve curve;
  curve.model = in.text(answer, "model", "");
  curve.cluster = in.text(answer, "cluster", "");
  curve.planner = in.text(answer, "planner", "");
  constexpr double kMostSequences = 1e15;
  const double batch = in.number(answer, "batch", "", "a number of sequences", 1);
  if (batch > kMostSequences || batch != std::floor(batch)) {
    in.fail(fmt::format("batch: expected a number of sequences, found {}", batch));
  }
  curve.limit_bytes = in.number(answer, "memory_limit_bytes", "", "a size", 0);
  const Json& estimated = in.list(answer, "curve");
  for (size_t i = 0; i < estimated.size(); ++i) {
    curve.estimated.push_back(estimated_point(in, estimated[i], fmt::format("curve[{}].", i)));
    PlanCurve::Point& point = curve.estimated.back();
    point.fits = curve.limit_bytes == 0 || point.memory_bytes <= curve.limit_bytes;
  }
  const bool found = in.flag(answer, "found", "");
  const Json best = found ? answer.value("best", Json()) : Json();
  read_programs(in, in.list(answer, "simulated"), best, curve);
  if (found && !curve.best) in.fail("best: expected one of 'simulated', found none of them");
  if (curve.estimated.empty() && curve.simulated.empty()) {
    in.fail("expected choices in 'curve' or 'simulated', found none");
  }
  if (!in.error().empty()) return invalid_input(in.error());
  curve.batch = static_cast<int64_t>(batch);
  std::stable_sort(curve.estimated.begin(), curve.estimated.end(),
                   [](const auto& a, const auto& b) { return a.memory_bytes < b.memory_bytes; });
  return curve;
}

}  // namespace tessera
