// All rows of a table in a file. A row is a record of bytes, such as weights followed by their
// optimizer state; the store does not interpret them.
//
// A row that was never written reads as the value that `init` computes for it, or as zeros without
// `init`. So nothing has to be written before the table is used: the file begins as a hole and
// takes disk space only for rows that were written.
//
//   const RowInit init = [](int64_t row, std::byte* out) { ... };   // writes the row's first value
//   TESSERA_TRY(auto store, FileRows::open("table.rows", {.rows = 20'000'000, .row_bytes = 1024}, init));
//   TESSERA_TRY_VOID(store->read(7, bytes));
//
// The file (docs/strategies/row-cache.md) is read and written by system calls, not through a
// mapping. A full disk, a truncated file or a damaged disk is then an Error of one line that names
// file and row; with a mapping, a signal would end the process. Also, pages of the file do not
// count as the process's resident memory. As with a mapping, the page cache keeps what is read
// often.
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
  virtual Status sync() { return {}; }  // makes everything that was written durable

 private:
  RowShape shape_;
};

class FileRows : public RowStore {
 public:
  // Opens a file that FileRows made with the same shape, or makes the file if it does not exist.
  // Errors say what is wrong with the shape or the file.
  static Result<std::unique_ptr<FileRows>> open(const std::string& path, RowShape shape,
                                                RowInit init = {});
  ~FileRows() override;
  Status read(int64_t row, std::byte* out) override;
  Status write(int64_t row, const std::byte* in) override;
  Status sync() override;
  int64_t disk_bytes() const;  // bytes that the file takes on the disk now

 private:
  FileRows(std::string path, RowShape shape, RowInit init, int descriptor);
  Status open_or_make();
  std::string head() const;
  int64_t marks_at() const;  // where in the file the bits begin that mark written rows

  std::string path_;
  RowInit init_;
  int descriptor_;
  struct Locks;
  std::unique_ptr<Locks> locks_;  // each guards some bytes of these bits, eight rows in a byte
};

}  // namespace tessera::sparse
