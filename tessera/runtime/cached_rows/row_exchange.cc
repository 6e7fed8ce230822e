#include "tessera/runtime/cached_rows/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/rows.h"
#include "tessera/program/communication.h"

namespace tessera {
namespace {

using kernels::Array;

std::span<const int64_t> numbers(const Array& ids) {
  TESSERA_CHECK(ids.dtype == DType::kInt64 && ids.shape.size() == 1 && ids.strides[0] == 1,
                "expected ids one after the other");
  return {reinterpret_cast<const int64_t*>(ids.data), static_cast<size_t>(ids.shape[0])};
}

int64_t bytes_of_row(const Array& array) { return array.shape[1] * dtype_bytes(array.dtype); }

template <class T>
void add(std::byte* to, const std::byte* from, int64_t count) {
  auto* sum = reinterpret_cast<T*>(to);
  const auto* term = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) sum[i] += term[i];
}

void add_row(DType dtype, std::byte* to, std::byte* from, int64_t count) {
  if (dtype == DType::kFloat32) return add<float>(to, from, count);
  if (dtype == DType::kFloat64) return add<double>(to, from, count);
  const Box whole = Box::whole({count});
  comm::combine_region(dtype, Combiner::kSum, {from, whole, {1}}, {to, whole, {1}}, whole);
}

}  // namespace

RowExchange::RowExchange(const Graph& graph, const Issue& issue, size_t me)
    : op_(graph.op(issue.named->op)),
      issue_(issue),
      transfer_(issue.transfers[0]),
      me_(me),
      members_(issue.named->rows.size()),
      sums_(issue.combiner.has_value()),
      owned_(owned_rows(issue)),
      whats_(members_),
      packed_(members_) {}

const std::vector<int32_t>& RowExchange::rows(size_t giver, size_t taker) const {
  return sums_ ? lists_.of(giver, taker) : lists_.of(taker, giver);
}

void RowExchange::name(const std::vector<Array>& ids, int64_t step) {
  const sparse::Sampling sampling = sparse::sampling_of(op_, step);
  bool same = sampling_ == sampling;
  ids_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<const int64_t> now = numbers(ids[i]);
    if (std::ranges::equal(ids_[i], now)) continue;
    ids_[i].assign(now.begin(), now.end());
    same = false;
  }
  if (same) return;
  sampling_ = sampling;
  const Box& whole = sums_ ? transfer_.hold[me_] : transfer_.need[me_];
  lists_ = sparse::name_rows({ids_[0], ids_[1], ids_[2], whole.dims[0].size}, sampling,
                             issue_.named->rows, owned_);
  const Interval width = whole.dims[1];
  for (size_t taker = 0; taker < members_; ++taker) {
    Redistribution what{issue_.kind, std::nullopt, issue_.dtype, {}, {}};
    int64_t all = 0;
    for (size_t giver = 0; giver < members_; ++giver) {
      const auto count = static_cast<int64_t>(rows(giver, taker).size());
      what.hold.push_back(Box({{all, count}, {0, width.size}}));
      all += count;
    }
    for (size_t member = 0; member < members_; ++member)
      what.need.push_back(Box({{0, member == taker ? all : 0}, {0, width.size}}));
    packed_[taker].resize(static_cast<size_t>(what.hold[me_].volume() * dtype_bytes(issue_.dtype)));
    if (taker == me_)
      arrived_.resize(static_cast<size_t>(what.need[me_].volume() * dtype_bytes(issue_.dtype)));
    whats_[taker] = std::move(what);
  }
}

std::byte* RowExchange::row_of(const Array& array, const Box& region, size_t owner,
                               int32_t row) const {
  const int64_t at = owned_[owner].begin + row - region.dims[0].begin;
  return array.data + at * array.strides[0] * dtype_bytes(array.dtype);
}

comm::Handle RowExchange::begin(comm::Communicator& world, int group, const std::vector<Array>& ids,
                                const std::optional<Array>& in, const std::optional<Array>& out,
                                int64_t step, const comm::Label& label) {
  name(ids, step);
  in_ = in;
  out_ = out;
  std::vector<comm::Item> items;
  for (size_t taker = 0; taker < members_; ++taker) {
    const Redistribution& what = whats_[taker];
    if (what.need[taker].empty()) continue;
    std::byte* packed = packed_[taker].data();
    const size_t owner = sums_ ? taker : me_;
    for (const int32_t row : rows(me_, taker)) {
      const int64_t bytes = bytes_of_row(*in_);
      std::memcpy(packed, row_of(*in_, transfer_.hold[me_], owner, row),
                  static_cast<size_t>(bytes));
      packed += bytes;
    }
    const std::vector<int64_t> strides{what.hold[me_].dims[1].size, 1};
    items.push_back({&what,
                     {packed_[taker].data(), what.hold[me_], strides},
                     {taker == me_ ? arrived_.data() : nullptr, what.need[me_], strides}});
  }
  return items.empty() ? comm::kNoHandle : world.issue(group, std::move(items), label);
}

void RowExchange::finish() {
  if (!out_) return;
  const int64_t bytes = bytes_of_row(*out_), columns = out_->shape[1];
  const Box& own = sums_ ? transfer_.need[me_] : transfer_.hold[me_];
  std::byte* arrived = arrived_.data();
  // Takes the rows that come from this rank itself: adds them to the output if the exchange sums,
  // else copies them.
  const auto from_here = [&] {
    if (!in_) return;
    for (int32_t row = 0; row < own.dims[0].size; ++row) {
      std::byte* to = row_of(*out_, transfer_.need[me_], me_, row);
      std::byte* from = row_of(*in_, transfer_.hold[me_], me_, row);
      if (sums_) add_row(issue_.dtype, to, from, columns);
      if (!sums_ && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  };
  for (int32_t row = 0; sums_ && row < own.dims[0].size; ++row)
    std::memset(row_of(*out_, transfer_.need[me_], me_, row), 0, static_cast<size_t>(bytes));
  for (size_t giver = 0; giver < members_; ++giver) {
    if (giver == me_) from_here();
    const size_t owner = sums_ ? me_ : giver;
    for (const int32_t row : rows(giver, me_)) {
      std::byte* to = row_of(*out_, transfer_.need[me_], owner, row);
      if (sums_) add_row(issue_.dtype, to, arrived, columns);
      if (!sums_) std::memcpy(to, arrived, static_cast<size_t>(bytes));
      arrived += bytes;
    }
  }
}

int64_t RowExchange::bytes() const {
  size_t total = arrived_.size();
  for (const auto& one : packed_) total += one.size();
  for (const auto& one : ids_) total += one.size() * sizeof(int64_t);
  for (const auto& one : lists_.lists) total += one.size() * sizeof(int32_t);
  return static_cast<int64_t>(total);
}

std::optional<Program> with_counted_rows(const Program& program, const Graph& graph, int64_t step,
                                         const LoadFunction& load) {
  if (!sparse::exchanges_named_rows(program)) return std::nullopt;
  Program counted = program;
  const auto whole = [&](TensorId input) {
    const Tensor& tensor = graph.tensor(input);
    const Box all = Box::whole(tensor.shape());
    std::vector<int64_t> ids(static_cast<size_t>(all.volume()));
    load(tensor, all,
         Array::contiguous(reinterpret_cast<std::byte*>(ids.data()), tensor.dtype, tensor.shape()));
    return ids;
  };
  sparse::count_named_rows(counted, graph, whole, step);
  return counted;
}

}  // namespace tessera
