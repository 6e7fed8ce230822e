// Throughput and memory of the choices that a planner's search tried, read from the JSON of
// `tessera plan MODEL --json`, for the page. The choices that formulas estimate give a curve: those
// to which no other choice is superior in both time and memory. In addition there are the choices
// whose programs were simulated.
//
//   TESSERA_TRY(const std::string text, read_file("answer.json"));
//   TESSERA_TRY(report.curve, parse_plan_curve(text, "answer.json"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct PlanCurve {
  struct Point {
    std::string choice;  // in the planner's words: "dp=8[batch] sharded=3"
    double step_s = 0, memory_bytes = 0;
    bool fits = true;  // whether it fits into the memory limit
  };
  struct Program : Point {
    Point estimate;  // the same choice, estimated by formula
  };
  std::string model, cluster, planner;
  int64_t batch = 0;               // sequences of a step, at least 1
  double limit_bytes = 0;          // usable memory of a device; 0: unknown
  std::vector<Point> estimated;    // by formula, the smallest memory first
  std::vector<Program> simulated;  // in the order in which they were tried
  std::optional<size_t> best;      // the answer, as an index into `simulated`
  int64_t refused = 0;             // choices that could not become programs
};

// Parses the JSON of an answer. Errors, one line that names `file`: the text is not JSON or only a
// part of it; it is JSON of something else; a key is missing or has another type; a number cannot
// be a time or a size; the answer has no choices.
Result<PlanCurve> parse_plan_curve(std::string_view json, const std::string& file);

}  // namespace tessera
