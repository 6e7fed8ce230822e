#include "runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace tessera {

namespace fs = std::filesystem;

TrainedRun train(const RunConfig& config, Storage* storage) {
  TrainedRun run;
  TrainingCallbacks callbacks;
  callbacks.step = [&](const StepReport& report) { run.losses[report.step] = report.loss; };
  callbacks.note = [&](const std::string& note) { run.notes.push_back(note); };
  callbacks.storage = storage;
  run.end = run_training(config, callbacks);
  return run;
}

TemporaryFolder::TemporaryFolder() {
  static int made = 0;
  const fs::path memory = "/dev/shm";
  const fs::path above = fs::is_directory(memory) ? memory : fs::temp_directory_path();
  path_ = (above / fmt::format("tessera_runs_{}_{}", ::getpid(), made++)).string();
  fs::create_directories(path_);
}
TemporaryFolder::~TemporaryFolder() { fs::remove_all(path_); }
std::string TemporaryFolder::path(const std::string& name) const { return path_ + "/" + name; }

}  // namespace tessera
