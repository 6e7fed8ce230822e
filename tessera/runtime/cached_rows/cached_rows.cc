#include "tessera/runtime/cached_rows/cached_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/pieces.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {

using kernels::Array;
using sparse::CacheBatch;
using sparse::CacheCounts;
using sparse::CacheIndex;
using sparse::RowMove;

Result<std::unique_ptr<CachedRows>> CachedRows::make(CachedRowsWants wants) {
  std::unique_ptr<CachedRows> rows(new CachedRows(std::move(wants)));
  TESSERA_TRY_VOID(rows->prepare());
  return rows;
}

CachedRows::~CachedRows() = default;

Status CachedRows::prepare() {
  const Program& program = *wants_.program;
  TESSERA_TRY_VOID(rest_.prepare(wants_));
  first_ = Origins(*wants_.graph).of(program.buffer(cache().held.front()).tensor).first;
  const Buffer& index = program.buffer(cache().index);
  sparse::CacheOptions options;
  options.rows = cache().rows.size;
  options.slots = cache().slots;
  options.policy = cache().policy;
  options.memory = {wants_.memory(index.id), static_cast<size_t>(index.bytes())};
  TESSERA_TRY(CacheIndex made, CacheIndex::make(options));
  index_ = std::make_unique<CacheIndex>(std::move(made));
  find_turns();
  return {};
}

// ---- the batches to come

void CachedRows::find_turns() {
  const Program& program = *wants_.program;
  for (const BlockRunStep& step : program.schedule) {
    for (const Instruction& instruction : program.block(step.block)) {
      const auto* fetch = std::get_if<FetchRows>(&instruction.body);
      if (fetch == nullptr || fetch->cache != wants_.cache || fetch->ahead) continue;
      const bool input = std::all_of(fetch->ids.begin(), fetch->ids.end(), [&](const RowIds& ids) {
        return wants_.graph->tensor(ids.tensor).role == Role::kInput;
      });
      if (input && instruction.when == When::kAlways) turns_.push_back({fetch, step.micro_batch});
    }
  }
}

std::vector<int64_t> CachedRows::rows_of(std::vector<int64_t> ids) const {
  const Interval rows = cache().rows;
  for (int64_t& id : ids) {
    const int64_t row = id - first_ - rows.begin;
    id = id >= 0 && row >= 0 && row < rows.size ? row : -1;
  }
  return ids;
}

Result<std::vector<int64_t>> CachedRows::ids_of_turn(int64_t turn) const {
  const auto count = static_cast<int64_t>(turns_.size());
  const Turn& what = turns_[static_cast<size_t>(turn % count)];
  std::vector<int64_t> all;
  for (const RowIds& ids : what.fetch->ids) {
    const Tensor& tensor = wants_.graph->tensor(ids.tensor);
    const Box region = at_micro_batch(
        *wants_.program, ids.region, micro_batch_dim_of(*wants_.program, tensor), what.micro_batch);
    std::vector<int64_t> values(static_cast<size_t>(region.volume()));
    if (tensor.dtype != DType::kInt64)
      return fault(fmt::format("cache: expected ids of int64, found {}", dtype_name(tensor.dtype)));
    wants_.ahead(first_step_ + turn / count, tensor, region,
                 Array::contiguous(reinterpret_cast<std::byte*>(values.data()), tensor.dtype,
                                   region.shape()));
    all.insert(all.end(), values.begin(), values.end());
  }
  return rows_of(std::move(all));
}

// Tells the cache's index the ids of all turns up to the end of the window that follows `turn`, the
// turn that begins.
Status CachedRows::announce(int64_t turn) {
  if (!wants_.ahead || !index_->policy().window || cache().window == 0) return {};
  const int64_t end = turn + cache().window * static_cast<int64_t>(turns_.size()) + 1;
  for (; announced_ < end; ++announced_) {
    TESSERA_TRY(const std::vector<int64_t> ids, ids_of_turn(announced_));
    TESSERA_TRY_VOID(index_->announce(ids));
  }
  return {};
}

Status CachedRows::count_first() {
  if (std::exchange(counted_, true) || !wants_.ahead) return {};
  const int64_t end = cache().counted * static_cast<int64_t>(turns_.size());
  for (int64_t turn = 0; turn < end; ++turn) {
    TESSERA_TRY(const std::vector<int64_t> ids, ids_of_turn(turn));
    TESSERA_TRY_VOID(index_->count(ids));
  }
  return {};
}

// ---- batches

Result<std::unique_ptr<CachedRows::Open>> CachedRows::begin(std::vector<int64_t> ids, Whose whose,
                                                            int64_t step) {
  if (first_step_ < 0) first_step_ = step;
  TESSERA_TRY_VOID(count_first());
  const bool in_turn = whose == Whose::kInTurn;
  if (in_turn) TESSERA_TRY_VOID(announce(begun_++));
  auto open = std::make_unique<Open>();
  open->step = step;
  open->ids = std::move(ids);
  open->whose = whose;
  const CacheCounts before = index_->counts();
  TESSERA_TRY_VOID(index_->begin(open->ids, open->batch, in_turn));
  const CacheCounts& after = index_->counts();
  if (whose != Whose::kEvaluation) {
    counts_.rows_in += after.rows_in - before.rows_in;
    counts_.rows_out += after.rows_out - before.rows_out;
    counts_.overflow_rows += after.overflow_rows - before.overflow_rows;
  }
  if (in_turn) {
    ++counts_.batches;
    counts_.lookups += after.lookups - before.lookups;
    counts_.lookup_misses += after.lookup_misses - before.lookup_misses;
    counts_.rows += after.rows - before.rows;
    counts_.row_misses += after.row_misses - before.row_misses;
  }
  open->job = [this, batch = &open->batch] { return move(*batch); };
  return open;
}

