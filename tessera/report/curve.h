// Throughput against memory as a search saw it, read back from the JSON of `tessera plan MODEL
// --json` for the page. Formulas give a curve (choices of which no other choice is both faster and
// smaller); beside the curve lie the programs that were simulated.
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
    std::string choice;  // the choice in the search's words: "dp=8[batch] sharded=3"
    double step_s = 0, memory_bytes = 0;
    bool fits = true;  // whether it fits into the limit
  };
  struct Program : Point {
    Point estimate;  // the same choice by formula
  };
  std::string model, cluster, planner;
  int64_t batch = 0;               // sequences of a step, at least 1
  double limit_bytes = 0;          // memory of a device that may be used; 0: unknown
  std::vector<Point> estimated;    // by formula, smallest memory first
  std::vector<Program> simulated;  // in the order in which they were tried
  std::optional<size_t> best;      // index into `simulated` of the answer
  int64_t refused = 0;             // choices that could not become programs
};

// Parses the JSON of an answer. Errors, one line that names `file`: no JSON (or a part of one),
// JSON of something else, a key that is missing or of another type, a number that is no time or
// size, an answer without choices.
Result<PlanCurve> parse_plan_curve(std::string_view json, const std::string& file);

}  // namespace tessera
