#include "tessera/program/rows/row_fetches.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/program/instructions.h"

namespace tessera {
namespace {

// The most batches of a cache that may be open at a time (sparse/cache/cache_index.h).
constexpr int64_t kMostOpen = 6;

// Returns whether the rows that the fetch brings are still on the device at the use.
bool reaches(const RowTables& t, const RowFetch& fetch, const RowUse& use) {
  return fetch.cache == use.cache && fetch.when == use.when &&
         (!t.many() || fetch.block == use.block);
}
bool names(const RowFetch& fetch, const RowIds& ids) {
  return std::any_of(fetch.ids.begin(), fetch.ids.end(), [&](const RowIds& own) {
    return own.tensor == ids.tensor && own.region.contains(ids.region);
  });
}

// Returns the handles of all instructions that write the buffer while others run.
std::set<int> writers(const Program& program, BufferId buffer) {
  std::set<int> handles;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const int handle = handle_of(instruction);
      if (handle < 0) continue;
      accesses(instruction, [&](const Access& access) {
        if (access.buffer == buffer && writes(access.mode)) handles.insert(handle);
      });
    }
  }
  return handles;
}

// Returns the position in the block from which on the ids are in the buffer: after the last
// instruction before `use` that writes the buffer, or after the wait for that instruction.
size_t there(const Program& program, BlockRef ref, size_t use, BufferId buffer) {
  const std::vector<Instruction>& block = program.block(ref);
  const std::set<int> handles = writers(program, buffer);
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

// Moves the load of the ids to the beginning of the block, so that the rows can be fetched while
// the instructions before the look-up run. Returns false if the block does not load the ids.
bool hoist(const std::vector<Instruction>& block, size_t use, BufferId buffer,
           std::set<size_t>& hoisted) {
  std::optional<size_t> load;
  for (size_t i = 0; i < use; ++i) {
    bool written = false;
    accesses(block[i], [&](const Access& access) {
      written = written || (access.buffer == buffer && access.view != nullptr);
    });
    if (!written) continue;
    if (load || !std::holds_alternative<Load>(block[i].body) || block[i].when != When::kAlways)
      return load.has_value() && hoisted.contains(*load);
    load = i;
  }
  if (load) hoisted.insert(*load);
  return load.has_value();
}

void last_use(RowFetch& fetch, const RowUse& use) {
  fetch.last_block = use.block;
  fetch.last_use = use.at;
  fetch.last_op = use.op;
  fetch.changed = fetch.changed || use.writes;
}

void cover(const RowTables& t, const RowUse& use, RowFetches& out) {
  RowFetch made{use.cache, {},        use.when, use.op, use.block,  0,
                use.at,    use.block, use.at,   use.op, use.writes, true};
  RowFetch* open = nullptr;  // a fetch at the beginning of this block, before all uses
  for (const RowIds& ids : use.ids) {
    bool found = false;
    for (RowFetch& fetch : out.all) {
      if (!reaches(t, fetch, use)) continue;
      if (fetch.block == use.block && fetch.position == 0 && fetch.from_data) open = &fetch;
      if (!names(fetch, ids)) continue;
      found = true;
      last_use(fetch, use);
    }
    if (found) continue;
    const bool loaded =
        ids.view &&
        hoist(t.program.block(use.block), use.at, ids.view->buffer, out.hoisted[use.block]) &&
        use.when == When::kAlways;
    const bool input = !t.tensor(ids.tensor).producer.valid();
    if (loaded && input && open != nullptr) {  // several look-ups of one table share one fetch
      open->ids.push_back(ids);
      last_use(*open, use);
      continue;
    }
    if (!loaded) {
      made.position =
          std::max(made.position, there(t.program, use.block, use.at, ids.view->buffer));
    }
    made.from_data = made.from_data && input;
    made.ids.push_back(ids);
  }
  if (!made.ids.empty()) out.all.push_back(std::move(made));
}

}  // namespace

Result<RowFetches> cover(const RowTables& t, const std::vector<RowUse>& uses) {
  RowFetches out;
  for (const RowUse& use : uses) cover(t, use, out);
  std::vector<int64_t> counts(t.tables.size());
  for (const RowFetch& fetch : out.all) ++counts[static_cast<size_t>(fetch.cache)];
  for (size_t c = 0; c < counts.size() && !t.many(); ++c) {
    if (counts[c] <= kMostOpen) continue;
    return t.error(t.tables[c], fmt::format("expected at most {} fetches of its rows at a time, "
                                            "found {} as its ids are made in so many places",
                                            kMostOpen, counts[c]));
  }
  for (RowFetch& fetch : out.all) {
    fetch.ahead = t.rule_of(fetch.cache).prefetch && !t.many() && fetch.from_data &&
                  2 * counts[static_cast<size_t>(fetch.cache)] <= kMostOpen;
  }
  return out;
}

}  // namespace tessera
