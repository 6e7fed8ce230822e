#include "tessera/cost/constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/cost/style_data.h"

namespace tessera {
namespace {

constexpr WorkClass kClasses[] = {
    WorkClass::kMatmul,      WorkClass::kConvolution, WorkClass::kAttention, WorkClass::kScan,
    WorkClass::kElementwise, WorkClass::kNorm,        WorkClass::kLoss,      WorkClass::kLookup,
    WorkClass::kRouting,     WorkClass::kOptimizer,   WorkClass::kMove};

Status read_generation(const DataTable& table, Generation& out) {
  std::string name;
  TESSERA_TRY_VOID(table.require("generation"));
  TESSERA_TRY_VOID(table.text("generation", name));
  const auto found = Generation::find(name);
  if (!found) {
    return table.error("generation", fmt::format("expected one of {}, found '{}'",
                                                 join(generation_names(), ", "), name));
  }
  out = *found;
  return {};
}

// Reads the values of all `keys` from the table. It is an error if a key is missing.
Status read_reals(const DataTable& table,
                  const std::vector<std::pair<std::string_view, double*>>& keys) {
  for (const auto& [key, value] : keys) {
    TESSERA_TRY_VOID(table.require(key));
    TESSERA_TRY_VOID(table.real(key, *value));
  }
  return {};
}

Result<MatmulConstants> read_products(const DataTable& table) {
  MatmulConstants out;
  TESSERA_TRY_VOID(read_generation(table, out.generation));
  TESSERA_TRY_VOID(table.require("arithmetic"));
  TESSERA_TRY_VOID(table.text("arithmetic", out.arithmetic));
  TESSERA_TRY_VOID(read_reals(
      table,
      {{"best", &out.best}, {"half_flops", &out.half_flops}, {"uncertainty", &out.uncertainty}}));
  TESSERA_TRY(out.origin, table.origin());
  TESSERA_TRY_VOID(table.done());
  return out;
}

Result<DeviceConstants> read_device(const DataTable& table) {
  DeviceConstants out;
  TESSERA_TRY_VOID(read_generation(table, out.generation));
  TESSERA_TRY_VOID(read_reals(table, {{"tail_s", &out.tail_s},
                                      {"attention_forward", &out.attention_forward},
                                      {"attention_backward", &out.attention_backward},
                                      {"memory", &out.memory},
                                      {"vector", &out.vector},
                                      {"experts", &out.grouped},
                                      {"experts_narrow", &out.grouped_narrow},
                                      {"scan", &out.scan}}));
  TESSERA_TRY(out.origin, table.origin());
  TESSERA_TRY_VOID(table.done());
  return out;
}

Result<ClassConstants> read_class(const DataTable& table) {
  ClassConstants out;
  std::string name;
  TESSERA_TRY_VOID(table.require("work"));
  TESSERA_TRY_VOID(table.text("work", name));
  const auto* found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                   [&](WorkClass work) { return work_class_name(work) == name; });
  if (found == std::end(kClasses))
    return table.error("work", fmt::format("expected a class of work, found '{}'", name));
  out.work = *found;
  TESSERA_TRY_VOID(read_reals(table, {{"memory", &out.memory}, {"uncertainty", &out.uncertainty}}));
  TESSERA_TRY(out.origin, table.origin());
  TESSERA_TRY_VOID(table.done());
  return out;
}

template <class Row>
Result<std::vector<Row>> read_all(const DataTable& root, std::string_view key,
                                  Result<Row> (*read)(const DataTable&)) {
  TESSERA_TRY(const auto tables, root.tables(key));
  std::vector<Row> out;
  for (const DataTable& table : tables) {
    TESSERA_TRY(Row row, read(table));
    out.push_back(std::move(row));
  }
  return out;
}

const CostConstants& constants() {
  static const CostConstants all = [] {
    auto parsed = parse_cost_constants(text_of(cost_data(), "constants"), "constants.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return all;
}

}  // namespace

Result<CostConstants> parse_cost_constants(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  CostConstants out;
  TESSERA_TRY(out.products, read_all(root, "products", read_products));
  TESSERA_TRY(out.devices, read_all(root, "device", read_device));
  TESSERA_TRY(out.classes, read_all(root, "class", read_class));
  TESSERA_TRY_VOID(root.done());
  for (const std::string& name : generation_names()) {
    const auto is_it = [&](const auto& row) { return generation_name(row.generation) == name; };
    const bool sixteen = std::any_of(
        out.products.begin(), out.products.end(),
        [&](const MatmulConstants& row) { return is_it(row) && row.arithmetic == "fp16"; });
    if (!sixteen || std::none_of(out.devices.begin(), out.devices.end(), is_it)) {
      return root.error(fmt::format(
          "expected a device and products in fp16 of the generation '{}', found none", name));
    }
  }
  for (const WorkClass work : kClasses) {
    if (std::none_of(out.classes.begin(), out.classes.end(),
                     [&](const ClassConstants& row) { return row.work == work; })) {
      return root.error(fmt::format("expected the class '{}', found none", work_class_name(work)));
    }
  }
  return out;
}

std::span<const MatmulConstants> all_matmul_constants() { return constants().products; }
std::span<const DeviceConstants> all_device_constants() { return constants().devices; }
std::span<const ClassConstants> all_class_constants() { return constants().classes; }

const MatmulConstants& matmul_constants(Generation generation, std::string_view arithmetic) {
  if (arithmetic == "bf16") arithmetic = "fp16";
  if (arithmetic == "fp64") arithmetic = "fp32";
  const MatmulConstants* sixteen = nullptr;
  for (const MatmulConstants& row : constants().products) {
    if (row.generation != generation) continue;
    if (row.arithmetic == arithmetic) return row;
    if (row.arithmetic == "fp16") sixteen = &row;
  }
  TESSERA_CHECK(sixteen != nullptr, "no products of the generation {}", generation->name);
  return *sixteen;
}

const DeviceConstants& device_constants(Generation generation) {
  const auto& all = constants().devices;
  const auto found = std::find_if(all.begin(), all.end(), [&](const DeviceConstants& row) {
    return row.generation == generation;
  });
  TESSERA_CHECK(found != all.end(), "no constants of the generation {}", generation->name);
  return *found;
}

const ClassConstants& class_constants(WorkClass work) {
  const auto& all = constants().classes;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [work](const ClassConstants& row) { return row.work == work; });
  TESSERA_CHECK(found != all.end(), "no constants of the class {}", work_class_name(work));
  return *found;
}

}  // namespace tessera
