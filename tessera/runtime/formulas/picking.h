// Internal to formulas/: elements that ids name. A table is seen as rows: its dims that the picked
// elements are found in by their ids (the indexed ones) and those that ids and table share (samples,
// each of which has ids of its own) number the rows, the other dims are within a row.
//
//   const Picking p(c, table_dims, ids_dims, {dim});
//   p.rows(c.along(i, p.table_order()));            // [rows, elements of a row]
//   p.numbers(place)                                // of each picked row: its number
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tessera/runtime/formulas/call.h"

namespace tessera::kernels {

// The ids of a call in rows of its table's piece: where each stands, and whether it is there.
struct Places {
  at::Tensor row, here;
};
Places places_of(const at::Tensor& ids, Interval rows);

class Picking {
 public:
  // `table` and `ids` are the op dims of these operands, `indexed` those that ids look up.
  Picking(const Call& c, const std::vector<int>& table, const std::vector<int>& ids,
          const std::vector<int>& indexed);

  std::vector<int> table_order() const { return joined({shared_, indexed_, rest_}); }
  std::vector<int> ids_order() const { return joined({shared_, fresh_}); }
  std::vector<int> picked_order() const { return joined({shared_, fresh_, rest_}); }

  // Returns a table or picked elements, with the dims of that order, as a matrix of rows.
  at::Tensor as_rows(const at::Tensor& value) const;
  // Returns the matrix of rows with the sizes of the dims of an order.
  at::Tensor as_dims(const at::Tensor& rows, const std::vector<int>& order) const;
  // Returns the numbers of the rows, one for each picked one, of places along the indexed dims (as
  // one dim) with the dims of ids_order().
  at::Tensor numbers(const at::Tensor& places) const;
  int64_t table_rows() const { return size_of(shared_) * size_of(indexed_); }

 private:
  static std::vector<int> joined(const std::vector<std::vector<int>>& parts);
  int64_t size_of(const std::vector<int>& dims) const;

  const Call& c_;
  std::vector<int> shared_, indexed_, fresh_, rest_;
};

}  // namespace tessera::kernels
