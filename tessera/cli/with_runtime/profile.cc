// tessera profile: measures, shows its progress, and writes the file.
#include "tessera/runtime/measure/profiling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/cli/with_runtime/commands.h"
#include "tessera/comm/communicator.h"
#include "tessera/cost/family.h"

namespace tessera::cli::with_runtime {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

Status write_profile(const fs::path& path, const Profile& profile) {
  std::error_code error;  // ignored, as write_file below reports the problem
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  return write_file(path.string(), to_json(profile));
}

class Meter {
 public:
  void show(const std::string& what, double done) {
    const bool terminal = isatty(STDERR_FILENO) == 1;
    if (!terminal && seconds_since(shown_) < 5 && shown_ != start_) return;
    shown_ = Clock::now();
    const std::string line =
        fmt::format("{:3.0f} %  {:5.0f} s  {}", 100 * done, seconds_since(start_), what);
    fmt::print(stderr, "{}{}{}", terminal ? "\r" : "", line, terminal ? "\x1b[K" : "\n");
    open_ = terminal;
  }
  ~Meter() {
    if (open_) fmt::print(stderr, "\n");
  }

 private:
  Clock::time_point start_ = Clock::now(), shown_ = start_;
  bool open_ = false;
};

tessera::ProfileOptions machine_options(const ProfileOptions& options) {
  return {options.device, options.ranks, options.threads, options.quick, nullptr};
}

std::string path_of(const ProfileOptions& options) {
  return options.out.empty() ? default_profile_path() : options.out;
}

// Measures as one of the processes that mpirun started. The first process writes the result to the
// file.
Result<int> add_processes(const ProfileOptions& options) {
  const std::string path = path_of(options);
  Profile profile;
  if (fs::exists(path)) {
    TESSERA_TRY(profile, load_profile(path));
  } else {
    TESSERA_TRY(profile, describe_machine(machine_options(options)));
  }
  TESSERA_TRY(const bool first, profile_processes(machine_options(options), profile));
  if (first) TESSERA_TRY_VOID(write_profile(path, profile));
  return 0;
}

// Starts this program under mpirun. Returns whether that succeeded; if not, mpirun's own messages
// say why.
bool start_processes(const ProfileOptions& options, int64_t ranks) {
  std::error_code error;
  const std::string self = fs::read_symlink("/proc/self/exe", error).string();
  std::vector<std::string> words{"mpirun", "-n", std::to_string(ranks)};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"--oversubscribe", self, "profile", "--out", path_of(options)});
  if (options.quick) words.emplace_back("--quick");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    ::execvp("mpirun", arguments.data());
    std::_Exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool mpirun_found() {
  const char* path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "" : path;
  while (!left.empty()) {
    const std::string_view folder = left.substr(0, left.find(':'));
    if (::access(fmt::format("{}/mpirun", folder).c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(left.size(), folder.size() + 1));
  }
  return false;
}

// Measures transfers between processes, for each number of ranks above 1.
void measure_processes(const ProfileOptions& options, Meter& meter) {
  if (options.no_mpi || !comm::mpi_available() || !mpirun_found()) return;
  for (const int64_t ranks : options.ranks) {
    if (ranks < 2) continue;
    meter.show(fmt::format("collectives of {} processes", ranks), 1);
    if (start_processes(options, ranks)) continue;
    fmt::print(stderr,
               "tessera: profile: mpirun failed; nothing was measured between {} processes\n",
               ranks);
  }
}

// Measures the kernels of some plans, and adds them to the profile of a machine that was measured
// before.
Result<int> add_steps(const ProfileOptions& options) {
  const std::string path = path_of(options);
  if (comm::mpi_launched()) {
    return invalid_input(
        "profile: --model: kernels are measured on threads; expected no mpirun, found one");
  }
  if (options.batch == 0)
    return invalid_input("profile: --model: expected --batch, the sequences of a step");
  if (!fs::exists(path)) {
    return invalid_input(fmt::format(
        "profile: --model: expected a profile to add to, found no file {}; tessera profile writes "
        "it",
        path));
  }
  TESSERA_TRY(Profile profile, load_profile(path));
  std::string text;
  for (const std::string& plan : options.plans) {
    TESSERA_TRY(const size_t sizes,
                profile_step(machine_options(options),
                             {options.model, plan, options.batch, options.precision}, profile));
    text += fmt::format("{}: {} sizes of {} under {} measured\n", path, sizes, options.model, plan);
  }
  TESSERA_TRY_VOID(write_profile(path, profile));
  return print(text);
}

}  // namespace

Result<int> profile(const ProfileOptions& options) {
  if (!options.model.empty()) return add_steps(options);
  const bool has_plans = options.plans != ProfileOptions().plans;
  if (has_plans || options.batch > 0) {
    return invalid_input(fmt::format(
        "profile: {}: expected --model, whose step is measured, found none; without both the whole "
        "machine is measured",
        has_plans ? "--plan" : "--batch"));
  }
  if (comm::mpi_launched()) return add_processes(options);
  const Clock::time_point start = Clock::now();
  size_t samples = 0, families = 0;
  std::vector<std::string> unmeasured;
  {
    Meter meter;
    tessera::ProfileOptions machine = machine_options(options);
    machine.progress = [&](const std::string& what, double done) { meter.show(what, done); };
    TESSERA_TRY(const Profile profile, profile_machine(machine));
    for (const auto& [name, family] : profile.families) samples += family.samples.size();
    families = profile.families.size();
    unmeasured = unmeasured_kinds(profile);
    TESSERA_TRY_VOID(write_profile(path_of(options), profile));
    measure_processes(options, meter);
  }
  return print(
      fmt::format("{}: {} families, {} sizes, {} ranks side by side, {:.0f} s\n"
                  "not measured, priced by the cost model: {}\n",
                  path_of(options), families, samples, fmt::join(options.ranks, ", "),
                  seconds_since(start), fmt::join(unmeasured, ", ")));
}

}  // namespace tessera::cli::with_runtime
