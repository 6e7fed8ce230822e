// All rows of a table, at rest in a file. A row is a record of bytes, such as a row's weights and
// behind them its optimizer state; the store does not interpret it.
//
// Rows that were never written have the value that `init` gives them, so the table need not be
// written before it is used: the file begins as a hole and takes disk space only for rows that were
// written. Without `init` such rows are zeros.
//
//   const RowInit init = [](int64_t row, std::byte* out) { ... };   // a function of the row
//   TESSERA_TRY(auto store, FileRows::open("table.rows", {.rows = 20'000'000, .row_bytes = 1024}, init));
//   TESSERA_TRY_VOID(store->read(7, bytes));
//
// The file (docs/strategies/row-cache.md) is read and written by calls, not through a mapping: a
// full disk, a truncated file or a damaged disk is then an Error of one line that names file and
// row, where a mapping ends the process by a signal; and pages of the file do not count as the
// process's resident memory. The page cache keeps what is read often, as with mappings.
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
  virtual Status sync() { return {}; }  // puts everything written onto the disk

 private:
  RowShape shape_;
};

class FileRows : public RowStore {
 public:
  // Makes the file, or opens a file of the same shape that FileRows made. Errors say what is wrong
  // with the shape or the file.
  static Result<std::unique_ptr<FileRows>> open(const std::string& path, RowShape shape,
                                                RowInit init = {});
  ~FileRows() override;
  Status read(int64_t row, std::byte* out) override;
  Status write(int64_t row, const std::byte* in) override;
  Status sync() override;
  int64_t disk_bytes() const;  // that the file takes on the disk now

 private:
  FileRows(std::string path, RowShape shape, RowInit init, int descriptor);
  Status open_or_make();
  std::string head() const;
  int64_t marks_at() const;  // where the bits of the written rows begin

  std::string path_;
  RowInit init_;
  int descriptor_;
  struct Locks;
  std::unique_ptr<Locks> locks_;  // each guards bytes that hold the marks of eight rows
};

}  // namespace tessera::sparse
