// Attributes are named integers, numbers and texts that describe an op in addition to its
// operands. Copies of an `Attributes` share one table. A write to a shared table first makes a
// copy of its own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace tessera {

using Attribute = std::variant<int64_t, double, std::string>;  // booleans are 0 / 1

class Attributes {
 public:
  using Table = std::map<std::string, Attribute, std::less<>>;
  using const_iterator = Table::const_iterator;
  Attributes() = default;
  Attributes(std::initializer_list<Table::value_type> list)
      : table_(list.size() == 0 ? nullptr : std::make_shared<Table>(list)) {}

  const_iterator begin() const { return table().begin(); }
  const_iterator end() const { return table().end(); }
  const_iterator find(std::string_view name) const { return table().find(name); }
  bool contains(std::string_view name) const { return table().contains(name); }
  const Attribute& at(const std::string& name) const { return table().at(name); }
  size_t size() const { return table().size(); }
  bool empty() const { return table().empty(); }
  Attribute& operator[](const std::string& name) { return own()[name]; }
  void emplace(std::string_view name, Attribute value) {
    if (!contains(name)) own().emplace(name, std::move(value));
  }
  size_t erase(const std::string& name) { return contains(name) ? own().erase(name) : 0; }
  friend bool operator==(const Attributes& a, const Attributes& b) {
    return a.table_ == b.table_ || a.table() == b.table();
  }

 private:
  const Table& table() const {
    static const Table none;
    return table_ ? *table_ : none;
  }
  Table& own() {
    if (!table_ || table_.use_count() > 1) table_ = std::make_shared<Table>(table());
    return *table_;
  }
  std::shared_ptr<Table> table_;
};

}  // namespace tessera
