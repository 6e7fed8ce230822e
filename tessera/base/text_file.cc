#include "tessera/base/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "tessera/base/doing.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
// How long a reader waits for the first writer of a pipe.
constexpr std::chrono::seconds kMostForAWriter{2};

// Identifies a pipe. The numbers of device and inode are not enough, because the system uses those
// of deleted files again, so the time of the last change is added.
using PipeId = std::tuple<dev_t, ino_t, time_t, int64_t>;

PipeId pipe_id(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

// Keeps the texts that were read from pipes. A pipe can be read only once, but a plan is read
// several times, for example to get its default batch.
class TextsOfPipes {
 public:
  std::optional<std::string> of(const PipeId& pipe) {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(pipe);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const PipeId& pipe, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_[pipe] = text;
  }

 private:
  std::mutex mutex_;
  std::map<PipeId, std::string> texts_;
};

TextsOfPipes& texts_of_pipes() {
  static TextsOfPipes texts;
  return texts;
}

// A file that is open for reading in the mode in which read() does not wait for data.
class OpenFile {
 public:
  OpenFile(const std::string& path, int descriptor) : path_(path), descriptor_(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(descriptor_); }

  Result<std::string> read(int64_t most) {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) return cannot_read(errno);
    if (S_ISDIR(status.st_mode)) return cannot_read(EISDIR);
    is_pipe_ = S_ISFIFO(status.st_mode);
    const PipeId pipe = pipe_id(status);
    if (S_ISREG(status.st_mode) && status.st_size > most) {
      return too_large(most, format_bytes(static_cast<int64_t>(status.st_size)));
    }
    std::string content;
    constexpr size_t kPiece = 1 << 16;
    const auto piece = std::make_unique<char[]>(kPiece);
    for (;;) {
      const ssize_t got = ::read(descriptor_, piece.get(), kPiece);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno != EAGAIN) return cannot_read(errno);
      if (got == 0 && !is_pipe_) return content;
      if (got == 0 && content.empty() && !had_writer_) {
        if (const auto known = texts_of_pipes().of(pipe)) return *known;
      }
      if (got <= 0) {
        TESSERA_TRY(const bool more, wait(got == 0, content.empty()));
        if (more) continue;
        if (::fstat(descriptor_, &status) == 0) texts_of_pipes().keep(pipe_id(status), content);
        return content;
      }
      content.append(piece.get(), static_cast<size_t>(got));
      if (static_cast<int64_t>(content.size()) > most) return too_large(most, "more");
    }
  }

 private:
  // Waits for more data. Returns false at the end of the file. A pipe that nobody has written to
  // yet is not at its end, because the writer may open it later; if no writer opens it within
  // kMostForAWriter, returns an error.
  Result<bool> wait(bool no_writer, bool nothing_yet) {
    pollfd asked{descriptor_, POLLIN, 0};
    if (!no_writer) {
      ::poll(&asked, 1, -1);
      had_writer_ = true;
      return true;
    }
    if (had_writer_ || !nothing_yet) return false;
    constexpr int kMilliseconds = 20;
    if (::poll(&asked, 1, kMilliseconds) > 0 && (asked.revents & POLLHUP) != 0)
      had_writer_ = true;  // the writer has closed the pipe; what it wrote can be read
    if (Clock::now() - start_ < kMostForAWriter) return true;
    return invalid_input(
        fmt::format("cannot read '{}': expected a text, found a pipe that nothing has written to "
                    "for {} seconds",
                    path_, kMostForAWriter.count()));
  }

  tl::unexpected<Error> cannot_read(int error) const {
    return invalid_input(fmt::format("cannot read '{}': {}", path_, std::strerror(error)));
  }
  tl::unexpected<Error> too_large(int64_t most, const std::string& found) const {
    return invalid_input(fmt::format("cannot read '{}': expected a text of at most {}, found {}",
                                     path_, format_bytes(most), found));
  }

  const std::string& path_;
  int descriptor_;
  bool is_pipe_ = false, had_writer_ = false;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

Status check_replaceable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return {};
  return invalid_input(fmt::format("cannot write '{}': expected a file or none, found {}", path,
                                   S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe"));
}

Result<std::string> read_text_file(const std::string& path, int64_t most) {
  const Doing doing("reading", path);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return invalid_input(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return OpenFile(path, descriptor).read(most);
}

}  // namespace tessera
