// Reads a TOML table key by key, for parsers of plans, machines and so on. Each error is one line
// "file:line: what was expected, what was found", and suggests the nearest allowed name where a
// name is wrong.
//
//   const TomlReader reader(table, "[[part]]", file, 1);
//   TESSERA_TRY_VOID(reader.allow({"nodes", "name"}));
//   TESSERA_TRY_VOID(reader.integer("nodes", 1, part.nodes));
//
// The typed readers (string(), integer(), ...) do not change their target if the key is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/base/toml.h"
#include "tessera/base/units.h"

namespace tessera {

std::string_view type_text(toml::node_type type);  // the type in words: "a list"
// Returns ", did you mean 'tp'?" with the candidate that is nearest to `name`, or "" without
// candidates.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// A view of a table. The table and the string with the file's name must outlive the reader.
class TomlReader {
 public:
  // `where` names the table in messages, as "[[split]]"; `fallback_line` is used if the table has
  // no position of its own.
  TomlReader(const toml::table& table, std::string where, const std::string& file,
             int fallback_line);

  int line() const { return line_; }
  const std::string& file() const { return *file_; }
  const std::string& where() const { return where_; }
  bool has(std::string_view key) const { return table_->contains(key); }
  const toml::node* find(std::string_view key) const { return table_->get(key); }
  int line_of(const toml::node& node) const;
  int line_of(std::string_view key) const;
  // Returns the entries in the order of the text; toml++ sorts tables by key.
  std::vector<std::pair<const toml::key*, const toml::node*>> in_order() const;

  tl::unexpected<Error> error(int line, const std::string& message) const;
  tl::unexpected<Error> wrong_type(std::string_view key, std::string_view expected,
                                   const toml::node& node) const;
  tl::unexpected<Error> not_one_of(std::string_view key, std::string_view what,
                                   std::string_view found,
                                   const std::vector<std::string>& allowed) const;

  Status allow(const std::vector<std::string>& keys) const;  // error if there is any other key
  Status require(std::string_view key) const;

  Status string(std::string_view key, std::string& value) const;  // error if empty
  Status integer(std::string_view key, int64_t minimum, int64_t& value) const;
  Status positive(std::string_view key, double& value) const;
  Status strings(std::string_view key,
                 std::vector<std::string>& value) const;  // one string or a list
  Status boolean(std::string_view key, bool& value) const;
  Status integers(std::string_view key, std::vector<int64_t>& value) const;  // each >= 1
  // Reads a text with a unit (units.h) as a number in the base unit.
  enum class Sign : uint8_t { kNotNegative, kPositive };
  Status quantity(std::string_view key, Quantity what, Sign sign, double& value) const;
  Status bytes(std::string_view key, int64_t minimum, int64_t& value) const;
  // Reads an inner table. `expected` describes in words what the table should look like, for the
  // error.
  Status table(std::string_view key, std::string_view expected,
               std::optional<TomlReader>& value) const;

 private:
  const toml::table* table_;
  std::string where_;
  const std::string* file_;
  int line_ = 0;
};

}  // namespace tessera
