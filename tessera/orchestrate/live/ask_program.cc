#include "tessera/orchestrate/live/ask_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "tessera/orchestrate/process.h"

namespace tessera::share {
namespace {

using Clock = std::chrono::steady_clock;

// A pipe from a child process to this one.
class Pipe {
 public:
  Pipe() { is_open_ = ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool is_open() const { return is_open_; }
  int to_write() const { return ends_[1]; }
  int to_read() const { return ends_[0]; }
  void close_end(size_t end) {
    if (ends_[end] >= 0) ::close(std::exchange(ends_[end], -1));
  }
  // Appends what has arrived. Returns false when nothing more can.
  bool read(std::string& to) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(to_read(), buffer.data(), buffer.size());
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    to.append(buffer.data(), static_cast<size_t>(got));
    return got > 0;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  bool is_open_ = false;
};

// Starts the program in a child process.
pid_t start(const std::string& file, const std::vector<std::string>& words, int out, int errors) {
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execv(file.c_str(), arguments.data());
  ::_exit(127);
}

// Reads both pipes until they end. Returns false if they have not by then.
bool read_until(Clock::time_point until, Pipe& out, Pipe& errors, ProgramAnswer& answer) {
  std::array<pollfd, 2> watched{pollfd{out.to_read(), POLLIN, 0},
                                pollfd{errors.to_read(), POLLIN, 0}};
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready =
        ::poll(watched.data(), watched.size(), static_cast<int>(std::max<int64_t>(0, left)));
    if (ready == 0) return false;
    if (ready < 0) continue;  // a signal
    if (watched[0].revents != 0 && !out.read(answer.out)) watched[0].fd = -1;
    if (watched[1].revents != 0 && !errors.read(answer.errors)) watched[1].fd = -1;
  }
  return true;
}

}  // namespace

Result<ProgramAnswer> ask_program(const std::vector<std::string>& words,
                                  std::chrono::milliseconds limit) {
  const std::string file = find_program(words[0]);
  if (file.empty()) {
    return invalid_input(
        fmt::format("expected the program {} in PATH, found none of this name", words[0]));
  }
  Pipe out, errors;
  if (!out.is_open() || !errors.is_open())
    return fault(fmt::format("{}: cannot make a pipe", words[0]));
  const pid_t child = start(file, words, out.to_write(), errors.to_write());
  if (child < 0) return fault(fmt::format("{}: cannot start a process", words[0]));
  out.close_end(1);
  errors.close_end(1);
  ProgramAnswer answer;
  const bool has_ended = read_until(Clock::now() + limit, out, errors, answer);
  if (!has_ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!has_ended) {
    return fault(fmt::format("expected an answer of {} within {} s, found none", words[0],
                             std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
  }
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

}  // namespace tessera::share
