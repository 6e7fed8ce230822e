// Internal to the runtime: opens the data of a run, and keeps the errors that ranks find while they
// load data.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "tessera/models/model.h"
#include "tessera/runtime/data/data.h"
#include "tessera/runtime/run_config.h"

namespace tessera {

struct RunData {
  std::unique_ptr<DataSource> training, evaluation;  // evaluation: null if the run has none
};
// Opens the data. The text of an error ends in the place of the key in the run
// file: "(run.toml:3)".
Result<RunData> open_run_data(const RunConfig& config, const Model& model);

// Returns whether an evaluation follows this step.
bool evaluates_after(const RunConfig& config, int64_t step);

// Keeps errors of data that does not fit the model, if a rank finds them in the middle of a step.
// The rank that finds an error throws a fault, so that the other ranks stop. The session then
// reports the error that was kept here, as wrong input and not as a fault. Thread-safe.
class DataErrors {
 public:
  // Checks the status. If it is an error, keeps the error, unless an earlier one was kept, and
  // throws a comm::CommFault; otherwise does nothing.
  void expect(Status status);
  // Returns the error that was kept; if none was kept, returns `otherwise`, the error that the
  // ranks reported.
  Error instead_of(const Error& otherwise) const;

 private:
  mutable std::mutex mutex_;
  std::optional<Error> first_;
};

}  // namespace tessera
