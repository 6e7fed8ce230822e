#include "tessera/program/rows/row_caches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"

namespace tessera {
namespace {

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

class RowHolding {
 public:
  RowHolding(Program& program, const Graph& graph, const ResolvedPlan& plan,
             ByBlock<std::vector<size_t>>& ordinals, int& next_handle)
      : program_(program),
        graph_(graph),
        plan_(plan),
        ordinals_(ordinals),
        next_handle_(next_handle) {}

  Status run() {
    TESSERA_TRY_VOID(find_caches());
    if (program_.caches.empty()) return {};
    for (const BlockRunStep& step : program_.schedule) {
      if (std::find(order_.begin(), order_.end(), step.block) == order_.end())
        order_.push_back(step.block);
    }
    TESSERA_TRY_VOID(find_uses());
    TESSERA_TRY_VOID(check_complete());
    for (const Use& use : uses_) cover(use);
    for (size_t c = 0; c < tables_.size() && !many(); ++c) {
      if (const int64_t fetches = fetches_of(static_cast<int>(c)); fetches > kMostOpen) {
        return error(tables_[c], fmt::format("expected at most {} fetches of its rows at a time, "
                                             "found {} as its ids are made in so many places",
                                             kMostOpen, fetches));
      }
    }
    make_buffers();
    for (const Fetch& fetch : fetches_) write(fetch);
    for (const BlockRef ref : order_) rewrite(ref);
    return {};
  }

 private:
  // A `Use` is a compute whose op names rows of a cache by ids.
  struct Use {
    BlockRef block;
    size_t at = 0;
    int cache = 0;
    std::vector<RowIds> ids;
    bool writes = false;
    When when = When::kAlways;
    OpId op;
  };
  struct Fetch {
    int cache = 0;
    std::vector<RowIds> ids;
    When when = When::kAlways;
    OpId cause;
    BlockRef block;
    size_t position = 0;   // the fetch goes before the instruction at this index of `block`
    size_t first_use = 0;  // index in `block`
    BlockRef last_block;
    size_t last_use = 0;
    OpId last_op;
    bool changed = false;
    bool from_data = true;  // whether all ids are inputs of the graph
  };
  // The most batches of a cache that may be open at a time (sparse/cache/cache_index.h).
  static constexpr int64_t kMostOpen = 6;
  struct Inserted {
    size_t position;
    Instruction instruction;
  };

  const Tensor& tensor(TensorId id) const { return graph_.tensor(id); }
  const TensorPlan& plan_of(TensorId id) const { return plan_.tensors[id.index()]; }
  tl::unexpected<Error> error(TensorId table, const std::string& message) const {
    const int entry = plan_of(table).tier_entry;
    const int line = entry < 0 ? 0 : plan_.plan.stores[static_cast<size_t>(entry)].line;
    return invalid_input(fmt::format("{}:{}: cache of tensor '{}': {}", plan_.plan.file, line,
                                     tensor(table).name, message));
  }

