#include "tessera/base/data_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"

namespace tessera {

struct DataTable::Value {
  std::variant<bool, int64_t, double, std::string, std::vector<Value>, DataTable> is;
  int line = 0;
};

struct DataTable::Entry {
  std::string key;
  Value value;
};

struct DataBuilder {
  const std::string file;

  Result<DataTable> table(const toml::table& from, const std::string& where, int line) const {
    const TomlReader reader(from, where, file, line);
    DataTable out;
    out.file_ = file;
    out.where_ = where;
    out.line_ = reader.line();
    auto entries = std::make_shared<std::vector<DataTable::Entry>>();
    for (const auto& [key, node] : reader.in_order()) {
      const std::string name(key->str());
      TESSERA_TRY(DataTable::Value is, value(reader, *node, name, out.line_));
      if (const auto at = static_cast<int>(key->source().begin.line); at > 0) is.line = at;
      entries->push_back({name, std::move(is)});
    }
    out.entries_ = std::move(entries);
    return out;
  }

  Result<DataTable::Value> value(const TomlReader& reader, const toml::node& node,
                                 const std::string& key, int line) const {
    DataTable::Value out;
    out.line = std::max(line, reader.line_of(node));
    if (const auto* flag = node.as_boolean()) {
      out.is = flag->get();
    } else if (const auto* whole = node.as_integer()) {
      out.is = whole->get();
    } else if (const auto* real = node.as_floating_point()) {
      out.is = real->get();
    } else if (const auto* text = node.as_string()) {
      out.is = text->get();
    } else if (const auto* inner = node.as_table()) {
      TESSERA_TRY(DataTable made, table(*inner, "[" + key + "]", out.line));
      out.line = made.line();
      out.is = std::move(made);
    } else if (const auto* list = node.as_array()) {
      std::vector<DataTable::Value> values;
      for (const toml::node& item : *list) {
        TESSERA_TRY(DataTable::Value one, value(reader, item, "[" + key + "]", out.line));
        values.push_back(std::move(one));
      }
      out.is = std::move(values);
    } else {
      return reader.error(out.line,
                          fmt::format("'{}': expected a text, a number, a boolean, a list "
                                      "or a table, found {}",
                                      key, type_text(node.type())));
    }
    return out;
  }
};

namespace {

constexpr std::string_view kOriginKeys[] = {"kind", "source", "reason", "rows"};

// Returns the value in the form of a setting's text; nothing if it is a list or a table.
template <class Value>
std::optional<std::string> as_text(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.is)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value.is)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&value.is)) return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&value.is)) return *text;
  return std::nullopt;
}

}  // namespace

std::string_view text_of(const TextFiles& files, std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const auto& file) { return file.first == name; });
  TESSERA_CHECK(found != files.end(), "the program holds no file '{}'", name);
  return found->second;
}

Result<DataTable> parse_data(std::string_view text, std::string_view file) {
  TESSERA_TRY(const toml::table root, parse_toml(text, file));
  return DataBuilder{std::string(file)}.table(root, "the file", 1);
}

tl::unexpected<Error> DataTable::error(const std::string& message) const {
  return invalid_input(fmt::format("{}:{}: {}", file_, line_, message));
}

tl::unexpected<Error> DataTable::error(std::string_view key, const std::string& message) const {
  const Value* value = find(key);
  return invalid_input(fmt::format("{}:{}: '{}' in {}: {}", file_,
                                   value == nullptr ? line_ : value->line, key, where_, message));
}

