#include "tessera/orchestrate/live/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

namespace tessera::share {
namespace {

constexpr int kVersion = 1;               // PRAGMA user_version of the files that this code writes
constexpr int kApplication = 0x54455353;  // PRAGMA application_id: "TESS"

constexpr std::string_view kBegun = "begun\n";

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

}  // namespace

struct Journal::Impl {
  std::string path;
  sqlite3* database = nullptr;
  // A file beside the database, locked while the journal is open for writing. It holds kBegun from the
  // time on when the database has its table.
  int lock = -1;

  ~Impl() {
    sqlite3_close(database);
    if (lock >= 0) ::close(lock);
  }

  tl::unexpected<Error> failed(const char* what) const {
    return fault(fmt::format("{}: cannot {} the journal: {}", path, what,
                             database != nullptr ? sqlite3_errmsg(database) : "no memory"));
  }

  Status run(const char* sql, const char* what) const {
    if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return failed(what);
    return {};
  }

  Result<Statement> prepare(const char* sql, const char* what) const {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) != SQLITE_OK)
      return failed(what);
    return Statement(statement);
  }

  Result<int64_t> pragma(const char* sql) const {
    TESSERA_TRY(const Statement statement, prepare(sql, "read"));
    if (sqlite3_step(statement.get()) != SQLITE_ROW) {
      if (sqlite3_errcode(database) == SQLITE_NOTADB) return int64_t{-1};
      return failed("read");
    }
    return sqlite3_column_int64(statement.get(), 0);
  }

  // Checks that the file is a journal that this code can read.
  Status check() const {
    sqlite3_stmt* first = nullptr;
    const int code = sqlite3_prepare_v2(database, "PRAGMA schema_version", -1, &first, nullptr);
    const Statement statement(first);
    if (code == SQLITE_NOTADB || (code == SQLITE_OK && sqlite3_step(first) == SQLITE_NOTADB))
      return invalid_input(path + ": expected a journal of tessera cluster, found another file");
    TESSERA_TRY(const int64_t application, pragma("PRAGMA application_id"));
    TESSERA_TRY(const int64_t version, pragma("PRAGMA user_version"));
    TESSERA_TRY(const int64_t tables, pragma("SELECT count(*) FROM sqlite_master"));
    if (application != kApplication && !(application == 0 && version == 0 && tables == 0)) {
      return invalid_input(path +
                           ": expected a journal of tessera cluster, found another database");
    }
    if (version > kVersion) {
      return invalid_input(
          fmt::format("{}: expected a journal of version {} or older, found version {}; a newer "
                      "tessera wrote it",
                      path, kVersion, version));
    }
    return {};
  }

  Status mark(const std::string& name) const {
    const bool is_written = ::write(lock, kBegun.data(), kBegun.size()) == std::ssize(kBegun);
    if (is_written && ::fsync(lock) == 0) return {};
    return fault(fmt::format("{}: cannot write: {}", name, std::strerror(errno)));
  }

  Status create() const {
    TESSERA_TRY_VOID(run("PRAGMA journal_mode = WAL", "write"));
    TESSERA_TRY_VOID(run("PRAGMA synchronous = FULL", "write"));
    const std::string head = fmt::format(
        "BEGIN IMMEDIATE; PRAGMA application_id = {}; PRAGMA user_version = {};"
        "CREATE TABLE IF NOT EXISTS event (number INTEGER PRIMARY KEY, at_s REAL NOT NULL,"
        " kind TEXT NOT NULL, body TEXT NOT NULL); COMMIT",
        kApplication, kVersion);
    return run(head.c_str(), "write");
  }
};

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::Journal(Journal&&) noexcept = default;
Journal& Journal::operator=(Journal&&) noexcept = default;
Journal::~Journal() = default;

Result<Journal> Journal::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  const std::string lock = path + ".lock";
  impl->lock = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (impl->lock < 0) return fault(fmt::format("{}: cannot open: {}", lock, std::strerror(errno)));
  if (::flock(impl->lock, LOCK_EX | LOCK_NB) != 0) {
    return invalid_input(
        path + ": expected a journal that no other controller has open, found that one has");
  }
  struct stat marked {};
  if (::fstat(impl->lock, &marked) != 0)
    return fault(fmt::format("{}: cannot read: {}", lock, std::strerror(errno)));
  // A controller that was killed while it began its first journal leaves an empty file without the
  // mark.
  std::error_code missing;
  if (marked.st_size > 0 && std::filesystem::file_size(path, missing) == 0 && !missing) {
    return invalid_input(path +
                         ": expected the journal that was begun here, found an empty file (without "
                         "the file a new journal begins)");
  }
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW;
  if (sqlite3_open_v2(path.c_str(), &impl->database, flags, nullptr) != SQLITE_OK)
    return impl->failed("open");
  TESSERA_TRY_VOID(impl->check());
  TESSERA_TRY_VOID(impl->create());
  if (marked.st_size == 0) TESSERA_TRY_VOID(impl->mark(lock));
  return Journal(std::move(impl));
}

Result<Journal> Journal::read(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return invalid_input(path + ": expected a journal of tessera cluster, found a folder");
  if (sqlite3_open_v2(path.c_str(), &impl->database, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK) {
    return invalid_input(fmt::format("{}: expected a journal of tessera cluster, found none: {}",
                                     path, sqlite3_errmsg(impl->database)));
  }
  TESSERA_TRY_VOID(impl->check());
  TESSERA_TRY(const int64_t application, impl->pragma("PRAGMA application_id"));
  if (application != kApplication)
    return invalid_input(path + ": expected a journal of tessera cluster, found an empty file");
  return Journal(std::move(impl));
}

Status Journal::append(const JournalEvent& event) {
  TESSERA_TRY(const Statement statement,
              impl_->prepare("INSERT INTO event (at_s, kind, body) VALUES (?, ?, ?)", "write"));
  const auto text = [&](int at, const std::string& value) {
    sqlite3_bind_text(statement.get(), at, value.data(), static_cast<int>(value.size()),
                      SQLITE_STATIC);
  };
  sqlite3_bind_double(statement.get(), 1, event.at_s);
  text(2, event.kind);
  text(3, event.body);
  if (sqlite3_step(statement.get()) != SQLITE_DONE) return impl_->failed("write");
  return {};
}

Result<std::vector<JournalEvent>> Journal::events() const {
  TESSERA_TRY(const Statement statement,
              impl_->prepare("SELECT at_s, kind, body, number FROM event ORDER BY number", "read"));
  std::vector<JournalEvent> out;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    const auto text = [&](int at) {
      const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), at));
      return std::string(bytes == nullptr ? "" : bytes,
                         static_cast<size_t>(sqlite3_column_bytes(statement.get(), at)));
    };
    const double at_s = sqlite3_column_double(statement.get(), 0);
    const int64_t number = sqlite3_column_int64(statement.get(), 3);
    if (number != std::ssize(out) + 1 || !(at_s >= (out.empty() ? 0 : out.back().at_s))) {
      return invalid_input(
          fmt::format("{}: expected event {} with a time that is not before the one before, found "
                      "event {} at {} s",
                      impl_->path, out.size() + 1, number, at_s));
    }
    out.push_back({at_s, text(1), text(2)});
  }
  if (code != SQLITE_DONE) return impl_->failed("read");
  return out;
}

}  // namespace tessera::share
