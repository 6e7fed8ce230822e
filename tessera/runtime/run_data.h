// Internal to the runtime: the data of a run, opened, and what its ranks load from it.
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
// An error ends in the place of the key: "(run.toml:3)".
Result<RunData> open_run_data(const RunConfig& config, const Model& model);

// Is there an evaluation after this step?
bool evaluates_after(const RunConfig& config, int64_t step);

// Data that does not fit the model may be found in the middle of a step. The rank that finds it
// throws, so that the others stop; the session then reports what was kept here: wrong input, not a
// fault. Thread-safe.
class DataErrors {
 public:
  // Returns if the status is good; else keeps the first error and throws a comm::CommFault.
  void expect(Status status);
  // The error that was kept, in place of what the ranks say of it; `otherwise` if there is none.
  Error instead_of(const Error& otherwise) const;

 private:
  mutable std::mutex mutex_;
  std::optional<Error> first_;
};

}  // namespace tessera
