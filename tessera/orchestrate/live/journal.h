// The journal of a live controller: what happened, in order. A controller that was killed reads it and
// continues where it stood. It is a database of SQLite in WAL mode, in a folder of its own.
//
// Invariants: an event that append() has returned survives the end of the process and of the machine;
// events are numbered from 1 without gaps; at most one process has the journal open.
//
//   TESSERA_TRY(Journal journal, Journal::open("cluster.journal"));
//   TESSERA_TRY_VOID(journal.append({12.5, "submit", R"({"name": "a"})"}));
//   TESSERA_TRY(const auto events, journal.events());
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::share {

struct JournalEvent {
  double at_s = 0;   // seconds since the first start of the controller
  std::string kind;  // "open", "submit", "cancel", "drain", "out", "back", "round"
  std::string body;  // JSON
  bool operator==(const JournalEvent&) const = default;
};

class Journal {
 public:
  // Opens the file, or creates it. Errors (invalid input): the file is no journal, it is of a newer
  // version, it has been emptied since it was begun, or another process has it open. Faults: the file cannot be read or written.
  static Result<Journal> open(const std::string& path);
  // Opens the file for reading only, beside a process that writes it.
  static Result<Journal> read(const std::string& path);
  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) noexcept;
  ~Journal();

  // Writes the event to the disk. Faults: the disk is full, or another error of writing; the journal
  // then holds what it held before.
  Status append(const JournalEvent& event);
  Result<std::vector<JournalEvent>> events() const;

 private:
  struct Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::share