const DataTable::Value* DataTable::find(std::string_view key) const {
  asked_->insert(std::string(key));
  if (entries_ == nullptr) return nullptr;
  const auto found = std::find_if(entries_->begin(), entries_->end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  return found == entries_->end() ? nullptr : &found->value;
}

template <class Type>
Status DataTable::read(std::string_view key, std::string_view expected, Type& value) const {
  const Value* found = find(key);
  if (found == nullptr) return {};
  const auto* typed = std::get_if<Type>(&found->is);
  if (typed == nullptr) return error(key, fmt::format("expected {}", expected));
  value = *typed;
  return {};
}

bool DataTable::has(std::string_view key) const { return find(key) != nullptr; }

Status DataTable::text(std::string_view key, std::string& value) const {
  return read(key, "a text", value);
}
Status DataTable::flag(std::string_view key, bool& value) const {
  return read(key, "true or false", value);
}
Status DataTable::whole(std::string_view key, int64_t& value) const {
  return read(key, "a whole number", value);
}

Status DataTable::real(std::string_view key, double& value) const {
  const Value* found = find(key);
  if (found == nullptr) return {};
  if (const auto* whole = std::get_if<int64_t>(&found->is)) {
    value = static_cast<double>(*whole);
    return {};
  }
  return read(key, "a number", value);
}

Status DataTable::texts(std::string_view key, std::vector<std::string>& value) const {
  const Value* found = find(key);
  if (found == nullptr) return {};
  if (const auto* one = std::get_if<std::string>(&found->is)) {
    value = {*one};
    return {};
  }
  const auto* list = std::get_if<std::vector<Value>>(&found->is);
  if (list == nullptr) return error(key, "expected a text or a list of texts");
  value.clear();
  for (const Value& item : *list) {
    const auto* text = std::get_if<std::string>(&item.is);
    if (text == nullptr) return error(key, "expected a list of texts");
    value.push_back(*text);
  }
  return {};
}

Status DataTable::reals(std::string_view key, std::vector<double>& value) const {
  const Value* found = find(key);
  if (found == nullptr) return {};
  const auto* list = std::get_if<std::vector<Value>>(&found->is);
  if (list == nullptr) return error(key, "expected a list of numbers");
  value.clear();
  for (const Value& item : *list) {
    if (const auto* whole = std::get_if<int64_t>(&item.is)) {
      value.push_back(static_cast<double>(*whole));
    } else if (const auto* real = std::get_if<double>(&item.is)) {
      value.push_back(*real);
    } else {
      return error(key, "expected a list of numbers");
    }
  }
  return {};
}

Status DataTable::require(std::string_view key) const {
  if (has(key)) return {};
  return error(fmt::format("{} needs the key '{}'", where_, key));
}

Result<std::vector<DataTable>> DataTable::tables(std::string_view key) const {
  const Value* found = find(key);
  std::vector<DataTable> out;
  if (found == nullptr) return out;
  if (const auto* one = std::get_if<DataTable>(&found->is)) return std::vector<DataTable>{*one};
  const auto* list = std::get_if<std::vector<Value>>(&found->is);
  if (list == nullptr) return error(key, "expected a table");
  for (const Value& item : *list) {
    const auto* one = std::get_if<DataTable>(&item.is);
    if (one == nullptr) return error(key, "expected a list of tables");
    out.push_back(*one);
  }
  return out;
}

Result<std::vector<std::vector<std::string>>> DataTable::rows(std::string_view key) const {
  const Value* found = find(key);
  std::vector<std::vector<std::string>> out;
  if (found == nullptr) return out;
  const auto wrong = [&] { return error(key, "expected a list of lists of texts and numbers"); };
  const auto* list = std::get_if<std::vector<Value>>(&found->is);
  if (list == nullptr) return wrong();
  for (const Value& item : *list) {
    const auto* row = std::get_if<std::vector<Value>>(&item.is);
    if (row == nullptr) return wrong();
    std::vector<std::string>& texts = out.emplace_back();
    for (const Value& cell : *row) {
      const auto text = as_text(cell);
      if (!text) return wrong();
      texts.push_back(*text);
    }
  }
  return out;
}

Result<Origin> DataTable::origin() const {
  for (const std::string_view key : kOriginKeys) asked_->insert(std::string(key));
  TESSERA_TRY_VOID(require("kind"));
  std::string kind;
  TESSERA_TRY_VOID(text("kind", kind));
  Origin out;
  if (kind == "fact") {
    out.kind = Origin::Kind::kFact;
    TESSERA_TRY_VOID(require("source"));
    if (has("reason") || has("rows")) return error("a fact has a source, no reason and no rows");
    TESSERA_TRY_VOID(text("source", out.text));
  } else if (kind == "assumption") {
    TESSERA_TRY_VOID(require("reason"));
    if (has("source") || has("rows")) return error("an assumption has a reason only");
    TESSERA_TRY_VOID(text("reason", out.text));
  } else if (kind == "fitted") {
    out.kind = Origin::Kind::kFitted;
    TESSERA_TRY_VOID(require("rows"));
    if (has("source")) return error("what is fitted has rows, no source");
    TESSERA_TRY_VOID(texts("rows", out.rows));
    TESSERA_TRY_VOID(text("reason", out.text));
    if (out.rows.empty()) return error("rows", "expected at least one source of rows");
  } else {
    return error("kind", fmt::format("expected fact, assumption or fitted, found '{}'", kind));
  }
  if (out.text.empty() && out.kind != Origin::Kind::kFitted)
    return error("kind", "expected a source or a reason that says something");
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> DataTable::settings() const {
  std::vector<std::pair<std::string, std::string>> out;
  if (entries_ == nullptr) return out;
  const std::set<std::string, std::less<>> before = *asked_;
  for (const auto& [key, value] : *entries_) {
    if (before.contains(key)) continue;
    asked_->insert(key);
    if (const auto* inner = std::get_if<DataTable>(&value.is)) {
      TESSERA_TRY(const auto further, inner->settings());
      for (const auto& [name, text] : further) {
        std::string inside = key;
        out.emplace_back(inside.append(".").append(name), text);
      }
    } else if (const auto text = as_text(value)) {
      out.emplace_back(key, *text);
    } else {
      return error(key, "expected a text, a number or true or false");
    }
  }
  return out;
}

Status DataTable::done() const {
  if (entries_ == nullptr) return {};
  const std::set<std::string, std::less<>> known = *asked_;
  for (const auto& [key, value] : *entries_) {
    if (known.contains(key)) continue;
    return invalid_input(
        fmt::format("{}:{}: unknown key '{}' in {}{}", file_, value.line, key, where_,
                    did_you_mean(key, std::vector<std::string>(known.begin(), known.end()))));
  }
  return {};
}

}  // namespace tessera
