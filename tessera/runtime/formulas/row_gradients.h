// Internal to formulas/: the gradients of the rows of a table that look-ups name. Sizes depend on the
// number of places of ids, and on the number of rows of the table's piece, alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tessera/base/box.h"

namespace tessera::kernels {

struct LookUp {
  at::Tensor ids;      // [samples.., bag]; ids below 0 name no row
  at::Tensor dy;       // [samples.., width]
  at::Tensor weights;  // as ids, or undefined
  bool mean = false;   // whether each id adds dy divided by the number of ids of its bag
};

// Rows that ids name, in ascending order, each once. They are the first elements of all tensors; those
// behind them are not `named`.
struct NamedRows {
  at::Tensor row;    // [rows] counted from the first row of the piece; a row where none is named
  at::Tensor named;  // [rows] truths
  at::Tensor
      gradient;  // [rows, width]: the sum of what ids add, in the order of look-ups and places

  // For row_squares: the place that each element of the two tensors below stands for, in the order of
  // rows, and which element of `row` it names.
  at::Tensor place;     // [places]
  at::Tensor of_place;  // [places]
  at::Tensor first;     // [places] whether the place is the first that names its row
};

NamedRows named_rows(const std::vector<LookUp>& look_ups, Interval rows);

// Writes values[i] to row row[i] of `table` where that is named; other values are not read.
void write_rows(const at::Tensor& table, const NamedRows& rows, const at::Tensor& values);

}  // namespace tessera::kernels
