#include "tessera/orchestrate/live/training.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/base/text_file.h"
#include "tessera/base/toml.h"

namespace tessera::share {
namespace {

constexpr int kMostGpus = 100'000;
constexpr int64_t kMostRunFile = 1 << 20;  // bytes
constexpr size_t kMostName = 64, kMostSizes = 4096;
constexpr double kMostSpeed = 1e9;  // steps a second

Status check_name(const std::string& name) {
  const bool is_plain = !name.empty() && name.size() <= kMostName && name.front() != '.' &&
                        std::all_of(name.begin(), name.end(), [](unsigned char c) {
                          return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                        });
  if (is_plain) return {};
  return invalid_input(
      fmt::format("name: expected 1 to {} letters, digits, '-', '_' and '.', found {}", kMostName,
                  shown(nlohmann::json(name))));
}

template <class T>
Status read_key(const nlohmann::json& json, const char* key, const char* expected, T& out) {
  const auto found = json.find(key);
  if (found == json.end()) return {};
  const bool fits = std::is_same_v<T, std::string> ? found->is_string()
                    : std::is_integral_v<T>        ? found->is_number_integer()
                                                   : found->is_number();
  if (!fits)
    return invalid_input(fmt::format("{}: expected {}, found {}", key, expected, shown(*found)));
  out = found->get<T>();
  return {};
}

// Reads the sizes of a job whose limits are known.
Result<std::vector<int>> read_sizes(const nlohmann::json& json, const Submission& job) {
  std::vector<int> out;
  const auto found = json.find("sizes");
  if (found == json.end()) return out;
  bool has_asked = false, fits = found->is_array() && found->size() <= kMostSizes;
  for (size_t i = 0; fits && i < found->size(); ++i) {
    const nlohmann::json& size = (*found)[i];
    fits = size.is_number_integer() && size >= job.least_gpus && size <= job.most_gpus;
    if (fits) out.push_back(size.get<int>());
    has_asked |= fits && out.back() == job.gpus;
  }
  if (fits && has_asked) return out;
  return invalid_input(
      fmt::format("sizes: expected numbers of GPUs from {} to {}, {} among them, found {}",
                  job.least_gpus, job.most_gpus, job.gpus, shown(*found)));
}

// Reads pairs of GPUs and steps a second.
Result<std::map<int, double>> read_predicted(const nlohmann::json& json) {
  std::map<int, double> out;
  const auto found = json.find("predicted");
  if (found == json.end()) return out;
  bool fits = found->is_array() && found->size() <= kMostSizes;
  for (size_t i = 0; fits && i < found->size(); ++i) {
    const nlohmann::json& pair = (*found)[i];
    fits = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() && pair[0] >= 1 &&
           pair[0] <= kMostGpus && pair[1].is_number() && pair[1] > 0 && pair[1] <= kMostSpeed;
    fits = fits && out.emplace(pair[0].get<int>(), pair[1].get<double>()).second;
  }
  if (fits) return out;
  return invalid_input(
      fmt::format("predicted: expected pairs of a number of GPUs, each once, and steps a second, "
                  "found {}",
                  shown(*found)));
}

}  // namespace

std::string Submission::plan_on(int gpus_now) const {
  std::string out = plan;
  for (size_t at = 0; (at = out.find("{}", at)) != std::string::npos;)
    out.replace(at, 2, std::to_string(gpus_now));
  return out;
}

nlohmann::json to_json(const Submission& job) {
  nlohmann::json out{{"name", job.name},
                     {"run", job.run_file},
                     {"folder", job.folder},
                     {"plan", job.plan},
                     {"gpus", job.gpus},
                     {"least", job.least_gpus},
                     {"checkpoints", job.checkpoints},
                     {"most", job.most_gpus},
                     {"steps", job.steps}};
  if (!job.sizes.empty()) out["sizes"] = job.sizes;
  for (const auto& [gpus, steps_per_s] : job.predicted)
    out["predicted"].push_back({gpus, steps_per_s});
  if (job.deadline_s < kNever) out["deadline_s"] = job.deadline_s;
  return out;
}

Result<Submission> parse_submission(const nlohmann::json& json) {
  Submission out;
  TESSERA_TRY_VOID(read_key(json, "name", "a text", out.name));
  TESSERA_TRY_VOID(check_name(out.name));
  TESSERA_TRY_VOID(read_key(json, "run", "the path of a run file", out.run_file));
  TESSERA_TRY_VOID(read_key(json, "folder", "the path of a folder", out.folder));
  for (const auto& [key, path] :
       {std::pair("run", &out.run_file), std::pair("folder", &out.folder)}) {
    if (!path->starts_with("/") || path->find('\0') != std::string::npos) {
      return invalid_input(fmt::format("{}: expected an absolute path, found {}", key,
                                       shown(nlohmann::json(*path))));
    }
  }
  TESSERA_TRY_VOID(read_key(json, "plan", "a text", out.plan));
  if (out.plan.find('\0') != std::string::npos)
    return invalid_input("plan: expected a text without zero bytes, found one");
  TESSERA_TRY_VOID(read_key(json, "gpus", "a whole number", out.gpus));
  out.least_gpus = out.most_gpus = out.gpus;
  if (out.is_elastic()) out.least_gpus = 1;
  TESSERA_TRY_VOID(read_key(json, "least", "a whole number", out.least_gpus));
  TESSERA_TRY_VOID(read_key(json, "most", "a whole number", out.most_gpus));
  TESSERA_TRY_VOID(read_key(json, "deadline_s", "a number of seconds", out.deadline_s));
  TESSERA_TRY_VOID(read_key(json, "steps", "a whole number", out.steps));
  TESSERA_TRY_VOID(read_key(json, "checkpoints", "the path of a folder", out.checkpoints));
  if (!(1 <= out.least_gpus && out.least_gpus <= out.gpus && out.gpus <= out.most_gpus &&
        out.most_gpus <= kMostGpus)) {
    return invalid_input(
        fmt::format("gpus: expected 1 <= least <= gpus <= most <= {}, found {}, {} and {}",
                    kMostGpus, out.least_gpus, out.gpus, out.most_gpus));
  }
  TESSERA_TRY(out.sizes, read_sizes(json, out));
  TESSERA_TRY(out.predicted, read_predicted(json));
  if (!out.is_elastic() && out.least_gpus != out.most_gpus) {
    return invalid_input(
        "plan: expected {} for the number of GPUs in the plan of a job of several sizes, found "
        "none");
  }
  return out;
}

Status read_run(Submission& job) {
  const std::string& run_file = job.run_file;
  TESSERA_TRY(const std::string text, read_text_file(run_file, kMostRunFile));
  TESSERA_TRY(const toml::table run, parse_toml(text, run_file));
  const auto checkpoints = run["checkpoint"]["dir"].value<std::string>();
  if (!checkpoints) {
    return invalid_input(
        run_file +
        ": expected checkpoint = { dir = ..., every = ... }, so that the job can be "
        "stopped and moved, found none");
  }
  job.steps = run["steps"].value_or(int64_t{100});
  if (job.steps < 1) {
    return invalid_input(
        fmt::format("{}: steps: expected at least 1, found {}", run_file, job.steps));
  }
  // Links are followed, so that two names of a folder are found to be one.
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(job.folder) / *checkpoints;
  const std::filesystem::path real = std::filesystem::weakly_canonical(folder, failed);
  job.checkpoints = (failed ? folder.lexically_normal() : real).string();
  return {};
}

namespace {

// Returns the entry whose number of GPUs is the nearest. The table is not empty.
const std::pair<const int, double>& nearest(const std::map<int, double>& table, int gpus) {
  return *std::min_element(table.begin(), table.end(), [&](const auto& a, const auto& b) {
    return std::abs(a.first - gpus) < std::abs(b.first - gpus);
  });
}

// Returns the speed on so many GPUs, in proportion to the nearest entry; without entries, the number.
double scaled(const std::map<int, double>& table, int gpus) {
  if (table.empty()) return gpus;
  const auto& [known_gpus, known] = nearest(table, gpus);
  return known * gpus / known_gpus;
}

}  // namespace

double MeasuredSpeeds::steps_per_s(const Shape& shape, BatchRule) const {
  const int gpus = shape.total();
  if (gpus < least_ || gpus > most_) return 0;
  if (!sizes_.empty() && std::find(sizes_.begin(), sizes_.end(), gpus) == sizes_.end()) return 0;
  const double expected = scaled(predicted_, gpus);
  if (measured_.empty()) return expected;
  const auto& [known_gpus, known] = nearest(measured_, gpus);
  return known * expected / scaled(predicted_, known_gpus);
}

Training::Training(Training&& other) noexcept : process_(std::exchange(other.process_, -1)) {}
Training& Training::operator=(Training&& other) noexcept {
  std::swap(process_, other.process_);
  return *this;
}

void Training::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

Status Training::end() {
  kill();
  return {};
}

std::vector<std::string> training_words(const std::string& program, const JobStart& start,
                                        int most_ranks) {
  const Submission& job = start.job;
  std::vector<std::string> words{program,  "train",   job.run_file,    "--resume",
                                 "--json", "--steer", start.steer_path};
  if (!job.plan.empty()) {
    words.emplace_back("--plan");
    words.push_back(job.plan_on(start.gpus));
  }
  if (job.is_elastic()) {
    words.emplace_back("--ranks");
    words.push_back(std::to_string(most_ranks));
  }
  return words;
}

Result<Training> Training::start(const std::string& program, const JobStart& start) {
  const std::string& log_path = start.log_path;
  std::vector<std::string> words = training_words(program, start, start.job.most_gpus);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return fault(fmt::format("{}: cannot write: {}", log_path, std::strerror(errno)));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent || ::chdir(start.job.folder.c_str()) != 0) ::_exit(127);
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, 0);
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  ::close(log);
  if (child < 0) return fault(fmt::format("cannot start a process: {}", std::strerror(errno)));
  return Training(child);
}

std::optional<Training::End> Training::ended() {
  int status = 0;
  if (process_ <= 0 || ::waitpid(process_, &status, WNOHANG) != process_) return {};
  process_ = -1;
  return End{WIFEXITED(status) ? WEXITSTATUS(status) : 0,
             WIFSIGNALED(status) ? WTERMSIG(status) : 0, ""};
}

namespace {

class Processes : public Backend {
 public:
  explicit Processes(std::string program) : program_(std::move(program)) {}
  Result<std::unique_ptr<RunningJob>> start(const JobStart& start) override {
    TESSERA_TRY(Training process, Training::start(program_, start));
    return std::make_unique<Training>(std::move(process));
  }

 private:
  std::string program_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_processes(const BackendSetup& setup) {
  return std::make_unique<Processes>(setup.program);
}

}  // namespace tessera::share