  // ---- which buffers
  Status find_caches() {
    std::map<TensorId, size_t> known;  // by table
    for (const Home& home : program_.homes) {
      const auto& cached = plan_of(home.tensor).cache;
      if (!cached || home.region.empty()) continue;
      const Tensor& own = tensor(home.tensor);
      const bool state = own.role == Role::kOptimizerState && own.of.valid();
      const TensorId table = state ? own.of : own.id;
      if (own.dims.empty()) return error(own.id, "expected a tensor with rows, found no dims");
      const auto& whose = plan_of(table).cache;
      if (!whose || whose->rule != cached->rule || whose->rest != cached->rest) {
        return error(own.id, fmt::format("expected the tier and the cache of its table '{}', as a "
                                         "row travels with its states",
                                         tensor(table).name));
      }
      const auto [it, fresh] = known.try_emplace(table, program_.caches.size());
      if (fresh) {
        program_.caches.push_back({});
        tables_.push_back(table);
        program_.caches.back().rows = home.region.dims[0];
      }
      RowCache& cache = program_.caches[it->second];
      if (cache.rows != home.region.dims[0]) {
        return error(own.id, "expected its rows to be cut as those of its table");
      }
      cache.held.insert(home.tensor == table ? cache.held.begin() : cache.held.end(), home.buffer);
      cache_of_[home.buffer] = static_cast<int>(it->second);
    }
    for (size_t c = 0; c < program_.caches.size(); ++c) {
      RowCache& cache = program_.caches[c];
      const RowCacheRule& rule = rule_of(static_cast<int>(c));
      const auto rows = static_cast<double>(cache.rows.size);
      const double slots = rule.slots < 1 ? std::ceil(rule.slots * rows) : rule.slots;
      cache.slots = std::min(cache.rows.size, std::max<int64_t>(1, std::llround(slots)));
      cache.policy = rule.policy;
      cache.window = rule.window;
      cache.counted = rule.counted;
    }
    return {};
  }
  const RowCacheRule& rule_of(int cache) const {
    return plan_of(tables_[static_cast<size_t>(cache)]).cache->rule;
  }
  int cache_at(const View& view) const {
    const auto found = cache_of_.find(view.buffer);
    return found == cache_of_.end() ? -1 : found->second;
  }
  bool whole(const View& view) const {
    return view.box == Box::whole(program_.buffer(view.buffer).shape);
  }

  // ---- which ops
  Status find_uses() {
    for (const BlockRef ref : order_) {
      const std::vector<Instruction>& block = program_.block(ref);
      for (size_t i = 0; i < block.size(); ++i) {
        if (const auto* compute = std::get_if<Compute>(&block[i].body)) {
          TESSERA_TRY_VOID(find_use(ref, i, block[i].when, *compute));
          continue;
        }
        Status status;
        accesses(block[i], [&](const Access& access) {
          if (access.view == nullptr || cache_at(*access.view) < 0) return;
          const TensorId table = program_.buffer(access.buffer).tensor;
          const std::string whom =
              block[i].cause.valid() ? " for op '" + graph_.op(block[i].cause).path + "'" : "";
          status = error(table, fmt::format("expected that ranks use the rows that they hold, "
                                            "found that the whole tensor is moved{}",
                                            whom));
        });
        TESSERA_TRY_VOID(std::move(status));
      }
    }
    return {};
  }

  Status find_use(BlockRef ref, size_t at, When when, const Compute& compute) {
    const Op& op = graph_.op(compute.op);
    Use use{ref, at, -1, {}, false, when, compute.op};
    std::set<BufferId> named;
    const auto needs_all = [&](TensorId table) {
      return error(table, fmt::format("expected ops that name rows by ids (a look-up, an optimizer "
                                      "that updates by rows), found op '{}' ({}), which needs all "
                                      "rows",
                                      op.path, op.kind));
    };
    bool by_rows = false;
    for (size_t i = 0; i < compute.inputs.size(); ++i) {
      const int cache = cache_at(compute.inputs[i]);
      by_rows = by_rows || (cache >= 0 && !reads_sizes_alone(op, i));
      if (cache < 0 || reads_sizes_alone(op, i)) continue;
      if (!touches_rows(op, i) || !whole(compute.inputs[i])) return needs_all(op.inputs[i]);
      if (use.cache >= 0 && use.cache != cache)
        return error(op.inputs[i], "op '" + op.path + "' reads rows of two tables");
      use.cache = cache;
      named.insert(compute.inputs[i].buffer);
    }
    for (size_t i = 0; by_rows && i < compute.inputs.size(); ++i) {
      if (touches_rows(op, i) && cache_at(compute.inputs[i]) < 0) {
        return error(tables_[static_cast<size_t>(use.cache)],
                     fmt::format("expected the same cache for '{}', as a row travels with its "
                                 "states (tensors = \"{{,optimizer.*.}}{}\")",
                                 tensor(op.inputs[i]).name,
                                 tensor(tables_[static_cast<size_t>(use.cache)]).name));
      }
    }
    for (size_t o = 0; o < compute.outputs.size(); ++o) {
      const View& view = compute.outputs[o].view;
      if (cache_at(view) < 0) continue;
      const TensorId old = tensor(op.outputs[o]).update_of;
      if (!named.contains(view.buffer) || !old.valid() || !whole(view))
        return needs_all(program_.buffer(view.buffer).tensor);
      use.writes = true;
    }
    if (use.cache < 0) return {};
    // If an update reads the table's rows but does not write them in place, the whole table is
    // needed, because the new values are brought to the table as a whole.
    const bool updates = op.phase == Phase::kUpdate && !use.writes;
    if (updates) return needs_all(tables_[static_cast<size_t>(use.cache)]);
    for (const size_t i : ids_of_rows(op)) {
      use.ids.push_back({op.inputs[i], project(op.annotation, op.annotation.inputs[i], compute.box),
                         compute.inputs[i]});
    }
    uses_.push_back(std::move(use));
    return {};
  }

