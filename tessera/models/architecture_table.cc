#include "tessera/models/architecture_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/base/data_file.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 10> kForms = {
    "gpt", "llama", "mixture", "hybrid", "bert", "t5", "vit", "swin", "convolution", "unbuilt"};

using Column =
    std::variant<int64_t Architecture::*, double Architecture::*, std::string Architecture::*>;
const std::vector<std::pair<std::string_view, Column>>& columns() {
  static const std::vector<std::pair<std::string_view, Column>> all = {
      {"name", &Architecture::name},
      {"layers", &Architecture::layers},
      {"hidden", &Architecture::hidden},
      {"heads", &Architecture::heads},
      {"kv_heads", &Architecture::kv_heads},
      {"ffn", &Architecture::ffn},
      {"vocab", &Architecture::vocab},
      {"seq", &Architecture::seq},
      {"head_dim", &Architecture::head_dim},
      {"experts", &Architecture::experts},
      {"top_k", &Architecture::top_k},
      {"shared_ffn", &Architecture::shared_ffn},
      {"latent", &Architecture::latent},
      {"dense_layers", &Architecture::dense_layers},
      {"dense_ffn", &Architecture::dense_ffn},
      {"pattern", &Architecture::pattern},
      {"ssm_heads", &Architecture::ssm_heads},
      {"mtp", &Architecture::mtp},
      {"q_rank", &Architecture::q_rank},
      {"kv_rank", &Architecture::kv_rank},
      {"depth", &Architecture::depth},
      {"stages", &Architecture::stages},
      {"parameters", &Architecture::parameters},
      {"multiply_adds", &Architecture::forward_flops},
      {"remark", &Architecture::remark}};
  return all;
}

const Column* find_column(std::string_view name) {
  for (const auto& [known, column] : columns()) {
    if (known == name) return &column;
  }
  return nullptr;
}

// Sets a field from a cell. Returns false if the field cannot have this value. forward_flops is
// twice the number in the cell, which counts multiply-adds.
bool set_cell(Architecture& model, const Column& column, const std::string& cell) {
  if (const auto* text = std::get_if<std::string Architecture::*>(&column)) {
    model.** text = cell;
    return true;
  }
  const auto number = parse_double(cell);
  if (!number || *number < 0) return false;
  if (const auto* whole = std::get_if<int64_t Architecture::*>(&column)) {
    model.** whole = static_cast<int64_t>(*number);
    return static_cast<double>(model.**whole) == *number;
  }
  const auto real = std::get<double Architecture::*>(column);
  model.*real = real == &Architecture::forward_flops ? 2 * *number : *number;
  return true;
}

Result<Form> read_form(const DataTable& table) {
  std::string name;
  TESSERA_TRY_VOID(table.require("form"));
  TESSERA_TRY_VOID(table.text("form", name));
  const auto* found = std::find(kForms.begin(), kForms.end(), name);
  if (found == kForms.end()) {
    return table.error("form", fmt::format("expected one of {}, found '{}'",
                                           join({kForms.begin(), kForms.end()}, ", "), name));
  }
  return static_cast<Form>(found - kForms.begin());
}

Status add(const DataTable& table, Architecture model, ArchitectureTable& out) {
  model.title = model.name;
  std::erase(model.name, '-');
  for (const Architecture& known : out.models) {
    if (known.name == model.name)
      return table.error(fmt::format("the model '{}' is there twice", model.name));
  }
  out.models.push_back(std::move(model));
  return {};
}

