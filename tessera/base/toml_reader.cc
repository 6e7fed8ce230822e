#include "tessera/base/toml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/text.h"

namespace tessera {

std::string_view type_text(toml::node_type type) {
  switch (type) {
    case toml::node_type::none: return "nothing";
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "a boolean";
    case toml::node_type::date: return "a date";
    case toml::node_type::time: return "a time of day";
    case toml::node_type::date_time: return "a date";
  }
  return "nothing";
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string best = nearest(name, candidates);
  return best.empty() ? "" : fmt::format(", did you mean '{}'?", best);
}

TomlReader::TomlReader(const toml::table& table, std::string where, const std::string& file,
                       int fallback_line)
    : table_(&table), where_(std::move(where)), file_(&file) {
  line_ =
      table.source().begin.line > 0 ? static_cast<int>(table.source().begin.line) : fallback_line;
}

tl::unexpected<Error> TomlReader::error(int line, const std::string& message) const {
  return invalid_input(fmt::format("{}:{}: {}", *file_, line, message));
}

int TomlReader::line_of(const toml::node& node) const {
  const auto line = static_cast<int>(node.source().begin.line);
  return line > 0 ? line : line_;
}

int TomlReader::line_of(std::string_view key) const {
  const toml::node* node = table_->get(key);
  return node == nullptr ? line_ : line_of(*node);
}

tl::unexpected<Error> TomlReader::wrong_type(std::string_view key, std::string_view expected,
                                             const toml::node& node) const {
  return error(line_of(node), fmt::format("'{}' in {}: expected {}, found {}", key, where_,
                                          expected, type_text(node.type())));
}

tl::unexpected<Error> TomlReader::not_one_of(std::string_view key, std::string_view what,
                                             std::string_view found,
                                             const std::vector<std::string>& allowed) const {
  return error(line_of(key),
               fmt::format("unknown {} '{}'{}", what, found, did_you_mean(found, allowed)));
}

Status TomlReader::allow(const std::vector<std::string>& keys) const {
  for (const auto& [key, node] : in_order()) {
    const std::string name(key->str());
    if (std::find(keys.begin(), keys.end(), name) != keys.end()) continue;
    return error(static_cast<int>(key->source().begin.line),
                 fmt::format("unknown key '{}' in {}{}", name, where_, did_you_mean(name, keys)));
  }
  return {};
}

Status TomlReader::require(std::string_view key) const {
  if (has(key)) return {};
  return error(line_, fmt::format("{} needs the key '{}'", where_, key));
}

Status TomlReader::string(std::string_view key, std::string& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  const auto* text = node->as_string();
  if (text == nullptr) return wrong_type(key, "a string", *node);
  value = text->get();
  if (value.empty()) return error(line_of(*node), fmt::format("'{}' in {} is empty", key, where_));
  return {};
}

Status TomlReader::integer(std::string_view key, int64_t minimum, int64_t& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  const auto* number = node->as_integer();
  if (number == nullptr) return wrong_type(key, "an integer", *node);
  value = number->get();
  if (value < minimum) {
    return error(line_of(*node), fmt::format("expected {} >= {}, found {}", key, minimum, value));
  }
  return {};
}

Status TomlReader::positive(std::string_view key, double& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  const auto number = node->value<double>();
  if (!node->is_number() || !number) return wrong_type(key, "a number", *node);
  value = *number;
  if (value > 0 && std::isfinite(value)) return {};
  return error(line_of(*node), fmt::format("expected {} > 0, found {:g}", key, value));
}

Status TomlReader::strings(std::string_view key, std::vector<std::string>& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  value.clear();
  if (const auto* text = node->as_string()) {
    value.push_back(text->get());
    return {};
  }
  const auto* list = node->as_array();
  if (list == nullptr) return wrong_type(key, "a string or a list of strings", *node);
  for (const toml::node& item : *list) {
    if (!item.is_string()) return wrong_type(key, "a list of strings", item);
    value.push_back(item.as_string()->get());
  }
  return {};
}

Status TomlReader::boolean(std::string_view key, bool& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  if (!node->is_boolean()) return wrong_type(key, "true or false", *node);
  value = node->as_boolean()->get();
  return {};
}

Status TomlReader::integers(std::string_view key, std::vector<int64_t>& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  const auto* list = node->as_array();
  if (list == nullptr) return wrong_type(key, "a list of integers", *node);
  value.clear();
  for (const toml::node& item : *list) {
    if (!item.is_integer()) return wrong_type(key, "a list of integers", item);
    value.push_back(item.as_integer()->get());
    if (value.back() < 1) {
      return error(line_of(item), fmt::format("expected {} >= 1, found {}", key, value.back()));
    }
  }
  return {};
}

// Sorts the entries by their position in the text, because toml++ sorts them by key and the order of
// mesh axes matters.
std::vector<std::pair<const toml::key*, const toml::node*>> TomlReader::in_order() const {
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (auto it = table_->cbegin(); it != table_->cend(); ++it) {
    entries.emplace_back(&it->first, &it->second);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto& x = a.first->source().begin;
    const auto& y = b.first->source().begin;
    return x.line != y.line ? x.line < y.line : x.column < y.column;
  });
  return entries;
}

Status TomlReader::quantity(std::string_view key, Quantity what, Sign sign, double& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  const auto* text = node->as_string();
  if (text == nullptr) {
    return wrong_type(key, fmt::format("{} with its unit in quotes", example_of(what)), *node);
  }
  const Result<double> parsed = parse_quantity(text->get(), what);
  if (!parsed) {
    return error(line_of(*node),
                 fmt::format("'{}' in {}: {}", key, where_, parsed.error().message));
  }
  if (*parsed < 0 || (sign == Sign::kPositive && *parsed == 0)) {
    return error(line_of(*node),
                 fmt::format("'{}' in {}: expected {} 0, found '{}'", key, where_,
                             sign == Sign::kPositive ? "more than" : "at least", text->get()));
  }
  value = *parsed;
  return {};
}

Status TomlReader::bytes(std::string_view key, int64_t minimum, int64_t& value) const {
  if (!has(key)) return {};
  double number = 0;
  TESSERA_TRY_VOID(quantity(key, Quantity::kBytes, Sign::kNotNegative, number));
  if (number < static_cast<double>(minimum) || number >= 9e18) {
    return error(line_of(key),
                 fmt::format("'{}' in {}: expected from {} B to 9000 PB, found {}", key, where_,
                             minimum, format_quantity(number, Quantity::kBytes)));
  }
  value = std::llround(number);
  return {};
}

Status TomlReader::table(std::string_view key, std::string_view expected,
                         std::optional<TomlReader>& value) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) return {};
  const auto* inner = node->as_table();
  if (inner == nullptr) return wrong_type(key, expected, *node);
  value.emplace(*inner, std::string(key), *file_, line_);
  return {};
}

}  // namespace tessera
