#include "tessera/base/json_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

std::string number_text(double least) {
  return std::isinf(least) ? "a number" : fmt::format("a number of at least {}", least);
}

std::string whole_text(int64_t least, int64_t most) {
  if (most < int64_t{1} << 40) return fmt::format("a whole number from {} to {}", least, most);
  return fmt::format("a whole number of at least {}", least);
}

bool is_real(const nlohmann::ordered_json& value, double least) {
  return value.is_number() && value.get<double>() >= least;
}

bool is_whole(const nlohmann::ordered_json& value, int64_t least, int64_t most) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most))
    return false;
  return value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

std::string element(const std::string& key, size_t i) { return fmt::format("{}[{}]", key, i); }

}  // namespace

std::string short_json(const nlohmann::ordered_json& value) {
  constexpr size_t kMost = 60;
  // Bytes that are no UTF-8 are replaced, so that they do not make dump() throw.
  std::string text = value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

Result<JsonTable> JsonTable::make(const nlohmann::ordered_json& value, std::string file) {
  if (!value.is_object()) {
    return invalid_input(
        fmt::format("{}: expected a JSON object, found {}", file, short_json(value)));
  }
  return JsonTable(&value, std::move(file) + ": ");
}

const nlohmann::ordered_json* JsonTable::find(const std::string& key) const {
  asked_->insert(key);
  if (value_ == nullptr) return nullptr;
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonTable::has(const std::string& key) const { return find(key) != nullptr; }

tl::unexpected<Error> JsonTable::error(const std::string& key, const std::string& message) const {
  // A key may be any text of the file, so it is shortened.
  return invalid_input(fmt::format("{}{}: {}", where_, short_line(key, 100), message));
}

tl::unexpected<Error> JsonTable::expected(const std::string& key, const std::string& what,
                                          const nlohmann::ordered_json& found) const {
  return error(key, fmt::format("expected {}, found {}", what, short_json(found)));
}

Status JsonTable::require(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (!has(key)) return error(key, "is missing");
  }
  return {};
}

Status JsonTable::done() const {
  if (value_ == nullptr) return {};
  for (const auto& [key, value] : value_->items()) {
    if (asked_->contains(key)) continue;
    const std::string near = nearest(key, {asked_->begin(), asked_->end()});
    return error(
        key, near.empty() ? "unknown key" : fmt::format("unknown key, did you mean '{}'?", near));
  }
  return {};
}

Status JsonTable::real(const std::string& key, double& value, double least) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!is_real(*found, least)) return expected(key, number_text(least), *found);
  value = found->get<double>();
  return {};
}

Status JsonTable::whole(const std::string& key, int64_t& value, int64_t least, int64_t most) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!is_whole(*found, least, most)) return expected(key, whole_text(least, most), *found);
  value = found->get<int64_t>();
  return {};
}

Status JsonTable::text(const std::string& key, std::string& value) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_string()) return expected(key, "a text", *found);
  value = found->get<std::string>();
  return {};
}

Status JsonTable::choice(const std::string& key, std::string& value,
                         const std::vector<std::string>& choices) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  const bool known = found->is_string() && std::find(choices.begin(), choices.end(),
                                                     found->get<std::string>()) != choices.end();
  if (!known) return expected(key, "one of " + join(choices, ", "), *found);
  value = found->get<std::string>();
  return {};
}

Status JsonTable::flag(const std::string& key, bool& value) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_boolean()) return expected(key, "true or false", *found);
  value = found->get<bool>();
  return {};
}

Status JsonTable::reals(const std::string& key, std::vector<double>& value, double least) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) return expected(key, "a list of numbers", *found);
  value.clear();
  for (const nlohmann::ordered_json& item : *found) {
    if (!is_real(item, least)) {
      return expected(element(key, value.size()), number_text(least), item);
    }
    value.push_back(item.get<double>());
  }
  return {};
}

Status JsonTable::wholes(const std::string& key, std::vector<int64_t>& value, int64_t least,
                         int64_t most) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) return expected(key, "a list of whole numbers", *found);
  value.clear();
  for (const nlohmann::ordered_json& item : *found) {
    if (!is_whole(item, least, most)) {
      return expected(element(key, value.size()), whole_text(least, most), item);
    }
    value.push_back(item.get<int64_t>());
  }
  return {};
}

Status JsonTable::texts(const std::string& key, std::vector<std::string>& value) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) return expected(key, "a list of texts", *found);
  value.clear();
  for (const nlohmann::ordered_json& item : *found) {
    if (!item.is_string()) return expected(element(key, value.size()), "a text", item);
    value.push_back(item.get<std::string>());
  }
  return {};
}

Status JsonTable::whole_lists(const std::string& key, std::vector<std::vector<int64_t>>& value,
                              int64_t least, int64_t most) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) return expected(key, "a list of lists of whole numbers", *found);
  value.clear();
  for (const nlohmann::ordered_json& row : *found) {
    const std::string at = element(key, value.size());
    if (!row.is_array()) return expected(at, "a list of whole numbers", row);
    std::vector<int64_t>& out = value.emplace_back();
    for (const nlohmann::ordered_json& item : row) {
      if (!is_whole(item, least, most)) {
        return expected(element(at, out.size()), whole_text(least, most), item);
      }
      out.push_back(item.get<int64_t>());
    }
  }
  return {};
}

Status JsonTable::matrix(const std::string& key, std::vector<std::vector<double>>& value,
                         double least) const {
  const nlohmann::ordered_json* found = find(key);
  if (found == nullptr) return {};
  if (!found->is_array()) return expected(key, "a list of lists of numbers", *found);
  value.clear();
  for (const nlohmann::ordered_json& row : *found) {
    const std::string at = element(key, value.size());
    if (!row.is_array()) return expected(at, "a list of numbers", row);
    if (!value.empty() && row.size() != value.front().size()) {
      return error(at, fmt::format("expected {} numbers as in the first row, found {}",
                                   value.front().size(), row.size()));
    }
    std::vector<double> out;
    for (const nlohmann::ordered_json& item : row) {
      if (!item.is_null() && !is_real(item, least)) {
        return expected(element(at, out.size()), number_text(least) + " or null", item);
      }
      out.push_back(item.is_null() ? std::numeric_limits<double>::infinity() : item.get<double>());
    }
    value.push_back(std::move(out));
  }
  return {};
}

Result<JsonTable> JsonTable::table(const std::string& key) const {
  const nlohmann::ordered_json* found = find(key);
  const std::string where = where_ + key + ".";
  if (found == nullptr) return JsonTable(nullptr, where);
  if (!found->is_object()) return expected(key, "an object", *found);
  return JsonTable(found, where);
}

Result<std::vector<JsonTable>> JsonTable::tables(const std::string& key) const {
  const nlohmann::ordered_json* found = find(key);
  std::vector<JsonTable> out;
  if (found == nullptr) return out;
  if (!found->is_array()) return expected(key, "a list of objects", *found);
  for (const nlohmann::ordered_json& item : *found) {
    const std::string at = element(key, out.size());
    if (!item.is_object()) return expected(at, "an object", item);
    out.push_back(JsonTable(&item, where_ + at + "."));
  }
  return out;
}

std::vector<std::string> JsonTable::keys() const {
  std::vector<std::string> out;
  if (value_ == nullptr) return out;
  for (const auto& [key, value] : value_->items()) out.push_back(key);
  return out;
}

}  // namespace tessera
