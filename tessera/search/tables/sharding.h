// Describes how a table is shared among devices, and the pieces that result
// (docs/reference/tables.md).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/search/tables/table.h"

namespace tessera::tables {

enum class Sharding : uint8_t {
  kReplicated,    // on every device, whole or the first rows; each looks up its own samples
  kTable,         // whole on one device
  kColumns,       // columns cut, each piece placed like a table; every piece sees all ids
  kRows,          // rows cut over devices; an id is looked up where its row is, sums are partial
  kTableRows,     // rows cut over the devices of one node
  kTableColumns,  // columns cut over the devices of one node
  kGrid,          // columns cut over nodes, rows over the devices of each
};
std::string_view sharding_name(Sharding kind);  // "table"
const std::vector<std::string>& sharding_names();
std::optional<Sharding> parse_sharding(std::string_view name);

// The kernel that looks up rows, and so where rows lie, in TorchRec's words.
enum class Kernel : uint8_t { kFused, kDense, kUvm, kUvmCaching, kKeyValue };
std::string_view kernel_name(Kernel kernel);  // "fused"
const std::vector<std::string>& kernel_names();

enum class Optimizer : uint8_t { kSgd, kRowWiseAdagrad, kAdagrad, kAdam };
const std::vector<std::string>& optimizer_names();
std::optional<Optimizer> parse_optimizer(std::string_view name);

// A box of a table on one device. The pieces of a table cover each of its numbers once, except that
// a replicated piece is there once on each device: the whole table, or its first rows (hot rows).
struct Piece {
  size_t table = 0;
  Sharding kind = Sharding::kTable;
  Kernel kernel = Kernel::kFused;
  int64_t first_row = 0, rows = 0;
  int64_t first_column = 0, columns = 0;
  // The share of the table's ids that this piece looks up: 1 for a whole table or columns, 1/k for
  // one of k replicas, and for rows the share by their frequency (row_law.h; spread evenly if it is
  // not known).
  double share = 1;

  static Piece whole(size_t table, const Table& of);
  auto operator<=>(const Piece&) const = default;
};

// Returns the bytes of parameters and optimizer state at rest.
int64_t resting_bytes(const Table& table, const Piece& piece, Optimizer optimizer);

}  // namespace tessera::tables