  Status check_complete() const {
    std::set<int> used;
    for (const Use& use : uses_) used.insert(use.cache);
    for (size_t c = 0; c < tables_.size(); ++c) {
      if (!used.contains(static_cast<int>(c)))
        return error(tables_[c], "expected an op that names its rows by ids, found none");
    }
    return {};
  }

  // ---- when rows come and go
  bool many() const { return program_.micro_batches > 1; }
  // Returns whether the rows that the fetch brings are still on the device at the use.
  bool reaches(const Fetch& fetch, const Use& use) const {
    return fetch.cache == use.cache && fetch.when == use.when &&
           (!many() || fetch.block == use.block);
  }
  static bool names(const Fetch& fetch, const RowIds& ids) {
    return std::any_of(fetch.ids.begin(), fetch.ids.end(), [&](const RowIds& own) {
      return own.tensor == ids.tensor && own.region.contains(ids.region);
    });
  }

  // Returns the position in the block from which on the ids are in the buffer: after the last
  // instruction before `use` that writes the buffer, or after the wait for that instruction.
  size_t there(BlockRef ref, size_t use, BufferId buffer) const {
    const std::vector<Instruction>& block = program_.block(ref);
    const std::set<int>& handles = writers(buffer);
    size_t position = 0;
    for (size_t i = 0; i < use; ++i) {
      const auto* wait = std::get_if<Wait>(&block[i].body);
      bool here = wait != nullptr && handles.contains(wait->handle);
      accesses(block[i], [&](const Access& access) {
        here = here || (access.buffer == buffer && access.view != nullptr && writes(access.mode));
      });
      if (here) position = i + 1;
    }
    return position;
  }
  // Returns the handles of all instructions that write the buffer while others run.
  const std::set<int>& writers(BufferId buffer) const {
    const auto [it, fresh] = writers_.try_emplace(buffer);
    if (!fresh) return it->second;
    for (const auto& [ref, block] : program_.blocks) {
      for (const Instruction& instruction : block) {
        const int handle = handle_of(instruction);
        if (handle < 0) continue;
        accesses(instruction, [&](const Access& access) {
          if (access.buffer == buffer && writes(access.mode)) it->second.insert(handle);
        });
      }
    }
    return it->second;
  }
  // Moves the load of the ids to the beginning of the block, so that the rows can be fetched while
  // the instructions before the look-up run. Returns false if the block does not load the ids.
  bool hoist(BlockRef ref, size_t use, BufferId buffer) {
    const std::vector<Instruction>& block = program_.block(ref);
    std::optional<size_t> load;
    for (size_t i = 0; i < use; ++i) {
      bool written = false;
      accesses(block[i], [&](const Access& access) {
        written = written || (access.buffer == buffer && access.view != nullptr);
      });
      if (!written) continue;
      if (load || !std::holds_alternative<Load>(block[i].body) || block[i].when != When::kAlways)
        return load.has_value() && hoisted_[ref].contains(*load);
      load = i;
    }
    if (load) hoisted_[ref].insert(*load);
    return load.has_value();
  }

