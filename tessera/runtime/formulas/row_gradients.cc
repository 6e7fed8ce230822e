#include "tessera/runtime/formulas/row_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tessera::kernels {
namespace {

// Returns the factor by which an id multiplies dy, [samples, bag].
at::Tensor factors_of(const LookUp& one, const at::Tensor& ids, const at::Tensor& like) {
  if (one.weights.defined()) return one.weights.to(like.scalar_type()).reshape(ids.sizes());
  const at::Tensor ones = at::ones(ids.sizes(), like.options());
  if (!one.mean) return ones;
  return ones / (ids >= 0).sum(-1, true).clamp_min(1).to(like.scalar_type());
}

at::Tensor joined(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

// Returns x with dims of size 1 behind its own, as many as `like` has.
at::Tensor beside(const at::Tensor& x, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[0] = x.size(0);
  return x.reshape(shape);
}

}  // namespace

NamedRows named_rows(const std::vector<LookUp>& look_ups, Interval rows) {
  std::vector<at::Tensor> all_ids, all_dy, all_samples, all_factors;
  int64_t samples = 0;
  for (const LookUp& one : look_ups) {
    const at::Tensor dy = one.dy.reshape({-1, one.dy.size(-1)}),
                     ids = one.ids.to(at::kLong).reshape({dy.size(0), -1});
    const at::Tensor sample = at::arange(samples, samples + dy.size(0), ids.options());
    all_ids.push_back(ids.flatten());
    all_dy.push_back(dy);
    all_samples.push_back(sample.unsqueeze(-1).expand(ids.sizes()).flatten());
    all_factors.push_back(factors_of(one, ids, dy).flatten());
    samples += dy.size(0);
  }
  const at::Tensor ids = joined(all_ids);
  const int64_t places = ids.numel(), most = std::min(places, 2 * rows.size + 1);
  const at::Tensor counted = at::arange(places, ids.options());
  // Places that name no row of the piece come last, as rows beyond it: so few that their number is
  // bounded by that of rows, and so many that no one has to add up many places.
  const int64_t share = (places + rows.size) / (rows.size + 1);
  const at::Tensor row = ids - rows.begin;
  const at::Tensor here = at::logical_and(ids >= 0, at::logical_and(row >= 0, row < rows.size));
  const at::Tensor key = at::where(here, row, at::floor_divide(counted, share) + rows.size);
  const auto [sorted, place] = at::sort(key, /*stable=*/true, 0, /*descending=*/false);
  const at::Tensor first =
      at::cat({at::ones({1}, ids.options().dtype(at::kBool)),
               sorted.narrow(0, 1, places - 1) != sorted.narrow(0, 0, places - 1)});
  // Where each row begins among the sorted places; behind the last row, `places`.
  const at::Tensor begin =
      std::get<0>(at::sort(at::where(first, counted, places))).narrow(0, 0, most);

  NamedRows out;
  const at::Tensor begins = sorted.index_select(0, at::clamp_max(begin, places - 1));
  out.named = at::logical_and(begin < places, begins < rows.size);
  out.row = at::clamp_max(begins, rows.size - 1);
  // Sums in the order of places, which this function does on every device.
  out.gradient = std::get<0>(at::_embedding_bag_forward_only(
      joined(all_dy), joined(all_samples).index_select(0, place), begin,
      /*scale_grad_by_freq=*/false, /*mode=*/0, /*sparse=*/false,
      joined(all_factors).index_select(0, place)));
  out.place = place;
  out.of_place = first.to(at::kLong).cumsum(0) - 1;
  out.first = at::logical_and(first, sorted < rows.size);
  return out;
}

void write_rows(const at::Tensor& table, const NamedRows& rows, const at::Tensor& values) {
  // A row that is not named writes what the first one writes: its old value, if none is named.
  const at::Tensor row = at::where(rows.named, rows.row, rows.row.narrow(0, 0, 1));
  const at::Tensor named = beside(rows.named, values);
  const at::Tensor kept = at::where(named, values, table.index_select(0, rows.row));
  table.index_copy_(0, row, at::where(named, kept, kept.narrow(0, 0, 1)));
}

}  // namespace tessera::kernels
