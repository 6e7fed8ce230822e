#include "tessera/predict/constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera {
namespace {

Result<ConstantsBlock> read_block(const DataTable& table) {
  ConstantsBlock out;
  std::vector<std::string> machines, frameworks;
  TESSERA_TRY(out.origin, table.origin());
  TESSERA_TRY_VOID(table.text("without", out.without));
  TESSERA_TRY_VOID(table.texts("machines", machines));
  TESSERA_TRY_VOID(table.texts("frameworks", frameworks));
  TESSERA_TRY(const auto settings, table.settings());
  std::vector<std::string> scopes = machines;
  scopes.insert(scopes.end(), frameworks.begin(), frameworks.end());
  if (scopes.empty()) scopes.emplace_back();
  std::vector<std::string> texts;
  for (const std::string& scope : scopes) {
    for (const auto& [key, value] : settings)
      texts.push_back(fmt::format("{}{}{}={}", scope, scope.empty() ? "" : ".", key, value));
  }
  auto parsed = parse_settings(texts);
  if (!parsed) return table.error(parsed.error().message);
  out.settings = *std::move(parsed);
  return out;
}

bool is_its_own(const ConstantsBlock& block, const std::string& source) {
  return block.origin.kind == Origin::Kind::kFitted && block.origin.rows.size() == 1 &&
         block.origin.rows.front() == source;
}

void append(PredictSettings& to, const PredictSettings& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

PredictSettings Constants::without(const std::string& source) const {
  PredictSettings out;
  for (const ConstantsBlock& block : blocks) {
    const bool holds = block.without.empty() ? !is_its_own(block, source) : block.without == source;
    if (holds) append(out, block.settings);
  }
  return out;
}

std::vector<std::string> Constants::sources() const {
  std::vector<std::string> out;
  for (const ConstantsBlock& block : blocks) {
    std::string source = block.without;
    if (source.empty() && !block.origin.rows.empty() && is_its_own(block, block.origin.rows[0]))
      source = block.origin.rows[0];
    if (!source.empty() && std::find(out.begin(), out.end(), source) == out.end())
      out.push_back(source);
  }
  return out;
}

Result<Constants> parse_constants(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto tables, root.tables("constants"));
  Constants out;
  for (const DataTable& table : tables) {
    TESSERA_TRY(ConstantsBlock block, read_block(table));
    if (block.without.empty()) append(out.all, block.settings);
    out.blocks.push_back(std::move(block));
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

Result<Constants> load_constants(const std::string& path) {
  if (path.empty()) return parse_constants(text_of(predict_data(), "constants"), "constants.toml");
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_constants(text, path);
}

}  // namespace tessera
