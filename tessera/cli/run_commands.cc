#include "tessera/cli/run_commands.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace tessera::cli {
namespace {

constexpr const char* kLibrary = "libtessera_runtime.so";
constexpr const char* kHowToGetIt = "to get it: scripts/setup, then make build";

Result<const RunCommands*> run_commands(const std::string& command) {
  std::error_code error;  // told by the library that is not found
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return load_run_commands((program.parent_path() / kLibrary).string(), command);
}

}  // namespace

Result<const RunCommands*> load_run_commands(const std::string& file, const std::string& command) {
  if (!std::filesystem::exists(file)) {
    return invalid_input(fmt::format("{}: this build has no runtime: expected the library {}; {}",
                                     command, file, kHowToGetIt));
  }
  // The kernel library's OpenMP threads spin while they wait. On a machine that does anything else
  // beside, a spinning thread keeps the one it waits for from running: a step was seen to take 10
  // times as long. OpenMP reads the policy when it is loaded, which happens in dlopen.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  // Global, because the plug-ins of Open MPI expect to find its symbols there. Never closed: the
  // library ends what it has started when the process exits.
  void* library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  void* entry = library == nullptr ? nullptr : ::dlsym(library, "tessera_run_commands");
  if (entry == nullptr) {
    return invalid_input(
        fmt::format("{}: the runtime cannot be loaded: {}; {}", command, ::dlerror(), kHowToGetIt));
  }
  return reinterpret_cast<decltype(&tessera_run_commands)>(entry)();
}

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
