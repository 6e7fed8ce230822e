#include "tessera/cluster/words.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/data_file.h"
#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/cluster/cluster.h"

namespace tessera {
namespace {

const std::vector<ClusterWord>& words() {
  static const std::vector<ClusterWord> all = [] {
    auto parsed = parse_cluster_words(text_of(cluster_data(), "words"), "words.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return all;
}

// Returns the preset that is meant by a word, or the word itself if it is a preset with nodes; "".
std::string preset_of(const std::string& word, bool also_presets) {
  for (const ClusterWord& one : words()) {
    if (one.word == word) return one.preset;
  }
  if (!also_presets || word == "local") return "";
  const auto names = preset_names();
  return std::find(names.begin(), names.end(), word) != names.end() ? word : "";
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Result<std::vector<ClusterWord>> parse_cluster_words(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto tables, root.tables("word"));
  std::vector<ClusterWord> out;
  for (const DataTable& table : tables) {
    std::vector<std::string> same;
    std::string preset;
    for (const char* key : {"words", "preset"}) TESSERA_TRY_VOID(table.require(key));
    TESSERA_TRY_VOID(table.texts("words", same));
    TESSERA_TRY_VOID(table.text("preset", preset));
    TESSERA_TRY_VOID(table.done());
    for (const std::string& word : same) {
      const bool twice = std::any_of(out.begin(), out.end(),
                                     [&](const ClusterWord& known) { return known.word == word; });
      if (twice) return table.error("words", fmt::format("'{}' is there twice", word));
      out.push_back({word, preset});
    }
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

std::vector<std::string> all_cluster_words() {
  std::vector<std::string> out;
  for (const ClusterWord& one : words()) out.push_back(one.word);
  return out;
}

Result<std::optional<ClusterWords>> cluster_words(std::string_view given) {
  const std::string text = lower_case(trim(given));
  std::string word = text, number;
  const size_t x = text.find('x'), colon = text.find(':');
  const bool before = x != std::string::npos && is_number(text.substr(0, x));
  if (before) {
    number = text.substr(0, x);
    word = std::string(trim(std::string_view(text).substr(x + 1)));
  } else if (colon != std::string::npos) {
    number = text.substr(colon + 1);
    word = text.substr(0, colon);
  }
  ClusterWords out{preset_of(word, before), 0};
  if (out.preset.empty()) return std::optional<ClusterWords>();
  if (before || colon != std::string::npos) {
    const auto devices = parse_int(number);
    if (!devices || *devices < 1 || *devices > kMostRanks) {
      return invalid_input(
          fmt::format("cluster '{}': expected a number of devices from 1 to {}, "
                      "found '{}'",
                      given, kMostRanks, number));
    }
    out.devices = *devices;
  }
  return std::optional(std::move(out));
}

}  // namespace tessera
