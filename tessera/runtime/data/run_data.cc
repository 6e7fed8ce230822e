#include "tessera/runtime/data/run_data.h"

#include <utility>

#include "tessera/comm/communicator.h"

namespace tessera {

Result<RunData> open_run_data(const RunConfig& config, const Model& model) {
  const std::string beside = folder_of_run(config);
  RunData data;
  auto training = open_data(config.data, {&model, config.seed, "data", beside});
  if (!training) {
    return invalid_input(training.error().message + place_of_key(config, "data", config.data_line));
  }
  data.training = std::move(*training);
  if (!config.eval.data.given()) return data;
  if (config.eval.data.store_bytes > 0) {
    return invalid_input("eval.data: expected 'store' in 'data' alone" +
                         place_of_key(config, "eval.data", config.eval.data_line));
  }
  auto evaluation = open_data(config.eval.data, {&model, config.seed, "eval", beside, false, 0});
  if (!evaluation) {
    return invalid_input("eval." + evaluation.error().message +
                         place_of_key(config, "eval.data", config.eval.data_line));
  }
  data.evaluation = std::move(*evaluation);
  return data;
}

bool evaluates_after(const RunConfig& config, int64_t step) {
  return config.eval.data.given() && (step % config.eval.every == 0 || step == config.steps);
}

void DataErrors::expect(Status status) {
  if (status) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!first_) first_ = status.error();
  throw comm::CommFault{status.error().message, status.error().code};
}

Error DataErrors::instead_of(const Error& otherwise) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_ ? *first_ : otherwise;
}

}  // namespace tessera
