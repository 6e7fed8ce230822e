// Describes how a table is shared among devices, and the pieces that result
// (docs/reference/tables.md).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tables/table.h"

namespace tessera::tables {

enum class Sharding : uint8_t {
  kReplicated,  // the whole table or its first rows on every device, which looks up its own samples
  kTable,       // whole on one device
  kColumns,     // columns are cut; each piece is on some device and looks up all ids
  kRows,  // rows are cut over devices; the device with its row looks up an id, so sums are partial
  kTableRows,     // rows are cut over the devices of one node
  kTableColumns,  // columns are cut over the devices of one node
  kGrid,          // columns are cut over nodes, and rows over the devices of each node
};
std::string_view sharding_name(Sharding kind);  // "table"
const std::vector<std::string>& sharding_names();
std::optional<Sharding> parse_sharding(std::string_view name);

// The kernel that looks up rows, by TorchRec's names. It decides in which memory the rows are.
enum class Kernel : uint8_t { kFused, kDense, kUvm, kUvmCaching, kKeyValue };
std::string_view kernel_name(Kernel kernel);  // "fused"
const std::vector<std::string>& kernel_names();

enum class Optimizer : uint8_t { kSgd, kRowWiseAdagrad, kAdagrad, kAdam };
const std::vector<std::string>& optimizer_names();
std::optional<Optimizer> parse_optimizer(std::string_view name);

// A box of a table on one device. The pieces of a table cover each of its numbers once, except that
// a replicated piece (the whole table, or its first rows, called hot rows) is on each device.
struct Piece {
  size_t table = 0;
  Sharding kind = Sharding::kTable;
  Kernel kernel = Kernel::kFused;
  int64_t first_row = 0, rows = 0;
  int64_t first_column = 0, columns = 0;
  // The share of the table's ids that this piece looks up: 1 for a whole table or for columns, 1/k
  // for one of k replicas. For rows it follows from their frequency (row_law.h) or, if that is not
  // known, is their share of all rows.
  double share = 1;

  static Piece whole(size_t table, const Table& of);
  auto operator<=>(const Piece&) const = default;
};

// Returns the bytes of a piece's parameters and optimizer state at rest.
int64_t resting_bytes(const Table& table, const Piece& piece, Optimizer optimizer);

}  // namespace tessera::tables
