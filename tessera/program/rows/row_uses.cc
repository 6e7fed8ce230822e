#include "tessera/program/rows/row_uses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"

namespace tessera {

tl::unexpected<Error> RowTables::error(TensorId table, const std::string& message) const {
  const int entry = plan_of(table).tier_entry;
  const int line = entry < 0 ? 0 : plan.plan.stores[static_cast<size_t>(entry)].line;
  return invalid_input(fmt::format("{}:{}: cache of tensor '{}': {}", plan.plan.file, line,
                                   tensor(table).name, message));
}

Status find_caches(RowTables& t) {
  std::map<TensorId, size_t> known;  // by table
  for (const Home& home : t.program.homes) {
    const auto& cached = t.plan_of(home.tensor).cache;
    if (!cached || home.region.empty()) continue;
    const Tensor& own = t.tensor(home.tensor);
    const bool state = own.role == Role::kOptimizerState && own.of.valid();
    const TensorId table = state ? own.of : own.id;
    if (own.dims.empty()) return t.error(own.id, "expected a tensor with rows, found no dims");
    const auto& whose = t.plan_of(table).cache;
    if (!whose || whose->rule != cached->rule || whose->rest != cached->rest) {
      return t.error(own.id, fmt::format("expected the tier and the cache of its table '{}', as a "
                                         "row travels with its states",
                                         t.tensor(table).name));
    }
    const auto [it, fresh] = known.try_emplace(table, t.program.caches.size());
    if (fresh) {
      t.program.caches.push_back({});
      t.tables.push_back(table);
      t.program.caches.back().rows = home.region.dims[0];
    }
    RowCache& cache = t.program.caches[it->second];
    if (cache.rows != home.region.dims[0]) {
      return t.error(own.id, "expected its rows to be cut as those of its table");
    }
    cache.held.insert(home.tensor == table ? cache.held.begin() : cache.held.end(), home.buffer);
    t.cache_of[home.buffer] = static_cast<int>(it->second);
  }
  for (size_t c = 0; c < t.program.caches.size(); ++c) {
    RowCache& cache = t.program.caches[c];
    const RowCacheRule& rule = t.rule_of(static_cast<int>(c));
    const auto rows = static_cast<double>(cache.rows.size);
    const double slots = rule.slots < 1 ? std::ceil(rule.slots * rows) : rule.slots;
    cache.slots = std::min(cache.rows.size, std::max<int64_t>(1, std::llround(slots)));
    cache.policy = rule.policy;
    cache.window = rule.window;
    cache.counted = rule.counted;
  }
  return {};
}

namespace {

int cache_at(const RowTables& t, const View& view) {
  const auto found = t.cache_of.find(view.buffer);
  return found == t.cache_of.end() ? -1 : found->second;
}
bool whole(const RowTables& t, const View& view) {
  return view.box == Box::whole(t.program.buffer(view.buffer).shape);
}

Status find_use(const RowTables& t, BlockRef ref, size_t at, When when, const Compute& compute,
                std::vector<RowUse>& uses) {
  const Op& op = t.graph.op(compute.op);
  RowUse use{ref, at, -1, {}, false, when, compute.op};
  std::set<BufferId> named;
  const auto needs_all = [&](TensorId table) {
    return t.error(table, fmt::format("expected ops that name rows by ids (a look-up, an optimizer "
                                      "that updates by rows), found op '{}' ({}), which needs all "
                                      "rows",
                                      op.path, op.kind));
  };
  bool by_rows = false;
  for (size_t i = 0; i < compute.inputs.size(); ++i) {
    const int cache = cache_at(t, compute.inputs[i]);
    by_rows = by_rows || (cache >= 0 && !reads_sizes_alone(op, i));
    if (cache < 0 || reads_sizes_alone(op, i)) continue;
    if (!touches_rows(op, i) || !whole(t, compute.inputs[i])) return needs_all(op.inputs[i]);
    if (use.cache >= 0 && use.cache != cache)
      return t.error(op.inputs[i], "op '" + op.path + "' reads rows of two tables");
    use.cache = cache;
    named.insert(compute.inputs[i].buffer);
  }
  for (size_t i = 0; by_rows && i < compute.inputs.size(); ++i) {
    if (touches_rows(op, i) && cache_at(t, compute.inputs[i]) < 0) {
      return t.error(t.tables[static_cast<size_t>(use.cache)],
                     fmt::format("expected the same cache for '{}', as a row travels with its "
                                 "states (tensors = \"{{,optimizer.*.}}{}\")",
                                 t.tensor(op.inputs[i]).name,
                                 t.tensor(t.tables[static_cast<size_t>(use.cache)]).name));
    }
  }
  for (size_t o = 0; o < compute.outputs.size(); ++o) {
    const View& view = compute.outputs[o].view;
    if (cache_at(t, view) < 0) continue;
    const TensorId old = t.tensor(op.outputs[o]).update_of;
    if (!named.contains(view.buffer) || !old.valid() || !whole(t, view))
      return needs_all(t.program.buffer(view.buffer).tensor);
    use.writes = true;
  }
  if (use.cache < 0) return {};
  // If an update reads the table's rows but does not write them in place, the whole table is
  // needed, because the new values are brought to the table as a whole.
  const bool updates = op.phase == Phase::kUpdate && !use.writes;
  if (updates) return needs_all(t.tables[static_cast<size_t>(use.cache)]);
  for (const size_t i : ids_of_rows(op)) {
    use.ids.push_back({op.inputs[i], project(op.annotation, op.annotation.inputs[i], compute.box),
                       compute.inputs[i]});
  }
  uses.push_back(std::move(use));
  return {};
}

}  // namespace

Result<std::vector<RowUse>> find_uses(const RowTables& t) {
  std::vector<RowUse> uses;
  for (const BlockRef ref : t.order) {
    const std::vector<Instruction>& block = t.program.block(ref);
    for (size_t i = 0; i < block.size(); ++i) {
      if (const auto* compute = std::get_if<Compute>(&block[i].body)) {
        TESSERA_TRY_VOID(find_use(t, ref, i, block[i].when, *compute, uses));
        continue;
      }
      Status status;
      accesses(block[i], [&](const Access& access) {
        if (access.view == nullptr || cache_at(t, *access.view) < 0) return;
        const TensorId table = t.program.buffer(access.buffer).tensor;
        const std::string whom =
            block[i].cause.valid() ? " for op '" + t.graph.op(block[i].cause).path + "'" : "";
        status = t.error(table, fmt::format("expected that ranks use the rows that they hold, "
                                            "found that the whole tensor is moved{}",
                                            whom));
      });
      TESSERA_TRY_VOID(std::move(status));
    }
  }
  for (size_t c = 0; c < t.tables.size(); ++c) {
    const bool used = std::any_of(uses.begin(), uses.end(), [&](const RowUse& use) {
      return static_cast<size_t>(use.cache) == c;
    });
    if (!used) return t.error(t.tables[c], "expected an op that names its rows by ids, found none");
  }
  return uses;
}

}  // namespace tessera
