// Reads the data files of the program: TOML tables in which each value states its origin.
//
//   [[framework]]
//   name = "megatron-lm"
//   [[framework.set]]
//   kind = "fact"                    # or "assumption" with a `reason`, or "fitted" on `rows`
//   source = "Megatron-LM, arguments.py"
//   vocab_multiple = 128
//
// A table is read key by key; done() then refuses each key that no reader has asked for. All errors
// are one line "file:line: what was expected, what was found".
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

// The name and text of each file that the build has put into the program (tessera_embed in CMake).
using TextFiles = std::vector<std::pair<std::string_view, std::string_view>>;
// Returns the text of the file `name`, which must be in `files`.
std::string_view text_of(const TextFiles& files, std::string_view name);

// States where a value comes from. A fact names its source. An assumption names its reason. A
// fitted value names the rows of published runs to which it was fitted, by their sources.
struct Origin {
  enum class Kind : uint8_t { kFact, kAssumption, kFitted };
  Kind kind = Kind::kAssumption;
  std::string text;               // source or reason; for a fit a remark, may be empty
  std::vector<std::string> rows;  // for a fit
  friend bool operator==(const Origin&, const Origin&) = default;
};

class DataTable {
 public:
  DataTable() = default;
  int line() const { return line_; }
  bool has(std::string_view key) const;

  // Reads a value of one type. The typed readers leave their target as it is if the key is absent,
  // and mark the key as asked for. Returns an error if the value has another type.
  Status text(std::string_view key, std::string& value) const;
  Status flag(std::string_view key, bool& value) const;
  Status whole(std::string_view key, int64_t& value) const;
  Status real(std::string_view key, double& value) const;  // or a whole number
  Status texts(std::string_view key, std::vector<std::string>& value) const;
  Status reals(std::string_view key, std::vector<double>& value) const;
  Status require(std::string_view key) const;  // error if it is absent
  // Returns each table of [[key]], or [key] as the only one; none if it is absent.
  Result<std::vector<DataTable>> tables(std::string_view key) const;
  // Reads `kind` with `source`, `reason` or `rows`. Returns an error if there is no kind or an
  // unknown one, or for a fact without source, an assumption without reason, a fit without rows.
  Result<Origin> origin() const;

  // Returns all keys that were not asked for, in the order of the file, with values as the texts
  // that settings take ("true", "0.5", "20us"); keys of inner tables are joined by dots.
  Result<std::vector<std::pair<std::string, std::string>>> settings() const;
  // Returns a list of lists, each cell as a text. Tables with many equal rows are written so.
  Result<std::vector<std::vector<std::string>>> rows(std::string_view key) const;

  Status done() const;  // error: a key that was not asked for
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
