#include "tessera/cli/libraries/run_commands.h"

#include <cstdlib>

#include "tessera/cli/libraries/load_library.h"

namespace tessera::cli {
namespace {

Result<const RunCommands*> run_commands(const std::string& command) {
  static constexpr Library kLibrary{.file = "libtessera_runtime.so",
                                    .entry = "tessera_run_commands",
                                    .linked = nullptr,
                                    .what = "runtime",
                                    .how_to_get_it = "scripts/setup, then make build"};
  // Without this, the OpenMP threads of the kernel library spin while they wait. On a machine with
  // other work, a spinning thread takes the core from the thread that it waits for: a step was seen
  // to take 10 times as long. OpenMP reads the policy when it is loaded, which is when the library
  // is loaded.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  TESSERA_TRY(void* const entry, load_library(kLibrary, command));
  return reinterpret_cast<decltype(&tessera_run_commands)>(entry)();
}

}  // namespace

Result<int> run_train(const TrainOptions& options) {
  TESSERA_TRY(const RunCommands* commands, run_commands("train"));
  return commands->train(options);
}

Result<int> run_verify(const VerifyOptions& options) {
  TESSERA_TRY(const RunCommands* commands, run_commands("verify"));
  return commands->verify(options);
}

Result<int> run_profile(const ProfileOptions& options) {
  TESSERA_TRY(const RunCommands* commands, run_commands("profile"));
  return commands->profile(options);
}

Result<int> run_sample(const SampleOptions& options) {
  TESSERA_TRY(const RunCommands* commands, run_commands("sample"));
  return commands->sample(options);
}

Result<int> run_evaluate(const EvaluateOptions& options) {
  TESSERA_TRY(const RunCommands* commands, run_commands("evaluate"));
  return commands->evaluate(options);
}

Result<int> run_launch(const LaunchOptions& options) {
  TESSERA_TRY(const RunCommands* commands, run_commands("launch"));
  return commands->launch(options);
}

}  // namespace tessera::cli
