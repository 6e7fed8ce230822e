// Internal to the runtime: the data of a run, opened, and its errors on the ranks that load it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "tessera/models/model.h"
#include "tessera/runtime/data.h"
#include "tessera/runtime/run_config.h"

namespace tessera {

struct RunData {
  std::unique_ptr<DataSource> training, evaluation;  // evaluation: null if the run has none
};
// Opens the data. An error ends in the place of the key: "(run.toml:3)".
Result<RunData> open_run_data(const RunConfig& config, const Model& model);

// Returns whether an evaluation follows this step.
bool evaluates_after(const RunConfig& config, int64_t step);

// Errors of data that does not fit the model, found in the middle of a step. The rank that finds
// one throws, so that the others stop; the session then reports the error that was kept here: wrong
// input, not a fault. Thread-safe.
class DataErrors {
 public:
  // Returns if the status is good; else keeps the first error and throws a comm::CommFault.
  void expect(Status status);
  // Returns the error that was kept, in place of what the ranks say of it; `otherwise` if none was
  // kept.
  Error instead_of(const Error& otherwise) const;

 private:
  mutable std::mutex mutex_;
  std::optional<Error> first_;
};

}  // namespace tessera
