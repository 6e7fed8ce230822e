#include "tessera/predict/assumptions.h"

#include <fmt/format.h>

#include "tessera/base/check.h"
#include "tessera/predict/framework.h"

namespace tessera {

Result<Assumptions> parse_assumptions(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto tables, root.tables("value"));
  Assumptions out;
  for (const DataTable& table : tables) {
    std::string name;
    Assumption one;
    for (const char* key : {"name", "value"}) TESSERA_TRY_VOID(table.require(key));
    TESSERA_TRY_VOID(table.text("name", name));
    TESSERA_TRY_VOID(table.real("value", one.value));
    TESSERA_TRY(one.origin, table.origin());
    TESSERA_TRY_VOID(table.done());
    if (!out.emplace(name, std::move(one)).second)
      return table.error("name", fmt::format("'{}' is there twice", name));
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

double assumed(std::string_view name) {
  static const Assumptions all = [] {
    auto parsed = parse_assumptions(text_of(predict_data(), "assumptions"), "assumptions.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  const auto found = all.find(name);
  TESSERA_CHECK(found != all.end(), "no assumption '{}'", name);
  return found->second.value;
}

int64_t assumed_whole(std::string_view name) { return static_cast<int64_t>(assumed(name)); }

}  // namespace tessera
