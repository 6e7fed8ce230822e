// Reads the data files of the program: TOML tables in which each value states its origin.
//
//   [[framework]]
//   name = "megatron-lm"
//   [[framework.set]]
//   kind = "fact"                    # or "assumption" with a `reason`, or "fitted" on `rows`
//   source = "Megatron-LM, arguments.py"
//   vocab_multiple = 128
//
// A table is read key by key. At the end done() returns an error if the table has a key that was
// not read. All errors are one line "file:line: what was expected, what was found".
//
//   TESSERA_TRY(const DataTable root, parse_data(text, "frameworks.toml"));
//   TESSERA_TRY(const auto rows, root.tables("framework"));
//   for (const DataTable& row : rows) {
//     TESSERA_TRY_VOID(row.text("name", name));
//     TESSERA_TRY(const Origin origin, row.origin());
//     TESSERA_TRY_VOID(row.done());
//   }
//   TESSERA_TRY_VOID(root.done());
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// Files that the build puts into the program (tessera_embed in CMake), as pairs of name and text.
using TextFiles = std::vector<std::pair<std::string_view, std::string_view>>;
// Returns the text of the file `name`; `files` must have it.
std::string_view text_of(const TextFiles& files, std::string_view name);

// States where a value comes from. A fact names its source. An assumption names its reason. A
// fitted value names the rows of published runs to which it was fitted, by their sources.
struct Origin {
  enum class Kind : uint8_t { kFact, kAssumption, kFitted };
  Kind kind = Kind::kAssumption;
  std::string text;               // the source or reason; for a fit a remark, may be empty
  std::vector<std::string> rows;  // for a fit: the sources of the rows
  friend bool operator==(const Origin&, const Origin&) = default;
};

class DataTable {
 public:
  DataTable() = default;
  int line() const { return line_; }
  bool has(std::string_view key) const;

  // Reads a text into `value` and marks the key as read. If the key is absent, `value` keeps what
  // it has. Returns an error if the value in the file has another type. The readers that follow do
  // the same for other types.
  Status text(std::string_view key, std::string& value) const;
  Status flag(std::string_view key, bool& value) const;
  Status whole(std::string_view key, int64_t& value) const;
  Status real(std::string_view key, double& value) const;  // also reads a whole number
  Status texts(std::string_view key, std::vector<std::string>& value) const;
  Status reals(std::string_view key, std::vector<double>& value) const;
  Status require(std::string_view key) const;  // returns an error if the key is absent
  // Returns all tables [[key]], or the one table [key]. Returns an empty list if the key is absent.
  Result<std::vector<DataTable>> tables(std::string_view key) const;
  // Reads `kind` and the key that belongs to it: `source` for a fact, `reason` for an assumption,
  // `rows` for a fitted value. Returns an error if the kind is missing or unknown, or if the key
  // that belongs to it is missing.
  Result<Origin> origin() const;

  // Returns all keys that were not read so far, with their values, in the order of the file. Values
  // are texts in the form of settings ("true", "0.5", "20us"). A key of an inner table is preceded
  // by the table's key and a dot.
  Result<std::vector<std::pair<std::string, std::string>>> settings() const;
  // Returns the value of `key`, which must be a list of lists, with each cell as a text. Data files
  // use this form for tables whose rows have the same columns.
  Result<std::vector<std::vector<std::string>>> rows(std::string_view key) const;

  Status done() const;  // returns an error if a key was not read
  tl::unexpected<Error> error(const std::string& message) const;
  tl::unexpected<Error> error(std::string_view key, const std::string& message) const;

 private:
  struct Value;
  struct Entry;
  friend Result<DataTable> parse_data(std::string_view text, std::string_view file);
  friend struct DataBuilder;
  const Value* find(std::string_view key) const;
  template <class Type>
  Status read(std::string_view key, std::string_view expected, Type& value) const;

  std::shared_ptr<const std::vector<Entry>> entries_;
  std::shared_ptr<std::set<std::string, std::less<>>> asked_ =
      std::make_shared<std::set<std::string, std::less<>>>();
  std::string file_, where_;
  int line_ = 1;
};

Result<DataTable> parse_data(std::string_view text, std::string_view file);

}  // namespace tessera
