// All rows of a table, at rest in a file. A row is a record of bytes, such as a row's
// weights and behind them its optimizer state; what is in it is the business of others.
//
// Rows that were never written have the value that `init` gives them, so that the table need not be
// written before it is used: the file begins as a hole, and takes as much of the disk as rows were
// written. Without `init` they are zeros.
//
//   const RowInit init = [](int64_t row, std::byte* out) { ... };   // a function of the row
//   TESSERA_TRY(auto store, FileRows::open("table.rows", {.rows = 20'000'000, .row_bytes = 1024}, init));
//   TESSERA_TRY_VOID(store->read(7, bytes));
//
// The file (docs/strategies/row-cache.md) is read and written by calls and not through a mapping:
// a full disk, a file that was cut off, or a damaged disk is then an Error of one line that names
// file and row, where a mapping ends the process by a signal; and pages of the file are not part of
// the process's resident memory. The page cache keeps what is read often, as it does for mappings.
//
// Thread-safe for different rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::sparse {

struct RowShape {
  int64_t rows = 0;
  int64_t row_bytes = 0;
};
using RowInit = std::function<void(int64_t row, std::byte* out)>;

class RowStore {
 public:
  explicit RowStore(RowShape shape) : shape_(shape) {}
  virtual ~RowStore() = default;
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  int64_t rows() const { return shape_.rows; }
  int64_t row_bytes() const { return shape_.row_bytes; }
  virtual Status read(int64_t row, std::byte* out) = 0;
  virtual Status write(int64_t row, const std::byte* in) = 0;
  virtual Status sync() { return {}; }  // what was written is on the disk

 private:
  RowShape shape_;
};

class FileRows : public RowStore {
 public:
  // Makes the file, or opens one of the same shape that FileRows made. Errors: what is wrong with
  // shape or file.
  static Result<std::unique_ptr<FileRows>> open(const std::string& path, RowShape shape,
                                                RowInit init = {});
  ~FileRows() override;
  Status read(int64_t row, std::byte* out) override;
  Status write(int64_t row, const std::byte* in) override;
  Status sync() override;
  int64_t disk_bytes() const;  // that the file takes by now

 private:
  FileRows(std::string path, RowShape shape, RowInit init, int descriptor);
  Status open_or_make();
  std::string head() const;
  int64_t marks_at() const;  // where the bits of the written rows begin

  std::string path_;
  RowInit init_;
  int descriptor_;
  struct Locks;
  std::unique_ptr<Locks> locks_;  // of the bytes that hold the marks of eight rows each
};

}  // namespace tessera::sparse
