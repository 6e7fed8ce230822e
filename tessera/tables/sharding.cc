#include "tessera/tables/sharding.h"

#include <algorithm>

namespace tessera::tables {
namespace {

template <class Enum>
std::optional<Enum> parse_name(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

const std::vector<std::string>& sharding_names() {
  static const std::vector<std::string> names = {"replicated", "table",         "columns", "rows",
                                                 "table_rows", "table_columns", "grid"};
  return names;
}
std::string_view sharding_name(Sharding kind) {
  return sharding_names()[static_cast<size_t>(kind)];
}
std::optional<Sharding> parse_sharding(std::string_view name) {
  return parse_name<Sharding>(sharding_names(), name);
}

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names = {"fused", "dense", "uvm", "uvm_caching",
                                                 "key_value"};
  return names;
}
std::string_view kernel_name(Kernel kernel) { return kernel_names()[static_cast<size_t>(kernel)]; }

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "row_wise_adagrad", "adagrad", "adam"};
  return names;
}
std::optional<Optimizer> parse_optimizer(std::string_view name) {
  return parse_name<Optimizer>(optimizer_names(), name);
}

Piece Piece::whole(size_t table, const Table& of) {
  Piece piece;
  piece.table = table;
  piece.rows = of.rows;
  piece.columns = of.dim;
  return piece;
}

int64_t resting_bytes(const Table& table, const Piece& piece, Optimizer optimizer) {
  const int64_t numbers = piece.rows * piece.columns;
  const int64_t bytes = numbers * table.element_bytes;
  switch (optimizer) {
    case Optimizer::kSgd: return bytes;
    case Optimizer::kRowWiseAdagrad: return bytes + piece.rows * 4;
    case Optimizer::kAdagrad: return bytes + numbers * 4;
    case Optimizer::kAdam: return bytes + 2 * numbers * 4;
  }
  return bytes;
}

}  // namespace tessera::tables