Result<const Copier::Job*> CachedRows::fetch(int handle, int64_t step, std::vector<int64_t> ids,
                                             Whose whose) {
  std::vector<int64_t> rows = rows_of(std::move(ids));
  std::unique_ptr<Open>& open = open_[handle];
  TESSERA_CHECK(open == nullptr, "the rows of fetch #{} are not released", handle);
  const auto ahead = std::find_if(next_.begin(), next_.end(), [&](const auto& one) {
    return one->step == step && one->ids == rows;
  });
  const bool in_turn = whose == Whose::kInTurn;
  if (in_turn && ahead != next_.end()) {
    open = std::move(*ahead);
    next_.erase(ahead);
    return nullptr;
  }
  if (in_turn && next_.size() >= turns_.size())
    TESSERA_TRY_VOID(drop_next());  // no later fetch can take the oldest one over
  TESSERA_TRY(open, begin(std::move(rows), whose, step));
  return &open->job;
}

Result<const Copier::Job*> CachedRows::fetch_ahead(int64_t step, std::vector<int64_t> ids) {
  TESSERA_TRY(auto open, begin(rows_of(std::move(ids)), Whose::kInTurn, step));
  next_.push_back(std::move(open));
  return &next_.back()->job;
}

Status CachedRows::drop_next() {
  if (!next_.empty()) TESSERA_TRY_VOID(wants_.settle());
  for (; !next_.empty(); next_.pop_front()) TESSERA_TRY_VOID(finish(*next_.front(), false));
  return {};
}

bool CachedRows::in_turn(int handle) const {
  return std::any_of(turns_.begin(), turns_.end(),
                     [&](const Turn& turn) { return turn.fetch->handle == handle; });
}

Status CachedRows::finish(const Open& open, bool changed) {
  const int64_t before = index_->counts().rows_out;
  const std::vector<RowMove> back = index_->finish(open.batch, changed);
  if (open.whose != Whose::kEvaluation) counts_.rows_out += index_->counts().rows_out - before;
  return rest_.write_back(back);
}

Status CachedRows::release(int handle, bool changed) {
  const auto found = open_.find(handle);
  TESSERA_CHECK(found != open_.end() && found->second != nullptr, "fetch #{} is not open", handle);
  const std::unique_ptr<Open> open = std::move(found->second);
  open_.erase(found);
  return finish(*open, changed);
}

Status CachedRows::release_all() {
  while (!open_.empty()) TESSERA_TRY_VOID(release(open_.begin()->first, false));
  return {};
}

// ---- rows

Status CachedRows::move(const CacheBatch& batch) {
  TESSERA_TRY_VOID(rest_.write_back(batch.out));
  return rest_.read_in(batch.in);
}

kernels::Kernel CachedRows::places_of(const Array& from, const Array& to) const {
  const kernels::Nest<2> nest({&from, &to}, from.shape.size());
  const DType dtype = from.dtype;
  TESSERA_CHECK(dtype == DType::kInt64 || dtype == DType::kInt32, "ids of {}", dtype_name(dtype));
  return [this, nest, dtype] {
    const Interval rows = cache().rows;
    const int64_t elsewhere = cache().places;
    nest.each([&](const std::array<std::byte*, 2>& at) {
      const int64_t id = dtype == DType::kInt64 ? *reinterpret_cast<const int64_t*>(at[0])
                                                : *reinterpret_cast<const int32_t*>(at[0]);
      int64_t place = id;
      if (id >= 0) {
        const int64_t row = id - first_ - rows.begin;
        place = row >= 0 && row < rows.size ? index_->place_of(row) : elsewhere;
      }
      if (dtype == DType::kInt64) {
        *reinterpret_cast<int64_t*>(at[1]) = place;
      } else {
        *reinterpret_cast<int32_t*>(at[1]) = static_cast<int32_t>(place);
      }
    });
  };
}

// ---- all rows

Status CachedRows::update_rest() { return rest_.write_back(index_->flush()); }

Status CachedRows::forget() {
  TESSERA_TRY_VOID(drop_next());
  index_->clear();
  return {};
}

std::byte* CachedRows::rest(BufferId held, bool to_be_written) {
  std::byte* memory = rest_.memory(held);
  if (memory == nullptr) return nullptr;
  Status status = update_rest();  // cannot fail, because the rows rest in memory
  if (status && to_be_written) status = forget();
  TESSERA_CHECK(status.has_value(), "{}", status.error().message);
  return memory;
}

Status CachedRows::read(BufferId held, std::byte* out) {
  TESSERA_TRY_VOID(update_rest());
  return rest_.read(held, out);
}

Status CachedRows::write(BufferId held, const std::byte* in) {
  TESSERA_TRY_VOID(update_rest());
  TESSERA_TRY_VOID(forget());
  return rest_.write(held, in);
}

}  // namespace tessera
