// Writes a plan as the text of a framework, reads the text back, and compares the predicted times
// of both plans, to show that nothing was lost.
//
//   TESSERA_TRY(const ExportTarget* target, ...);
//   TESSERA_TRY(const Exported exported, export_plan(request));
//   TESSERA_TRY(const RoundTrip trip, check_export(request, exported, cluster, {}));
//   trip.change()   // relative change of the predicted step: 0.003
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/cluster.h"
#include "tessera/compile/compile.h"
#include "tessera/export/target.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct ExportRequest {
  // A model's text, and a plan file, a recipe call or the text of a plan.
  std::string model, plan;
  int64_t batch = 0;  // 0: one sequence for each replica and micro-batch of the plan
  std::string precision = "float32";  // the type that the run computes in, as in RUN.toml
  const ExportTarget* target = nullptr;
  int64_t node_size = 8;
  // Keeps the model and its graphs, for callers that export several plans; null: one plan alone.
  Compiler* compiler = nullptr;
};

struct Exported {
  std::string text;                // the framework's text
  std::vector<std::string> notes;  // what the framework does otherwise or cannot express
  ExportSettings settings;
  std::shared_ptr<const Model> model;
  std::string plan_text;  // the text of the exported plan
};
// Writes the plan. Errors: the plan does not fit the model; the target cannot express an entry (the
// error has its file:line).
Result<Exported> export_plan(const ExportRequest& request);

// Returns the target that expresses the request's plan, the first of export_targets() if there are
// several; null if there is none. Takes no notice of the request's own target.
const ExportTarget* find_target_of_plan(const ExportRequest& request);

// The plan that a text of the framework asks for.
struct ReadBack {
  ExportSettings settings;
  std::vector<std::string> unread;  // what became of keys that decide nothing, a sentence each
  std::string plan_text;
};
// Reads a text. `ranks`: that the launcher starts; 0 if the text says it.
Result<ReadBack> read_export(const ExportTarget& target, const std::string& text, int64_t ranks,
                             const Model& model);

// The largest relative change of the predicted step time for which the plan that is read back
// counts as the same.
inline constexpr double kMostRoundTripChange = 0.02;
struct RoundTrip {
  ReadBack back;
  double step_s = 0, back_step_s = 0;
  int64_t memory_bytes = 0, back_memory_bytes = 0;  // of the rank that needs the most
  double change() const { return back_step_s / step_s - 1; }
  bool same() const { return std::abs(change()) <= kMostRoundTripChange; }
};
Result<RoundTrip> check_export(const ExportRequest& request, const Exported& exported,
                               const Cluster& cluster, const SimulateOptions& options);

}  // namespace tessera