  void cover(const Use& use) {
    Fetch made{use.cache, {},        use.when, use.op, use.block,  0,
               use.at,    use.block, use.at,   use.op, use.writes, true};
    Fetch* open = nullptr;  // a fetch at the beginning of this block, before all uses
    for (const RowIds& ids : use.ids) {
      bool found = false;
      for (Fetch& fetch : fetches_) {
        if (!reaches(fetch, use)) continue;
        if (fetch.block == use.block && fetch.position == 0 && fetch.from_data) open = &fetch;
        if (!names(fetch, ids)) continue;
        found = true;
        last_use(fetch, use);
      }
      if (found) continue;
      const bool loaded =
          ids.view && hoist(use.block, use.at, ids.view->buffer) && use.when == When::kAlways;
      const bool input = !tensor(ids.tensor).producer.valid();
      if (loaded && input && open != nullptr) {  // several look-ups of one table share one fetch
        open->ids.push_back(ids);
        last_use(*open, use);
        continue;
      }
      if (!loaded)
        made.position = std::max(made.position, there(use.block, use.at, ids.view->buffer));
      made.from_data = made.from_data && input;
      made.ids.push_back(ids);
    }
    if (!made.ids.empty()) fetches_.push_back(std::move(made));
  }
  static void last_use(Fetch& fetch, const Use& use) {
    fetch.last_block = use.block;
    fetch.last_use = use.at;
    fetch.last_op = use.op;
    fetch.changed = fetch.changed || use.writes;
  }

  // ---- memory
  static int64_t ids_in(const Fetch& fetch) {
    int64_t count = 0;
    for (const RowIds& ids : fetch.ids) count += ids.region.volume();
    return count;
  }
  int64_t fetches_of(int cache) const {
    return std::count_if(fetches_.begin(), fetches_.end(),
                         [&](const Fetch& fetch) { return fetch.cache == cache; });
  }
  bool ahead(const Fetch& fetch) const {
    return rule_of(fetch.cache).prefetch && !many() && fetch.from_data &&
           2 * fetches_of(fetch.cache) <= kMostOpen;
  }

  // Returns the largest number of rows of all batches of the cache that are open at the same time.
  // If the cache has as many slots, each row finds a slot; else each row may need a place after the
  // slots.
  int64_t most_open(int cache) const {
    std::map<BlockRef, int64_t> open;
    for (const Fetch& fetch : fetches_) {
      if (fetch.cache != cache) continue;
      open[many() ? fetch.block : BlockRef()] += ids_in(fetch) * (ahead(fetch) ? 2 : 1);
    }
    int64_t most = 0;
    for (const auto& [block, ids] : open) most = std::max(most, ids);
    return std::min(most, program_.caches[static_cast<size_t>(cache)].rows.size);
  }

  BufferId add_buffer(Buffer buffer) {
    buffer.id = BufferId(program_.buffers.size());
    buffer.lifetime = Lifetime::kPersistent;
    program_.buffers.push_back(std::move(buffer));
    return program_.buffers.back().id;
  }

  void make_buffers() {
    for (size_t c = 0; c < program_.caches.size(); ++c) {
      RowCache& cache = program_.caches[c];
      const int64_t open = most_open(static_cast<int>(c));
      cache.places = cache.slots + (cache.slots < open ? open : 0);
      for (const BufferId held : cache.held) {
        program_.buffers[held.index()].places = cache.places;
        Buffer rest = program_.buffer(held);
        rest.name += "@rest";
        rest.tier = plan_of(tables_[c]).cache->rest;
        rest.places = 0;
        cache.rests.push_back(add_buffer(std::move(rest)));
      }
      Buffer index;
      index.name = tensor(tables_[c]).name + "@index";
      index.tensor = tables_[c];
      index.shape = {cache.rows.size + 2 * cache.slots};
      index.dtype = DType::kInt32;
      index.tier = Tier::kHost;
      cache.index = add_buffer(std::move(index));
    }
  }

  // ---- instructions
  void insert(BlockRef ref, size_t position, Instruction instruction) {
    inserted_[ref].push_back({position, std::move(instruction)});
  }

