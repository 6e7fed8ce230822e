#include "tessera/export/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "tessera/base/data_file.h"
#include "tessera/base/text.h"

namespace tessera {

const TextFiles& export_data();  // made by the build from data/*.toml

namespace {

Result<KeyUse> use_of(const DataTable& row, const std::string& word) {
  constexpr std::pair<const char*, KeyUse> kWords[] = {{"read", KeyUse::kRead},
                                                       {"size", KeyUse::kSize},
                                                       {"style", KeyUse::kStyle},
                                                       {"plain", KeyUse::kPlain},
                                                       {"refused", KeyUse::kRefused}};
  for (const auto& [known, use] : kWords) {
    if (word == known) return use;
  }
  return row.error("use", "expected read, size, style, plain or refused, found '" + word + "'");
}

Result<KeyTable> parse_table(std::string_view name, std::string_view text) {
  KeyTable out;
  out.name = name;
  TESSERA_TRY(const DataTable root, parse_data(text, fmt::format("{}.toml", name)));
  TESSERA_TRY_VOID(root.origin());
  TESSERA_TRY_VOID(root.text("prefix", out.prefix));
  TESSERA_TRY(const auto rows, root.tables("keys"));
  for (const DataTable& row : rows) {
    std::string use;
    KnownKey key;
    std::vector<std::string> names;
    TESSERA_TRY_VOID(row.text("use", use));
    TESSERA_TRY(key.use, use_of(row, use));
    TESSERA_TRY_VOID(row.text("meaning", key.meaning));
    TESSERA_TRY_VOID(row.texts("without", key.without));
    TESSERA_TRY_VOID(row.require("names"));
    TESSERA_TRY_VOID(row.texts("names", names));
    TESSERA_TRY_VOID(row.done());
    for (const std::string& each : names) {
      if (!out.keys.emplace(each, key).second)
        return row.error("names", "expected each key once, found '" + each + "' again");
    }
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

std::string at(const SaidKey& key, std::string_view target) {
  return key.line > 0 ? fmt::format("line {}: {}", key.line, target) : std::string(target);
}

// Names beyond this many are counted, not listed.
constexpr size_t kMostNames = 12;

std::string list_of(const std::vector<std::string>& names) {
  std::vector<std::string> shown(
      names.begin(),
      names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNames)));
  if (names.size() > kMostNames) shown.push_back(fmt::format("{} more", names.size() - kMostNames));
  return join(shown, ", ");
}

}  // namespace

const KnownKey* KeyTable::find(std::string_view key) const {
  const auto found = keys.find(key);
  if (found != keys.end()) return &found->second;
  for (size_t dot = key.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = key.rfind('.', dot - 1)) {
    const auto all = keys.find(std::string(key.substr(0, dot)) + ".*");
    if (all != keys.end()) return &all->second;
  }
  return nullptr;
}

const KeyTable& key_table(std::string_view target) {
  static const std::map<std::string, KeyTable, std::less<>> all = [] {
    std::map<std::string, KeyTable, std::less<>> out;
    for (const auto& [name, text] : export_data()) {
      Result<KeyTable> table = parse_table(name, text);
      // A test reads every table, so a program that was tested does not come here.
      if (!table) throw std::logic_error(table.error().message);
      out.emplace(std::string(name), *std::move(table));
    }
    return out;
  }();
  return all.at(std::string(target));
}

std::vector<std::string> KeyUses::unread() const {
  std::vector<std::string> out;
  if (!plain.empty()) out.push_back("not read, as it does not change the plan: " + list_of(plain));
  if (!style.empty()) out.push_back("not read, as --style states how ops run: " + list_of(style));
  if (!size.empty()) out.push_back("not read, as MODEL states the sizes: " + list_of(size));
  return out;
}

Result<KeyUses> sort_keys(const KeyTable& table, const SaidKeys& said) {
  KeyUses out;
  const auto add = [&](std::vector<std::string>& list, const std::string& name) {
    const std::string written = table.prefix + name;
    if (std::find(list.begin(), list.end(), written) == list.end()) list.push_back(written);
  };
  for (const SaidKey& key : said) {
    const KnownKey* known = table.find(key.name);
    if (known == nullptr) {
      std::vector<std::string> names;
      for (const auto& [name, row] : table.keys) names.push_back(name);
      return invalid_input(fmt::format("{}: unknown key '{}{}', did you mean '{}{}'?",
                                       at(key, table.name), table.prefix, key.name, table.prefix,
                                       nearest(key.name, names)));
    }
    switch (known->use) {
      case KeyUse::kRead: break;
      case KeyUse::kSize: add(out.size, key.name); break;
      case KeyUse::kStyle: add(out.style, key.name); break;
      case KeyUse::kPlain: add(out.plain, key.name); break;
      case KeyUse::kRefused: {
        const bool asks_nothing = std::find(known->without.begin(), known->without.end(),
                                            key.value) != known->without.end();
        if (asks_nothing || key.value == "null" || key.value == "None") break;
        return invalid_input(fmt::format("{}: {}: expected a text without it, found '{}': {}",
                                         at(key, table.name), key.name, key.value, known->meaning));
      }
    }
  }
  return out;
}

int64_t known_keys(const KeyTable& table, const SaidKeys& said) {
  return std::count_if(said.begin(), said.end(),
                       [&](const SaidKey& key) { return table.find(key.name) != nullptr; });
}

const SaidKey* SaidValues::find(std::string_view key) const {
  const auto found = std::find_if(said_.rbegin(), said_.rend(),
                                  [&](const SaidKey& one) { return one.name == key; });
  const bool is_said = found != said_.rend() && found->value != "null" && found->value != "None";
  return is_said ? &*found : nullptr;
}

std::string SaidValues::text(std::string_view key, std::string_view otherwise) const {
  const SaidKey* found = find(key);
  return found == nullptr ? std::string(otherwise) : found->value;
}

Result<int64_t> SaidValues::number(std::string_view key, int64_t otherwise, int64_t least) const {
  const SaidKey* found = find(key);
  if (found == nullptr) return otherwise;
  const auto value = parse_int(found->value);
  if (value && *value >= least) return *value;
  return refuse(key, fmt::format("a whole number of at least {}", least));
}

Result<bool> SaidValues::flag(std::string_view key, bool otherwise) const {
  const std::string value = text(key, otherwise ? "true" : "false");
  if (value == "true" || value == "True") return true;
  if (value == "false" || value == "False") return false;
  return refuse(key, "true or false");
}

tl::unexpected<Error> SaidValues::refuse(std::string_view key, std::string_view expected) const {
  const SaidKey* found = find(key);
  const SaidKey none{std::string(key), "", 0};
  const SaidKey& said = found == nullptr ? none : *found;
  return invalid_input(
      fmt::format("{}: {}: expected {}, found '{}'", at(said, target_), key, expected, said.value));
}

}  // namespace tessera
