#include "tessera/orchestrate/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX declares it nowhere

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kErrorWord = "tessera: ";
constexpr size_t kMostLine = 1000;  // bytes of a line that are kept at most

// Globals, because a signal handler cannot reach anything else.
std::atomic<pid_t> running = 0;
std::atomic<bool> told_to_stop = false;

void pass_on(int signal) {
  told_to_stop = true;
  const pid_t child = running;
  if (child > 0) ::kill(child, signal);
}

// Passes signals on to the child process for as long as the object lives.
class PassSignals {
 public:
  PassSignals() {
    told_to_stop = false;
    struct sigaction action {};
    action.sa_handler = pass_on;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~PassSignals() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
    running = 0;
  }
  PassSignals(const PassSignals&) = delete;
  PassSignals& operator=(const PassSignals&) = delete;

 private:
  struct sigaction interrupt_ {
  }, terminate_{};
};

class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() { close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

// Copies the standard error of a process to ours and keeps its last error line.
class ErrorLines {
 public:
  explicit ErrorLines(bool quiet) : quiet_(quiet) {}

  // Reads the bytes that have arrived. Returns false if the process has closed the pipe.
  bool read(int from) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (got == 0) return false;
    const std::string_view text(buffer.data(), static_cast<size_t>(got));
    if (!quiet_) (void)!::write(STDERR_FILENO, text.data(), text.size());
    for (const char letter : text) {
      if (letter == '\n') {
        end_line();
      } else if (line_.size() < kMostLine) {
        line_ += letter;
      }
    }
    return true;
  }
  std::string last() {
    end_line();
    return last_;
  }

 private:
  void end_line() {
    if (line_.starts_with(kErrorWord)) last_ = one_line(line_.substr(kErrorWord.size()));
    line_.clear();
  }
  bool quiet_;
  std::string line_, last_;
};

std::string system_error(int code) {
  return std::strerror(code);  // NOLINT(concurrency-mt-unsafe): one call at a time
}

Result<pid_t> spawn(const std::vector<std::string>& words, int errors) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  pid_t child = 0;
  const int code =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code == 0) return child;
  return invalid_input(
      fmt::format("{}: expected a program that can be started: {}", words[0], system_error(code)));
}

}  // namespace

Result<Ended> run_process(const std::vector<std::string>& words, std::chrono::milliseconds limit,
                          bool quiet) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return fault(fmt::format("{}: {}", words[0], system_error(errno)));
  File read_end(ends[0]);
  File write_end(ends[1]);
  const PassSignals pass;
  const Clock::time_point start = Clock::now();
  TESSERA_TRY(const pid_t child, spawn(words, write_end.number()));
  running = child;
  if (told_to_stop) ::kill(child, SIGTERM);
  write_end.close();
  const File ended(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (ended.number() < 0) {
    const int code = errno;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return fault(fmt::format("{}: cannot be watched: {}", words[0], system_error(code)));
  }
  Ended result;
  ErrorLines errors(quiet);
  // Watches both the pipe and the process, because descendants of the process may keep the pipe
  // open after the process has ended.
  std::array<pollfd, 2> watched{pollfd{read_end.number(), POLLIN, 0},
                                pollfd{ended.number(), POLLIN, 0}};
  for (;;) {
    int wait = -1;
    if (limit.count() > 0) {
      const auto left =
          limit - std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
      wait = static_cast<int>(std::max<int64_t>(0, left.count()));
    }
    const int ready = ::poll(watched.data(), watched.size(), wait);
    if (ready < 0) continue;  // a signal
    if (ready == 0) {
      result.timed_out = true;
      ::kill(child, SIGKILL);
      limit = std::chrono::milliseconds::zero();
      continue;
    }
    if ((watched[0].revents & (POLLIN | POLLHUP)) != 0) {
      if (!errors.read(read_end.number())) watched[0].fd = -1;
      continue;  // reads all that the process wrote before noting its end
    }
    if (watched[1].revents != 0) break;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.error = errors.last();
  result.stopped = told_to_stop;
  return result;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  if (path == nullptr) return "";
  for (const std::string& folder : split_text(path, ':')) {
    std::string file = (std::filesystem::path(folder) / name).string();
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace tessera