  // Returns the average number of rows that a run of the fetch moves to the device. Rows that an
  // earlier fetch has brought and that are still in slots do not move again.
  int64_t expected(const Fetch& fetch) const {
    const RowCache& cache = program_.caches[static_cast<size_t>(fetch.cache)];
    const RowCacheRule& rule = rule_of(fetch.cache);
    const Tensor& table = tensor(tables_[static_cast<size_t>(fetch.cache)]);
    const double share =
        static_cast<double>(cache.rows.size) / static_cast<double>(table.dims[0].size);
    const double draws = static_cast<double>(ids_in(fetch)) * share;
    const auto behind = [&](int64_t first) {
      return expected_rows_behind(first, cache.rows.size, draws, rule.zipf);
    };
    if (fetch.from_data) return std::llround(behind(cache.slots));
    return std::llround(std::max(0.0, behind(0) - static_cast<double>(cache.slots)));
  }

  void write(const Fetch& fetch) {
    const int64_t rows = expected(fetch);
    FetchRows body{next_handle_++, fetch.cache, fetch.ids, false, 0, 0};
    const int handle = body.handle;
    const auto expect = [&](FetchRows& of) {
      of.expected_in = rows;
      of.expected_out = fetch.changed ? rows : 0;
    };
    if (!ahead(fetch)) expect(body);
    insert(fetch.block, fetch.position, {std::move(body), fetch.when, fetch.cause});
    insert(fetch.block, fetch.first_use, {Wait{handle, 0}, fetch.when, fetch.cause});
    if (ahead(fetch)) {
      FetchRows next{next_handle_++, fetch.cache, fetch.ids, true, 0, 0};
      for (RowIds& ids : next.ids) ids.view.reset();
      expect(next);
      const int later = next.handle;
      insert(fetch.block, fetch.first_use, {std::move(next), fetch.when, fetch.cause});
      const BlockRef end = order_.back();
      insert(end, program_.block(end).size(), {Wait{later, 0}, When::kAlways, fetch.cause});
    }
    insert(fetch.last_block, fetch.last_use + 1,
           {ReleaseRows{handle, fetch.changed}, fetch.when, fetch.last_op});
  }

  void rewrite(BlockRef ref) {
    const auto inserted = inserted_.find(ref);
    if (inserted == inserted_.end() && hoisted_[ref].empty()) return;
    std::vector<Instruction>& block = program_.blocks[ref];
    std::vector<size_t>& ordinals = ordinals_[ref];
    ordinals.resize(block.size(), 0);
    std::vector<Inserted> all =
        inserted == inserted_.end() ? std::vector<Inserted>() : std::move(inserted->second);
    // A release is inserted after an op, everything else before an op. So at the same position
    // releases come first.
    std::stable_sort(all.begin(), all.end(), [](const Inserted& a, const Inserted& b) {
      const auto key = [](const Inserted& one) {
        return std::pair(one.position, !std::holds_alternative<ReleaseRows>(one.instruction.body));
      };
      return key(a) < key(b);
    });
    std::vector<Instruction> out;
    std::vector<size_t> at;
    const std::set<size_t>& hoisted = hoisted_[ref];
    const size_t first = ordinals.empty() ? 0 : ordinals.front();
    for (const size_t load : hoisted) {
      out.push_back(block[load]);
      at.push_back(first);
    }
    auto next = all.begin();
    for (size_t i = 0; i <= block.size(); ++i) {
      const size_t ordinal = block.empty() ? 0 : ordinals[std::min(i, block.size() - 1)];
      for (; next != all.end() && next->position == i; ++next) {
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

  Program& program_;
  const Graph& graph_;
  const ResolvedPlan& plan_;
  ByBlock<std::vector<size_t>>& ordinals_;
  int& next_handle_;
  std::vector<BlockRef> order_;   // blocks in the order of their first runs
  std::vector<TensorId> tables_;  // by cache
  std::map<BufferId, int> cache_of_;
  std::vector<Use> uses_;
  std::vector<Fetch> fetches_;
  ByBlock<std::vector<Inserted>> inserted_;
  ByBlock<std::set<size_t>> hoisted_;  // loads, by their old positions
  mutable std::map<BufferId, std::set<int>> writers_;
};

}  // namespace

Status hold_by_rows(Program& program, const Graph& graph, const ResolvedPlan& plan,
                    ByBlock<std::vector<size_t>>& ordinals, int& next_handle) {
  return RowHolding(program, graph, plan, ordinals, next_handle).run();
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