// Reads a table of models. A key other than the table's own keys is a column whose value all rows
// share.
Status read_models(const DataTable& table, ArchitectureTable& out) {
  Architecture common;
  std::string names;
  TESSERA_TRY(common.form, read_form(table));
  TESSERA_TRY_VOID(table.flag("tied", common.tied));
  for (const char* key : {"columns", "sizes"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.text("columns", names));
  TESSERA_TRY(const auto rows, table.rows("sizes"));
  TESSERA_TRY(const Origin origin, table.origin());
  static_cast<void>(origin);
  TESSERA_TRY(const auto settings, table.settings());
  const auto set = [&](Architecture& model, const std::string& key,
                       const std::string& cell) -> Status {
    const Column* column = find_column(key);
    if (column == nullptr) return table.error("columns", fmt::format("unknown column '{}'", key));
    if (set_cell(model, *column, cell)) return {};
    return table.error("sizes", fmt::format("'{}' of '{}': found '{}'", key, model.name, cell));
  };
  for (const auto& [key, value] : settings) TESSERA_TRY_VOID(set(common, key, value));
  const std::vector<std::string> keys = split_text(names, ' ');
  for (const auto& row : rows) {
    if (row.empty() || row.size() > keys.size()) {
      return table.error("sizes", fmt::format("expected rows of up to {} columns, found {}",
                                              keys.size(), row.size()));
    }
    Architecture model = common;
    for (size_t i = 0; i < row.size(); ++i) TESSERA_TRY_VOID(set(model, keys[i], row[i]));
    TESSERA_TRY_VOID(add(table, std::move(model), out));
  }
  return {};
}

Status finish_table(const DataTable& table) {
  TESSERA_TRY(const Origin origin, table.origin());
  static_cast<void>(origin);
  return table.done();
}

Status read_unbuilt(const DataTable& table, ArchitectureTable& out) {
  std::vector<std::string> names;
  Architecture model;
  model.form = Form::kUnbuilt;
  for (const char* key : {"names", "what"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.texts("names", names));
  TESSERA_TRY_VOID(table.text("what", model.remark));
  for (const std::string& name : names) {
    model.name = name;
    TESSERA_TRY_VOID(add(table, model, out));
  }
  return finish_table(table);
}

// Reads how published models differ from the form that their sizes are given to.
Status read_approximate(const DataTable& table, ArchitectureTable& out) {
  std::vector<std::string> names;
  std::string what;
  for (const char* key : {"names", "what"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.texts("names", names));
  TESSERA_TRY_VOID(table.text("what", what));
  for (std::string& name : names) {
    std::erase(name, '-');
    const bool known = std::any_of(out.models.begin(), out.models.end(),
                                   [&](const Architecture& model) { return model.name == name; });
    if (!known) return table.error("names", fmt::format("found the unknown model '{}'", name));
    if (!out.approximations.emplace(name, what).second)
      return table.error("names", fmt::format("the model '{}' is there twice", name));
  }
  return finish_table(table);
}

Status read_series(const DataTable& table, ArchitectureTable& out) {
  std::vector<std::string> names;
  TESSERA_TRY(const Form form, read_form(table));
  TESSERA_TRY_VOID(table.require("names"));
  TESSERA_TRY_VOID(table.texts("names", names));
  for (const std::string& name : names) out.series.emplace_back(name, form);
  return finish_table(table);
}

Status read_suffixes(const DataTable& table, ArchitectureTable& out) {
  TESSERA_TRY_VOID(table.texts("before", out.before));
  TESSERA_TRY_VOID(table.texts("glued", out.glued));
  TESSERA_TRY_VOID(table.texts("other", out.other));
  return finish_table(table);
}

}  // namespace

Result<ArchitectureTable> parse_architectures(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  ArchitectureTable out;
  using Reader = Status (*)(const DataTable&, ArchitectureTable&);
  const std::pair<const char*, Reader> kinds[] = {{"models", read_models},
                                                  {"unbuilt", read_unbuilt},
                                                  {"approximate", read_approximate},
                                                  {"series", read_series},
                                                  {"suffixes", read_suffixes}};
  for (const auto& [key, read] : kinds) {
    TESSERA_TRY(const auto tables, root.tables(key));
    for (const DataTable& table : tables) TESSERA_TRY_VOID(read(table, out));
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

const ArchitectureTable& architecture_table() {
  static const ArchitectureTable known = [] {
    auto parsed = parse_architectures(text_of(model_data(), "architectures"), "architectures.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return known;
}

}  // namespace tessera
