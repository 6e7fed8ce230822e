#include "tessera/program/rows/row_caches.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tessera/program/rows/row_fetches.h"

namespace tessera {
namespace {

int64_t ids_in(const RowFetch& fetch) {
  int64_t count = 0;
  for (const RowIds& ids : fetch.ids) count += ids.region.volume();
  return count;
}

// Returns the largest number of rows of all batches of the cache that are open at the same time.
// If the cache has as many slots, each row finds a slot; else each row may need a place after the
// slots.
int64_t most_open(const RowTables& t, const RowFetches& fetches, int cache) {
  std::map<BlockRef, int64_t> open;
  for (const RowFetch& fetch : fetches.all) {
    if (fetch.cache != cache) continue;
    open[t.many() ? fetch.block : BlockRef()] += ids_in(fetch) * (fetch.ahead ? 2 : 1);
  }
  int64_t most = 0;
  for (const auto& [block, ids] : open) most = std::max(most, ids);
  return std::min(most, t.program.caches[static_cast<size_t>(cache)].rows.size);
}

BufferId add_buffer(Program& program, Buffer buffer) {
  buffer.id = BufferId(program.buffers.size());
  buffer.lifetime = Lifetime::kPersistent;
  program.buffers.push_back(std::move(buffer));
  return program.buffers.back().id;
}

void make_buffers(const RowTables& t, const RowFetches& fetches) {
  for (size_t c = 0; c < t.program.caches.size(); ++c) {
    RowCache& cache = t.program.caches[c];
    const int64_t open = most_open(t, fetches, static_cast<int>(c));
    cache.places = cache.slots + (cache.slots < open ? open : 0);
    for (const BufferId held : cache.held) {
      t.program.buffers[held.index()].places = cache.places;
      Buffer rest = t.program.buffer(held);
      rest.name += "@rest";
      rest.tier = t.plan_of(t.tables[c]).cache->rest;
      rest.places = 0;
      cache.rests.push_back(add_buffer(t.program, std::move(rest)));
    }
    Buffer index;
    index.name = t.tensor(t.tables[c]).name + "@index";
    index.tensor = t.tables[c];
    index.shape = {cache.rows.size + 2 * cache.slots};
    index.dtype = DType::kInt32;
    index.tier = Tier::kHost;
    cache.index = add_buffer(t.program, std::move(index));
  }
}

struct Inserted {
  size_t position;  // in the block, before the instruction that is there
  Instruction instruction;
};

// Returns the average number of rows that a run of the fetch moves to the device. Rows that an
// earlier fetch has brought and that are still in slots do not move again.
int64_t expected(const RowTables& t, const RowFetch& fetch) {
  const RowCache& cache = t.program.caches[static_cast<size_t>(fetch.cache)];
  const RowCacheRule& rule = t.rule_of(fetch.cache);
  const Tensor& table = t.tensor(t.tables[static_cast<size_t>(fetch.cache)]);
  const double share =
      static_cast<double>(cache.rows.size) / static_cast<double>(table.dims[0].size);
  const double draws = static_cast<double>(ids_in(fetch)) * share;
  const auto behind = [&](int64_t first) {
    return expected_rows_behind(first, cache.rows.size, draws, rule.zipf);
  };
  if (fetch.from_data) return std::llround(behind(cache.slots));
  return std::llround(std::max(0.0, behind(0) - static_cast<double>(cache.slots)));
}

void write(const RowTables& t, const RowFetch& fetch, int& next_handle,
           ByBlock<std::vector<Inserted>>& inserted) {
  const auto insert = [&](BlockRef ref, size_t position, Instruction instruction) {
    inserted[ref].push_back({position, std::move(instruction)});
  };
  const int64_t in = expected(t, fetch), out = fetch.changed ? in : 0;
  const int handle = next_handle++;
  // The fetch of the step before has brought the rows if it was ahead.
  FetchRows body{handle, fetch.cache,          fetch.ids,
                 false,  fetch.ahead ? 0 : in, fetch.ahead ? 0 : out};
  insert(fetch.block, fetch.position, {std::move(body), fetch.when, fetch.cause});
  insert(fetch.block, fetch.first_use, {Wait{handle, 0}, fetch.when, fetch.cause});
  if (fetch.ahead) {
    FetchRows next{next_handle++, fetch.cache, fetch.ids, true, in, out};
    for (RowIds& ids : next.ids) ids.view.reset();
    const int later = next.handle;
    insert(fetch.block, fetch.first_use, {std::move(next), fetch.when, fetch.cause});
    const BlockRef end = t.order.back();
    insert(end, t.program.block(end).size(), {Wait{later, 0}, When::kAlways, fetch.cause});
  }
  insert(fetch.last_block, fetch.last_use + 1,
         {ReleaseRows{handle, fetch.changed}, fetch.when, fetch.last_op});
}

// Writes the block anew: first the loads at the positions `hoisted`, then the rest with `inserted`.
void rewrite(std::vector<Instruction>& block, std::vector<size_t>& ordinals,
             std::vector<Inserted> inserted, const std::set<size_t>& hoisted) {
  ordinals.resize(block.size(), 0);
  // A release is inserted after an op, everything else before an op. So at the same position
  // releases come first.
  std::ranges::stable_sort(inserted, {}, [](const Inserted& one) {
    return std::pair(one.position, !std::holds_alternative<ReleaseRows>(one.instruction.body));
  });
  std::vector<Instruction> out;
  std::vector<size_t> at;
  const size_t first = ordinals.empty() ? 0 : ordinals.front();
  for (const size_t load : hoisted) {
    out.push_back(block[load]);
    at.push_back(first);
  }
  auto next = inserted.begin();
  for (size_t i = 0; i <= block.size(); ++i) {
    const size_t ordinal = block.empty() ? 0 : ordinals[std::min(i, block.size() - 1)];
    for (; next != inserted.end() && next->position == i; ++next) {
      out.push_back(std::move(next->instruction));
      at.push_back(ordinal);
    }
    if (i == block.size() || hoisted.contains(i)) continue;
    out.push_back(std::move(block[i]));
    at.push_back(ordinals[i]);
  }
  block = std::move(out);
  ordinals = std::move(at);
}

// Calls visit(first, count, weight) for groups of the ranks 0 to rows - 1 of Zipf's law, where
// `weight` is that of one rank. The first ranks are in groups of one; later groups are larger, with
// weights that differ by some thousandths.
template <class Visit>
void each_rank(int64_t rows, double exponent, const Visit& visit) {
  constexpr int64_t kSingle = 512, kPart = 256;
  for (int64_t begin = 0; begin < rows;) {
    const int64_t size = begin < kSingle ? 1 : std::min(rows - begin, begin / kPart);
    const double middle = static_cast<double>(begin) + 0.5 * static_cast<double>(size + 1);
    visit(begin, size, std::pow(middle, -exponent));
    begin += size;
  }
}

}  // namespace

Status hold_by_rows(Program& program, const Graph& graph, const ResolvedPlan& plan,
                    ByBlock<std::vector<size_t>>& ordinals, int& next_handle) {
  RowTables t{program, graph, plan};
  TESSERA_TRY_VOID(find_caches(t));
  if (program.caches.empty()) return {};
  for (const BlockRunStep& step : program.schedule) {
    if (std::find(t.order.begin(), t.order.end(), step.block) == t.order.end())
      t.order.push_back(step.block);
  }
  TESSERA_TRY(const auto uses, find_uses(t));
  TESSERA_TRY(RowFetches fetches, cover(t, uses));
  make_buffers(t, fetches);
  ByBlock<std::vector<Inserted>> inserted;
  for (const RowFetch& fetch : fetches.all) write(t, fetch, next_handle, inserted);
  for (const BlockRef ref : t.order) {
    std::set<size_t>& hoisted = fetches.hoisted[ref];
    if (inserted[ref].empty() && hoisted.empty()) continue;
    rewrite(program.blocks[ref], ordinals[ref], std::move(inserted[ref]), hoisted);
  }
  return {};
}

double expected_rows_behind(int64_t first, int64_t rows, double draws, double exponent) {
  double all = 0;
  each_rank(rows, exponent, [&](int64_t, int64_t count, double weight) {
    all += static_cast<double>(count) * weight;
  });
  double found = 0;
  each_rank(rows, exponent, [&](int64_t begin, int64_t count, double weight) {
    const int64_t behind = std::min(count, begin + count - first);
    if (behind <= 0) return;
    const double missed = std::exp(draws * std::log1p(-std::min(weight / all, 1 - 1e-16)));
    found += static_cast<double>(behind) * (1 - missed);
  });
  return found;
}

}  // namespace tessera
