#include "tessera/runtime/cached_rows/cached_tables.h"

#include <algorithm>
#include <utility>

#include "tessera/graph/ahead.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {

using kernels::Array;
using kernels::Kernel;

namespace {

int64_t load_id(const std::byte* at, DType dtype) {
  return dtype == DType::kInt64 ? *reinterpret_cast<const int64_t*>(at)
                                : *reinterpret_cast<const int32_t*>(at);
}

void append_ids(const Array& ids, std::vector<int64_t>& all) {
  const kernels::Nest<1> nest({&ids}, ids.shape.size());
  nest.each([&](const std::array<std::byte*, 1>& at) { all.push_back(load_id(at[0], ids.dtype)); });
}

}  // namespace

Status CachedTables::prepare(const Graph& graph, const Program& program,
                             const ExecutorOptions& options,
                             const std::function<std::byte*(BufferId)>& memory,
                             const std::function<Status()>& settle) {
  graph_ = &graph;
  program_ = &program;
  if (options.ahead) {  // an input of the next step is loaded for one step more
    ahead_ = [&graph, given = options.ahead](int64_t step, const Tensor& tensor, const Box& region,
                                             const Array& to) {
      const bool later = is_of_next_step(tensor);
      given(later ? step + 1 : step, later ? graph.tensor(tensor.of) : tensor, region, to);
    };
  }
  by_buffer_.assign(program.buffers.size(), -1);
  for (size_t c = 0; c < program.caches.size(); ++c) {
    const auto number = static_cast<int>(c);
    for (const BufferId held : program.caches[c].held) by_buffer_[held.index()] = number;
    TESSERA_TRY(auto made,
                CachedRows::make({&graph, &program, number, options.seed, memory, ahead_, settle}));
    caches_.push_back(std::move(made));
  }
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* fetch = std::get_if<FetchRows>(&instruction.body))
        by_fetch_[fetch->handle] = fetch->cache;
    }
  }
  return {};
}

CachedRows* CachedTables::rows_of(BufferId held) const {
  const int cache = by_buffer_[held.index()];
  return cache < 0 ? nullptr : caches_[static_cast<size_t>(cache)].get();
}

BufferId CachedTables::rest_of(BufferId buffer) const {
  const int cache = by_buffer_[buffer.index()];
  if (cache < 0) return buffer;
  const RowCache& of = program_->caches[static_cast<size_t>(cache)];
  const auto at = std::find(of.held.begin(), of.held.end(), buffer) - of.held.begin();
  return of.rests[static_cast<size_t>(at)];
}

int64_t CachedTables::disk_bytes(const Program& program) {
  int64_t bytes = program.arena_bytes[static_cast<size_t>(Tier::kDisk)];
  for (const RowCache& cache : program.caches) {
    for (const BufferId id : cache.rests) {
      const Buffer& rest = program.buffer(id);
      if (rest.tier == Tier::kDisk) bytes = std::min(bytes, rest.offset);
    }
  }
  return bytes;
}

std::vector<BufferId> CachedTables::beside_homes() const {
  std::vector<BufferId> out;
  for (const RowCache& cache : program_->caches) {
    out.insert(out.end(), cache.rests.begin(), cache.rests.end());
    out.push_back(cache.index);
  }
  return out;
}

Kernel CachedTables::name_places(const Op& op, const Compute& compute, kernels::KernelCall& call) {
  CachedRows* rows = nullptr;
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    CachedRows* of = rows_of(compute.inputs[i].buffer);
    if (of == nullptr || reads_sizes_alone(op, i)) continue;
    rows = of;
    call.inputs[i].shape[0] = of->places();
    Interval& dim = call.box.dims[static_cast<size_t>(row_dim(op, i))];
    if (dim.size > 0) dim = {0, of->places()};
  }
  if (rows == nullptr) return {};
  call.row_at = [rows](int64_t place) { return rows->row_at(place); };
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    if (rows_of(compute.outputs[o].view.buffer) == rows) call.outputs[o].shape[0] = rows->places();
  }
  std::vector<Kernel> all;
  for (const size_t i : ids_of_rows(op)) {
    Array& ids = call.inputs[i];
    int64_t bytes = dtype_bytes(ids.dtype);
    for (const int64_t size : ids.shape) bytes *= size;
    places_.push_back(std::make_unique<std::byte[]>(  // NOLINT(modernize-avoid-c-arrays)
        static_cast<size_t>(bytes)));
    place_bytes_ += bytes;
    const Array named = Array::contiguous(places_.back().get(), ids.dtype, ids.shape);
    all.push_back(rows->places_of(ids, named));
    ids = named;
  }
  return [all = std::move(all)] {
    for (const Kernel& one : all) one();
  };
}

// Returns the ids that the data gives in a later step.
std::vector<int64_t> CachedTables::next_ids(const RowIds& ids, int64_t step) const {
  const Tensor& tensor = graph_->tensor(ids.tensor);
  std::vector<std::byte> values(
      static_cast<size_t>(ids.region.volume() * dtype_bytes(tensor.dtype)));
  const Array to = Array::contiguous(values.data(), tensor.dtype, ids.region.shape());
  ahead_(step, tensor, ids.region, to);
  std::vector<int64_t> all;
  append_ids(to, all);
  return all;
}

Result<const Copier::Job*> CachedTables::fetch(const FetchRows& fetch, int64_t step,
                                               bool evaluating, const std::vector<Array>& ids) {
  CachedRows& rows = *caches_[static_cast<size_t>(fetch.cache)];
  std::vector<int64_t> all;
  if (fetch.ahead) {
    if (!ahead_) return nullptr;
    for (const RowIds& one : fetch.ids) {
      const std::vector<int64_t> some = next_ids(one, step + 1);
      all.insert(all.end(), some.begin(), some.end());
    }
    return rows.fetch_ahead(step + 1, std::move(all));
  }
  for (const Array& one : ids) append_ids(one, all);
  const auto whose = evaluating                   ? CachedRows::Whose::kEvaluation
                     : rows.in_turn(fetch.handle) ? CachedRows::Whose::kInTurn
                                                  : CachedRows::Whose::kMade;
  return rows.fetch(fetch.handle, step, std::move(all), whose);
}

Status CachedTables::release(const ReleaseRows& release) {
  const int cache = by_fetch_.at(release.fetch);
  return caches_[static_cast<size_t>(cache)]->release(release.fetch, release.changed);
}

Status CachedTables::end_evaluation() {
  for (const auto& cache : caches_) TESSERA_TRY_VOID(cache->release_all());
  return {};
}

std::vector<RowCacheReport> CachedTables::reports() const {
  std::vector<RowCacheReport> out;
  for (size_t c = 0; c < caches_.size(); ++c) {
    const RowCache& cache = program_->caches[c];
    const CachedRows& rows = *caches_[c];
    const sparse::CacheCounts& counts = rows.counts();
    out.push_back({program_->buffer(cache.held.front()).tensor, cache.policy, cache.rows.size,
                   cache.slots, rows.row_bytes(), counts.batches, counts.lookups,
                   counts.lookup_misses, counts.rows_in, counts.rows_out, counts.overflow_rows});
  }
  return out;
}

}  // namespace tessera
